"""How a problem is named, the recipes that come with the library, recipes of files and runs. No torch."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Collection, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

from innerloop.core.errors import Problems, UserError, did_you_mean
from innerloop.core.files import plain
from innerloop.core.paths import user_path
from innerloop.core.stderr import tell
from innerloop.experiment.recipe.grammar import Items
from innerloop.experiment.recipe.picture_fit import fit, pictures_of, with_settings
from innerloop.experiment.recipe.problems import known_settings, places, show
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES
from innerloop.experiment.recipe.schema import DataSettings, Recipe
from innerloop.experiment.recipe.settings import (
    EXTENDS,
    item_problems,
    make_recipe,
    read_toml,
    recipe_from_toml,
    shipped_data,
    stated,
    typed_keys,
    whole,
)
from innerloop.experiment.recipe.settings import shipped_names as shipped_names
from innerloop.experiment.recipe.settings import shipped_text as shipped_text
from innerloop.experiment.recipe.trust import admit
from innerloop.runs.directory import MANIFEST, RECIPE, find_run, is_run
from innerloop.runs.manifest import read_manifest

PICTURES = "pictures-protonet"
"""Trains on pictures where only a folder or a dataset is named."""
NUMBERS = "sine-maml"
"""Trains on a family of tasks where only the family is named."""
MINUTES = "minutes.json"
"""How long shipped recipes take, written by innerloop_studies.measurements.recipes."""


class Shipped(NamedTuple):
    """A recipe that comes with the library.

    Attributes:
        name: what it is called.
        description: one line about it.
        text: as it may be copied.
        dataset: what it is trained on: a dataset, a family of tasks, or ``your own pictures``.
        method: the learner; the objective, where training has no inner loop.
        minutes: how long training takes on two cores, measured; None where it depends on your pictures.
    """

    name: str
    description: str
    text: str
    dataset: str
    method: str
    minutes: float | None


class ProblemName(NamedTuple):
    """What a word names: a recipe, pictures (``name`` is ``data.name``) or a family of tasks."""

    kind: Literal["recipe", "pictures", "family"]
    name: str


def named(source: str) -> ProblemName:
    """What a word names: the one way to name a problem, for every command and in Python."""
    path = user_path(source)
    if source in shipped_names() or source == "last" or path.suffix == ".toml" or is_run(path):
        return ProblemName("recipe", source)
    if (pictures := own_pictures(source)) is not None:
        return ProblemName("pictures", pictures)
    if path.exists():
        return ProblemName("recipe", source)
    if path.name != source:  # it has a slash
        what = "file" if path.suffix and not source.endswith("/") else "folder"
        raise UserError(f"there is no {what} {source}.")
    families = _families()
    if source in families or ":" in source:
        return ProblemName("family", source)
    from innerloop.data.catalogue import EMBEDDED, catalogue

    hint = did_you_mean(source, [*shipped_names(), *catalogue(), EMBEDDED, *families])
    raise UserError(
        f"there is no recipe, dataset, folder or family of tasks called '{source}'{hint}: `innerloop ls` and "
        "`innerloop data ls` list those there are."
    )


def _families() -> list[str]:
    """Built-in families of tasks: each has a shipped recipe, and reading those imports no torch."""
    tasks = [shipped_data(name).get("tasks", {}) for name in shipped_names()]
    names = dict.fromkeys(str(section["family"]) for section in tasks if "family" in section)
    return [name for name in names if name not in IMAGE_FAMILIES]


def shipped_recipes() -> list[Shipped]:
    """All shipped recipes with their descriptions."""
    file = resources.files("innerloop.experiment.recipe") / MINUTES
    minutes = json.loads(file.read_text("utf-8"))["minutes"]
    recipes = []
    for name in shipped_names():
        text = shipped_text(name)
        data = shipped_data(name)
        tasks, outer = data.get("tasks", {}), data.get("outer", {})
        pictures = tasks.get("family") in IMAGE_FAMILIES
        dataset = data.get("data", {}).get("name", "your own pictures") if pictures else tasks["family"]
        objective, learner = outer.get("objective", "episodic"), data.get("inner", {}).get("method", "maml")
        trained = {"episodic": learner, "none": "pretrained", "erm": "supervised" if pictures else "erm"}
        method = trained.get(objective, objective)
        described = str(data.get("description", ""))
        recipes.append(Shipped(name, described, text, dataset, method, minutes.get(name)))
    return recipes


def header(text: str) -> str:
    """The comment that a recipe starts with: its command and what it shows."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)


def recipe_text(source: str) -> tuple[str, str]:
    """The TOML that ``source`` names, and the name of a recipe that does not name itself."""
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
        raise UserError(_unread(path, getattr(error, "strerror", None) or "it is not text")) from None


def resolved_text(source: str) -> str:
    """The TOML of a recipe that stands by itself: with all that it extends."""
    import tomli_w

    text, stem = recipe_text(source)
    data = read_toml(text, source)
    if EXTENDS not in data:
        return text
    below = {"name": stem, "description": "", **whole(text, source, _place(source))}
    ordered = {key: below[key] for key in Recipe.model_fields if key in below}
    comment = "".join(f"# {line}".rstrip() + "\n" for line in header(text).splitlines())
    return comment + tomli_w.dumps(ordered)


def _place(source: str) -> Path | None:
    """The file of a recipe; None where it is shipped."""
    return None if source in shipped_names() or source == "last" else user_path(source)


def load_recipe(source: str, items: Items = (), *, trust: bool = False, pictures: str = PICTURES) -> Recipe:
    """A recipe by name or path, with ``key=value`` settings applied, ready to be built.

    Args:
        source: a recipe, or anything else that :func:`named` knows.
        items: settings, which win over the recipe's own. Code that they name may be imported.
        trust: whether code that the file names may be imported as well.
        pictures: the shipped recipe that is meant where only pictures are named.

    >>> load_recipe("sine-maml", ["seed=3"]).run.seed
    3

    Raises:
        UserError: there is no such recipe, or some settings are wrong (one line each), also those that its
            method, network, objective or family has not.
        UntrustedCodeError: it names code from outside that is neither in ``items`` nor trusted.
    """
    recipe, said = _read(source, items, strict=True, pictures=pictures)
    for line in said:
        tell(line)
    typed = typed_keys(items) | ({"tasks.family"} if recipe.tasks.family == source else set())
    return admit(recipe, typed, source, trust)


def read_recipe(source: str, items: Items = (), *, shared: bool = False) -> Recipe:
    """A recipe to be looked at only: it may name code that nobody trusts, so it must not be built."""
    return _read(source, items, shared=shared)[0]


def _read(
    source: str, items: Items, *, shared: bool = False, strict: bool = False, pictures: str = PICTURES
) -> tuple[Recipe, list[str]]:
    """A recipe, and what is to be said of how it was fitted to its pictures."""
    try:
        if "=" in source and not Path(source).exists():
            raise UserError(f"the recipe comes first, then settings: `innerloop train sine-maml {source}`.")
        kind, name = named(source)
        base = {"recipe": source, "pictures": pictures, "family": NUMBERS}[kind]
        text, stem = recipe_text(base)
        own = read_toml(text, source)
    except UserError as error:
        raise UserError("\n".join([str(error), *item_problems(items)])) from None
    try:
        data = {"name": stem, **whole(text, source, _place(base))}
    except UserError as error:
        own.pop(EXTENDS)
        raise UserError("\n".join([str(error), *item_problems(items, own, source)])) from None
    if kind == "pictures":
        data["data"] = {**data.get("data", {}), "name": name}
    if kind == "family":
        about = {"name": name.replace(":", "-"), "description": f"MAML on tasks of the family {name}"}
        data |= {**about, "tasks": {**data["tasks"], "family": name}}
    typed = stated(own) if strict and kind == "recipe" else []
    return fitted_recipe(data, items, source, strict=typed, shared=shared)


def fitted_recipe(
    data: dict[str, Any], items: Items, source: str, *, strict: Collection[str] = (), shared: bool = False
) -> tuple[Recipe, list[str]]:
    """A recipe from plain data, fitted to its pictures where it leaves things open (``data.auto``)."""
    problems = Problems()
    with problems.collect():
        recipe = make_recipe(data, items, source=source, strict=strict, shared=shared)
    if problems:
        if "name" in data.get("data", {}) and data["data"].get("auto") is True:
            with problems.collect():  # what is wrong with the pictures is reported with the rest
                pictures_of(DataSettings(name=str(data["data"]["name"])))
        problems.refuse()
    said = typed_keys(items) | {
        f"{section}.{key}" for section, values in data.items() if isinstance(values, dict) for key in values
    }
    if not recipe.data.auto or "data.name" not in said:
        return recipe, []
    settings, lines = fit(recipe, said)
    whole = {**data, "description": f"{recipe.description}: {lines[0]}"}
    for section, values in settings.items():
        whole[section] = {**whole.get(section, {}), **values}
    made = make_recipe(whole, items, source=source, shared=shared)
    return with_settings(made, {"data": {"auto": False}}), lines


def own_pictures(source: str) -> str | None:
    """What ``data.name`` is to be where a folder, .npz or dataset stands for a recipe; None for others."""
    # a folder that is called as a recipe is not meant, and one that is called as a dataset gets its place
    path = user_path(source)
    if source in shipped_names() or source == "last" or is_run(path):
        return None
    known = _is_dataset(source)
    if not (path.is_dir() or (path.is_file() and path.suffix.lower() == ".npz")):
        return source if known else None
    if path.is_dir():
        from innerloop.data.folder_tree import holds_pictures

        if not holds_pictures(path):
            return source if known else None
    return f"./{source}" if known else source


def _is_dataset(source: str) -> bool:
    from innerloop.data.catalogue import EMBEDDED, catalogue
    from innerloop.data.opening import own_store

    return source == EMBEDDED or source in catalogue() or own_store(source) is not None


def _unread(path: Path, reason: str) -> str:
    from innerloop.data.pictures import is_picture, is_taken_for_picture

    if is_picture(path.name) or is_taken_for_picture(path.name):
        return f"{path} is a single file: name the folder that holds one folder of pictures per class."
    return f"cannot read the recipe {path}: {reason}."


def _not_found(source: str, path: Path) -> str:
    if path.is_dir():
        return (
            f"{source} is a folder without {RECIPE} and without pictures: name a recipe, a TOML file, a run, "
            "or a folder with one folder of pictures per class."
        )
    stem = path.stem
    hint = f"; there is a shipped recipe: leave out .toml ('{stem}')" if stem in shipped_names() else ""
    return f"there is no file {source}{hint}."


_SHOWN = 5


class ChangedRecipeError(UserError):
    """A run's recipe is not the one it was started with."""


def recipe_of(run: Path, items: Items = (), *, trust: bool = False) -> Recipe:
    """The recipe of a run, changed by ``key=value`` settings."""
    _check(run)
    return recipe_from_toml(run / RECIPE, items, trust=trust)


def look_at(run: Path, items: Items = ()) -> Recipe:
    """As :func:`recipe_of`, but not to be built: it may name code that nobody trusts."""
    _check(run)
    path = run / RECIPE
    return make_recipe(read_toml(path.read_bytes().decode(errors="replace"), str(path)), items, str(path))


def _check(run: Path) -> None:
    if not (run / RECIPE).is_file():
        raise UserError(f"{run} has no {RECIPE}: it is not a run.")
    check_unchanged(run)


def check_unchanged(run: Path) -> None:
    """Compares ``recipe.toml`` with what the manifest says of it; older manifests may say nothing."""
    if not (run / MANIFEST).is_file():  # killed before it had one: nothing was trained yet
        return
    manifest = read_manifest(run)
    content, expected = (run / RECIPE).read_bytes(), manifest.get("recipe_sha256")
    if expected is None or hashlib.sha256(content).hexdigest() == expected:
        return
    kept = manifest.get("recipe")
    differences = _differences(kept, content) if isinstance(kept, Mapping) else ["its SHA-256 differs"]
    if not differences:  # spaces and comments only
        return
    shown = "; ".join(differences[:_SHOWN])
    more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    raise ChangedRecipeError(
        f"{run / RECIPE} is not the recipe that the run was started with ({shown}{more}): "
        f"put it back, or train the changed one in a new run with `innerloop train {run}`."
    )


def _differences(kept: Mapping[str, Any], content: bytes) -> list[str]:
    try:
        present = make_recipe(read_toml(content.decode(), RECIPE)).model_dump()
    except (UserError, UnicodeDecodeError):
        return ["it can no longer be read"]
    fields = known_settings()
    was, now = (
        {k: table[leaf] for k, table, leaf in places(d, fields)} for d in (dict(kept), plain(present))
    )
    both = [key for key in fields if key in was and key in now and was[key] != now[key]]
    return [f"{key} was {show(was[key])}, now it is {show(now[key])}" for key in both]
