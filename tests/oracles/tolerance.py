"""Whether it is close, by the one table."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from innerloop.testing.tolerance import FINITE_DIFFERENCE as FINITE_DIFFERENCE
from innerloop.testing.tolerance import TOLERANCE as TOL

STANDARD_ERRORS = 5.0
"""A sample mean this many standard errors off happens once in two million times."""


def assert_close(actual: Tensor, expected: Tensor, tol: tuple[float, float] | None = None) -> None:
    """The largest difference is small beside the largest entry (single entries may cancel to zero)."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if actual.numel() == 0:
        return
    rtol, atol = tol or TOL[expected.dtype]
    gap = float((actual - expected).abs().max())
    bound = rtol * float(expected.abs().max()) + atol
    assert gap <= bound, f"differs by {gap:.3g}, allowed {bound:.3g}"  # NaN fails too


def assert_trees_close(
    actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], tol: tuple[float, float] | None = None
) -> None:
    """:func:`assert_close`, entry by entry, for trees with the same names."""
    assert set(actual) == set(expected)
    for name in expected:
        try:
            assert_close(actual[name], expected[name], tol)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def assert_trees_equal(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """The same names and the same bits."""
    assert set(actual) == set(expected)
    different = [name for name in expected if not torch.equal(actual[name], expected[name])]
    assert not different, f"not bit-identical: {different}"


def assert_mean(sample: Tensor, expected: float) -> None:
    """The mean of independent values lies within :data:`STANDARD_ERRORS` of what it should be."""
    sample = sample.double().flatten()
    error = float(sample.std()) / sample.numel() ** 0.5
    gap = abs(float(sample.mean()) - expected)
    assert gap <= STANDARD_ERRORS * error, f"mean is {gap / error:.1f} standard errors off"
