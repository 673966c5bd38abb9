"""How close is close: the one table, and comparisons by it for tensors, trees and means of samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

TOLERANCE: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-10, 1e-12),
    torch.float32: (1e-4, 1e-5),
    torch.bfloat16: (3e-2, 3e-2),
}
"""(relative, absolute): two ways to compute the same thing may differ by rounding only."""

FINITE_DIFFERENCE = (1e-8, 1e-10)
"""Central differences of fourth order in float64 with a step of 1e-4, of smooth functions: nine digits."""

ANY_FINITE_DIFFERENCE = (1e-5, 1e-7)
"""The same with a step of 1e-5, of functions that we know nothing about: they may have kinks nearby."""

STANDARD_ERRORS = 5.0
"""A sample mean this many standard errors off happens once in two million times."""

# ---- float64 ----

LAST_BITS = 1e-15
"""One operation, or numbers that should be equal to the last bits."""

ROUNDED = 1e-12
"""A formula of some operations, written in two ways."""

MULTIPLIED = 1e-11
"""Products of matrices, beside their largest entry."""

TABULATED = 1e-11
"""Values that were computed elsewhere, and are kept with twelve digits."""

SUMMED = 1e-10
"""Sums of many terms in another order."""

CHAINED = 1e-9
"""Whole networks and their derivatives, or systems of equations: rounding has been carried along."""

DEEP = 1e-8
"""The same through many layers with batch norm, or through the inverse of a kernel."""

CONDITIONED = 1e-7
"""Ratios of extreme eigenvalues, inverses of nearly singular matrices, derivatives of iterated solutions."""

DIFFERENCED = 1e-6
"""Central differences of second order."""

# ---- float32 ----

SINGLE_BITS = 1e-7
"""One operation, or numbers that were rounded to float32 once."""

SINGLE = 1e-6
"""A formula of some operations, such as a softmax."""

SINGLE_SUMMED = 1e-5
"""Sums in another order, such as the same pictures in other batches."""

SINGLE_CHAINED = 1e-4
"""Whole networks, or the same network run by another library."""

# ---- what is not computed but approached ----

SOLVED_VALUE = 1e-8
"""An objective at the solutions of two solvers: it differs by the square of what the solutions differ by."""

SOLVED_FINELY = 1e-6
"""Solutions of one problem by two solvers that both stop late."""

SOLVED = 1e-5
"""The same where one of them stops earlier, or works in float32.

A relative gap of 1e-10 in the objective means ‖W − W*‖ ≤ √(2·1e-10·objective) in the weights.
"""

SOLVED_ROUGHLY = 1e-4
"""The same beside a peer's own stopping rule, such as that of scikit-learn."""

LIMIT = 1e-5
"""A limit, and the formula at a very large number."""


def printed(decimals: int) -> float:
    """Half a unit of the last of this many printed decimals."""
    return 0.5 * 10.0**-decimals


def difference(
    actual: Tensor, expected: Tensor, tol: tuple[float, float] | None = None, scale: float = 1.0
) -> str:
    """How two tensors differ, in words; empty if they agree."""
    # the largest difference beside the largest entry: single entries may cancel to zero
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return (
            f"it is {actual.dtype} of shape {tuple(actual.shape)} instead of {expected.dtype} "
            f"of shape {tuple(expected.shape)}"
        )
    if not expected.is_floating_point():
        return "" if torch.equal(actual, expected) else "its entries are others"
    if expected.numel() == 0:
        return ""
    rtol, atol = tol or TOLERANCE.get(expected.dtype, TOLERANCE[torch.float32])
    gap = float((actual - expected).abs().max())
    bound = scale * (rtol * float(expected.abs().max()) + atol)
    return "" if gap <= bound else f"it differs by {gap:.3g}, allowed {bound:.3g}"  # NaN differs too


def close(a: Any, b: Any, scale: float = 1.0) -> bool:
    """Whether two results (tensors in tuples and dicts) agree to the tolerance of their dtype."""
    left, left_spec = pytree.tree_flatten(a)
    right, right_spec = pytree.tree_flatten(b)
    return left_spec == right_spec and not any(
        difference(x, y, scale=scale) for x, y in zip(left, right, strict=True)
    )


def assert_close(actual: Tensor, expected: Tensor, tol: tuple[float, float] | None = None) -> None:
    """Fails with the :func:`difference`, if there is one."""
    told = difference(actual, expected, tol)
    assert not told, told


def assert_trees_close(
    actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], tol: tuple[float, float] | None = None
) -> None:
    """:func:`assert_close`, entry by entry, for trees with the same names."""
    assert set(actual) == set(expected)
    told = {name: difference(actual[name], expected[name], tol) for name in expected}
    assert not any(told.values()), {name: words for name, words in told.items() if words}


def assert_trees_equal(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """The same names and the same bits."""
    assert set(actual) == set(expected)
    different = [name for name in expected if not torch.equal(actual[name], expected[name])]
    assert not different, f"not bit-identical: {different}"


def assert_mean(sample: Tensor, expected: float) -> None:
    """The mean of independent values is at most :data:`STANDARD_ERRORS` standard errors off."""
    sample = sample.double().flatten()
    error = float(sample.std()) / sample.numel() ** 0.5
    gap = abs(float(sample.mean()) - expected)
    assert gap <= STANDARD_ERRORS * error, f"mean is {gap / error:.1f} standard errors off"
