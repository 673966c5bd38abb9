"""How close is close: one table, for the conformance suites and for the library's own tests."""

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
