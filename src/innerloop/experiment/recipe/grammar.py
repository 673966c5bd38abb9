"""The one grammar of settings: values on top of plain data, typed or given in Python. Imports no torch."""

from __future__ import annotations

import copy
import json
import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, time
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from pydantic.fields import FieldInfo

from innerloop.core.formatting import printable, shorten
from innerloop.experiment.recipe.problems import SettingProblem, checked, is_table, kind, near, show, suggest
from innerloop.experiment.recipe.rules import Ruled, broken


def as_items(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    """``key=value`` texts for nested settings."""
    return [f"{key}={toml_value(value)}" for key, value, _ in as_assignments(settings, prefix)]


def as_assignments(settings: Mapping[str, Any], prefix: str = "") -> list[Assignment]:
    """Nested settings of Python, each with its key: their values are taken as they are."""
    given: list[Assignment] = []
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            given += as_assignments(value, f"{prefix}{key}.")
        else:
            plain = _plain(value)
            given.append(Assignment(f"{prefix}{key}", plain, show(plain)))
    return given


def _plain(value: Any) -> Any:
    """A value as files have it: numbers of numpy and torch, paths and tuples are of Python's own kinds."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value.item() if hasattr(value, "item") else value


def in_section(settings: Mapping[str, Any], section: str, keys: Collection[str]) -> dict[str, Any]:
    """Settings with those of one section told by their own names put into it."""
    own = {key: value for key, value in settings.items() if key in keys}
    rest = {key: value for key, value in settings.items() if key not in keys}
    return {section: {**own, **rest.pop(section, {})}, **rest} if own else rest


def toml_value(value: Any) -> str:
    """A value as TOML; ``none`` for None, which the settings grammar reads."""
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{json.dumps(str(key))} = {toml_value(item)}" for key, item in value.items())
        return f"{{{inside}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    if hasattr(value, "item"):  # a number of numpy or torch
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


_DIGITS = 1000  # what is longer is no number that anybody means, and Python reads no more than 4,300
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")

Model = TypeVar("Model", bound=Ruled)


class Assignment(NamedTuple):
    """One ``key=value`` as typed: ``raw`` keeps the text, for settings that want text."""

    key: str
    value: Any
    raw: str


class Grammar(NamedTuple, Generic[Model]):
    """What may be typed."""

    model: type[Model]
    fields: Mapping[str, FieldInfo]
    example: str
    listing: str
    short: Mapping[str, str] = {}
    nearby: tuple[str, ...] = ()


class Reading(NamedTuple, Generic[Model]):
    """What was understood."""

    model: Model | None
    typed: dict[str, Assignment]
    problems: list[str]
    doubtful: frozenset[str]


Further = Callable[[Any, Mapping[str, Assignment]], Mapping[str, str]]
"""More checks: the model of all good settings and what was typed → sentences by key."""


def read_value(text: str) -> Any:
    """A value as TOML, else a plain number, else a word; a list may hold words."""
    text = text.strip()
    if "#" not in text or text[0] in "\"'[{":  # elsewhere TOML would drop what follows as a comment
        try:
            parsed = tomllib.loads(f"v = {text}")
        except (ValueError, RecursionError):  # no TOML, numbers of thousands of digits, thousands of brackets
            parsed = {}
        if parsed.keys() == {"v"} and not isinstance(parsed["v"], (date, time)):
            return parsed["v"]
    if text.startswith("[") and text.endswith("]") and not re.search(r"[\[\]{}\"']", text[1:-1]):
        return [read_value(part) for part in text[1:-1].split(",") if part.strip()]
    if _NUMBER.fullmatch(text) and len(text) < _DIGITS:
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    return text


Items: TypeAlias = Sequence["str | Assignment"]
"""Settings: ``key=value`` as typed, or a key with a value of Python."""


def parse(items: Items, grammar: Grammar[Any]) -> tuple[dict[str, Assignment], list[SettingProblem]]:
    """Keys and values, short names spelled out, and what is no setting. Does not ask which settings exist."""
    typed: dict[str, Assignment] = {}
    problems: list[SettingProblem] = []
    for given in _join_flags(items):
        if isinstance(given, Assignment):
            key = grammar.short.get(given.key, given.key)
            if key in typed:
                problems.append(SettingProblem(key, _twice(key, typed[key].raw, given.raw)))
            typed.setdefault(key, given._replace(key=key))
            continue
        key, equals, raw = (part.strip() for part in given.partition("="))
        item = shorten(printable(given))
        bare = re.split(r"[\s=]", key.lstrip("-"), maxsplit=1)[0]
        if key.startswith("-"):
            problems.append(SettingProblem(bare, _dashes(item, grammar)))
        elif not equals:
            text = f"'{item}' is not a setting: write key=value without spaces, such as {grammar.example}"
            problems.append(SettingProblem(bare, text))
        elif not key or not raw:
            what = "value" if key else "key"
            problems.append(SettingProblem(bare, f"'{item}' has no {what}: write key=value without spaces"))
        elif (key := grammar.short.get(key, key)) in typed:
            problems.append(SettingProblem(key, _twice(key, typed[key].raw, raw)))
        else:
            typed[key] = Assignment(key, read_value(raw), raw)
    return typed, problems


def _twice(key: str, first: str, second: str) -> str:
    return f"{key} is given twice ({shorten(first)} and {shorten(second)})"


def read(
    grammar: Grammar[Model],
    items: Items = (),
    base: Mapping[str, Any] | None = None,
    source: str = "",
    further: Further | None = None,
    *,
    alone: bool = False,
) -> Reading[Model]:
    """Settings on top of plain data, with all that is wrong."""
    data = copy.deepcopy(dict(base or {}))
    typed, told = parse(items, grammar)
    for assignment in typed.values():
        told += _assign(data, assignment, grammar)
    model, wrong = checked(grammar.model, grammar.fields, data, grammar.listing)
    where = f" (in {source})" if source else ""
    told += [
        each if each.key in typed or not each.key else each._replace(text=each.text + where) for each in wrong
    ]
    if model is not None and further is not None:
        good = {key: value for key, value in typed.items() if key not in {each.key for each in told}}
        told += [SettingProblem(key, text) for key, text in further(model, good).items()]
    doubtful = frozenset(key for each in told for key in (each.key, *each.near) if key)
    problems = [each.text for each in told]
    if model is not None and not alone:  # a rule about a setting that is wrong anyway would only confuse
        problems += [text for text in broken(model) if not mentions(text, doubtful)]
    return Reading(model, typed, problems, doubtful)


def mentions(text: str, keys: Iterable[str]) -> bool:
    """Whether a sentence speaks of one of these settings, or of one in such a section."""
    return any(re.search(rf"(?<![\w.]){re.escape(key)}(?!\w)", text) for key in keys)


def _join_flags(items: Items) -> list[str | Assignment]:
    """Puts ``--steps 5``, as other commands want it, back together for the message about it."""
    joined: list[str | Assignment] = []
    for item in items:
        last = joined[-1] if joined else ""
        if not (isinstance(last, str) and isinstance(item, str)):
            joined.append(item)
        elif last.startswith("-") and not set("= ") & set(last) and "=" not in item:
            joined[-1] = f"{last} {item}"
        else:
            joined.append(item)
    return joined


def _dashes(item: str, grammar: Grammar[Any]) -> str:
    """What to write instead: only what would be accepted."""
    key, _, raw = item.lstrip("-").replace(" ", "=", 1).partition("=")
    if key in grammar.fields or key in grammar.short:
        return f"'{item}': settings have no dashes, write {key}={raw or 'value'}"
    hint = suggest(key, [*grammar.fields, *grammar.nearby], grammar.listing)
    return f"'{item}': there is no such option, and settings have no dashes{hint}"


def _assign(data: dict[str, Any], assignment: Assignment, grammar: Grammar[Any]) -> list[SettingProblem]:
    """Puts one value into its place; returns what is wrong with its key."""
    key, value, raw = assignment
    fields, path = grammar.fields, key.split(".")
    inside = [k for k in fields if k.startswith(f"{key}.")]
    if key in fields:
        value = _mean(value, raw, fields[key])
    elif inside:
        if not isinstance(value, dict):
            return [SettingProblem(key, f"{key} is a section: set one of its keys, such as {inside[0]}")]
        parts = [Assignment(f"{key}.{name}", item, str(item)) for name, item in value.items()]
        return [told for part in parts for told in _assign(data, part, grammar)]
    elif not any(_is_table(fields.get(".".join(path[:n]))) for n in range(1, len(path))):
        known = [*fields, *grammar.nearby]
        text = f"unknown setting '{shorten(printable(key))}'{suggest(key, known, grammar.listing)}"
        return [SettingProblem(key, text, tuple(near(key, known)))]
    table: Any = data
    for name in path[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            return [SettingProblem(key, f"{key} cannot be set: '{name}' is not a table but {show(table)}")]
    table[path[-1]] = value
    return []


def _is_table(field: FieldInfo | None) -> bool:
    return field is not None and is_table(field)


def _mean(value: Any, raw: str, field: FieldInfo) -> Any:
    """What a typed value means for a setting: ``none``, capitals of true and false, numbers as text."""
    core, optional = kind(field)
    if optional and raw.lower() in ("none", "null"):
        return None
    if core is bool and raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    return raw if core is str and not isinstance(value, str) else value
