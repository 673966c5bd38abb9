"""What a kernel is here: a function of two sets of inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from torch import Tensor


class Kernels(NamedTuple):
    """Both kernels of one network between ``n`` and ``m`` inputs.

    Attributes:
        nngp: K, ``(n, m)``: the covariance of the outputs at initialisation, which is also the tangent
            kernel of the last layer alone.
        ntk: Θ, ``(n, m)``: the tangent kernel of all layers.
    """

    nngp: Tensor
    ntk: Tensor


KernelFunction: TypeAlias = Callable[[Tensor, Tensor], Kernels]
"""``(x1, x2) -> Kernels`` for inputs ``(n, ...)`` and ``(m, ...)``; ``x1 is x2`` says they are the same."""

Progress: TypeAlias = Callable[[int, int], None]
"""Told ``(done, total)`` after every block of a long computation."""
