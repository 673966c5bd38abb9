"""Recipes and the settings grammar: ``section.key=value`` on top of a recipe, and recipes as TOML.

Importing this file does not import torch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.experiment.recipe.grammar import Assignment, Grammar, Reading, mentions, parse, read
from innerloop.experiment.recipe.grammar import read_value as read_value
from innerloop.experiment.recipe.problems import known_settings
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.trust import admit, trusted
from innerloop.experiment.recipe.unread import doubts, stray_tables

SHORT = {"seed": "run.seed"}
RECIPE = Grammar(
    Recipe,
    known_settings(),
    example="inner.steps=3",
    listing="innerloop show sine-maml --schema",
    short=SHORT,
)


def parse_assignments(items: Sequence[str]) -> dict[str, Any]:
    """Dotted keys and their values, ``seed=`` spelled out. Does not ask whether a setting exists.

    >>> parse_assignments(["inner.lr=1e-3", "seed=1"])
    {'inner.lr': 0.001, 'run.seed': 1}
    """
    typed, problems = parse(items, RECIPE)
    if problems:
        raise UserError("\n".join(each.text for each in problems))
    return {key: assignment.value for key, assignment in typed.items()}


def typed_keys(items: Sequence[str]) -> set[str]:
    """The settings that ``items`` set, where a section's table sets each of its keys.

    >>> sorted(typed_keys(["seed=1", "model={kind='mlp', bias=false}"]))
    ['model.bias', 'model.kind', 'run.seed']
    """
    parse_assignments(items)
    return _keys(parse(items, RECIPE)[0].values())


def _keys(assignments: Iterable[Assignment]) -> set[str]:
    keys: set[str] = set()
    for key, value, _ in assignments:
        whole = key in Recipe.model_fields and isinstance(value, dict)
        keys |= {f"{key}.{name}" for name in value} if whole else {key}
    return keys


def item_problems(items: Sequence[str]) -> list[str]:
    """What is wrong with settings whatever recipe they are for: where that is not known."""
    return read(RECIPE, items, alone=True).problems


def make_recipe(
    base: Mapping[str, Any], items: Sequence[str] = (), source: str = "", *, fresh: bool = False
) -> Recipe:
    """A recipe from plain data with settings applied. Code that ``items`` name may be imported.

    Code that ``base`` names may not, unless it is :class:`~innerloop.core.importing.Trusted`:
    :func:`recipe_from_toml` and ``load_recipe`` ask whether a file is.

    Args:
        base: sections and their settings; what is left out has its default.
        items: ``key=value`` texts, which win over ``base``.
        source: where ``base`` comes from, named in messages about its settings.
        fresh: whether it is to be trained: keys of ``base`` that nothing would read are then refused. A run
            that has been trained with such keys stays as it is.

    Raises:
        UserError: with one line for every problem; doubts about what was typed are its notes.
    """

    def stray(recipe: Recipe, typed: Mapping[str, Assignment]) -> dict[str, str]:
        """Keys of tables that nothing reads, each with a sentence."""
        told = stray_tables(recipe)
        return {key: text for key, text in told.items() if fresh or any(_within(key, t) for t in typed)}

    reading = read(RECIPE, items, base, source, stray)
    if reading.model is None or reading.problems:
        raise _refusal(reading)
    return trusted(reading.model, _keys(reading.typed.values()))


def _within(key: str, typed: str) -> bool:
    """Whether a typed key sets another one, or something in it."""
    return f"{key}.".startswith(f"{typed}.") or typed.startswith(f"{key}.")


def _refusal(reading: Reading[Recipe]) -> UserError:
    error = UserError("\n".join(reading.problems))
    if reading.model is not None:
        for note in doubts(reading.model, sorted(_keys(reading.typed.values()))):
            if not mentions(note, reading.doubtful):
                error.add_note(note)
    return error


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

    Args:
        source: the file, or the text.
        items: ``key=value`` texts, which win over the recipe's own. Code that they name may be imported.
        trust: whether code that the file names may be imported as well.

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
    except RecursionError:
        raise UserError(f"{source} is not valid TOML: it is nested too deeply.") from None
    except ValueError as error:  # also numbers of thousands of digits
        hint = "; text needs quotes there" if "Invalid value" in str(error) else ""
        raise UserError(f"{source} is not valid TOML: {error}{hint}.") from None


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, (list, tuple)) else value
