"""What needs no training: the nearest class mean of pixels, of colours, and of features before training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.statistics import Interval, paired_difference
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.data.source import ImageSource
from innerloop.evaluation.frozen import evaluate_head
from innerloop.evaluation.protocol import Protocol
from innerloop.evaluation.scores import Evaluation
from innerloop.execution import Plan
from innerloop.nets.network import Network
from innerloop.tasks.few_shot import Kind

EPISODES = 200
"""The first tasks of an evaluation, on which baselines are judged too."""

SIDE = 32
"""Larger pictures are averaged down to this side before their pixels are compared."""

BINS = {1: 16, 3: 4}
"""Bins of a histogram for each channel, by the number of channels: 16, or 4 · 4 · 4."""

WORDS = {
    "pixels": "nearest mean of pixels",
    "colours": "nearest mean of colour histograms",
    "untrained": "nearest mean of the network's features before training",
}
"""Baselines by name, in the order of tables."""


class Baseline(NamedTuple):
    """A trivial baseline beside a result, on the same tasks.

    Attributes:
        name: one of :data:`WORDS`.
        accuracy: over tasks.
        gain: what the result has more, task by task.
    """

    name: str
    accuracy: Interval
    gain: Interval

    def as_dict(self) -> dict[str, Any]:
        """For files."""
        return {
            "name": self.name,
            "words": WORDS[self.name],
            "mean": self.accuracy.mean,
            "ci95": self.accuracy.ci95,
            "episodes": self.accuracy.n,
            "gain": self.gain.mean,
            "gain_ci95": self.gain.ci95,
        }


def trivial_baselines(
    network: Network,
    first: tuple[Params, Buffers],
    source: ImageSource,
    protocol: Protocol,
    result: Evaluation,
    split: str = "test",
    *,
    kinds: Sequence[Kind] | None = None,
    balanced: bool = True,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    plan: Plan | None = None,
) -> list[Baseline]:
    """Judges what needs no training on the first tasks of an evaluation.

    Args:
        network: the network of the result.
        first: its weights and statistics before training.
        source: the pictures.
        protocol: of the tasks; its head is not used.
        result: what is compared with.
        split: which classes.
        kinds: a mixture of kinds of tasks instead of the protocol's one.
        balanced: as in ``few_shot_sampler``.
        mean: of each channel in training, for the untrained network.
        std: likewise.
        plan: how to run it.
    """
    episodes = min(EPISODES, len(result.scores))
    wanted = protocol._replace(head="centroid", copies=0, episodes=episodes)
    judged = partial(evaluate_head, kinds=kinds, balanced=balanced, plan=plan)
    plain, nothing = wanted._replace(norm="none", normalise=False), {"none": torch.zeros(1)}
    found = {
        name: judged(fixed_features(features), nothing, {}, source, plain, split)
        for name, features in (("pixels", pixels), ("colours", colours))
    }
    seen = wanted._replace(norm=network.norm, normalise=True)
    found["untrained"] = judged(network, *first, source, seen, split, mean=mean, std=std)
    ours = result.scores[:episodes]
    return [Baseline(n, one.interval, paired_difference(ours, one.scores)) for n, one in found.items()]


def fixed_features(features: Callable[[Tensor], Tensor]) -> Network:
    """Features that no weight decides, in the place of a network."""

    def of(
        params: Params, buffers: Buffers, x: Tensor, statistics: Statistics = "batch"
    ) -> tuple[Tensor, Buffers]:
        del params, statistics
        return features(x), buffers

    return Network(lambda _: ({"none": torch.zeros(1)}, {}), of, lambda _, z: z, ())


def pixels(x: Tensor) -> Tensor:
    """Pixels ``(n, C, H, W)`` as rows, averaged down to 32×32 where there are more.

    >>> pixels(torch.zeros(2, 3, 84, 84)).shape
    torch.Size([2, 3072])
    """
    small = F.adaptive_avg_pool2d(x, SIDE) if max(x.shape[-2:]) > SIDE else x
    return small.flatten(1)


def colours(x: Tensor) -> Tensor:
    """Square roots of a joint histogram of the channels of each picture, whose values are in 0…1.

    Distances between square roots of shares are those of Hellinger: rare colours count too.

    >>> colours(torch.zeros(1, 3, 8, 8)).shape, float(colours(torch.ones(1, 1, 8, 8))[0, -1])
    (torch.Size([1, 64]), 1.0)
    """
    bins = BINS.get(x.shape[1], 16)
    joined = x if x.shape[1] in BINS else x.mean(1, keepdim=True)
    level = (joined * bins).long().clamp(0, bins - 1)
    code = torch.zeros_like(level[:, 0])
    for channel in level.unbind(1):
        code = code * bins + channel
    counts = torch.zeros(len(x), bins ** joined.shape[1], dtype=x.dtype, device=x.device)
    flat = code.flatten(1)
    counts.scatter_add_(1, flat, torch.ones_like(flat, dtype=x.dtype))
    return (counts / flat.shape[1]).sqrt()
