"""Recipes and the settings grammar: ``section.key=value`` on top of a recipe; recipes as TOML. No torch."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.paths import user_path
from innerloop.experiment.recipe.grammar import Assignment, Grammar, Items, Reading, mentions, parse, read
from innerloop.experiment.recipe.grammar import read_value as read_value
from innerloop.experiment.recipe.problems import known_settings, show
from innerloop.experiment.recipe.rules import doubts
from innerloop.experiment.recipe.schema import Recipe, absent, unknown
from innerloop.experiment.recipe.trust import admit, trusted
from innerloop.learners.table import LEARNERS

EXTENDS = "extends"
"""The key of a file that names the recipe which it changes."""
SHORT = {"seed": "run.seed"}
RECIPE = Grammar(
    Recipe,
    known_settings(),
    example="inner.steps=3",
    listing="innerloop show sine-maml --schema",
    short=SHORT,
)


def parse_assignments(items: Items) -> dict[str, Any]:
    """Dotted keys and their values, ``seed=`` spelled out. Does not ask whether a setting exists."""
    typed, problems = parse(items, RECIPE)
    if problems:
        raise UserError("\n".join(each.text for each in problems))
    return {key: assignment.value for key, assignment in typed.items()}


def typed_keys(items: Items) -> set[str]:
    """The settings that ``items`` set, where a section's table sets each of its keys."""
    parse_assignments(items)
    return _keys(parse(items, RECIPE)[0].values())


def _keys(assignments: Iterable[Assignment]) -> set[str]:
    keys: set[str] = set()
    for key, value, _ in assignments:
        whole = key in Recipe.model_fields and isinstance(value, dict)
        keys |= {f"{key}.{name}" for name in value} if whole else {key}
    return keys


def item_problems(items: Items, base: Mapping[str, Any] | None = None, source: str = "") -> list[str]:
    """What is wrong with settings whatever recipe they are for: where that is not known."""
    return read(RECIPE, items, base, source, alone=True).problems


def make_recipe(
    base: Mapping[str, Any],
    items: Items = (),
    source: str = "",
    *,
    strict: Collection[str] = (),
    shared: bool = False,
) -> Recipe:
    """A recipe from plain data with settings applied. Code that ``items`` name may be imported.

    Code that ``base`` names may not, unless it is :class:`~innerloop.core.importing.Trusted`:
    :func:`recipe_from_toml` and ``load_recipe`` ask whether a file is.

    Args:
        base: sections and their settings; what is left out has its default. Settings that the method, the
            network, … has not are ignored: what is inherited may be of another one.
        items: settings that win over ``base``. Those that there are not are refused.
        source: where ``base`` comes from, named in messages about its settings.
        strict: settings of ``base`` that were written for it: also of these none may be of another method.
        shared: whether ``items`` are shared by several recipes, so that they are treated as those of a base.

    Raises:
        UserError: with one line for every problem; doubts about what was typed are its notes.
    """

    def not_there(recipe: Recipe, typed: Mapping[str, Assignment]) -> dict[str, str]:
        """Settings that the recipe has not, each with a sentence."""
        keys = [] if shared else sorted(map(_setting, _keys(typed.values())))
        told = {key: unknown(recipe, key) for key in absent(recipe, keys)}
        alone = read(RECIPE, (), base).model if strict and items else recipe
        where = f" (in {source})" if source else ""
        if strict and alone is not None:
            wrong = absent(alone, [key for key in strict if key not in told])
            told |= {key: unknown(alone, key) + where for key in wrong}
        return told

    reading = read(RECIPE, items, _for_its_learner(base, items), source, not_there)
    if reading.model is None or reading.problems:
        raise _refusal(reading)
    return trusted(reading.model, _keys(reading.typed.values()))


def stated(base: Mapping[str, Any]) -> list[str]:
    """The settings of plain data by their keys."""
    inside = {name: value if isinstance(value, Mapping) else None for name, value in base.items()}
    return [
        key for n, keys in inside.items() for key in ([n] if keys is None else [f"{n}.{k}" for k in keys])
    ]


def _setting(key: str) -> str:
    """The setting that a typed key sets, whole or in part."""
    return ".".join(key.split(".")[:2])


def _for_its_learner(base: Mapping[str, Any], items: Items) -> Mapping[str, Any]:
    """The base without what another learner has in ``inner.settings`` than the one that is typed."""
    inner, typed = base.get("inner"), parse(items, RECIPE)[0].get("inner.method")
    if typed is None or not isinstance(inner, Mapping) or not isinstance(inner.get("settings"), Mapping):
        return base
    known = LEARNERS[typed.raw].settings if typed.raw in LEARNERS else inner["settings"]
    kept = {key: value for key, value in inner["settings"].items() if key in known}
    return {**base, "inner": {**inner, "settings": kept}}


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
    sections = {key: value for key, value in recipe.model_dump().items() if value != {}}
    return comment + tomli_w.dumps(_without_none(sections))


def recipe_from_toml(source: Path | str, items: Items = (), *, trust: bool = False) -> Recipe:
    """A recipe from a TOML file (a path) or from TOML text (anything with a newline or ``=``, or empty).

    Args:
        source: the file, or the text.
        items: ``key=value`` texts, which win over the recipe's own. Code that they name may be imported.
        trust: whether code that the file names may be imported as well.

    Raises:
        UntrustedCodeError: it names code from outside that is neither in ``items`` nor trusted.
    """
    text_given = isinstance(source, str) and (not source or "\n" in source or "=" in source)
    path = None if text_given else Path(source)
    text, where = (str(source), "the recipe") if path is None else (_text(path), str(path))
    own = stated(read_toml(text, where))
    recipe = make_recipe(whole(text, where, path), items, "" if path is None else where, strict=own)
    return admit(recipe, typed_keys(items), where, trust)


def read_toml(text: str, source: str) -> dict[str, Any]:
    """The data in TOML text; ``source`` names it in messages."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UserError(f"{source} is not valid TOML: it is nested too deeply.") from None
    except ValueError as error:  # also numbers of thousands of digits
        hint = "; text needs quotes there" if "Invalid value" in str(error) else ""
        raise UserError(f"{source} is not valid TOML: {error}{hint}.") from None


@cache
def _shipped() -> tuple[str, ...]:
    return tuple(sorted(file.name.removesuffix(".toml") for file in _folder().iterdir()))


def _folder() -> resources.abc.Traversable:
    return resources.files("innerloop.experiment.recipe") / "shipped"


def shipped_names() -> list[str]:
    """The names of all shipped recipes.

    >>> "sine-maml" in shipped_names()
    True
    """
    return list(_shipped())


def shipped_text(name: str) -> str:
    """The TOML of a shipped recipe as it is written: what it extends is left out."""
    return (_folder() / f"{name}.toml").read_text(encoding="utf-8")


def shipped_data(name: str) -> dict[str, Any]:
    """The data of a shipped recipe on top of those of the recipe that it extends; each is read once."""
    return copy.deepcopy(_shipped_data(name))


@cache
def _shipped_data(name: str) -> dict[str, Any]:
    return whole(shipped_text(name), name)


def whole(text: str, source: str, file: Path | None = None) -> dict[str, Any]:
    """The data of a recipe on top of those that it extends, but for its own name and description."""
    return _whole(text, source, file, (source if file is None else str(file.resolve()),))


def _whole(text: str, source: str, file: Path | None, above: tuple[str, ...]) -> dict[str, Any]:
    data = read_toml(text, source)
    if EXTENDS not in data:
        return data
    name = data.pop(EXTENDS)
    if not isinstance(name, str):
        raise UserError(f"extends must name a recipe or a TOML file, not {show(name)} (in {source}).")
    shipped = name in shipped_names()
    path = None if shipped else (Path() if file is None else file.parent) / user_path(name)
    this = name if path is None else str(path.resolve())
    if this in above:
        way = " extends ".join([*above[above.index(this) :], this])
        raise UserError(f"recipes extend each other in a circle ({way}): leave out one of these extends.")
    if path is not None and not path.is_file():
        hint = did_you_mean(name, shipped_names())
        raise UserError(
            f"{source} extends '{name}', and there is no such recipe or file{hint}: "
            "`innerloop ls` lists recipes; files are looked for from the folder of the one that extends them."
        )
    base = shipped_data(name) if path is None else _whole(_text(path), name, path, (*above, this))
    joined = {key: value for key, value in base.items() if key not in ("name", "description")}
    for section, values in data.items():
        both = isinstance(values, dict) and isinstance(joined.get(section), dict)
        joined[section] = {**joined[section], **values} if both else values
    return joined


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not text'}."
        ) from None


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, (list, tuple)) else value
