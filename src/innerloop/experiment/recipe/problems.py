"""Settings in plain words: what there is, what each takes, what was probably meant, and what is wrong."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from innerloop.core.errors import did_you_mean, not_utf8
from innerloop.core.formatting import printable, shorten
from innerloop.experiment.recipe.rules import WITHOUT_RULES
from innerloop.experiment.recipe.schema import Recipe
from innerloop.learners.entry import KINDS

# what other libraries call our settings: names too far apart for a spelling check
_ELSEWHERE = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "epochs": "steps",
    "iterations": "steps",
    "gpu": "device",
    "k_shot": "shots",
}
_PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}
_LIMITS = (("ge", "of at least"), ("gt", "above"), ("le", "of at most"), ("lt", "below"))


class Infinite:
    """Marks a setting that takes ``inf``: ``Annotated[float, Infinite()]``; all others must be finite."""


def settings_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Every setting of a model by its key, dotted where it stands in a section, in the order of the model."""
    settings: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            settings |= {f"{name}.{key}": inner for key, inner in section.model_fields.items()}
        else:
            settings[name] = field
    return settings


@cache
def known_settings() -> dict[str, FieldInfo]:
    """Every setting of a recipe by its dotted key, in the order of the schema."""
    return settings_of(Recipe)


def kind(field: FieldInfo) -> tuple[Any, bool]:
    """The type of a setting without ``None``, and whether it may be none."""
    annotation = field.annotation
    if get_origin(annotation) not in (Union, UnionType):
        return annotation, False
    others = [part for part in get_args(annotation) if part is not NoneType]
    return others[0], NoneType in get_args(annotation)


def words_beside(field: FieldInfo) -> list[str]:
    """Words that a setting takes besides its first kind, as ``auto`` in ``float | Literal["auto"]``."""
    parts = get_args(field.annotation) if get_origin(field.annotation) in (Union, UnionType) else ()
    return [str(word) for part in parts[1:] if get_origin(part) is Literal for word in get_args(part)]


def is_table(field: FieldInfo) -> bool:
    """Whether a setting is a free-form table, which takes any key."""
    return get_origin(kind(field)[0]) is dict


def takes_inf(field: FieldInfo) -> bool:
    """Whether a setting may be infinite."""
    return any(isinstance(mark, Infinite) for mark in field.metadata)


def allowed(field: FieldInfo) -> str:
    """What a setting takes, in words."""
    core, optional = kind(field)
    if get_origin(core) is Literal:
        words = [str(word) for word in get_args(core)]
        text = f"{', '.join(words[:-1])} or {words[-1]}"
    elif get_origin(core) is list:
        inside = get_args(core)[0]
        example = f" such as {show(field.default)}" if field.default else ""
        text = f"a list of {_PLURALS.get(inside, 'tables')}{example}"
    elif is_table(field):
        text = "a table"
    else:
        text = KINDS[core]
        limits = [
            (word, getattr(m, name)) for m in field.metadata for name, word in _LIMITS if hasattr(m, name)
        ]
        text += " and".join(f" {word} {limit:g}" for word, limit in limits)
    code = (
        ["package.module:factory"]
        if any(get_origin(p) is Annotated for p in get_args(field.annotation))
        else []
    )
    infinite = ["inf"] if takes_inf(field) else []
    return ", or ".join([text, *infinite, *words_beside(field), *code, *(["none"] if optional else [])])


def near(key: str, known: Iterable[str]) -> list[str]:
    """The settings that ``key`` may have meant, likeliest first."""
    keys = list(known)
    section, _, leaf = key.replace("-", "_").rpartition(".")
    leaf = _ELSEWHERE.get(leaf, leaf)
    leaves = list(dict.fromkeys(k.rpartition(".")[2] for k in keys))
    same = [k for k in keys if k.rpartition(".")[2] == leaf]
    return (
        [k for k in same if k.startswith(f"{section}.")]
        or same
        or difflib.get_close_matches(key, keys, n=1, cutoff=0.7)
        or [
            k
            for close in difflib.get_close_matches(leaf, leaves, n=1, cutoff=0.7)
            for k in keys
            if k.rpartition(".")[2] == close
        ]
    )[:2]


def suggest(key: str, known: Iterable[str], listing: str = "innerloop show sine-maml --schema") -> str:
    """Up to two settings that ``key`` may have meant, or the command that lists them all."""
    options = near(key, known)
    if not options:
        return f"; `{listing}` lists them all"
    return f" (did you mean {' or '.join(repr(option) for option in options)}?)"


def likeliest(word: Any, field: FieldInfo) -> str:
    """Which of a setting's words ``word`` may have meant, to append to a message, or nothing."""
    core, _ = kind(field)
    if get_origin(core) is not Literal or not isinstance(word, str):
        return ""
    close = difflib.get_close_matches(word.lower(), [str(option) for option in get_args(core)], n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def show(value: Any) -> str:
    """A value as one would type it."""
    if isinstance(value, str):
        return f"'{shorten(printable(value))}'"
    return "none" if value is None else shorten(json.dumps(value, default=str, ensure_ascii=False))


Model = TypeVar("Model", bound=BaseModel)
_LARGEST_WHOLE = 2**63 - 1
_LARGEST = 1e38  # more is no number in single precision


class SettingProblem(NamedTuple):
    """One problem."""

    key: str
    text: str
    near: tuple[str, ...] = ()


def checked(
    model: type[Model], fields: Mapping[str, FieldInfo], data: dict[str, Any], listing: str
) -> tuple[Model | None, list[SettingProblem]]:
    """The model of all good settings in ``data``, its rules not asked yet, and problems of the others."""
    _make_whole(data, fields)
    told = [
        SettingProblem(key, f"{key} {text}")
        for look in (_not_finite, _out_of_bounds)
        for key, table, leaf in places(data, fields)
        if (text := look(table[leaf], fields[key])) is not None
    ]
    made, wrong = _validated(model, fields, data, listing)
    known = {each.key for each in told}
    told += [each for each in wrong if each.key not in known]
    if told:
        made, _ = _validated(model, fields, _without(data, {each.key for each in told}), listing)
    return made, told


def _validated(
    model: type[Model], fields: Mapping[str, FieldInfo], data: dict[str, Any], listing: str
) -> tuple[Model | None, list[SettingProblem]]:
    try:
        return model.model_validate(data, strict=True, context=WITHOUT_RULES), []
    except ValidationError as error:
        told: dict[str, SettingProblem] = {}
        for each in (_explain(item, fields, listing) for item in error.errors()):
            told.setdefault(each.text.partition(" must be ")[0], each)  # every kind of a union complains
        return None, list(told.values())


def places(
    data: dict[str, Any], fields: Mapping[str, FieldInfo]
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Where the settings that ``data`` has stand in it: key, table, name in the table."""
    for key in fields:
        section, _, leaf = key.rpartition(".")
        table = data.get(section) if section else data
        if isinstance(table, dict) and leaf in table:
            yield key, table, leaf


def _make_whole(data: dict[str, Any], fields: Mapping[str, FieldInfo]) -> None:
    for key, table, leaf in places(data, fields):
        value, (core, optional) = table[leaf], kind(fields[key])
        if core is int and isinstance(value, float) and value.is_integer():
            table[leaf] = int(value)
        elif optional and value == "none":  # TOML has no word of its own for it
            table[leaf] = None


def _not_finite(value: Any, field: FieldInfo) -> str | None:
    given = value if isinstance(value, list) else [value]
    bad = [v for v in given if isinstance(v, float) and not math.isfinite(v)]
    if takes_inf(field):
        bad = [v for v in bad if math.isnan(v)]
    return f"must be {allowed(field) if takes_inf(field) else 'finite'}, not {bad[0]}" if bad else None


def _out_of_bounds(value: Any, _: FieldInfo) -> str | None:
    """Numbers that no computer holds in the way we use them, and text that no file can hold."""
    return next(filter(None, map(_impossible, _leaves(value))), None)


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


def _explain(item: Any, fields: Mapping[str, FieldInfo], listing: str) -> SettingProblem:
    """One of pydantic's errors in our words."""
    place = [str(part) for part in item["loc"]]
    key = next((k for n in (2, 1) if (k := ".".join(place[:n])) in fields), ".".join(place))
    if item["type"] == "value_error":
        return SettingProblem("", str(item["ctx"]["error"]))
    if key in fields and (inner := _part_of_list(fields[key])) is not None:
        return _explain_part(item, key, inner)
    if item["type"] == "extra_forbidden":
        return SettingProblem(
            key, f"unknown setting '{key}'{suggest(key, fields, listing)}", tuple(near(key, fields))
        )
    if key not in fields:
        return SettingProblem(key, f"{key} must be a section of settings, not {show(item['input'])}")
    text = f"{key} must be {allowed(fields[key])}, not {show(item['input'])}"
    return SettingProblem(key, text + likeliest(item["input"], fields[key]))


def _part_of_list(field: FieldInfo) -> type[BaseModel] | None:
    """The model of which a setting takes a list."""
    core, _ = kind(field)
    part = get_args(core)[0] if get_origin(core) is list else None
    return part if isinstance(part, type) and issubclass(part, BaseModel) else None


def _explain_part(item: Any, key: str, part: type[BaseModel]) -> SettingProblem:
    """A problem inside one table of a list, such as ``tasks.mixture``."""
    place = list(item["loc"])
    number = next((i for i, step in enumerate(place) if isinstance(step, int)), None)
    if number is None:
        return SettingProblem(key, f"{key} must be a list of tables, not {show(item['input'])}")
    table, leaf = f"{key}[{place[number]}]", ".".join(str(step) for step in place[number + 1 :][:1])
    field = part.model_fields.get(leaf)
    if field is None and leaf:
        hint = did_you_mean(leaf, part.model_fields) or f": there are {', '.join(part.model_fields)}"
        return SettingProblem(key, f"{table} has no setting '{leaf}'{hint}")
    if field is None:
        return SettingProblem(key, f"{table} must be a table, not {show(item['input'])}")
    text = f"{table}.{leaf} must be {allowed(field)}, not {show(item['input'])}"
    return SettingProblem(key, text + likeliest(item["input"], field))


def _without(data: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    return {
        name: {k: v for k, v in value.items() if f"{name}.{k}" not in keys}
        if isinstance(value, dict)
        else value
        for name, value in data.items()
        if name not in keys
    }
