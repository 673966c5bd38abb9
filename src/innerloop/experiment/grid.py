"""The runs of a sweep: every combination of the listed values, each a recipe that was checked."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, get_origin

from innerloop.core.errors import Problems
from innerloop.recipes.grammar import Assignment, parse
from innerloop.recipes.library import read_recipe
from innerloop.recipes.problems import kind, known_settings
from innerloop.recipes.python import toml_value
from innerloop.recipes.schema import Recipe
from innerloop.recipes.settings import RECIPE as GRAMMAR
from innerloop.recipes.settings import typed_keys
from innerloop.recipes.trust import admit_all
from innerloop.recipes.unread import unread


class Cell(NamedTuple):
    """One point of the grid."""

    label: str
    settings: dict[str, Any]
    recipe: Recipe


def split_grid(typed: Iterable[Assignment]) -> tuple[dict[str, list[Any]], list[str]]:
    """Swept keys with their values, and the assignments that hold for all runs.

    A list is swept unless the setting itself is a list; then a list of lists is.

    >>> items = ["inner.lr=[0.01,0.1]", "seed=[0,1]", "outer.steps=5", "model.hidden=[40,40]"]
    >>> split_grid(parse(items, GRAMMAR)[0].values())
    ({'inner.lr': [0.01, 0.1], 'run.seed': [0, 1]}, ['outer.steps=5', 'model.hidden=[40,40]'])
    """
    swept: dict[str, list[Any]] = {}
    fixed: list[str] = []
    for key, value, raw in typed:
        is_list_setting = key in known_settings() and get_origin(kind(known_settings()[key])[0]) is list
        if isinstance(value, list) and (not is_list_setting or any(isinstance(v, list) for v in value)):
            swept[key] = value
        else:
            fixed.append(f"{key}={raw}")
    return swept, fixed


def make_cells(source: str, assignments: list[str], trust: bool = False) -> list[Cell]:
    """Every run of the sweep, checked before any of them starts, also for code that nobody trusts.

    Raises:
        UserError: with one line for every problem in any of the runs.
    """
    problems = Problems()
    typed, told = parse(assignments, GRAMMAR)
    problems.add(*(each.text for each in told))
    swept, fixed = split_grid(typed.values())
    empty = [key for key, values in swept.items() if not values]
    problems.add(*(f"{key}=[] sweeps over nothing: give at least one value." for key in empty))
    if not swept:
        problems.add("a sweep needs at least one list, such as inner.lr=[0.001,0.01,0.1] or seed=[0,1,2].")
    cells, full = [], {key: values for key, values in swept.items() if values}
    for values in itertools.product(*full.values()):
        settings = dict(zip(full, values, strict=True))
        texts = [f"{key}={_as_toml(value)}" for key, value in settings.items()]
        with problems.collect():
            recipe = read_recipe(source, [*fixed, *texts], fresh=True)
            cells.append(Cell(_label(settings), settings, recipe))
    problems.refuse()
    admit_all([cell.recipe for cell in cells], _typed_in(swept, fixed), source, trust)
    return cells


def _typed_in(swept: Iterable[str], fixed: list[str]) -> set[str]:
    return typed_keys([*fixed, *(f"{key}=0" for key in swept)])


def unread_in(cells: list[Cell], assignments: list[str]) -> list[str]:
    """Sentences on typed settings that no run reads, and on swept ones that only some of the runs read."""
    swept, fixed = split_grid(parse(assignments, GRAMMAR)[0].values())
    notes = []
    for key in sorted(_typed_in(swept, fixed)):
        told = [text for cell in cells for text in unread(cell.recipe, [key])]
        if len(told) == len(cells):
            notes.append(told[0])
        elif told and key in swept:
            notes.append(f"in {len(told)} of {len(cells)} runs {told[0]}")
    return notes


def _as_toml(value: Any) -> str:
    return value if isinstance(value, str) else toml_value(value)  # bare words, since none is one


def _label(settings: dict[str, Any]) -> str:
    """A folder name that says which point this is."""
    parts = [f"{key.rpartition('.')[2]}={_as_toml(value)}" for key, value in settings.items()]
    return re.sub(r"[^\w.=+-]+", "_", ",".join(parts).replace(",", "+"))[:120].strip("_")
