"""The one place where parts meet the training loop, and the one where they are judged; on every rank."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from innerloop.core.losses import is_classification
from innerloop.core.statistics import Interval
from innerloop.core.types import Buffers, Params
from innerloop.evaluation.scores import Evaluation, evaluate
from innerloop.experiment.data import Data, sizes_from
from innerloop.experiment.learner import in_label_orders, test_steps
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.parts import Parts
from innerloop.experiment.pictures import build_kinds
from innerloop.experiment.protocol import head_protocol
from innerloop.experiment.ranks import IN_STEP, all_ranks, at_work
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.trust import admit, foreign_code
from innerloop.experiment.weights import for_test
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.rank_group import RankGroup
from innerloop.training.loop import Log, Save, Tell, Validation, fit
from innerloop.training.state import TrainState, group_of, in_order, state_from

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
    """Trains as the recipe says, from its first weights or a later state; torch has the plan's threads."""
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
    from innerloop.evaluation.frozen import evaluate_head

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
    """How many test tasks keep the labels that were given, and the queries of the largest."""
    if recipe.tasks.family not in IMAGE_FAMILIES:
        return 0, 0
    widest = max(kind.ways * kind.queries for kind in build_kinds(recipe, training=False))
    return min(recipe.eval.predictions, recipe.eval.episodes, max(1, MOST_QUERIES // widest)), widest


def validation_of(parts: Parts, plan: Plan) -> Validation:
    """How a recipe is validated while it trains."""
    recipe, outer = parts.recipe, parts.recipe.outer

    def score(params: Params, buffers: Buffers) -> Interval:
        """The score on validation tasks."""
        episodes = recipe.eval.validation_episodes
        return judge(parts, params, buffers, "validation", episodes, plan).interval

    return Validation(
        score,
        every=recipe.eval.every or max(1, outer.steps // 10),
        higher_is_better=is_classification(parts.loss),
        patience=recipe.eval.patience,
        plateau=(outer.factor, outer.plateau_patience) if outer.schedule == "plateau" else None,
    )


def validation_words(record: dict[str, Any]) -> str:
    """A validation in words; one that is not finite never counts as the best, and training goes on."""
    if not math.isfinite(record["validation"]):
        return "is not finite, so these weights cannot be the best: lower inner.lr or inner.test_steps"
    return f"{record['validation']:.4g} ± {record['ci95']:.2g}"


Call = Callable[[Parts, Plan, dict[str, Tensor], dict[str, Any]], None]


@recipe_words()
def carry_out(group: RankGroup, told: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """One call of rank 0; errors that all ranks meet alike are told there, and end only the call."""
    group.timeout = told["timeout"]
    parts = _parts(json.dumps(told["recipe"]), json.dumps(told["sizes"]))
    try:
        with at_work(group):
            CALLS[told["kind"]](parts, Plan(**told["plan"]), tensors, told["arguments"])
    except IN_STEP:
        pass


@functools.lru_cache(maxsize=2)
def _parts(recipe: str, sizes: str) -> Parts:
    """Parts are kept from call to call: compiled functions and opened data belong to them."""
    read = Recipe.model_validate_json(recipe)
    trusted = admit(read, foreign_code(read), "rank 0", trust=False)  # rank 0 has asked
    return Parts(trusted, sizes=sizes_from(json.loads(sizes)))


def _fit_call(parts: Parts, plan: Plan, tensors: dict[str, Tensor], told: dict[str, Any]) -> None:
    state = in_order(state_from(tensors, told["scalars"]), parts.params, parts.buffers)
    validation = validation_of(parts, plan) if told["validated"] else None
    # rank 0 logs and keeps checkpoints; where it looks at the parameters before it does, so do the others
    save = _keep_nothing if told["saved"] else None
    fit_parts(parts, state, plan=plan, steps=told["steps"], validation=validation, save=save)


def _keep_nothing(state: TrainState, tags: tuple[str, ...]) -> None:
    del state, tags


def _judge_call(parts: Parts, plan: Plan, tensors: dict[str, Tensor], told: dict[str, Any]) -> None:
    device = parts.recipe.run.device
    params, buffers = (
        {n: v.to(device) for n, v in group_of(tensors, g).items()} for g in ("params", "buffers")
    )
    judge(parts, params, buffers, told["split"], told["episodes"], plan, told["steps"])


CALLS: dict[str, Call] = {"fit": _fit_call, "judge": _judge_call}
"""By the kind that rank 0 announces."""
