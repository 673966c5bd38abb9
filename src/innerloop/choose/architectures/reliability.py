"""How much of an order is signal: agreement between repeats, and what another run would choose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innerloop.core.random import derive_seed

Numbers: TypeAlias = NDArray[np.float64]

RUNS = 400
"""Imagined other runs."""


def kendall(a: Sequence[float], b: Sequence[float]) -> float:
    r"""Kendall's :math:`\tau_b` between two columns of numbers; not a number if one of them is constant.

    >>> kendall([1, 2, 3], [1, 3, 2]), kendall([1, 2, 2], [1, 2, 3])
    (0.3333333333333333, 0.8164965809277261)
    """
    first, second = (np.sign(np.subtract.outer(*(2 * [np.asarray(each, float)]))) for each in (a, b))
    ties = math.sqrt(float((first != 0).sum()) * float((second != 0).sum()))
    return float((first * second).sum()) / ties if ties else math.nan


def mean_tau(columns: Sequence[Sequence[float]]) -> float | None:
    """Kendall's τ averaged over all pairs of repeats; columns are repeats. None if there is no pair with one.

    Values that are not finite in one of two columns are left out there.
    """
    taus = []
    for a, b in itertools.combinations(np.asarray(columns, float), 2):
        both = np.isfinite(a) & np.isfinite(b)
        tau = kendall(a[both], b[both]) if both.sum() > 1 else math.nan
        taus += [] if math.isnan(tau) else [tau]
    return sum(taus) / len(taus) if taus else None


class Noise(NamedTuple):
    """The deviation of one measurement around its item's mean, and its degrees of freedom."""

    deviation: float
    freedom: int


def noise_of(values: Numbers, groups: Sequence[Sequence[int]], first: int) -> Noise:
    """Pooled over all items, from the first repeats, which all of them have.

    What a group has in common in a repeat is no noise: common draws move all operators of an edge together,
    and only differences between them decide.
    """
    total, freedom = 0.0, 0
    for group in groups:
        own = values[list(group), :first]
        rest = own - own.mean(0) - own.mean(1, keepdims=True) + own.mean()
        total += float((rest**2).sum())
        freedom += (len(group) - 1) * (first - 1)
    return Noise(math.sqrt(total / freedom) if freedom else 0.0, freedom)


def item_means(values: Numbers, groups: Sequence[Sequence[int]]) -> Numbers:
    """Every item's mean, less what its group has in common in the repeats that the item was measured in.

    By least squares of item plus repeat, group by group. Where all items have all repeats these are the
    means, up to a constant of the group; where some were measured more often, a repeat that moved them all
    does not move them against the others.

    >>> means = item_means(np.array([[1.0, 12.0], [3.0, np.nan], [2.0, 13.0]]), [(0, 1, 2)])
    >>> (means - means[0]).round(6).tolist()
    [0.0, 2.0, 1.0]
    """
    means = np.zeros(len(values))
    for group in groups:
        own = values[list(group)]
        known = np.isfinite(own)
        items, repeats = own.shape
        by_item, by_repeat = np.repeat(np.eye(items), repeats, 0), np.tile(np.eye(repeats), (items, 1))
        columns = np.concatenate([by_item, by_repeat], 1)
        fitted = np.linalg.lstsq(columns[known.ravel()], own[known], rcond=None)[0][:items]
        means[list(group)] = np.round(fitted - fitted.mean(), 12)  # equals stay equal, whatever the machine
    return means


def other_runs(
    values: Numbers, groups: Sequence[Sequence[int]], seed: int, runs: int = RUNS
) -> Iterator[Numbers]:
    r"""What other runs might have measured: means of every item, ``(items,)`` each, within its group.

    Our means are off the truth, and so are another run's. With noise of variance :math:`\sigma^2` in a repeat
    and true differences of variance :math:`\tau^2` within groups, both pooled over all groups, the truth is
    :math:`N(\lambda\bar y, \lambda\sigma^2/n)` with :math:`\lambda = \tau^2/(\tau^2+\sigma^2/n)`, and
    another run is off it by :math:`N(0, \sigma^2/n)`. Taking our means for the truth (as drawing repeats with
    replacement does) would promise too much wherever differences are mostly noise: then λ is near 0.
    """
    count = np.isfinite(values).sum(1)
    first = int(np.cumprod(np.isfinite(values).all(0)).sum())  # repeats that all items have
    noise = noise_of(values, groups, first).deviation ** 2
    means = item_means(values, groups)
    signal = max(
        0.0, mean_of(_excess(means[list(group)], noise / count[list(group)]) for group in groups) or 0.0
    )
    share = signal / np.maximum(signal + noise / count, 1e-300)
    if not noise:
        share = np.ones_like(share)
    spread = np.sqrt((1 + share) * noise / count)
    random = np.random.default_rng(derive_seed(seed, "other runs"))
    for _ in range(runs):
        yield share * means + spread * random.normal(size=len(means))


def _excess(means: Numbers, noise: Numbers) -> float:
    """By how much the means of a group vary more than noise makes them."""
    return float(means.var(ddof=1) - noise.mean()) if len(means) > 1 else 0.0


def mean_of(values: Iterable[float | None]) -> float | None:
    """Of those that there are; None if there are none.

    >>> mean_of([1.0, None, 2.0]), mean_of([None])
    (1.5, None)
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
