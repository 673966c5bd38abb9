"""The settings grammar: ``section.key=value`` on top of a recipe, and recipes as TOML.

A value is read as TOML, else as a plain number, else as a word; the schema decides what it means. Every
problem is found at once and told in plain words. Importing this file does not import torch.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, time
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.recipes.problems import is_table, kind, known_settings, show, suggest, validate
from innerloop.recipes.schema import Recipe
from innerloop.recipes.trust import admit

SHORT = {"seed": "run.seed"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class Assignment(NamedTuple):
    """One ``key=value`` as typed: ``raw`` keeps the text, for settings that want text."""

    key: str
    value: Any
    raw: str


def read_value(text: str) -> Any:
    """A value as TOML, else a plain number, else a word; a list may hold words.

    >>> [read_value(text) for text in ("3", "1e-3", ".5", "true", "relu", '"a b"', "[64, 64]", "[maml,anil]")]
    [3, 0.001, 0.5, True, 'relu', 'a b', [64, 64], ['maml', 'anil']]
    """
    text = text.strip()
    if "#" not in text or text[0] in "\"'[{":  # elsewhere TOML would drop what follows as a comment
        try:
            parsed = tomllib.loads(f"v = {text}")
        except tomllib.TOMLDecodeError:
            parsed = {}
        if parsed.keys() == {"v"} and not isinstance(parsed["v"], (date, time)):
            return parsed["v"]
    if text.startswith("[") and text.endswith("]") and not re.search(r"[\[\]{}\"']", text[1:-1]):
        return [read_value(part) for part in text[1:-1].split(",") if part.strip()]
    if _NUMBER.fullmatch(text):
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    return text


def parse_assignments(items: Sequence[str]) -> dict[str, Any]:
    """Dotted keys and their values, ``seed=`` spelled out. Does not ask whether a setting exists.

    >>> parse_assignments(["inner.lr=1e-3", "seed=1"])
    {'inner.lr': 0.001, 'run.seed': 1}

    Raises:
        UserError: with one line for every item that is not ``key=value`` or is given twice.
    """
    parsed, problems = _parse(items)
    if problems:
        raise UserError("\n".join(problems))
    return {assignment.key: assignment.value for assignment in parsed}


def typed_keys(items: Sequence[str]) -> set[str]:
    """The settings that ``items`` set, where a section's table sets each of its keys.

    >>> sorted(typed_keys(["seed=1", "model={kind='mlp', bias=false}"]))
    ['model.bias', 'model.kind', 'run.seed']
    """
    keys: set[str] = set()
    for key, value in parse_assignments(items).items():
        whole = key in Recipe.model_fields and isinstance(value, dict)
        keys |= {f"{key}.{name}" for name in value} if whole else {key}
    return keys


def make_recipe(base: Mapping[str, Any], items: Sequence[str] = (), source: str = "") -> Recipe:
    """A recipe from plain data with settings applied: the caller's own, as if written in code.

    What comes from a file goes through :func:`recipe_from_toml` or ``load_recipe``, which refuse code that
    only the file names.

    Args:
        base: sections and their settings; what is left out has its default.
        items: ``key=value`` texts, which win over ``base``.
        source: where ``base`` comes from, named in messages about its settings.

    Raises:
        UserError: with one line for every problem.
    """
    data = copy.deepcopy(dict(base))
    typed, problems = _parse(items)
    for assignment in typed:
        problems += _assign(data, assignment)
    recipe, more = validate(data, {assignment.key for assignment in typed}, source)
    if recipe is None or problems or more:
        raise UserError("\n".join([*problems, *more]))
    return recipe


def recipe_to_toml(recipe: Recipe, header: str = "") -> str:
    """The complete recipe as TOML; settings that are none are left out. ``header`` becomes a comment.

    >>> recipe_from_toml(recipe_to_toml(Recipe())) == Recipe()
    True
    """
    import tomli_w

    comment = "".join(f"# {line}".rstrip() + "\n" for line in header.splitlines())
    return comment + tomli_w.dumps(_without_none(recipe.model_dump()))


def recipe_from_toml(source: Path | str, items: Sequence[str] = (), *, trust: bool = False) -> Recipe:
    """A recipe from a TOML file (a path) or from TOML text (anything with a newline or ``=``, or empty).

    Raises:
        UntrustedCodeError: it names code from outside that is neither in ``items`` nor trusted.
    """
    if isinstance(source, str) and (not source or "\n" in source or "=" in source):
        recipe = make_recipe(read_toml(source, "the recipe"), items)
        return admit(recipe, typed_keys(items), "the recipe", trust)
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not text'}."
        ) from None
    recipe = make_recipe(read_toml(text, str(path)), items, source=str(path))
    return admit(recipe, typed_keys(items), str(path), trust)


def read_toml(text: str, source: str) -> dict[str, Any]:
    """The data in TOML text; ``source`` names it in messages."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "; text needs quotes there" if "Invalid value" in str(error) else ""
        raise UserError(f"{source} is not valid TOML: {error}{hint}.") from None


def _parse(items: Sequence[str]) -> tuple[list[Assignment], list[str]]:
    found: dict[str, Assignment] = {}
    problems: list[str] = []
    for item in _join_flags(items):
        key, equals, raw = (part.strip() for part in item.partition("="))
        if key.startswith("-"):
            problems.append(_dashes(item))
        elif not equals:
            problems.append(
                f"'{item}' is not a setting: write key=value without spaces, such as inner.steps=3"
            )
        elif not key or not raw:
            problems.append(f"'{item}' has no {'value' if key else 'key'}: write key=value without spaces")
        elif (key := SHORT.get(key, key)) in found:
            problems.append(f"{key} is given twice ({found[key].raw} and {raw})")
        else:
            found[key] = Assignment(key, read_value(raw), raw)
    return list(found.values()), problems


def _join_flags(items: Sequence[str]) -> list[str]:
    """Puts ``--steps 5``, as other commands want it, back together for the message about it."""
    joined: list[str] = []
    for item in items:
        if joined and joined[-1].startswith("-") and not set("= ") & set(joined[-1]) and "=" not in item:
            joined[-1] += f" {item}"
        else:
            joined.append(item)
    return joined


def _dashes(item: str) -> str:
    key, _, raw = item.lstrip("-").replace(" ", "=", 1).partition("=")
    known = key in known_settings() or key in SHORT
    hint = "" if known else suggest(key, known_settings())
    return f"'{item}': settings have no dashes, write {key or 'key'}={raw or 'value'}{hint}"


def _assign(data: dict[str, Any], assignment: Assignment) -> list[str]:
    """Put one value into its section; returns what is wrong with its key."""
    key, value, raw = assignment
    known, path = known_settings(), key.split(".")
    table_key = ".".join(path[:2])
    if key in known:
        value = _mean(value, raw, key)
    elif key in Recipe.model_fields:
        if not isinstance(value, dict):
            first = next(k for k in known if k.startswith(f"{key}."))
            return [f"{key} is a section: set one of its keys, such as {first}"]
        return [
            p
            for name, item in value.items()
            for p in _assign(data, Assignment(f"{key}.{name}", item, str(item)))
        ]
    elif not (table_key in known and is_table(known[table_key])):
        return [f"unknown setting '{key}'{suggest(key, known)}"]
    table: Any = data
    for name in path[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            return [f"{key} cannot be set: '{name}' is not a table but {show(table)}"]
    table[path[-1]] = value
    return []


def _mean(value: Any, raw: str, key: str) -> Any:
    """What a typed value means for this setting: ``none``, capitals of true and false, numbers as text."""
    core, optional = kind(known_settings()[key])
    if optional and raw.lower() in ("none", "null"):
        return None
    if core is bool and raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    return raw if core is str and not isinstance(value, str) else value


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, (list, tuple)) else value
