"""Trials: an entrant trained for so many steps and judged on shared tasks, kept, and continued to the bit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from innerloop.core.errors import NonFiniteError, UserError
from innerloop.core.files import read_json, write_json_atomic
from innerloop.core.random import derive_seed
from innerloop.core.statistics import mean_interval
from innerloop.data.source import only_rows
from innerloop.experiment.data import Data, build_data
from innerloop.experiment.fitting import fit_parts, judge
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.picture_fit import with_settings
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.runs.checkpoints import load_checkpoint, save_checkpoint
from innerloop.runs.executors import OutOfTimeError, as_finished, open_executor
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.rank_group import apart
from innerloop.training.state import TrainState, in_order, state_from

PLAN = Plan("loop", 1)
"""Entrants run side by side, one thread each: so a result does not depend on how many do."""

DENSE_PLAN = Plan("vmap", 1)
"""And those with a small dense network, whose tasks are fastest all at once."""

TIMED_STEPS, TIMED_TASKS = 3, 3
"""What is timed at least, after a first step that warms up."""

TIMED_SECONDS, MOST_TIMED = 0.3, 40
"""Fast steps are timed until they have taken this long together, or are this many: three tell little."""

Job = TypeVar("Job")
Value = TypeVar("Value")
Left = Callable[[], float] | None


class Costs(NamedTuple):
    """Seconds of a meta-step, of a validation task, and of building the parts."""

    step: float
    episode: float
    build: float


class Trial(NamedTuple):
    """What to do with an entrant."""

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


class TrialResult(NamedTuple):
    """What a trial came to; no scores where it diverged."""

    steps: int
    episodes: int
    mean: float | None
    ci95: float | None
    seconds: float
    training_seconds: float
    scores: list[float]


def shorten(recipe: Recipe, steps: int, queries: int | None) -> dict[str, Any]:
    """A recipe within so many steps, its schedule shortened, with validation ``queries``, as plain data."""
    outer = recipe.outer
    warmup = min(outer.warmup, math.ceil(outer.warmup * steps / outer.steps))
    judged = {} if queries is None else {"queries": queries}
    short = with_settings(recipe, {"outer": {"steps": steps, "warmup": warmup}, "eval": judged})
    return short.model_dump(exclude_none=True)


@recipe_words()
def run_trial(
    trial: Trial, parts: Parts | None = None, plan: Plan | None = None, test_steps: int | None = None
) -> TrialResult:
    """The result of a trial; a kept one is read. What is handed in is not that of the trial's recipe."""
    if trial.file.is_file():
        return _read_result(trial.file)
    trial.folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    parts = parts or _parts(trial)
    plan = plan or _plan(parts)
    state = _train(parts, trial, plan)
    trained = time.perf_counter()
    judged = _on_pool(parts, trial.pool)
    scores = [] if state is None else _scores(judged, state, trial.episodes, plan, test_steps)
    interval = mean_interval(scores) if scores else None
    result = TrialResult(
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


def run_trials(
    trials: Sequence[Trial], pool: int | Executor, tick: Callable[[Trial], None], left: Left = None
) -> list[TrialResult | None]:
    """The results of several trials, in their order; None for those that were ended because time was up."""
    results = {place: run_trial(trial) for place, trial in enumerate(trials) if trial.file.is_file()}
    for place in results:
        tick(trials[place])
    todo = [place for place in range(len(trials)) if place not in results]
    with apart(), suppress(OutOfTimeError):  # one process trains an entrant, whatever other ranks do
        for number, result in map_jobs(run_trial, [trials[place] for place in todo], pool, left):
            results[todo[number]] = result
            tick(trials[todo[number]])
    for place in set(todo).difference(results):  # finished, but nobody was told in time
        if trials[place].file.is_file():
            results[place] = run_trial(trials[place])
    return [results.get(place) for place in range(len(trials))]


def _read_result(file: Path) -> TrialResult:
    try:
        return TrialResult(**read_json(file))
    except TypeError:
        raise UserError(f"{file} is damaged: remove it, and its candidate is trained again.") from None


def _parts(trial: Trial) -> Parts:
    judged = with_pilot_tasks(make_recipe(trial.recipe), trial.seed)
    return Parts(judged, _data(judged))


def with_pilot_tasks(recipe: Recipe, seed: int) -> Recipe:
    """The recipe with the held-out tasks that trials of this seed are judged on."""
    drawn = derive_seed(recipe.eval.seed, "pilot", seed) % 2**31
    return with_settings(recipe, {"eval": {"seed": drawn}})


_DATA: dict[str, Data] = {}


def _data(recipe: Recipe) -> Data:
    """The tasks of the recipe; entrants share them, so that a process looks through its pictures once."""
    key = recipe.model_dump_json(include={"data", "tasks", "eval", "run"})
    if key not in _DATA:
        _DATA.clear()
        _DATA[key] = build_data(recipe)
    return _DATA[key]


def _plan(parts: Parts) -> Plan:
    return DENSE_PLAN if parts.recipe.model.kind == "mlp" else PLAN


def _train(parts: Parts, trial: Trial, plan: Plan) -> TrainState | None:
    """The state after the trial's steps; None if it diverged."""
    saved = load_checkpoint(trial.folder, "last")
    state = in_order(state_from(*saved), parts.params, parts.buffers) if saved else None
    if not trial.steps:
        return parts.first
    try:
        state = fit_parts(parts, state, plan=plan, steps=trial.steps)
    except NonFiniteError:
        return None
    if trial.go_on:
        save_checkpoint(trial.folder, state.step, state.tensors(), state.scalars())
    return state


def _on_pool(parts: Parts, pool: Sequence[int] | None) -> Parts:
    """The same network on tasks that show these pictures only."""
    if pool is None:
        return parts
    return Parts(parts.recipe, pool_tasks(parts.data, pool), parts.sizes, parts.model)


def pool_tasks(data: Data, pool: Sequence[int]) -> Data:
    """Validation tasks of these pictures only, standardised as all are."""
    return build_data(data.recipe, only_rows(data.pictures, pool, "validation"), scale=data.scale)


def _scores(
    parts: Parts, state: TrainState, episodes: int, plan: Plan, test_steps: int | None = None
) -> list[float]:
    """Of every validation task; none where one of them is not finite."""
    with np.errstate(invalid="ignore"):  # infinite scores are expected here, and left out
        judged = judge(parts, state.params, state.buffers, "validation", episodes, plan, test_steps)
    return judged.scores if all(map(math.isfinite, judged.scores)) else []


def measure_costs(
    build: Callable[[], Parts],
    plan: Plan | None = None,
    *,
    tasks: int = TIMED_TASKS,
    most: int = MOST_TIMED,
    test_steps: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Costs, bool]:
    """What a step, a validation task and building cost, and whether training stayed finite meanwhile."""
    begin = clock()
    parts = build()
    state, plan, finite = parts.first, plan or _plan(parts), True
    built = warm = clock()
    try:
        state = fit_parts(parts, state, plan=plan, steps=1)
        warm = clock()
        some = TIMED_STEPS if warm - built < TIMED_SECONDS else 1  # of slow steps one tells enough
        state = fit_parts(parts, state, plan=plan, steps=1 + some)
        while state.step <= most - some and clock() - warm < TIMED_SECONDS:
            state = fit_parts(parts, state, plan=plan, steps=state.step + some)
    except NonFiniteError:
        finite = False  # what was done before counts: its cost is told too high rather than too low
    steps = max(1, state.step - 1)
    stepped = clock()
    _scores(parts, state, tasks, plan, test_steps)
    ended = clock()
    return Costs((stepped - warm) / steps, (ended - stepped) / tasks, built - begin), finite


def measure_recipes(
    recipes: Sequence[dict[str, Any]], pool: int | Executor, left: Left = None
) -> dict[int, Costs]:
    """What steps and validation tasks of recipes cost, by their place, as far as there is time."""
    costs: dict[int, Costs] = {}
    with apart(), suppress(OutOfTimeError):
        for place, cost in map_jobs(_costs_of, recipes, pool, left):
            costs[place] = cost
    return costs


@recipe_words()
def _costs_of(recipe: dict[str, Any]) -> Costs:
    def build() -> Parts:
        whole = make_recipe(recipe)
        return Parts(whole, _data(whole))

    return measure_costs(build)[0]


def map_jobs(
    work: Callable[[Job], Value], jobs: Sequence[Job], pool: int | Executor, left: Left = None
) -> Iterator[tuple[int, Value]]:
    """The place of every job and its value, as they finish; :class:`OutOfTimeError` where no time is left."""
    # when the consumer stops, jobs under way are ended: each keeps what it finishes, whole or not at all
    if isinstance(pool, Executor):
        yield from as_finished(pool, work, jobs, left=left)
    elif jobs:
        with open_executor(min(pool, len(jobs)), separate=left is not None) as executor:
            yield from as_finished(executor, work, jobs, left=left)


def decide_once(folder: Path, what: str, decide: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What measured times decided: as before where it was kept, so that a resumed race is the same."""
    file = folder / f"{what}.json"
    if not file.is_file():
        write_json_atomic(file, decide())
    return dict(read_json(file))
