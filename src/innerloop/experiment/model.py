"""The model of a recipe, without data: network, learner and objective, sized to what tasks ask for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from innerloop.core.errors import Problems, UserError, did_you_mean
from innerloop.core.losses import get_loss, is_classification, smoothed
from innerloop.core.types import Loss
from innerloop.experiment.data import Sizes
from innerloop.experiment.learner import build_learner, in_label_orders
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES, kinds_asked
from innerloop.experiment.recipe.schema import Recipe
from innerloop.learners.base import Learner
from innerloop.learners.objectives.base import Objective
from innerloop.learners.objectives.distillation import Teacher, distilled
from innerloop.learners.objectives.episodic import episodic, erm
from innerloop.learners.objectives.mixed_precision import in_bfloat16
from innerloop.learners.objectives.multitask import multitask
from innerloop.learners.objectives.reptile import reptile
from innerloop.learners.table import needs_labels, uses_head
from innerloop.nets.mlp import mlp
from innerloop.nets.network import Network, with_last_layer


class Model(NamedTuple):
    """What is trained, and how it learns a task."""

    network: Network
    loss: Loss
    objective: Objective
    learner_after: Callable[[int], Learner]
    learner: Learner


@recipe_words()
def build_model(recipe: Recipe, sizes: Sizes, teacher: Teacher | None = None) -> Model:
    """The model that a recipe describes, for tasks of these sizes."""
    problems = Problems()
    with problems.collect():
        check_targets(recipe, sizes.labels)
    with problems.collect():
        network = build_network(recipe, sizes)
    problems.refuse()
    loss = get_loss(recipe.outer.loss or recipe.inner.loss)

    def learner_after(steps: int) -> Learner:
        """The learner with another number of inner steps."""
        return build_learner(recipe.inner, network, steps, sizes.ways)

    learner = learner_after(recipe.inner.steps)
    in_label_orders(recipe, learner, recipe.model.outputs or sizes.outputs)  # refuses more than there are
    share = recipe.outer.label_smoothing if is_classification(loss) else 0.0
    objective = build_objective(recipe, network, learner, smoothed(loss, share), sizes, teacher)
    if recipe.run.bfloat16:
        objective = in_bfloat16(objective, recipe.run.device)
    return Model(network, loss, objective, learner_after, learner)


def build_network(recipe: Recipe, sizes: Sizes) -> Network:
    """The network, sized to the tasks."""
    problems = Problems()
    with problems.collect():
        check_outputs(recipe, sizes.outputs, sizes.labels)
    with problems.collect():
        check_kind(recipe.model.kind)
        network = _network(recipe, sizes.inputs, recipe.model.outputs or sizes.outputs)
    problems.refuse()
    return with_last_layer(network, recipe.model.last_layer, recipe.model.cosine_scale)


def check_kind(kind: str) -> None:
    """Refuses the name of a network that there is not."""
    if kind == "mlp" or ":" in kind:
        return
    from innerloop.nets.factory import BACKBONES

    known = ["mlp", *BACKBONES]
    if kind not in known:
        hint = did_you_mean(kind, known)
        raise UserError(f"unknown model.kind '{kind}'{hint}; there are {', '.join(known)}, or your own.")


def _network(recipe: Recipe, shape: tuple[int, ...], outputs: int) -> Network:
    model = recipe.model
    if model.kind == "mlp":
        return mlp(
            math.prod(shape),
            model.hidden,
            outputs,
            model.activation,
            model.parametrisation,
            model.bias,
            model.weight_var,
        )
    from innerloop.nets.factory import build_backbone

    check_channels(model.kind, shape)
    if ":" in model.kind and not model.kind.startswith("timm:"):
        return build_backbone(model.kind, (0, 0, outputs), model.norm, model.head, model.settings)
    if len(shape) != 3 or shape[-1] != shape[-2]:
        raise UserError(
            f"model.kind={model.kind} wants square images, but tasks.family={recipe.tasks.family} gives "
            f"inputs of shape {shape}: set model.kind=mlp."
        )
    own = {"filters": model.filters, "pooling": model.pooling, "bias": model.bias}
    settings = own if model.kind == "conv4" else model.settings
    return build_backbone(model.kind, (shape[0], shape[-1], outputs), model.norm, model.head, settings)


def build_objective(
    recipe: Recipe,
    network: Network,
    learner: Learner,
    loss: Loss,
    sizes: Sizes,
    teacher: Teacher | None = None,
) -> Objective:
    """What one task contributes; multi-task learning trains ``sizes.rows`` heads."""
    outer = recipe.outer
    if teacher is not None:
        return distilled(network, loss, teacher, outer.label_weight, outer.teacher_weight, outer.temperature)
    if outer.objective == "erm":
        return erm(network, loss)
    if outer.objective == "multitask":
        return multitask(network, loss, sizes.rows, outer.heads, _training_ways(recipe, sizes))
    if outer.objective == "reptile":
        return reptile(learner, loss)
    return episodic(learner, loss, recipe.inner.split)


def _training_ways(recipe: Recipe, sizes: Sizes) -> int:
    """Classes of the largest training task."""
    if recipe.tasks.family not in IMAGE_FAMILIES:
        return sizes.ways
    return max(kind.ways for kind in kinds_asked(recipe, training=True))


def check_targets(recipe: Recipe, labels: bool) -> None:
    """Refuses losses and methods that cannot work with the targets of the tasks, labels or numbers."""
    family, inner, problems = recipe.tasks.family, recipe.inner, Problems()
    kind, fix = ("labels", "cross-entropy") if labels else ("numbers", "mse")
    for key, loss in (("inner.loss", inner.loss), ("outer.loss", recipe.outer.loss)):
        if loss is not None and is_classification(get_loss(loss)) != labels:
            problems.add(f"tasks.family={family} has {kind} as targets: set {key}={fix}, not {loss}.")
    if needs_labels(inner.method) and not labels:
        problems.add(
            f"inner.method={inner.method} tells classes apart, and tasks.family={family} has numbers as "
            "targets: set inner.method=maml or anil, or take tasks with labels (tasks.family=few-shot)."
        )
    problems.refuse()


def check_outputs(recipe: Recipe, needed: int, labels: bool) -> None:
    """Refuses a number of outputs that cannot hold the targets."""
    asked = recipe.model.outputs
    by_features = not uses_head(recipe.inner.method) and recipe.outer.objective == "episodic"
    if asked is None or by_features or asked == needed or (labels and asked > needed):
        return
    what = f"{needed} classes to tell apart" if labels else f"targets of {needed} column(s)"
    raise UserError(
        f"model.outputs={asked} does not fit tasks with {what}: leave it out, or set model.outputs={needed}."
    )


def check_channels(kind: str, shape: Sequence[int]) -> None:
    """Refuses grey pictures for a network whose weights and scale are for three channels."""
    from innerloop.nets.hugging_face import is_hugging_face
    from innerloop.nets.pretrained import PRETRAINED

    if (kind in PRETRAINED or is_hugging_face(kind)) and len(shape) == 3 and shape[0] != 3:
        raise UserError(f"model.kind={kind} wants pictures in three channels: set data.colour=rgb.")
