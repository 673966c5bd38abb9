"""How close is close: the one table, for the conformance suites and for the library's own tests.

What stands here are tolerances between two ways to compute the same thing. A share or a distance that belongs
to what a test says ("within 5 % of the limit", a number that a paper prints) stands in the test that says it.
"""

from __future__ import annotations

import torch

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
    """Half a unit of the last of this many printed decimals.

    >>> abs(0.0357 - 0.03574) < printed(4) < abs(0.0357 - 0.03576)
    True
    """
    return 0.5 * 10.0**-decimals
