"""Whether the faster training step trains as well: held-out accuracy of both sides, seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.losses import get_loss
from innerloop.core.statistics import mean_interval, paired_difference
from innerloop.core.types import Params, TaskBatch
from innerloop.data.glyphs import glyphs
from innerloop.learners.objectives.erm import erm
from innerloop.learners.objectives.mixed_precision import at_precision
from innerloop.nets.resnet12 import resnet12
from innerloop.training.execution.gradients import meta_gradient
from innerloop.training.execution.plan import Plan

CLASSES, WIDTHS, SAMPLES = 40, (16, 32, 64, 64), 64
RATE, DECAY = 0.05, 5e-4


class ShortTraining(NamedTuple):
    """Both sides after a short training."""

    ours: float
    eager: float
    difference: float
    ci95: float
    seeds: int
    steps: int


def drawings() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two alphabets of the embedded glyphs: 14 drawings of each character to learn from, 6 held out."""
    source = glyphs()
    images = source.images[: CLASSES * 20].reshape(CLASSES, 20, 1, 28, 28).astype(np.float32) / 255
    x = F.pad(torch.from_numpy(images), (2, 2, 2, 2))
    y = torch.arange(CLASSES)[:, None].expand(-1, 20)
    parts = x[:, :14], y[:, :14], x[:, 14:], y[:, 14:]
    return tuple(part.flatten(0, 1) for part in parts)  # type: ignore[return-value]


def minibatches(count: int, steps: int, seed: int) -> list[Tensor]:
    """The same for both sides."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(count, (SAMPLES,), generator=generator) for _ in range(steps)]


def ours(seed: int, steps: int, precision: str = "float32") -> float:
    """Held-out accuracy of our training."""
    x, y, x_test, y_test = drawings()
    network = resnet12(1, 32, CLASSES, widths=WIDTHS, norm="running", drop_rate=0.0)
    params, buffers = network.init(torch.Generator().manual_seed(seed))
    objective = at_precision(erm(network, get_loss("cross-entropy")), precision).objective
    gradient = meta_gradient(objective.loss, Plan("loop", torch.get_num_threads()))
    optimiser = _sgd(list(params.values()))
    for rows in minibatches(len(x), steps, seed):
        a, b = x[rows][None], y[rows][None]
        batch = TaskBatch(a, b, a[:, :0], b[:, :0], torch.zeros(1, dtype=torch.int64))
        gradients = gradient(params, buffers, batch)
        buffers = gradients.buffers
        for name, leaf in params.items():
            leaf.grad = gradients.grads[name]
        optimiser.step()
    with torch.no_grad():
        z, _ = network.features(params, buffers, x_test, "stored")
        return float((network.head(params, z).argmax(1) == y_test).float().mean())


def eager(seed: int, steps: int, model: torch.nn.Module) -> float:
    """Held-out accuracy of plain modules, from our first weights."""
    x, y, x_test, y_test = drawings()
    network = resnet12(1, 32, CLASSES, widths=WIDTHS, norm="running", drop_rate=0.0)
    params: Params = network.init(torch.Generator().manual_seed(seed))[0]
    model.load_state_dict(params, strict=False)
    optimiser = _sgd(list(model.parameters()))
    model.train()
    for rows in minibatches(len(x), steps, seed):
        optimiser.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()
    model.eval()
    with torch.no_grad():
        return float((model(x_test).argmax(1) == y_test).float().mean())


def _sgd(params: Sequence[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=RATE, momentum=0.9, weight_decay=DECAY)


def compare(
    make_model: Callable[[], torch.nn.Module], steps: int = 80, seeds: int = 5, precision: str = "float32"
) -> ShortTraining:
    """Both sides over seeds, and the difference within seeds with its 95 % interval."""
    mine = [ours(seed, steps, precision) for seed in range(seeds)]
    theirs = [eager(seed, steps, make_model()) for seed in range(seeds)]
    difference = paired_difference(mine, theirs)
    means = mean_interval(mine).mean, mean_interval(theirs).mean
    return ShortTraining(*means, difference.mean, difference.ci95, seeds, steps)
