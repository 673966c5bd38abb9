"""What needs no training: the nearest class mean of pixels, of colours, and of features before training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.statistics import Interval, paired_difference
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.evaluation.scores import Evaluation
from innerloop.nets.network import Network

if TYPE_CHECKING:
    from innerloop.evaluation.protocol import Protocol

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
    "pretrained": "nearest mean of the pretrained network's features",
}
"""Baselines by name, in the order of tables."""


class Baseline(NamedTuple):
    """A trivial baseline beside a result, on the same tasks."""

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


class InitialNetwork(NamedTuple):
    """A network before a run trained it, and how it wants pictures."""

    name: str
    network: Network
    params: Params
    buffers: Buffers
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None


def trivial_baselines(
    judged: Callable[..., Evaluation],
    protocol: Protocol,
    result: Evaluation,
    start: InitialNetwork | None = None,
) -> list[Baseline]:
    """Judges what needs no training on the first tasks of an evaluation."""
    episodes = min(EPISODES, len(result.scores))
    wanted = protocol._replace(head="centroid", copies=0, episodes=episodes, grid=(), ensemble=False)
    plain, nothing = wanted._replace(norm="none", normalise=False), {"none": torch.zeros(1)}
    evaluations = {
        name: judged(fixed_features(features), nothing, {}, protocol=plain)
        for name, features in (("pixels", pixels), ("colours", colours))
    }
    if start is not None:
        name, network, params, buffers, mean, std = start
        seen = wanted._replace(norm=network.norm, normalise=True)
        evaluations[name] = judged(network, params, buffers, protocol=seen, mean=mean, std=std)
    ours = result.scores[:episodes]
    return [Baseline(n, one.interval, paired_difference(ours, one.scores)) for n, one in evaluations.items()]


def fixed_features(features: Callable[[Tensor], Tensor]) -> Network:
    """Features that no weight decides, in the place of a network."""

    def of(
        params: Params, buffers: Buffers, x: Tensor, statistics: Statistics = "batch"
    ) -> tuple[Tensor, Buffers]:
        """The features, and the buffers as they were."""
        del params, statistics
        return features(x), buffers

    return Network(lambda _: ({"none": torch.zeros(1)}, {}), of, lambda _, z: z, ())


def pixels(x: Tensor) -> Tensor:
    """Pixels ``(n, C, H, W)`` as rows, averaged down to 32×32 where there are more."""
    small = F.adaptive_avg_pool2d(x, SIDE) if max(x.shape[-2:]) > SIDE else x
    return small.flatten(1)


def colours(x: Tensor) -> Tensor:
    """Square roots of a joint histogram of the channels of each picture, whose values are in 0…1."""
    # Hellinger's distances: rare colours count too
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
