"""The network of a recipe from the shape of its pictures alone."""

from __future__ import annotations

from typing import Any

import torch

from innerloop.core.types import Task
from innerloop.experiment.build import build_network
from innerloop.experiment.look import Look
from innerloop.nets import Network
from innerloop.recipes.schema import Recipe


def network_for(recipe: Recipe, look: Look, outputs: int) -> Network:
    """The network of a recipe for pictures of this look, without any data."""
    side, _, channels = look.shape
    x, y = torch.zeros(1, channels, side, side), torch.zeros(1, dtype=torch.long)
    # what training asks of the number of outputs has been answered: it is known
    changed: dict[str, Any] = {
        "tasks": recipe.tasks.model_copy(update={"family": "few-shot"}),
        "model": recipe.model.model_copy(update={"outputs": outputs}),
        "inner": recipe.inner.model_copy(update={"method": "protonet"}),
        "outer": recipe.outer.model_copy(update={"objective": "episodic"}),
    }
    return build_network(recipe.model_copy(update=changed), Task(x, y, x, y, y))
