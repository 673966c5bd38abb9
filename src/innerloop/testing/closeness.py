"""Whether it is close, by the one table: for tensors, trees of tensors, and means of samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from innerloop.testing.tolerance import STANDARD_ERRORS, TOLERANCE


def difference(
    actual: Tensor, expected: Tensor, tol: tuple[float, float] | None = None, scale: float = 1.0
) -> str:
    """How two tensors differ, in words; empty if they agree.

    The largest difference must be small beside the largest entry: single entries may cancel to zero.

    Args:
        actual: what was computed.
        expected: what it should be.
        tol: relative and absolute tolerance; that of the dtype if omitted.
        scale: a factor on both.

    >>> difference(torch.ones(2), torch.ones(2)), difference(torch.ones(2), torch.zeros(2))
    ('', 'it differs by 1, allowed 1e-05')
    """
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
    """Whether two results (tensors in tuples and dicts) agree to the tolerance of their dtype.

    Args:
        a: one result.
        b: the other.
        scale: factor on the tolerance.
    """
    left, left_spec = pytree.tree_flatten(a)
    right, right_spec = pytree.tree_flatten(b)
    return left_spec == right_spec and not any(
        difference(x, y, scale=scale) for x, y in zip(left, right, strict=True)
    )


def assert_close(actual: Tensor, expected: Tensor, tol: tuple[float, float] | None = None) -> None:
    """Fails with the :func:`difference`, if there is one.

    Args:
        actual: what was computed.
        expected: what it should be.
        tol: relative and absolute tolerance; that of the dtype if omitted.
    """
    told = difference(actual, expected, tol)
    assert not told, told


def assert_trees_close(
    actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], tol: tuple[float, float] | None = None
) -> None:
    """:func:`assert_close`, entry by entry, for trees with the same names.

    Args:
        actual: what was computed, by name.
        expected: what it should be.
        tol: relative and absolute tolerance; that of the dtype if omitted.
    """
    assert set(actual) == set(expected)
    told = {name: difference(actual[name], expected[name], tol) for name in expected}
    assert not any(told.values()), {name: words for name, words in told.items() if words}


def assert_trees_equal(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """The same names and the same bits."""
    assert set(actual) == set(expected)
    different = [name for name in expected if not torch.equal(actual[name], expected[name])]
    assert not different, f"not bit-identical: {different}"


def assert_mean(sample: Tensor, expected: float) -> None:
    """The mean of independent values is within :data:`STANDARD_ERRORS` standard errors of what it should be.

    >>> assert_mean(torch.tensor([1.0, 2.0, 3.0]), 2.5)
    """
    sample = sample.double().flatten()
    error = float(sample.std()) / sample.numel() ** 0.5
    gap = abs(float(sample.mean()) - expected)
    assert gap <= STANDARD_ERRORS * error, f"mean is {gap / error:.1f} standard errors off"
