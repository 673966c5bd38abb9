"""RFS (simple) as Landscape trains it: one classifier of all training classes, judged by a head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from innerloop.core.types import Buffers, Params, Task, TaskBatch
    from innerloop.data.source import ImageSource
    from innerloop.learners.objectives.base import Objective
    from innerloop.nets.network import Network
    from innerloop.tasks.few_shot import Kind
    from innerloop.tasks.sampler import Sampler

BATCH = 64
CLASSES = "classes.weight"


def minibatches(source: ImageSource, kinds: Sequence[Kind], seed: int) -> Sampler:
    """Pictures of all training classes, drawn with replacement; their labels are class numbers."""
    import numpy as np
    import torch

    from innerloop.core.random import derive_seed, hashed_uniform
    from innerloop.core.types import TaskBatch
    from innerloop.data.source import labels
    from innerloop.tasks.loading import image_loader
    from innerloop.tasks.sampler import Sampler

    number, load = labels(source), image_loader(source)
    rows = np.flatnonzero(np.isin(number, training_classes(source, kinds)))
    stream = derive_seed(seed, "minibatch")

    def episodes(indices: Sequence[int]) -> TaskBatch:
        """The minibatches of these numbers."""
        index = np.asarray(indices, dtype=np.int64)
        picked = rows[(hashed_uniform(stream, index, BATCH) * len(rows)).astype(np.int64)]
        x, y = load(picked), torch.from_numpy(number[picked])
        return TaskBatch(x, y, x[:, :0], y[:, :0], torch.from_numpy(index))

    return Sampler(episodes, None, f"{source.name} minibatches")


def supervised(net: Network, classes: int) -> Objective:
    """One linear classifier of all classes on the body's features; the head is left alone."""
    import torch
    import torch.nn.functional as F

    from innerloop.learners.objectives.base import Objective

    def init(params: Params, generator: torch.Generator) -> Params:
        """Adds the classifier."""
        width = params[net.head_names[0]].shape[-1]
        return {**params, CLASSES: torch.randn(classes, width, generator=generator) / width**0.5}

    def loss(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Buffers]:
        """Cross-entropy over all classes."""
        z, _ = net.features(params, buffers, task.x_support, "batch")
        return F.cross_entropy(z @ params[CLASSES].T, task.y_support), buffers

    return Objective("supervised", loss=loss, init=init, untrained=tuple(net.head_names))


def training_classes(source: ImageSource, kinds: Sequence[Kind]) -> Any:
    """Class numbers that any kind may draw from."""
    import numpy as np

    if source.groups is None or any(kind.groups is None for kind in kinds):
        return np.arange(source.n_classes)
    names = {name for kind in kinds for name in kind.groups or ()}
    wanted = [i for i, name in enumerate(source.group_names) if name in names]
    return np.flatnonzero(np.isin(source.groups, wanted))


def by_head(net: Network, params: Params, buffers: Buffers, task: Task, ways: int) -> float:
    """The accuracy of logistic regression on normalised features of the frozen body (C = 3), as in Bridge."""
    import torch

    from innerloop.core.losses import accuracy
    from innerloop.evaluation.heads import fit_heads, head_scores

    with torch.no_grad():
        z, q = (
            net.features(params, buffers, x, "batch")[0].flatten(1)[None].double()
            for x in (task.x_support, task.x_query)
        )
        fitted = fit_heads(z, task.y_support[None], ways, "logistic", 3.0, True)
        return float(accuracy(head_scores(fitted, q)[0], task.y_query))
