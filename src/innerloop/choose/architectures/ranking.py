"""Candidates ranked by scores, and how much of an order is signal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.choose.architectures.draws import Draws
from innerloop.choose.architectures.findings import (
    RankedCandidate,
    Resources,
    SearchOutcome,
    ShortlistReliability,
)
from innerloop.choose.architectures.measure import Bench, ScoringJob, Watch
from innerloop.choose.architectures.space import Candidate, Space, random_candidate, random_of_size
from innerloop.choose.scores.score_table import find, rank_sums
from innerloop.core.errors import UserError
from innerloop.core.random import derive_seed

Numbers: TypeAlias = NDArray[np.float64]

RUNS = 400
"""Imagined other runs."""


def kendall(a: Sequence[float], b: Sequence[float]) -> float:
    r"""Kendall's :math:`\tau_b` between two columns of numbers; not a number if one of them is constant."""
    first, second = (np.sign(np.subtract.outer(*(2 * [np.asarray(each, float)]))) for each in (a, b))
    ties = math.sqrt(float((first != 0).sum()) * float((second != 0).sum()))
    return float((first * second).sum()) / ties if ties else math.nan


def mean_tau(columns: Sequence[Sequence[float]]) -> float | None:
    """Kendall's τ averaged over pairs of repeats (columns) where both are finite; None if no pair has one."""
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
    """Pooled over all items, from the first repeats, which all have, less what a group has in common."""
    total, freedom = 0.0, 0
    for group in groups:
        own = values[list(group), :first]
        rest = own - own.mean(0) - own.mean(1, keepdims=True) + own.mean()
        total += float((rest**2).sum())
        freedom += (len(group) - 1) * (first - 1)
    return Noise(math.sqrt(total / freedom) if freedom else 0.0, freedom)


def item_means(values: Numbers, groups: Sequence[Sequence[int]]) -> Numbers:
    """Every item's mean, less what its group has in common in its repeats: least squares of both."""
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
    """Of those that there are; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


Say = Callable[[str], None]
"""Told a line now and then: how far a search is, and how long it will take."""


class Scores(NamedTuple):
    """Every score of every candidate and repeat.

    Attributes:
        values: by name, ``(candidates, repeats)`` in float64.
        reasons: by name, candidate by candidate: why a value is not finite or tells nothing; empty if all is
            well.
        seconds: of all measurements together, on one core.
    """

    values: dict[str, Tensor]
    reasons: dict[str, list[str]]
    seconds: float

    def means(self) -> dict[str, list[float]]:
        """Of every candidate over its repeats, by score."""
        return {name: value.mean(1).tolist() for name, value in self.values.items()}

    def of(self, place: int) -> dict[str, float]:
        """The means of one candidate, by score."""
        return {name: values[place] for name, values in self.means().items()}

    def rank_sums(self) -> list[float]:
        """Of the means by all scores; the lowest is the best."""
        return rank_sums(self.means())

    def order(self) -> list[int]:
        """Places of the candidates, the best first; among equals, the first stays first."""
        sums = self.rank_sums()
        return sorted(range(len(sums)), key=sums.__getitem__)


def score_candidates(
    space: Space[Candidate],
    candidates: Sequence[Candidate],
    names: Sequence[str],
    draws: Draws,
    repeats: int = 3,
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    workers: int | None = None,
    keep: Path | None = None,
    say: Say | None = None,
) -> Scores:
    """Every score of every candidate, on the same draws for all of them.

    Args:
        space: what the candidates belong to.
        candidates: of the space.
        names: of scores, see :data:`~innerloop.choose.scores.score_table.SCORES`.
        draws: repeat → data; repeats 0 to ``repeats`` − 1 are used.
        repeats: how often; first weights, last layer and data are drawn anew each time.
        settings: further arguments of scores, by name.
        workers: processes of one thread; as many as there are cores if omitted.
        keep: a file for finished measurements: an interrupted call goes on there, with the same numbers.
        say: told a line now and then.

    Raises:
        UserError: for unknown scores, and for nothing to do.

    >>> from innerloop import glyphs
    >>> from innerloop.choose import PictureDraws, conv_space
    >>> space = conv_space(1, 8, 5, depths=(1, 2), widths=(4,))
    >>> draws = PictureDraws(glyphs(), seed=0, side=8, crops=20)
    >>> scores = score_candidates(
    ...     space, [space.candidate(0), space.candidate(9)], ["parameters"], draws, 2, workers=1
    ... )
    >>> scores.values["parameters"].shape, scores.order()
    (torch.Size([2, 2]), [1, 0])
    """
    check_names(names)
    if not candidates or repeats < 1:
        raise UserError("there is nothing to score: give at least one candidate and one repeat.")
    jobs = [
        ScoringJob(candidate, tuple(names), repeat, settings=settings or {})
        for repeat in range(repeats)
        for candidate in candidates
    ]
    with Bench(space, draws, workers, keep) as bench:
        watch = Watch(len(jobs), "measurements", say)
        measured = bench.run(jobs, lambda _, kept: watch.tick(kept=kept))
        seconds = bench.seconds
    shape = (repeats, len(candidates))
    values = {
        name: torch.tensor([each.values[name] for each in measured], dtype=torch.float64).view(shape).T
        for name in names
    }
    reasons = {
        name: _first_reasons([each.reasons.get(name, "") for each in measured], shape[1]) for name in names
    }
    return Scores(values, reasons, seconds)


def check_names(names: Sequence[str]) -> None:
    """Refuses scores that there are not, and none at all."""
    if isinstance(names, str) or not names:
        raise UserError("give the names of scores as a list with at least one.")
    for name in names:
        find(name)


def _first_reasons(reasons: list[str], candidates: int) -> list[str]:
    """Of every candidate, the first reason over the repeats."""
    return [next(filter(None, reasons[place::candidates]), "") for place in range(candidates)]


ATTEMPTS = 50
"""How often a candidate is drawn anew that was drawn before."""


class RandomSettings(NamedTuple):
    """Settings of ``random``."""

    keep: int = 5
    parameters: int | None = None
    tolerance: float = 0.1
    names: tuple[str, ...] = ("parameters", "flops")
    repeats: int = 1


class ShortlistSettings(NamedTuple):
    """Settings of ``shortlist``."""

    keep: int = 5
    pool: int = 30
    names: tuple[str, ...] = ("metantk", "regions")
    repeats: int = 3
    parameters: int | None = None
    tolerance: float = 0.1


def random_pool(
    space: Space[Any], count: int, seed: int, parameters: int | None = None, tolerance: float = 0.1
) -> list[Any]:
    """Different random candidates, a pure function of the arguments."""
    if not 1 <= count <= space.total:
        raise UserError(
            f"{count} different candidates cannot be drawn from the space {space.name}, which has "
            f"{space.total}: ask for 1 to {space.total}."
        )
    drawn: dict[Any, None] = {}
    for number in range(count * ATTEMPTS):
        if parameters is None:
            candidate = random_candidate(space, seed, "pool", number)
        else:
            candidate = random_of_size(space, derive_seed(seed, "pool", number), parameters, tolerance)
        drawn.setdefault(candidate)
        if len(drawn) == count:
            return list(drawn)
    raise UserError(
        f"only {len(drawn)} different candidates of the space {space.name} were found, not {count}: ask for "
        "fewer or raise tolerance."
    )


def random_search(
    space: Space[Any], draws: Draws, settings: RandomSettings, seed: int, resources: Resources
) -> SearchOutcome:
    """Random candidates in the order they were drawn."""
    pool = random_pool(space, settings.keep, seed, settings.parameters, settings.tolerance)
    scores = (
        score_candidates(space, pool, settings.names, draws, settings.repeats, **resources._asdict())
        if settings.names
        else None
    )
    ranked = _ranked(pool, scores, range(len(pool)))
    return SearchOutcome("random", ranked, None, [], scores.seconds if scores else 0.0, 0)


def shortlist(
    space: Space[Any], draws: Draws, settings: ShortlistSettings, seed: int, resources: Resources
) -> SearchOutcome:
    """The best of a pool of random candidates by a rank sum, and how far another run would agree."""
    check_names(settings.names)
    if not 1 <= settings.keep <= settings.pool:
        raise UserError(
            f"{settings.keep} of {settings.pool} candidates cannot be kept: set {{keep}} to 1 to "
            f"{settings.pool}.",
            names=("keep",),
        )
    pool = random_pool(space, settings.pool, seed, settings.parameters, settings.tolerance)
    scores = score_candidates(space, pool, settings.names, draws, settings.repeats, **resources._asdict())
    order = scores.order()
    told = shortlist_reliability(scores, settings.keep, seed)
    ranked = _ranked(pool, scores, order)
    return SearchOutcome(
        "shortlist", ranked[: settings.keep], told, [], scores.seconds, len(pool) * settings.repeats
    )


def shortlist_reliability(scores: Scores, keep: int, seed: int) -> ShortlistReliability:
    """How far repeats agree on the order of candidates."""
    columns = {name: value.numpy() for name, value in scores.values.items()}
    candidates, repeats = next(iter(columns.values())).shape

    def sums(rows: NDArray[np.int64]) -> list[float]:
        """Rank sums of the candidates from some repeats."""
        return rank_sums({name: value[:, rows].mean(1).tolist() for name, value in columns.items()})

    alone = [sums(np.array([repeat])) for repeat in range(repeats)]
    return ShortlistReliability(
        tau=mean_tau(alone),
        tau_by_score={name: mean_tau(value.T.tolist()) for name, value in columns.items()},
        top=keep,
        top_again=_top_again(np.array(alone).T, scores.order()[:keep], seed) if repeats > 1 else None,
        top_chance=keep / candidates,
        repeats=repeats,
        candidates=candidates,
    )


def _top_again(values: NDArray[np.float64], top: list[int], seed: int) -> float:
    """The share of the shortlist that imagined other runs would name again, on average."""
    shares = [
        len(set(top) & set(np.argsort(other, kind="stable")[: len(top)].tolist())) / len(top)
        for other in other_runs(values, [range(len(values))], seed)
    ]
    return sum(shares) / len(shares)


def _ranked(pool: list[Any], scores: Scores | None, order: Any) -> list[RankedCandidate]:
    means = scores.means() if scores else {}
    return [RankedCandidate(pool[i], {name: value[i] for name, value in means.items()}) for i in order]
