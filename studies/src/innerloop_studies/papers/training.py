"""Short training runs inside a reproduction: no run directory, scores on held-out tasks."""

import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.choose.rates import advice_for
from innerloop.core import Buffers, Interval, NonFiniteError, Params, UserError
from innerloop.data.source import ImageSource
from innerloop.evaluation.heads import fit_heads, head_scores
from innerloop.experiment import Recipe, make_recipe
from innerloop.experiment.data import build_data
from innerloop.experiment.fitting import fit_parts, judge
from innerloop.experiment.inner_rate import provisional
from innerloop.experiment.learner import test_steps
from innerloop.experiment.parts import Parts, build
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES
from innerloop.nets.network import Network
from innerloop.training import Plan, TrainState
from innerloop.training.execution.plan import Compile
from innerloop.training.execution.probes import native_works


class Fitted(NamedTuple):
    """The parts, their rate a number, and the trained state, None if a loss or weight was not finite."""

    parts: Parts
    state: TrainState | None


def combined(**choices: Sequence[Any]) -> list[dict[str, Any]]:
    """Jobs with every combination of the choices, the last of which changes first."""
    return [dict(zip(choices, job, strict=True)) for job in itertools.product(*choices.values())]


def mean_by_task(scores: Sequence[Sequence[float]]) -> list[float]:
    """Of several runs on the same tasks."""
    return [sum(each) / len(each) for each in zip(*scores, strict=True)]


def rescored(
    parts: Parts, state: TrainState, source: ImageSource | None = None, **settings: Any
) -> list[float]:
    """Scores of the same model on every test task, in order, under other settings of ``eval``."""
    recipe = parts.recipe.model_copy(update={"eval": parts.recipe.eval.model_copy(update=settings)})
    changed, plan = Parts(recipe, build_data(recipe, source), parts.sizes), plan_for(recipe)
    return judge(changed, state.params, state.buffers, "test", recipe.eval.episodes, plan).scores


def conv4_recipe(
    name: str, data: Mapping[str, Any], shape: tuple[int, int, int], seed: int, **more: Mapping[str, Any]
) -> Recipe:
    """A Conv4 on few-shot tasks of this many ways, shots and queries; ``more`` settings by section."""
    tasks = {"family": "few-shot", **dict(zip(("ways", "shots", "queries"), shape, strict=True))}
    sections: dict[str, Mapping[str, Any]] = {"data": data, "tasks": tasks, "model": {"kind": "conv4"}}
    sections |= {"inner": {"loss": "cross-entropy"}, "run": {"seed": seed}}
    given = {section: {**sections.get(section, {}), **own} for section, own in more.items()}
    return make_recipe({"name": name, **sections, **given})


def own_file(variable: str, name: str, missing: str, holds: str) -> Path:
    """A file of one's own: where the environment says, or of this name in ``INNERLOOP_TEST_DATA``."""
    folder = os.environ.get("INNERLOOP_TEST_DATA")
    given = os.environ.get(variable) or (f"{folder}/{name}" if folder else None)
    if given is None or not Path(given).is_file():
        raise UserError(f"{missing}: set {variable} to an .npz of {holds}.")
    return Path(given)


def by_frozen_features(net: Network, params: Params, buffers: Buffers, task: Any, ways: int) -> Tensor:
    """Query scores of logistic regression (C = 3) on normalised features of the frozen body, as in Bridge."""
    both = (net.features(params, buffers, x, "batch")[0] for x in (task.x_support, task.x_query))
    z, q = (one.flatten(1)[None].double() for one in both)
    return head_scores(fit_heads(z, task.y_support[None], ways, "logistic", 3.0, True), q)[0]


LONG = 300  # steps of a training that repays the compiling of native code


def plan_for(recipe: Recipe) -> Plan:
    """Small regressions under vmap, pictures one task at a time; ``run.threads`` threads."""
    threads = recipe.run.threads or 1
    pictures = recipe.tasks.family in IMAGE_FAMILIES
    return one_by_one(recipe.outer.steps, threads) if pictures else Plan("vmap", threads)


def one_by_one(steps: int, threads: int = 1) -> Plan:
    """Whole tasks of pictures, a thread each; by native code where training is long and it can be built."""
    how: Compile = "native" if steps >= LONG and native_works().works else "off"
    return Plan("threads" if threads > 1 else "loop", threads, compile=how)


def settled(recipe: Recipe) -> Parts:
    """What a recipe trains; ``inner.lr=auto`` takes the point of its advice."""
    parts = build(provisional(recipe))
    return parts.at_rate(advice_for(parts).alpha) if recipe.inner.lr == "auto" else parts


def fitted(recipe: Recipe) -> Fitted:
    """Trains a recipe."""
    parts, plan = settled(recipe), plan_for(recipe)
    try:
        return Fitted(parts, fit_parts(parts, plan=plan))
    except NonFiniteError:
        return Fitted(parts, None)


def judged(
    trained: Fitted, split: str = "test", rate: float | None = None, steps: int | None = None
) -> Interval:
    """Score on held-out tasks, at another rate or number of steps if given; nan if training failed."""
    if trained.state is None:
        return Interval(math.nan, math.nan, 0)
    parts = trained.parts if rate is None else trained.parts.at_rate(rate)
    wanted = parts.recipe.eval
    episodes = wanted.episodes if split == "test" else wanted.validation_episodes
    after = test_steps(parts.recipe) if steps is None else steps
    state, plan = trained.state, plan_for(parts.recipe)
    return judge(parts, state.params, state.buffers, split, episodes, plan, after).interval


def lbfgs(value: Callable[[], Tensor], free: list[Tensor], **options: Any) -> None:
    """Moves tensors to a minimum of a value of them, and leaves its gradients there in ``grad``."""
    optimiser = torch.optim.LBFGS(free, line_search_fn="strong_wolfe", **options)

    def closure() -> Any:
        optimiser.zero_grad()
        now = value()
        now.backward()
        return now

    optimiser.step(closure)
    closure()
