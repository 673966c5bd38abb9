"""Linear regions: how many ReLU patterns a network shows on the inputs of its tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.choose.scores.patterns import linear_regions
from innerloop.core.statistics import mean_interval
from innerloop.core.types import Buffers, Params
from innerloop.nets.network import Network
from innerloop.tasks.sampler import Sampler

PATIENCE = 100
"""Tasks in a row without a new input after which there are thought to be no more."""

PROTOCOL = (
    "distinct ReLU patterns over different inputs of the training tasks; mean and 95 % "
    "t-interval over initialisations"
)


class RegionCount(NamedTuple):
    """How many linear regions different inputs hit.

    Attributes:
        regions: the mean over initialisations.
        ci95: half its 95 % interval; None for a single initialisation.
        patterns: the number at each initialisation.
        inputs: how many inputs there were.
        units: ReLUs per input.
        saturated: whether every input had a region of its own each time, so that inputs were counted.
        norm: the network's normalisation.
        protocol: what was counted and averaged.
    """

    regions: float
    ci95: float | None
    patterns: list[int]
    inputs: int
    units: int
    saturated: bool
    norm: str
    protocol: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return self._asdict()

    def __str__(self) -> str:
        count = len(self.patterns)
        spread = "" if self.ci95 is None else f" ± {self.ci95:.2g} (95 % CI, {count} initialisations)"
        lines = [
            f"{self.regions:.4g}{spread} linear regions hit by {self.inputs} different inputs",
            f"{self.units} ReLUs; by initialisation: {', '.join(map(str, self.patterns))}",
        ]
        if self.saturated:
            lines.append(
                "every input lies in a region of its own, so this counts inputs and says nothing of the "
                "network: a narrower network or more inputs would tell"
            )
        return "\n".join(lines)


def count_regions(
    network: Network, weights: Iterable[tuple[Params, Buffers]], x: Tensor, batch: int = 100
) -> RegionCount:
    """Distinct patterns at every initialisation, and their mean with an interval.

    Args:
        network: with ReLUs.
        weights: parameters and buffers, one pair for each initialisation.
        x: inputs, no two alike.
        batch: inputs per pass, about; batch normalisation takes its statistics from a pass.

    >>> from innerloop import mlp
    >>> net = mlp(1, [4], 1)
    >>> drawn = [net.init(torch.Generator().manual_seed(seed)) for seed in range(3)]
    >>> count_regions(net, drawn, torch.linspace(-1, 1, 10)[:, None]).patterns  # kinks are all at zero
    [2, 2, 2]
    """
    passes = x.split(-(-len(x) // -(-len(x) // batch)))  # of nearly equal size
    counts = [linear_regions(network, *pair, passes) for pair in weights]
    patterns = [int(each.value) for each in counts]
    mean = mean_interval(patterns)
    return RegionCount(
        regions=mean.mean,
        ci95=None if math.isnan(mean.ci95) else mean.ci95,
        patterns=patterns,
        inputs=len(x),
        units=counts[0].units,
        saturated=all(count == len(x) for count in patterns),
        norm=network.norm,
        protocol=PROTOCOL,
    )


def different_inputs(tasks: Sampler, wanted: int) -> Tensor:
    """So many inputs of the first tasks, none twice: a copy would lie in the region of the first.

    Fewer where :data:`PATIENCE` tasks in a row bring no new one.
    """
    kept: dict[bytes, Tensor] = {}
    number = last = 0
    while len(kept) < wanted and number - last <= PATIENCE:
        task, before = tasks.episode(number), len(kept)
        for x in torch.cat([task.x_support, task.x_query]):
            kept.setdefault(x.cpu().numpy().tobytes(), x)
        last = number if len(kept) > before else last
        number += 1
    return torch.stack(list(kept.values())[:wanted])
