"""Random candidates of a given size, as they are or ranked by scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innerloop.choose.architectures.draws import Draws
from innerloop.choose.architectures.found import Found, Means, Ranked, ShortlistReliability
from innerloop.choose.architectures.reliability import mean_tau, other_runs
from innerloop.choose.architectures.scoring import Scores, check_names, score_candidates
from innerloop.choose.architectures.space import Space, random_candidate, random_of_size
from innerloop.choose.scores.ranks import rank_sums
from innerloop.core.errors import UserError
from innerloop.core.random import derive_seed

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
    space: Space[Any], draws: Draws, settings: RandomSettings, seed: int, means: Means
) -> Found:
    """Random candidates in the order they were drawn."""
    pool = random_pool(space, settings.keep, seed, settings.parameters, settings.tolerance)
    scores = _scores(space, pool, settings.names, draws, settings.repeats, means) if settings.names else None
    ranked = _ranked(pool, scores, range(len(pool)))
    return Found("random", ranked, None, [], scores.seconds if scores else 0.0, 0)


def shortlist(space: Space[Any], draws: Draws, settings: ShortlistSettings, seed: int, means: Means) -> Found:
    """The best of a pool of random candidates by a rank sum, and how far another run would agree."""
    check_names(settings.names)
    if not 1 <= settings.keep <= settings.pool:
        raise UserError(
            f"{settings.keep} of {settings.pool} candidates cannot be kept: set {{keep}} to 1 to "
            f"{settings.pool}.",
            names=("keep",),
        )
    pool = random_pool(space, settings.pool, seed, settings.parameters, settings.tolerance)
    scores = _scores(space, pool, settings.names, draws, settings.repeats, means)
    order = scores.order()
    told = shortlist_reliability(scores, settings.keep, seed)
    ranked = _ranked(pool, scores, order)
    return Found("shortlist", ranked[: settings.keep], told, [], scores.seconds, len(pool) * settings.repeats)


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


def _scores(
    space: Space[Any], pool: list[Any], names: tuple[str, ...], draws: Draws, repeats: int, means: Means
) -> Scores:
    return score_candidates(
        space,
        pool,
        names,
        draws,
        repeats,
        workers=means.workers,
        keep=means.keep,
        say=means.say,
        ranks=means.ranks,
    )


def _ranked(pool: list[Any], scores: Scores | None, order: Any) -> list[Ranked]:
    means = scores.means() if scores else {}
    return [Ranked(pool[i], {name: value[i] for name, value in means.items()}) for i in order]
