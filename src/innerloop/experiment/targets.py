"""Whether losses, methods and outputs fit the targets that tasks have."""

from __future__ import annotations

import torch

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss, is_classification
from innerloop.core.types import Task
from innerloop.learners.table import needs_labels, uses_head
from innerloop.recipes.schema import Recipe


def check_targets(recipe: Recipe, example: Task) -> None:
    """Refuses losses and methods that cannot work with the targets of the tasks.

    Raises:
        UserError: with the setting to change.
    """
    family, inner, labels = recipe.tasks.family, recipe.inner, not example.y_support.is_floating_point()
    kind, fix = ("labels", "cross-entropy") if labels else ("numbers", "mse")
    for key, loss in (("inner.loss", inner.loss), ("outer.loss", recipe.outer.loss)):
        if loss is not None and is_classification(get_loss(loss)) != labels:
            raise UserError(f"tasks.family={family} has {kind} as targets: set {key}={fix}, not {loss}.")
    if needs_labels(inner.method) and not labels:
        raise UserError(
            f"inner.method={inner.method} tells classes apart, and tasks.family={family} has numbers as "
            "targets: set inner.method=maml or anil, or take tasks with labels (tasks.family=few-shot)."
        )


def check_outputs(recipe: Recipe, needed: int, labels: bool) -> None:
    """Refuses a number of outputs that cannot hold the targets.

    Raises:
        UserError: with the number that can.
    """
    asked = recipe.model.outputs
    by_features = not uses_head(recipe.inner.method) and recipe.outer.objective == "episodic"
    if asked is None or by_features or asked == needed or (labels and asked > needed):
        return
    what = f"{needed} classes to tell apart" if labels else f"targets of {needed} column(s)"
    raise UserError(
        f"model.outputs={asked} does not fit tasks with {what}: leave it out, or set model.outputs={needed}."
    )


def targets_needed(example: Task) -> int:
    """Outputs that tell all labels of a task apart, or as many as its targets have columns."""
    y = example.y_support
    return y.shape[-1] if y.is_floating_point() else int(torch.cat([y, example.y_query]).max()) + 1
