"""The recipes that come with the library, and recipes from files. Importing this does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.place import user_path
from innerloop.recipes.schema import Recipe
from innerloop.recipes.settings import item_problems, make_recipe, read_toml, typed_keys
from innerloop.recipes.trust import admit
from innerloop.runs.directory import RECIPE, find_run, is_run


class Shipped(NamedTuple):
    """A recipe that comes with the library: its name, one line about it, and its text as it may be copied."""

    name: str
    description: str
    text: str


def shipped_names() -> list[str]:
    """The names of all shipped recipes.

    >>> "sine-maml" in shipped_names()
    True
    """
    return sorted(
        file.name.removesuffix(".toml") for file in _folder().iterdir() if file.name.endswith(".toml")
    )


def shipped_recipes() -> list[Shipped]:
    """All shipped recipes with their descriptions."""
    found = []
    for name in shipped_names():
        text = shipped_text(name)
        found.append(Shipped(name, str(read_toml(text, name).get("description", "")), text))
    return found


def shipped_text(name: str) -> str:
    """The TOML of a shipped recipe, comments included."""
    return (_folder() / f"{name}.toml").read_text(encoding="utf-8")


def header(text: str) -> str:
    r"""The comment that a recipe starts with: its command and what it shows.

    >>> header("# innerloop train x\n# Shows y.\nname = 'x'")
    'innerloop train x\nShows y.'
    """
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(lines)


def recipe_text(source: str) -> tuple[str, str]:
    """The TOML that ``source`` names, and the name of a recipe that does not name itself.

    Args:
        source: a shipped recipe, a TOML file, or the path of a run or ``last``, whose recipe is meant.

    Raises:
        UserError: it is none of these.
    """
    if source in shipped_names():
        return shipped_text(source), source
    path = find_run(source) if source == "last" else user_path(source)
    if path.is_dir() and (path / RECIPE).is_file():
        path = path / RECIPE
    if not path.is_file():
        raise UserError(_not_found(source, path))
    try:
        return path.read_text(encoding="utf-8"), path.stem
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UserError(f"cannot read the recipe {path}: {reason}.") from None


def load_recipe(source: str, items: Sequence[str] = (), *, trust: bool = False) -> Recipe:
    """A recipe by name or path, with ``key=value`` settings applied, ready to be built.

    Args:
        source: a shipped recipe, a TOML file, or a run.
        items: settings, which win over the recipe's own. Code that they name may be imported.
        trust: whether code that the file names may be imported as well.

    >>> load_recipe("sine-maml", ["seed=3"]).run.seed
    3

    Raises:
        UserError: there is no such recipe, or some settings are wrong (one line each); also where its own
            ``model.settings`` or ``tasks.settings`` have keys that nothing reads, unless it is a run's.
        UntrustedCodeError: it names code from outside that is neither in ``items`` nor trusted.
    """
    recipe = read_recipe(source, items, fresh=not _is_of_a_run(source))
    return admit(recipe, typed_keys(items), source, trust)


def read_recipe(source: str, items: Sequence[str] = (), *, fresh: bool = False) -> Recipe:
    """A recipe to be looked at only: it may name code that nobody trusts, so it must not be built.

    ``fresh`` is as in :func:`innerloop.recipes.settings.make_recipe`.
    """
    try:
        if "=" in source and not Path(source).exists():
            raise UserError(f"the recipe comes first, then settings: `innerloop train sine-maml {source}`.")
        text, name = recipe_text(source)
        data = {"name": name, **read_toml(text, source)}
    except UserError as error:
        raise UserError("\n".join([str(error), *item_problems(items)])) from None
    return make_recipe(data, items, source=source, fresh=fresh)


def _is_of_a_run(source: str) -> bool:
    path = user_path(source)
    return source == "last" or (is_run(path) if path.is_dir() else path.name == RECIPE)


def _folder() -> resources.abc.Traversable:
    return resources.files("innerloop.recipes") / "shipped"


def _not_found(source: str, path: Path) -> str:
    if path.is_dir():
        return f"{source} is a folder without {RECIPE}: name a recipe, a TOML file or a run."
    if source.endswith(".toml"):
        stem = path.stem
        hint = f"; there is a shipped recipe: leave out .toml ('{stem}')" if stem in shipped_names() else ""
        return f"there is no file {source}{hint}."
    hint = did_you_mean(source, shipped_names())
    return f"unknown recipe '{source}'{hint}; `innerloop ls` lists them, or give the path of a TOML file."
