"""The runs of a sweep: every combination of listed values, or a space to draw from, all checked first."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_origin

from innerloop.core.errors import Problems, UserError, did_you_mean
from innerloop.experiment.recipe.grammar import Assignment, parse, read_value, toml_value
from innerloop.experiment.recipe.library import read_recipe
from innerloop.experiment.recipe.problems import kind, known_settings
from innerloop.experiment.recipe.rules import unread
from innerloop.experiment.recipe.schema import Recipe, absent, unknown
from innerloop.experiment.recipe.settings import RECIPE as GRAMMAR
from innerloop.experiment.recipe.settings import make_recipe, recipe_to_toml, typed_keys
from innerloop.experiment.recipe.trust import admit_all

SEED = "run.seed"
_MOST_PROBES = 200  # combinations of ends of ranges that are tried; beyond it, one range at a time


class Cell(NamedTuple):
    """One point of the grid."""

    label: str
    settings: dict[str, Any]
    recipe: Recipe


class SweepSpace(NamedTuple):
    """What runs are drawn from: ranges, and lists of values."""

    base: Recipe
    choices: dict[str, list[Any]]
    ranges: dict[str, Range]

    def cell(self, number: int, settings: dict[str, Any]) -> Cell:
        """The run of a drawn point; the number makes its name unlike all others."""
        recipe = make_recipe(self.base.model_dump(), _texts(settings), shared=True)
        return Cell(f"{number:04d}+{_label(settings)}", settings, recipe)


class _Asked(NamedTuple):
    """What was typed: ranges, lists, assignments that hold for all runs, and whether some range is none."""

    ranges: dict[str, Range]
    lists: dict[str, list[Any]]
    fixed: list[str]
    wrong: bool

    def keys(self) -> set[str]:
        """All settings that were typed."""
        return typed_keys([*self.fixed, *(f"{key}=0" for key in (*self.ranges, *self.lists))])


def split_grid(typed: Iterable[Assignment]) -> tuple[dict[str, list[Any]], list[str]]:
    """Swept keys with their values (of list settings, a list of lists), and what holds for all runs."""
    swept: dict[str, list[Any]] = {}
    fixed: list[str] = []
    for key, value, raw in typed:
        is_list_setting = key in known_settings() and get_origin(kind(known_settings()[key])[0]) is list
        if isinstance(value, list) and (not is_list_setting or any(isinstance(v, list) for v in value)):
            swept[key] = value
        else:
            fixed.append(f"{key}={raw}")
    return swept, fixed


def _read(assignments: list[str], problems: Problems) -> _Asked:
    typed, told = parse(assignments, GRAMMAR)
    problems.add(*(each.text for each in told))
    ranges, rest, wrong = split_ranges(typed.values())
    problems.add(*wrong)
    lists, fixed = split_grid(rest)
    empty = [key for key, values in lists.items() if not values]
    problems.add(*(f"{key}=[] sweeps over nothing: give at least one value." for key in empty))
    return _Asked(ranges, lists, fixed, bool(wrong))


def make_cells(
    source: str, assignments: list[str], trust: bool = False, problems: Problems | None = None
) -> list[Cell]:
    """Every run of the sweep, checked before any of them starts, also for code that nobody trusts."""
    problems = Problems() if problems is None else problems
    asked = _read(assignments, problems)
    for key in asked.ranges:
        problems.add(f"{key} is given a range: say how many runs are drawn from it, such as --trials 20.")
    if not (asked.lists or asked.ranges or asked.wrong):
        problems.add("a sweep needs at least one list, such as inner.lr=[0.001,0.01,0.1] or seed=[0,1,2].")
    full = {key: values for key, values in asked.lists.items() if values}
    return _cells(source, asked, _product(full), trust, problems)


def make_space(
    source: str, assignments: list[str], trust: bool = False, problems: Problems | None = None
) -> tuple[SweepSpace, list[Cell]]:
    """The space of a sweep that draws its runs, and the runs that it was tried with; arguments as above."""
    problems = Problems() if problems is None else problems
    asked = _read(assignments, problems)
    if not (asked.lists or asked.ranges or asked.wrong):
        problems.add("a sweep needs at least one range or list, such as inner.lr=log(1e-3,1).")
    if SEED in asked.ranges or SEED in asked.lists:
        problems.add(
            "seed is not to be searched for: draw with one seed, then sweep the best settings over seeds."
        )
    lists = {key: values for key, values in asked.lists.items() if values and key != SEED}
    ranges = {key: each for key, each in asked.ranges.items() if key != SEED}
    probes = {**{key: each.probes() for key, each in ranges.items()}, **lists}
    points = _product(probes) if math.prod(map(len, probes.values())) <= _MOST_PROBES else _one_by_one(probes)
    cells = _cells(source, asked, points, trust, problems)
    return SweepSpace(cells[0].recipe, lists, ranges), cells


def _product(values: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


def _one_by_one(values: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """All at their first values, then one at a time at each of its others."""
    first = {key: options[0] for key, options in values.items()}
    others = [{**first, key: value} for key, options in values.items() for value in options[1:]]
    return [first, *others]


def _cells(
    source: str, asked: _Asked, points: list[dict[str, Any]], trust: bool, problems: Problems
) -> list[Cell]:
    """The runs of some points, unless anything is wrong; no typed setting may be one that none has."""
    cells = []
    for settings in points:
        with problems.collect():
            recipe = read_recipe(source, [*asked.fixed, *_texts(settings)], shared=True)
            cells.append(Cell(_label(settings), settings, recipe))
    keys = sorted(asked.keys())
    out = [key for key in keys if cells and all(absent(cell.recipe, [key]) for cell in cells)]
    problems.add(*(unknown(cells[0].recipe, key) for key in out))
    problems.refuse()
    admit_all([cell.recipe for cell in cells], asked.keys(), source, trust)
    return cells


def unread_in(cells: list[Cell], assignments: list[str]) -> list[str]:
    """Sentences on typed settings that no run reads, and on swept ones that only some of the runs read."""
    asked = _read(assignments, Problems())
    notes = []
    for key in sorted(asked.keys()):
        told = [text for cell in cells for text in unread(cell.recipe, [key])]
        if len(told) == len(cells):
            notes.append(told[0])
        elif told and (key in asked.lists or key in asked.ranges):
            notes.append(f"in {len(told)} of {len(cells)} runs {told[0]}")
    return notes


def _texts(settings: Mapping[str, Any]) -> list[str]:
    return [f"{key}={as_toml(value)}" for key, value in settings.items()]


def as_toml(value: Any) -> str:
    """A value of a list as the settings grammar reads it."""
    return value if isinstance(value, str) else toml_value(value)  # bare words, since none is one


def _label(settings: Mapping[str, Any]) -> str:
    """A folder name that says which point this is."""
    parts = [f"{key.rpartition('.')[2]}={as_toml(value)}" for key, value in settings.items()]
    return re.sub(r"[^\w.=+-]+", "_", ",".join(parts).replace(",", "+"))[:120].strip("_")


def sweep_name(recipe: str, described: object) -> str:
    """The name of a sweep, the same for the same command."""
    return f"sweep-{recipe}-{hashlib.sha256(repr(described).encode()).hexdigest()[:8]}"


def described(cells: list[Cell]) -> list[tuple[str, str]]:
    """All that makes a grid another one."""
    return [(cell.label, recipe_to_toml(cell.recipe)) for cell in cells]


_MOST = 2.0**53  # beyond it not every whole number is a float, which is what samplers compute with
_CALL = re.compile(r"([A-Za-z_]+)\((.*)\)")
EXAMPLES = {"uniform": "uniform(0,0.5)", "log": "log(1e-3,1)", "int": "int(1,10)", "logint": "logint(4,64)"}
"""A range of every kind: of any numbers, all or every order of magnitude alike, and of whole numbers."""


class Range(NamedTuple):
    """Where values of a setting are drawn from, both ends included."""

    how: str
    low: float
    high: float

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return self.how in ("int", "logint")

    @property
    def log(self) -> bool:
        """Whether every order of magnitude is as likely as another."""
        return self.how in ("log", "logint")

    def probes(self) -> list[float]:
        """Its ends and a number between them that is not whole unless all are: what a recipe must accept."""
        middle = self.low + 0.381966 * (self.high - self.low)
        return [self.low, int(middle) if self.whole else middle, self.high]


def split_ranges(typed: Iterable[Assignment]) -> tuple[dict[str, Range], list[Assignment], list[str]]:
    """Ranges by their setting (but of text), the other assignments, and what is wrong with ranges."""
    ranges: dict[str, Range] = {}
    rest: list[Assignment] = []
    problems: list[str] = []
    for item in typed:
        call = _CALL.fullmatch(item.raw.strip())
        if call is None or not isinstance(item.value, str) or _takes_text(item.key):
            rest.append(item)
            continue
        try:
            ranges[item.key] = read_range(item.key, call[1], call[2])
        except UserError as error:
            problems.append(str(error))
    return ranges, rest, problems


def _takes_text(key: str) -> bool:
    field = known_settings().get(key)
    return field is not None and kind(field)[0] is str


def read_range(key: str, how: str, inside: str) -> Range:
    """The range that ``how(inside)`` means."""
    typed = f"{key}={how}({inside})"
    if how not in EXAMPLES:
        raise UserError(
            f"{typed}: there is no range '{how}'{did_you_mean(how, EXAMPLES)}; "
            f"write {', '.join(EXAMPLES.values())}."
        )
    ends = [read_value(part) for part in inside.split(",")]
    if len(ends) != 2 or not all(_is_number(end) for end in ends):
        raise UserError(f"{typed}: a range has two numbers, such as {key}={EXAMPLES[how]}.")
    low, high = ends
    if how in ("int", "logint") and not all(isinstance(end, int) for end in ends):
        raise UserError(f"{typed}: {how} takes whole numbers, such as {key}={EXAMPLES[how]}.")
    if how in ("log", "logint") and min(low, high) <= 0:
        raise UserError(f"{typed}: {how} takes numbers above 0, such as {key}={EXAMPLES[how]}.")
    if low >= high:
        fix = f"{key}={how}({high},{low})" if low > high else f"{key}={low}"
        raise UserError(f"{typed}: the smaller number comes first: write {fix}.")
    return Range(how, low, high)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_MOST < value < _MOST
