"""What needs no training, beside a result on pictures."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.core.types import Params
from innerloop.evaluation.baselines import Baseline, Start, trivial_baselines
from innerloop.evaluation.scores import Evaluation
from innerloop.experiment.data import Data
from innerloop.experiment.fitting import by_heads
from innerloop.experiment.heads import head_protocol
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES
from innerloop.experiment.recipe.schema import Recipe
from innerloop.nets.hugging_face import is_hugging_face
from innerloop.training.execution.plan import Plan


def beside(
    recipe: Recipe, data: Data, evaluation: Evaluation, plan: Plan, start: Start | None = None
) -> list[Baseline]:
    """The baselines beside an evaluation; none without pictures, or if the recipe wants none."""
    if not wanted(recipe):
        return []
    protocol = head_protocol(recipe, "none", recipe.eval.episodes)
    return trivial_baselines(by_heads(recipe, data, plan), protocol, evaluation, start)


def wanted(recipe: Recipe) -> bool:
    """Whether a recipe's result has baselines beside it."""
    return recipe.tasks.family in IMAGE_FAMILIES and recipe.eval.baselines


def before_training(parts: Parts, params: Params) -> Start:
    """The network as it is made, without what a run was started from: that was trained.

    A model of transformers is made with its weights, so that it never is untrained.
    """
    like: Tensor = next(iter(params.values()))
    made = parts.network.init(torch.Generator().manual_seed(parts.recipe.run.seed))
    first, buffers = ({n: v.to(like.device) for n, v in tree.items()} for tree in made)
    first = {n: v.to(like.dtype) if v.is_floating_point() else v for n, v in first.items()}
    name = "pretrained" if is_hugging_face(parts.recipe.model.kind) else "untrained"
    return Start(name, parts.network, first, buffers, *parts.data.scale)
