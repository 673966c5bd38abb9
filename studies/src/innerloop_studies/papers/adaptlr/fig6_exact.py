"""What AdaptLR's Figure 6 and the two examples of appendix E are made of: coefficients and rates, exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from innerloop.theory.rate.examples import (
    counts,
    independent_traces,
    normal_moments,
    polynomial_traces,
    printed_polynomial_traces,
    printed_single_sample,
)

DIM = 50
SAMPLES = (1, 50)
VARIANCES = tuple(Fraction(10) ** k for k in range(-3, 3))
SIZE = 5
"""Dimension along the variances."""

MOMENTS: dict[str, list[float]] = {
    "normal": [float(m) for m in normal_moments(7, 1.0)],
    "uniform": [1, 0, 1, 0, 9 / 5, 0, 27 / 7],
    "±1": [1, 0, 1, 0, 1, 0, 1],
}
"""E[Y^k] for k = 0 … 6; all have mean 0 and variance 1."""


class Coefficients(NamedTuple):
    """Figure 6's g₁, g₂ and g₃: how many terms each moment has."""

    g1: list[int]
    g2: list[int]
    g3: list[int]


class Polynomials(NamedTuple):
    """Example 1: α*_lim by number of samples ("K = 1")."""

    variances: list[float]
    dims: list[int]
    along_variances: dict[str, list[float]]
    along_dims: dict[str, dict[str, list[float]]]
    printed: dict[str, float]
    exact: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "variances": self.variances,
            "dims": self.dims,
            "along σ²": self.along_variances,
            **{f"along d, σ² = {v}": rates for v, rates in self.along_dims.items()},
            "as printed, d = 3": self.printed,
            "exact, d = 3": self.exact,
        }


class Entries(NamedTuple):
    """Example 2 for one law of the entries."""

    printed: float
    exact: list[float]
    large: float
    ratio: float


class Matrices(NamedTuple):
    """Example 2: the dimensions for K = 1, the one for K = d, and rates by law."""

    dims: list[int]
    size: int
    laws: dict[str, Entries]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        keys = ("printed, K = 1", "exact, K = 1", "large", "E[Y⁴]/E[Y⁶]")
        laws = {name: dict(zip(keys, entries, strict=True)) for name, entries in self.laws.items()}
        return {"dims": self.dims, "K = d": self.size, **laws}


def coefficients() -> Coefficients:
    """Counted, at d = :data:`DIM`."""
    return Coefficients(counts((1, 1), DIM), counts((3, 1, 2), DIM), counts((1, 1, 1), DIM))


def polynomials(dims: list[int]) -> Polynomials:
    """Rates of Example 1, from rational numbers."""

    def along_sigma(k: int) -> list[float]:
        """Rates for every variance."""
        return [polynomial_traces(SIZE, k, v).rate for v in VARIANCES]

    def along_d(v: Fraction) -> dict[str, list[float]]:
        """Rates for every dimension, by number of samples."""
        return {f"K = {k}": [polynomial_traces(d, k, v).rate for d in dims] for k in SAMPLES}

    return Polynomials(
        variances=[float(v) for v in VARIANCES],
        dims=dims,
        along_variances={f"K = {k}": along_sigma(k) for k in SAMPLES},
        along_dims={"1": along_d(Fraction(1)), "0.1": along_d(Fraction(1, 10))},
        printed={f"K = {k}": printed_polynomial_traces(3, k, Fraction(1)).rate for k in SAMPLES},
        exact={f"K = {k}": polynomial_traces(3, k, Fraction(1)).rate for k in SAMPLES},
    )


def matrices() -> Matrices:
    """Rates of Example 2, from sums over coinciding indices."""
    dims, large = [1, 2, 5, 10, 20, 50], 2000
    laws = {
        name: Entries(
            printed=printed_single_sample(moments),
            exact=[independent_traces(moments, 1, d).rate for d in dims],
            large=independent_traces(moments, large, large).rate,
            ratio=moments[4] / moments[6],
        )
        for name, moments in MOMENTS.items()
    }
    return Matrices(dims, large, laws)
