r"""Scores from ReLU patterns: which units are on at which inputs.

Inputs with the same pattern lie in one linear region of the network (TE-NAS, Definition 1). NASWOT compares
patterns by how many units agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.choose.scores.kinks import watch_kinks
from innerloop.choose.scores.tell import Score
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.network import Network

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
    """The pattern of every sample of a batch, in bits; long ones are digested on the way.

    Where it is digested depends on the network alone, so that rows of different batches compare.
    """

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
    r"""How many ReLUs agree between every two inputs, ``(n, n)`` in float64 and exact.

    >>> from innerloop import mlp
    >>> net = mlp(1, [2], 1)
    >>> params = {"layer0.weight": torch.tensor([[1.0], [1.0]]), "layer0.bias": torch.tensor([0.0, -1.0]),
    ...           "layer1.weight": torch.ones(1, 2), "layer1.bias": torch.zeros(1)}
    >>> hamming_kernel(net, params, {}, torch.tensor([[-1.0], [0.5], [2.0]]))
    tensor([[2., 1., 0.],
            [1., 2., 1.],
            [0., 1., 2.]], dtype=torch.float64)
    """
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
