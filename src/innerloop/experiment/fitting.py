"""The one place where parts meet the training loop, and the one where they are judged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from innerloop.core.types import Buffers, Params
from innerloop.evaluation.frozen import evaluate_head
from innerloop.evaluation.scores import Evaluation, evaluate
from innerloop.experiment.data import Data
from innerloop.experiment.heads import head_protocol
from innerloop.experiment.learner import in_label_orders, test_steps
from innerloop.experiment.parts import Parts
from innerloop.experiment.pictures import IMAGE_FAMILIES, build_kinds
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.together import all_ranks
from innerloop.experiment.weights import for_test
from innerloop.training.execution.plan import Plan
from innerloop.training.loop import Log, Save, Tell, Validation, fit
from innerloop.training.state import TrainState

MOST_QUERIES = 20_000
"""Queries whose labels are kept, at most: their file stays below a few hundred kilobytes."""


@torch.inference_mode(False)  # where it is called in inference mode, training still needs gradients
@torch.enable_grad()
def fit_parts(
    parts: Parts,
    state: TrainState | None = None,
    *,
    plan: Plan,
    steps: int | None = None,
    validation: Validation | None = None,
    log: Log | None = None,
    save: Save | None = None,
    tell: Tell | None = None,
) -> TrainState:
    """Trains as the recipe says, from its first weights or from a later state.

    Runs, trials of rates, short runs of reproductions, their tables of pictures and the estimator all train
    here. torch has the plan's threads meanwhile, and afterwards those it had.
    """
    outer, run = parts.recipe.outer, parts.recipe.run
    state, steps = parts.first if state is None else state, outer.steps if steps is None else steps
    judged, saved = validation is not None, save is not None
    told = {"scalars": state.scalars(), "steps": steps, "validated": judged, "saved": saved}
    with all_ranks("fit", parts, plan, state.tensors(), **told) as plan:
        return fit(
            parts.objective,
            state,
            parts.data.train,
            parts.optimiser,
            steps=steps,
            batch=outer.batch,
            plan=plan,
            schedule=parts.schedule,
            clip=outer.clip,
            hard_weight=outer.hard_weight,
            validation=validation,
            log=log,
            log_every=run.log_every,
            save=save,
            save_every=run.save_every,
            tell=tell,
        )


def judge(
    parts: Parts,
    params: Params,
    buffers: Buffers,
    split: str,
    episodes: int,
    plan: Plan,
    steps: int | None = None,
) -> Evaluation:
    """Scores weights on held-out tasks: by the recipe's learner, or by ``eval.head``."""
    tensors = TrainState(0, params, buffers, {}).tensors()
    with all_ranks("judge", parts, plan, tensors, split=split, episodes=episodes, steps=steps) as plan:
        return _judge(parts, *for_test(params, buffers), split, episodes, plan, steps)


def by_heads(recipe: Recipe, data: Data, plan: Plan, split: str = "test") -> Callable[..., Evaluation]:
    """:func:`evaluate_head` on a recipe's tasks, for any network: what it lacks is the network and how."""
    return partial(
        evaluate_head,
        source=data.pictures,
        split=split,
        kinds=build_kinds(recipe, training=False),
        balanced=recipe.tasks.balanced,
        plan=plan,
    )


def _judge(
    parts: Parts, params: Params, buffers: Buffers, split: str, episodes: int, plan: Plan, steps: int | None
) -> Evaluation:
    recipe, data = parts.recipe, parts.data
    if recipe.eval.head != "learner" and steps is None:
        protocol = head_protocol(recipe, parts.network.norm, episodes)
        if split != "test" and not protocol.ensemble:
            protocol = protocol._replace(grid=())  # validation asks for one number
        judged = by_heads(recipe, data, plan, split)
        keep = kept_tasks(recipe)[0] if split == "test" else 0
        return judged(parts.network, params, buffers, protocol=protocol, keep=keep, **data.scale._asdict())
    learner = parts.learner_after(test_steps(recipe) if steps is None else steps)
    if split == "test":
        learner = in_label_orders(recipe, learner, recipe.model.outputs or parts.sizes.outputs)
    sampler = data.test if split == "test" else data.validation
    keep, widest = kept_tasks(recipe) if split == "test" and steps is None else (0, 0)
    return evaluate(learner, params, buffers, sampler, parts.loss, episodes, plan, keep=keep, widest=widest)


def kept_tasks(recipe: Recipe) -> tuple[int, int]:
    """How many test tasks keep the labels that were given, and the queries of the largest.

    >>> kept_tasks(Recipe.model_validate({"tasks": {"family": "few-shot", "ways": 20, "queries": 100}}))
    (10, 2000)
    """
    if recipe.tasks.family not in IMAGE_FAMILIES:
        return 0, 0
    widest = max(kind.ways * kind.queries for kind in build_kinds(recipe, training=False))
    return min(recipe.eval.predictions, recipe.eval.episodes, max(1, MOST_QUERIES // widest)), widest
