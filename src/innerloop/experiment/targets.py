"""Whether losses, methods and outputs fit the targets that tasks have."""

from __future__ import annotations

from innerloop.core.errors import Problems, UserError
from innerloop.core.losses import get_loss, is_classification
from innerloop.experiment.recipe.schema import Recipe
from innerloop.learners.table import needs_labels, uses_head


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
