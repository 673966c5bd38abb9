"""How much of an order is signal: agreement between repeats, and what another run would choose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from innerloop.core.random import derive_seed

Chosen = TypeVar("Chosen")

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
    found = []
    for a, b in itertools.combinations(np.asarray(columns, float), 2):
        both = np.isfinite(a) & np.isfinite(b)
        tau = kendall(a[both], b[both]) if both.sum() > 1 else math.nan
        found += [] if math.isnan(tau) else [tau]
    return sum(found) / len(found) if found else None


def other_runs(repeats: int, seed: int, runs: int = RUNS) -> Iterator[NDArray[np.int64]]:
    """Which repeats imagined other runs would have had, by a bootstrap of a bootstrap.

    Another run differs from the truth, and so does ours: drawing repeats with replacement once imagines what
    ours might have been, drawing from these once more imagines the other run. A single draw would take our
    own means for the truth and promise too much.
    """
    random = np.random.default_rng(derive_seed(seed, "other runs"))
    for _ in range(runs):
        ours = random.integers(repeats, size=repeats)
        yield ours[random.integers(repeats, size=repeats)]


def share_again(
    choose: Callable[[NDArray[np.int64]], Sequence[Chosen]], repeats: int, seed: int, runs: int = RUNS
) -> list[float]:
    """For every decision, the share of imagined other runs that decide as we did.

    Args:
        choose: repeats (with multiplicity) → what is chosen, decision by decision.
        repeats: how many there are.
        seed: of the imagined runs.
        runs: how many to imagine.

    >>> share_again(lambda rows: [int(rows.mean() < 1)], 1, seed=0)
    [1.0]
    """
    ours = choose(np.arange(repeats))
    same = np.zeros(len(ours))
    for rows in other_runs(repeats, seed, runs):
        same += [mine == other for mine, other in zip(ours, choose(rows), strict=True)]
    return (same / runs).tolist() if len(ours) else []


def top_overlap(
    order: Callable[[NDArray[np.int64]], Sequence[int]], repeats: int, k: int, seed: int, runs: int = RUNS
) -> float:
    """The share of the first k that imagined other runs would name again, on average.

    >>> top_overlap(lambda rows: [2, 0, 1], repeats=3, k=2, seed=0)
    1.0
    """
    ours = set(order(np.arange(repeats))[:k])
    shares = [len(ours & set(order(rows)[:k])) / len(ours) for rows in other_runs(repeats, seed, runs)]
    return sum(shares) / len(shares)
