"""Scores from ReLU patterns, linear regions and NASWOT; and how many regions a network has on its inputs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from innerloop.choose.scores.scoring import Score
from innerloop.core.autodiff import untransformed
from innerloop.core.errors import UserError
from innerloop.core.statistics import mean_interval
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.network import Network, apply
from innerloop.tasks.sampler import Sampler

Take: TypeAlias = Callable[[Tensor], None]
"""Is given a layer's sides, ``(samples, units)`` of booleans: true where the unit is on."""


def _clamp(x: Tensor, min: Any = None, max: Any = None) -> tuple[float, ...]:  # noqa: ARG001
    # a ReLU spelt out; other bounds guard against division by zero and the like
    return (0.0,) if isinstance(min, (int, float)) and min == 0 else ()


_ATEN = torch.ops.aten

KINKS: dict[Any, Callable[..., tuple[float, ...]]] = {
    **dict.fromkeys((_ATEN.relu, _ATEN.relu_, _ATEN._prelu_kernel), lambda *_: (0.0,)),
    **dict.fromkeys(
        (_ATEN.leaky_relu, _ATEN.leaky_relu_), lambda _, slope=0.01: (0.0,) if slope != 1 else ()
    ),
    **dict.fromkeys((_ATEN.threshold, _ATEN.threshold_), lambda _, at, *__: (float(at),)),
    **dict.fromkeys(
        (_ATEN.hardtanh, _ATEN.hardtanh_), lambda _, low=-1.0, high=1.0: (float(low), float(high))
    ),
    **dict.fromkeys((_ATEN.clamp, _ATEN.clamp_, _ATEN.clamp_min, _ATEN.clamp_min_), _clamp),
    _ATEN.gt: lambda x, other: (0.0,) if x.is_floating_point() and other == 0 else (),
}
"""Operations that are linear in pieces, entry by entry, and where the pieces meet."""


class _Watch(TorchDispatchMode):
    """Hands the sides of every kink to ``take``, in the order of the pass."""

    def __init__(self, samples: int, take: Take) -> None:
        super().__init__()
        self.samples, self.take, self.count = samples, take, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and seeing to that costs as much at every operation as the operation."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Is given every operation; its input is looked at before it can be written over."""
        kwargs = kwargs or {}
        kinks = KINKS.get(func.overloadpacket)
        if kinks is not None:
            for at in kinks(*args, **kwargs):
                self._note(args[0] > at)
        return func(*args, **kwargs)

    def _note(self, sides: Tensor) -> None:
        if sides.ndim < 2 or len(sides) != self.samples:
            raise UserError(
                f"a ReLU of this network sees {tuple(sides.shape)}, whose first axis is not the "
                f"{self.samples} samples: patterns need one row per sample at every ReLU."
            )
        self.count += 1
        self.take(sides.flatten(1))


def watch_kinks(
    network: Network, params: Params, buffers: Buffers, x: Tensor, take: Take, statistics: Statistics
) -> None:
    """One forward pass of ``x``; ``take`` is given every layer's sides."""
    with torch.no_grad(), untransformed(), _Watch(len(x), take) as watch:
        apply(network, params, buffers, x, statistics)
    if not watch.count:
        raise UserError(
            "this network has no ReLU (nor another unit that is linear in pieces), so its linear regions are "
            "not defined: use a ReLU network, or another score."
        )


KEPT_UNITS = 2**15
"""Units per sample whose bits are kept as they are; of more, 256-bit digests are kept."""

PRODUCT_ENTRIES = 2**22
"""Entries of a block of patterns that is multiplied with itself, exactly in float32."""


class Regions(NamedTuple):
    """How many linear regions were hit.

    Attributes:
        value: distinct patterns.
        inputs: how many inputs there were; no more regions can be hit.
        units: ReLUs per input.
        reason: set if every input hit a region of its own, and the count tells nothing.
    """

    value: float
    inputs: int
    units: int
    reason: str = ""


class _Rows:
    """The pattern of every sample of a batch, in bits; long ones are digested, at places of the network."""

    def __init__(self, samples: int) -> None:
        self.digests: NDArray[np.uint8] = np.empty((samples, 0), np.uint8)
        self.waiting: list[Tensor] = []
        self.units = self.held = 0

    def add(self, sides: Tensor) -> None:
        """The next layer."""
        self.waiting.append(sides)
        self.units += sides.shape[1]
        self.held += sides.shape[1]
        if self.held > KEPT_UNITS:
            self.digests = _digested(self.rows())
            self.waiting, self.held = [], 0

    def rows(self) -> NDArray[np.uint8]:
        """All so far, ``(samples, bytes)``."""
        if not self.waiting:
            return self.digests
        bits = torch.cat(self.waiting, 1).cpu().numpy()
        return np.concatenate([self.digests, np.packbits(bits, axis=1)], 1)


def _digested(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """32 bytes per row: among a million rows, two share theirs with a probability of 1e-65."""
    digests = [hashlib.blake2b(row.tobytes(), digest_size=32).digest() for row in rows]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(len(rows), 32)


def linear_regions(
    network: Network,
    params: Params,
    buffers: Buffers,
    batches: Tensor | Iterable[Tensor],
    statistics: Statistics = "batch",
) -> Regions:
    r"""The number of distinct ReLU patterns over all inputs (TE-NAS, Definition 1; MetaNTK, eq. 15).

    Equal to :math:`\sum_i 1/m_i`, where :math:`m_i` inputs share the pattern of input i, which is how TE-NAS
    computes it. Bits are packed and compared as they are; there is no matrix of pairs.

    Args:
        network: with ReLUs.
        params: its parameters.
        buffers: its buffers.
        batches: inputs; several batches are passed one after the other (with batch normalisation each by
            its own statistics) and counted together.
        statistics: where normalisation layers take mean and variance from.

    >>> from innerloop import mlp
    >>> net = mlp(1, [2], 1)
    >>> params = {"layer0.weight": torch.tensor([[1.0], [1.0]]), "layer0.bias": torch.tensor([0.0, -1.0]),
    ...           "layer1.weight": torch.ones(1, 2), "layer1.bias": torch.zeros(1)}
    >>> linear_regions(net, params, {}, torch.tensor([[-2.0], [-1.0], [0.5], [2.0], [3.0]]))[:3]
    (3, 5, 2)
    """
    patterns: set[bytes] = set()
    inputs = units = 0
    for x in [batches] if isinstance(batches, Tensor) else batches:
        kept = _Rows(len(x))
        watch_kinks(network, params, buffers, x, kept.add, statistics)
        rows = kept.rows()
        text, width = rows.tobytes(), rows.shape[1]
        patterns.update(text[at : at + width] for at in range(0, len(text), width))
        inputs, units = inputs + len(x), kept.units
    alone = len(patterns) == inputs
    reason = "every input lies in a region of its own, so this only counts inputs" if alone else ""
    return Regions(len(patterns), inputs, units, reason)


def hamming_kernel(
    network: Network, params: Params, buffers: Buffers, x: Tensor, statistics: Statistics = "batch"
) -> Tensor:
    """How many ReLUs agree between every two inputs, ``(n, n)`` in float64 and exact."""
    total = torch.zeros(len(x), len(x), dtype=torch.float64, device=x.device)

    def add(sides: Tensor) -> None:
        """Adds the ReLUs of one layer."""
        for part in sides.split(max(1, PRODUCT_ENTRIES // len(x)), 1):
            signs = part.float().mul_(2).sub_(1)
            total.add_((signs @ signs.mT).double().add_(part.shape[1]), alpha=0.5)  # agree − differ + all

    watch_kinks(network, params, buffers, x, add, statistics)
    return total


def naswot(
    network: Network, params: Params, buffers: Buffers, x: Tensor, statistics: Statistics = "batch"
) -> Score:
    r"""NASWOT (Mellor et al. 2021): :math:`\log|\det K_H|` of :func:`hamming_kernel`.

    Two inputs with the same pattern make :math:`K_H` singular: the score is then −∞, with the reason.

    Args:
        network: with ReLUs.
        params: its parameters.
        buffers: its buffers.
        x: at least two inputs, one batch.
        statistics: where normalisation layers take mean and variance from.
    """
    if len(x) < 2:
        raise UserError("NASWOT compares inputs with one another: give at least two.")
    kernel = hamming_kernel(network, params, buffers, x, statistics)
    same = int((kernel.triu(1) == kernel[0, 0]).sum())
    if same:
        return Score(float("-inf"), f"{same} pair(s) of inputs have the same pattern: the kernel is singular")
    sign, value = torch.linalg.slogdet(kernel)
    if float(sign) <= 0:
        return Score(float("-inf"), "the kernel is singular to working precision")
    return Score(float(value))


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
