"""A candidate trained for so many steps and judged on shared tasks: what a pilot is made of.

A trial keeps its result, and its state where it may be continued, in a folder of its own: one that was
finished before is read, and one that was interrupted is carried out again, to the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from innerloop.choose.pilot.workers import OutOfTimeError, in_processes
from innerloop.core.errors import NonFiniteError, UserError
from innerloop.core.files import read_json, write_json_atomic
from innerloop.core.random import derive_seed
from innerloop.core.statistics import mean_interval
from innerloop.data.source import only_rows
from innerloop.experiment.data import Data, build_data
from innerloop.experiment.fitting import fit_parts, judge
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.words import recipe_words
from innerloop.runs.checkpoints import load_checkpoint, save_checkpoint
from innerloop.training.execution.group import apart
from innerloop.training.execution.plan import Plan
from innerloop.training.state import TrainState, in_order, state_from

PLAN = Plan("loop", 1)
"""Candidates run side by side, one thread each: so a result does not depend on how many do."""

DENSE_PLAN = Plan("vmap", 1)
"""And those with a small dense network, whose tasks are fastest all at once."""

TIMED_STEPS, TIMED_TASKS = 3, 3
"""What is timed at least, after a first step that warms up."""

TIMED_SECONDS, MOST_TIMED = 0.3, 40
"""Fast steps are timed until they have taken this long together, or are this many: three tell little."""


class Trial(NamedTuple):
    """What to do with a candidate."""

    recipe: dict[str, Any]
    folder: Path
    name: str
    steps: int
    episodes: int
    seed: int = 0
    go_on: bool = False
    pool: list[int] | None = None

    @property
    def file(self) -> Path:
        """Where the result is kept."""
        return self.folder / f"{self.name}.json"


class Reached(NamedTuple):
    """What a trial came to."""

    steps: int
    episodes: int
    mean: float | None
    ci95: float | None
    seconds: float
    training_seconds: float
    scores: list[float]


class Costs(NamedTuple):
    """Seconds of a meta-step, of a validation task, and of building the parts."""

    step: float
    episode: float
    build: float


@recipe_words()
def carry_out(trial: Trial) -> Reached:
    """The result of a trial; one that was kept is read."""
    if trial.file.is_file():
        return _kept(trial.file)
    trial.folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    parts = _parts(trial)
    state = _trained(parts, trial)
    trained = time.perf_counter()
    scores = [] if state is None else _judged(_on_pool(parts, trial.pool), state, trial.episodes)
    interval = mean_interval(scores) if scores else None
    result = Reached(
        steps=trial.steps,
        episodes=trial.episodes,
        mean=interval.mean if interval else None,
        ci95=interval.ci95 if interval else None,
        seconds=time.perf_counter() - started,
        training_seconds=trained - started,
        scores=scores,
    )
    write_json_atomic(trial.file, result._asdict())
    return result


def _kept(file: Path) -> Reached:
    try:
        return Reached(**read_json(file))
    except TypeError:
        raise UserError(f"{file} is damaged: remove it, and its candidate is trained again.") from None


def _parts(trial: Trial) -> Parts:
    judged = on_pilot_tasks(make_recipe(trial.recipe), trial.seed)
    return Parts(judged, _data(judged))


def on_pilot_tasks(recipe: Recipe, seed: int) -> Recipe:
    """The recipe with the held-out tasks that trials of this seed are judged on."""
    drawn = derive_seed(recipe.eval.seed, "pilot", seed) % 2**31
    return recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"seed": drawn})})


_DATA: dict[str, Data] = {}


def _data(recipe: Recipe) -> Data:
    """The tasks of the recipe; candidates share them, so that a process looks through its pictures once."""
    key = recipe.model_dump_json(include={"data", "tasks", "eval", "run"})
    if key not in _DATA:
        _DATA.clear()
        _DATA[key] = build_data(recipe)
    return _DATA[key]


def _plan(parts: Parts) -> Plan:
    return DENSE_PLAN if parts.recipe.model.kind == "mlp" else PLAN


def _trained(parts: Parts, trial: Trial) -> TrainState | None:
    """The state after the trial's steps; None if it diverged."""
    saved = load_checkpoint(trial.folder, "last")
    state = in_order(state_from(*saved), parts.params, parts.buffers) if saved else None
    try:
        state = fit_parts(parts, state, plan=_plan(parts), steps=trial.steps)
    except NonFiniteError:
        return None
    if trial.go_on:
        save_checkpoint(trial.folder, state.step, state.tensors(), state.scalars())
    return state


def _on_pool(parts: Parts, pool: Sequence[int] | None) -> Parts:
    """The same network on tasks that show these pictures only."""
    if pool is None:
        return parts
    return Parts(parts.recipe, pooled(parts.data, pool), parts.sizes, parts.model)


def pooled(data: Data, pool: Sequence[int]) -> Data:
    """Validation tasks of these pictures only, standardised as all are."""
    return build_data(data.recipe, only_rows(data.pictures, pool, "validation"), scale=data.scale)


def _judged(parts: Parts, state: TrainState, episodes: int) -> list[float]:
    with np.errstate(invalid="ignore"):  # infinite scores are expected here, and left out
        evaluation = judge(parts, state.params, state.buffers, "validation", episodes, _plan(parts))
    return evaluation.scores if all(map(math.isfinite, evaluation.scores)) else []


def timed(
    recipes: Sequence[dict[str, Any]], workers: int, left: Callable[[], float] | None = None
) -> dict[int, Costs]:
    """What a step and a validation task of every candidate cost, so many at a time, by their place."""
    costs: dict[int, Costs] = {}
    with apart(), suppress(OutOfTimeError):
        for place, cost in in_processes(_timed, recipes, workers, left):
            costs[place] = cost
    return costs


@recipe_words()
def _timed(recipe: dict[str, Any]) -> Costs:
    begin = time.perf_counter()
    whole = make_recipe(recipe)
    parts = Parts(whole, _data(whole))
    state = parts.first
    built = time.perf_counter()
    warm = built
    try:
        state = fit_parts(parts, state, plan=_plan(parts), steps=1)
        warm = time.perf_counter()
        some = TIMED_STEPS if warm - built < TIMED_SECONDS else 1  # of slow steps one tells enough
        while state.step <= MOST_TIMED - some and time.perf_counter() - warm < TIMED_SECONDS:
            state = fit_parts(parts, state, plan=_plan(parts), steps=state.step + some)
    except NonFiniteError:
        pass  # what was done before counts: its cost is told too high rather than too low
    steps = max(1, state.step - 1)
    stepped = time.perf_counter()
    _judged(parts, state, TIMED_TASKS)
    ended = time.perf_counter()
    return Costs((stepped - warm) / steps, (ended - stepped) / TIMED_TASKS, built - begin)
