"""Plain data against a pydantic model: the model of everything that is good, and what is wrong, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from innerloop.core.errors import did_you_mean
from innerloop.core.faults import not_utf8
from innerloop.experiment.recipe.problems import allowed, kind, likeliest, near, show, suggest, takes_inf
from innerloop.experiment.recipe.rules import WITHOUT_RULES

Model = TypeVar("Model", bound=BaseModel)
_LARGEST_WHOLE = 2**63 - 1
_LARGEST = 1e38  # more is no number in single precision


class Told(NamedTuple):
    """One problem."""

    key: str
    text: str
    near: tuple[str, ...] = ()


def checked(
    model: type[Model], fields: Mapping[str, FieldInfo], data: dict[str, Any], listing: str
) -> tuple[Model | None, list[Told]]:
    """The model of all good settings in ``data``, its rules not asked yet, and problems of the others."""
    _make_whole(data, fields)
    told = _not_finite(data, fields) + _out_of_bounds(data, fields)
    made, wrong = _validated(model, fields, data, listing)
    known = {each.key for each in told}
    told += [each for each in wrong if each.key not in known]
    if told:
        made, _ = _validated(model, fields, _without(data, {each.key for each in told}), listing)
    return made, told


def _validated(
    model: type[Model], fields: Mapping[str, FieldInfo], data: dict[str, Any], listing: str
) -> tuple[Model | None, list[Told]]:
    try:
        return model.model_validate(data, strict=True, context=WITHOUT_RULES), []
    except ValidationError as error:
        told: dict[str, Told] = {}
        for each in (_explain(item, fields, listing) for item in error.errors()):
            told.setdefault(each.text.partition(" must be ")[0], each)  # every kind of a union complains
        return None, list(told.values())


def _places(
    data: dict[str, Any], fields: Mapping[str, FieldInfo]
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Where the settings that ``data`` has stand in it: key, table, name in the table."""
    for key in fields:
        section, _, leaf = key.rpartition(".")
        table = data.get(section) if section else data
        if isinstance(table, dict) and leaf in table:
            yield key, table, leaf


def _make_whole(data: dict[str, Any], fields: Mapping[str, FieldInfo]) -> None:
    for key, table, leaf in _places(data, fields):
        value = table[leaf]
        if kind(fields[key])[0] is int and isinstance(value, float) and value.is_integer():
            table[leaf] = int(value)


def _not_finite(data: dict[str, Any], fields: Mapping[str, FieldInfo]) -> list[Told]:
    told = []
    for key, table, leaf in _places(data, fields):
        given = table[leaf] if isinstance(table[leaf], list) else [table[leaf]]
        bad = [v for v in given if isinstance(v, float) and not math.isfinite(v)]
        if takes_inf(fields[key]):
            bad = [v for v in bad if math.isnan(v)]
        if bad:
            wanted = allowed(fields[key]) if takes_inf(fields[key]) else "finite"
            told.append(Told(key, f"{key} must be {wanted}, not {bad[0]}"))
    return told


def _out_of_bounds(data: dict[str, Any], fields: Mapping[str, FieldInfo]) -> list[Told]:
    """Numbers that no computer holds in the way we use them, and text that no file can hold."""
    told = []
    for key, table, leaf in _places(data, fields):
        bad = [text for value in _leaves(table[leaf]) if (text := _impossible(value)) is not None]
        if bad:
            told.append(Told(key, f"{key} {bad[0]}"))
    return told


def _leaves(value: Any) -> Iterator[Any]:
    """Everything in nested lists and tables, also the names of what is in tables."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += [*item, *item.values()]
        elif isinstance(item, list):
            waiting += item
        else:
            yield item


def _impossible(value: Any) -> str | None:
    if isinstance(value, int) and abs(value) > _LARGEST_WHOLE:
        return f"must lie between -2^63 and 2^63, not {show(value)}"
    if isinstance(value, float) and _LARGEST < abs(value) < math.inf:
        return f"must lie between -{_LARGEST:g} and {_LARGEST:g}, not {show(value)}"
    if isinstance(value, str) and "\0" in value:
        return f"must be text without zero bytes, not {show(value)}"
    if isinstance(value, str) and not _is_unicode(value):
        return f"must be text in UTF-8: {not_utf8(value)}"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _explain(item: Any, fields: Mapping[str, FieldInfo], listing: str) -> Told:
    """One of pydantic's errors in our words."""
    place = [str(part) for part in item["loc"]]
    key = next((k for n in (2, 1) if (k := ".".join(place[:n])) in fields), ".".join(place))
    if item["type"] == "value_error":
        return Told("", str(item["ctx"]["error"]))
    if key in fields and (inner := _part_of_list(fields[key])) is not None:
        return _explain_part(item, key, inner)
    if item["type"] == "extra_forbidden":
        return Told(key, f"unknown setting '{key}'{suggest(key, fields, listing)}", tuple(near(key, fields)))
    if key not in fields:
        return Told(key, f"{key} must be a section of settings, not {show(item['input'])}")
    text = f"{key} must be {allowed(fields[key])}, not {show(item['input'])}"
    return Told(key, text + likeliest(item["input"], fields[key]))


def _part_of_list(field: FieldInfo) -> type[BaseModel] | None:
    """The model of which a setting takes a list."""
    core, _ = kind(field)
    part = get_args(core)[0] if get_origin(core) is list else None
    return part if isinstance(part, type) and issubclass(part, BaseModel) else None


def _explain_part(item: Any, key: str, part: type[BaseModel]) -> Told:
    """A problem inside one table of a list, such as ``tasks.mixture``."""
    place = list(item["loc"])
    number = next((i for i, step in enumerate(place) if isinstance(step, int)), None)
    if number is None:
        return Told(key, f"{key} must be a list of tables, not {show(item['input'])}")
    table, leaf = f"{key}[{place[number]}]", ".".join(str(step) for step in place[number + 1 :][:1])
    field = part.model_fields.get(leaf)
    if field is None and leaf:
        hint = did_you_mean(leaf, part.model_fields) or f": there are {', '.join(part.model_fields)}"
        return Told(key, f"{table} has no setting '{leaf}'{hint}")
    if field is None:
        return Told(key, f"{table} must be a table, not {show(item['input'])}")
    text = f"{table}.{leaf} must be {allowed(field)}, not {show(item['input'])}"
    return Told(key, text + likeliest(item["input"], field))


def _without(data: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    return {
        name: {k: v for k, v in value.items() if f"{name}.{k}" not in keys}
        if isinstance(value, dict)
        else value
        for name, value in data.items()
        if name not in keys
    }
