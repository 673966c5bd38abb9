"""How well a score predicts an accuracy: rank correlations, nDCG and regret, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
"""Bootstrap samples of the candidates."""

_AT_ONCE = 2_000_000  # pairs of candidates, to bound memory

Array = NDArray[np.float64]


class BootstrapEstimate(NamedTuple):
    """A number with its 95 % bootstrap interval (percentiles over resampled candidates)."""

    value: float
    low: float
    high: float


class Agreement(NamedTuple):
    """What a score says about an accuracy."""

    spearman: BootstrapEstimate
    kendall: BootstrapEstimate
    ndcg: BootstrapEstimate
    regret: BootstrapEstimate
    candidates: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            key: v._asdict() if isinstance(v, BootstrapEstimate) else v for key, v in self._asdict().items()
        }


def agreement(
    score: Sequence[float], accuracy: Sequence[float], seed: int = 0, resamples: int = RESAMPLES
) -> Agreement:
    """Agreement of a score (higher is thought to be better) with an accuracy.

    A candidate whose score is not a number comes last. The interval is over candidates: it says how much
    another set of random candidates might have told.

    >>> agreed = agreement([1.0, 2.0, 3.0, 4.0], [0.2, 0.4, 0.3, 0.5], resamples=100)
    >>> round(agreed.spearman.value, 3), round(agreed.kendall.value, 3), agreed.regret.value
    (0.8, 0.667, 0.0)
    """
    n = len(score)
    drawn = np.random.default_rng(seed).integers(0, n, (resamples, n))
    levels, reached = _levels(score), np.asarray(accuracy, dtype=np.float64)
    values = _measured(levels, reached, np.arange(n)[None])
    pieces = np.array_split(drawn, -(-drawn.size * n // _AT_ONCE))
    again = zip(*(_measured(levels, reached, piece) for piece in pieces), strict=True)
    made = (_estimate(float(v[0]), np.concatenate(b)) for v, b in zip(values, again, strict=True))
    spearman, kendall, ndcg, regret = made
    return Agreement(spearman, kendall, ndcg, regret, n)


def better_half(accuracy: Sequence[float]) -> list[int]:
    """Places of the more accurate half (the larger one, where there is an odd number).

    >>> better_half([0.1, 0.5, 0.3])
    [1, 2]
    """
    order = np.argsort(-np.asarray(accuracy, dtype=np.float64), kind="stable")
    return sorted(int(i) for i in order[: -(-len(order) // 2)])


def split_half(scores: Sequence[Sequence[float]]) -> float:
    """How repeatable the order of accuracies is on other tasks of the same number.

    Spearman's correlation between means over even and over odd tasks, stepped up to all of them by the
    formula of Spearman and Brown, 2r/(1 + r).
    """
    table = np.asarray(scores, dtype=np.float64)
    halves = table[:, ::2].mean(1), table[:, 1::2].mean(1)
    r = float(_measured(_levels(halves[0]), halves[1], np.arange(len(table))[None])[0][0])
    return 2 * r / (1 + r) if r > 0 else r


def _levels(values: Sequence[float] | Array) -> Array:
    """Equal numbers for equal values, in their order; what is not a number is below all others."""
    array = np.asarray(values, dtype=np.float64)
    return np.unique(np.where(np.isnan(array), -np.inf, array), return_inverse=True)[1].astype(np.float64)


def _measured(levels: Array, accuracy: Array, drawn: NDArray[np.int64]) -> tuple[Array, ...]:
    """Spearman, Kendall, nDCG and regret of each row of candidates."""
    a, b = levels[drawn], accuracy[drawn]
    first, second = (np.sign(x[:, :, None] - x[:, None, :]) for x in (a, b))
    spearman = _ratio(*(_product(x, y) for x, y in _pairs(first.sum(2), second.sum(2))))
    flat = [x.reshape(len(drawn), -1) for x in (first, second)]
    kendall = _ratio(*(_product(x, y) for x, y in _pairs(*flat)))
    above, equal = (first < 0).sum(2), (first == 0).sum(2)
    best = b.max(1)
    top = above == 0
    regret = best - (b * top).sum(1) / top.sum(1)
    return spearman, kendall, _ndcg(b, above, equal), regret


def _pairs(x: Array, y: Array) -> tuple[tuple[Array, Array], ...]:
    return (x, y), (x, x), (y, y)


def _product(x: Array, y: Array) -> Array:
    total: Array = (x * y).sum(1)
    return total


def _ratio(both: Array, first: Array, second: Array) -> Array:
    """A correlation from sums of products; 0 where one side is constant and so tells nothing."""
    norm = np.sqrt(first * second)
    return np.divide(both, norm, out=np.zeros_like(both), where=norm > 0)


def _ndcg(accuracy: Array, above: NDArray[np.int64], equal: NDArray[np.int64]) -> Array:
    """Candidates of equal score share the discounts of their places."""
    low, high = accuracy.min(1, keepdims=True), accuracy.max(1, keepdims=True)
    gain = np.divide(accuracy - low, high - low, out=np.ones_like(accuracy), where=high > low)
    n = accuracy.shape[1]
    discounts = 1 / np.log2(np.arange(n) + 2.0)
    sums = np.concatenate([[0.0], np.cumsum(discounts)])
    shared = (sums[above + equal] - sums[above]) / equal
    ideal = (-np.sort(-gain, axis=1) * discounts).sum(1)
    total: Array = (gain * shared).sum(1) / ideal
    return total


def _estimate(value: float, resampled: Array) -> BootstrapEstimate:
    low, high = np.percentile(resampled, [2.5, 97.5])
    return BootstrapEstimate(value, float(low), float(high))
