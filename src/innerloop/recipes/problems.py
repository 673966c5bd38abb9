"""What is wrong with a recipe, in plain words: every setting, what it takes, and what was probably meant."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Collection, Iterable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from innerloop.learners.table import KINDS
from innerloop.recipes.schema import Recipe

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


@cache
def known_settings() -> dict[str, FieldInfo]:
    """Every setting by its dotted key, in the order of the schema."""
    found: dict[str, FieldInfo] = {}
    for name, field in Recipe.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            found |= {f"{name}.{key}": inner for key, inner in section.model_fields.items()}
        else:
            found[name] = field
    return found


def kind(field: FieldInfo) -> tuple[Any, bool]:
    """The type of a setting without ``None``, and whether it may be none."""
    annotation = field.annotation
    if get_origin(annotation) not in (Union, UnionType):
        return annotation, False
    others = [part for part in get_args(annotation) if part is not NoneType]
    return others[0], NoneType in get_args(annotation)


def words_beside(field: FieldInfo) -> list[str]:
    """Words that a setting takes besides its first kind, as ``auto`` in ``float | Literal["auto"]``.

    >>> words_beside(known_settings()["inner.lr"])
    ['auto']
    """
    parts = get_args(field.annotation) if get_origin(field.annotation) in (Union, UnionType) else ()
    return [str(word) for part in parts[1:] if get_origin(part) is Literal for word in get_args(part)]


def is_table(field: FieldInfo) -> bool:
    """Whether a setting is a free-form table, which takes any key."""
    return get_origin(kind(field)[0]) is dict


def allowed(field: FieldInfo) -> str:
    """What a setting takes, in words.

    >>> allowed(known_settings()["outer.clip"]), allowed(known_settings()["model.pooling"])
    ('a number above 0, or none', 'max or stride')
    """
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
    return ", or ".join([text, *words_beside(field), *(["none"] if optional else [])])


def suggest(key: str, known: Iterable[str]) -> str:
    """Up to two settings that ``key`` may have meant, or where to find them all.

    >>> suggest("inner.step", known_settings())
    " (did you mean 'inner.steps'?)"
    >>> suggest("steps", known_settings())
    " (did you mean 'inner.steps' or 'outer.steps'?)"
    """
    keys = list(known)
    section, _, leaf = key.replace("-", "_").rpartition(".")
    leaf = _ELSEWHERE.get(leaf, leaf)
    leaves = list(dict.fromkeys(k.rpartition(".")[2] for k in keys))
    same = [k for k in keys if k.rpartition(".")[2] == leaf]
    options = (
        [k for k in same if k.startswith(f"{section}.")]
        or same
        or difflib.get_close_matches(key, keys, n=1, cutoff=0.7)
        or [
            k
            for near in difflib.get_close_matches(leaf, leaves, n=1, cutoff=0.7)
            for k in keys
            if k.endswith(near)
        ]
    )
    if not options:
        return "; `innerloop show sine-maml --schema` lists them all"
    return f" (did you mean {' or '.join(repr(option) for option in options[:2])}?)"


def show(value: Any) -> str:
    """A value as one would type it.

    >>> show("relu"), show([1, 2]), show(True), show(None), show(0.001)
    ("'relu'", '[1, 2]', 'true', 'none', '0.001')
    """
    if isinstance(value, str):
        return f"'{value}'"
    return "none" if value is None else json.dumps(value, default=str, ensure_ascii=False)


def validate(
    data: dict[str, Any], typed: Collection[str] = (), source: str = ""
) -> tuple[Recipe | None, list[str]]:
    """The recipe in ``data``, and what is wrong with it (then there may be no recipe).

    Args:
        data: plain data by section; whole floats in place of whole numbers are put right.
        typed: keys that were typed by hand; problems with the others name ``source``.
        source: the file they come from.
    """
    tidy = {name: _tidy(name, section) for name, section in data.items()}
    problems = _not_finite(tidy)
    try:
        recipe = Recipe.model_validate(tidy, strict=True)
    except ValidationError as error:
        problems |= {
            key: text for key, text in (_explain(item) for item in error.errors()) if key not in problems
        }
        if "" not in problems:  # rules between settings are only asked once all settings are good
            problems |= _rules(_without(tidy, problems), list(problems))
        recipe = None
    where = f" (in {source})" if source else ""
    return recipe, [text + ("" if key in typed or not key else where) for key, text in problems.items()]


def _tidy(section: str, table: Any) -> Any:
    if not isinstance(table, dict):
        return table
    known = known_settings()
    whole = {key for key in table if (field := known.get(f"{section}.{key}")) and kind(field)[0] is int}
    return {
        key: int(value) if key in whole and isinstance(value, float) and value.is_integer() else value
        for key, value in table.items()
    }


def _not_finite(data: dict[str, Any]) -> dict[str, str]:
    return {
        f"{name}.{key}": f"{name}.{key} must be finite, not {value}"
        for name, table in data.items()
        if isinstance(table, dict)
        for key, value in table.items()
        if isinstance(value, float) and not math.isfinite(value)
    }


def _explain(item: Any) -> tuple[str, str]:
    """The setting that one of pydantic's errors is about (none: a rule between settings), and a sentence."""
    known, place = known_settings(), [str(part) for part in item["loc"]]
    key = ".".join(place[:2]) if ".".join(place[:2]) in known else ".".join(place)
    if item["type"] == "value_error":
        return "", str(item["ctx"]["error"])
    if item["type"] == "extra_forbidden":
        return key, f"unknown setting '{key}'{suggest(key, known)}"
    if key not in known:
        return key, f"{key} must be a section of settings, not {show(item['input'])}"
    core, _ = kind(known[key])
    text = f"{key} must be {allowed(known[key])}, not {show(item['input'])}"
    if get_origin(core) is Literal and isinstance(item["input"], str):
        near = difflib.get_close_matches(item["input"].lower(), [str(word) for word in get_args(core)], n=1)
        text += f" (did you mean '{near[0]}'?)" if near else ""
    return key, text


def _without(data: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    bad = set(keys)
    return {
        name: {k: v for k, v in table.items() if f"{name}.{k}" not in bad}
        if isinstance(table, dict)
        else table
        for name, table in data.items()
        if name not in bad
    }


def _rules(data: dict[str, Any], bad: list[str]) -> dict[str, str]:
    try:
        Recipe.model_validate(data, strict=True)
    except ValidationError as error:
        rules = [text for key, text in map(_explain, error.errors()) if not key]
        # a rule about a setting that is wrong anyway would only confuse
        rules = [text for text in rules if not any(key in text for key in bad)]
        return dict.fromkeys([""], "\n".join(rules)) if rules else {}
    return {}
