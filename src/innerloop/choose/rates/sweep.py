"""A short sweep over inner rates before training, decided on validation tasks that all rates share."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from innerloop.choose.rate import RateAdvice
from innerloop.choose.rates.budget import NONE, Costs, Sweep, affordable, run_seconds, too_dear, too_short
from innerloop.choose.rates.trials import Trial, all_diverged, begun, further, judged, measured
from innerloop.core.losses import get_loss, is_classification, score_name
from innerloop.core.statistics import mean_interval
from innerloop.core.types import Loss
from innerloop.evaluation.comparison import compare
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe

Say = Callable[[str], None]
Keep = Callable[[dict[str, Any]], object]


class Tried(NamedTuple):
    """A rate and its scores on the shared validation tasks, in order; empty if they are not finite."""

    rate: float
    before: list[float]
    scores: list[float]


def swept(
    parts: Parts, advice: RateAdvice, say: Say, kept: dict[str, Any] | None = None, keep: Keep | None = None
) -> dict[str, Any]:
    """What the sweep adds to the record of ``auto``: the rate, what was tried, and what could not be told."""
    started, recipe = time.perf_counter(), parts.recipe
    rates, first = advice.sweep, None
    short = too_short(recipe, len(rates))
    if short is not None:
        return _without(advice, short, say)
    if kept is None:
        costs, first = measured(parts, rates)
        kept = {**(affordable(recipe, len(rates), costs) or NONE)._asdict(), "seconds_of": costs._asdict()}
        if keep is not None:
            keep(kept)
    sweep, costs = Sweep(kept["steps"], kept["episodes"], kept["beyond"]), Costs(**kept["seconds_of"])
    if sweep == NONE:
        return _without(advice, too_dear(recipe, len(rates), costs), say)
    tried = _with_ends(parts, advice, sweep, first)
    record = _decision(recipe, tried, advice, sweep)
    seconds = time.perf_counter() - started
    taken, share = sweep.steps * len(tried), seconds / run_seconds(recipe, costs)
    say(
        f"sweep of {len(tried)} rates, {sweep.steps} steps and {sweep.episodes} validation tasks each, the "
        f"same for all: {taken} steps, {seconds:.1f} s (about {share:.1%} of the run)"
    )
    for line in record["reasons"][len(advice.reasons) :]:
        say(line)
    return record | {
        "sweep_steps": taken,
        "sweep_episodes": sweep.episodes,
        "sweep_share": taken / recipe.outer.steps,
        "sweep_seconds": seconds,
        "sweep_time_share": share,
    }


def _without(advice: RateAdvice, why: str, say: Say) -> dict[str, Any]:
    why = f"{why}: {advice.alpha:.3g}, the middle of the range, is taken without"
    say(why)
    return {"sweep": [], "sweep_steps": 0, "reasons": [*advice.reasons, why]}


def _with_ends(parts: Parts, advice: RateAdvice, sweep: Sweep, first: Trial | None) -> list[Tried]:
    """All rates of the range, and beyond an end while that is the one to take and the budget allows it.

    ``first`` has been measured and goes on where it is.
    """

    def tried(rate: float) -> Tried:
        """Scores of one rate before and after its short training."""
        start = begun(parts, rate)
        before = judged(start, sweep.episodes)
        trial = first if first is not None and first.rate == rate else start
        return Tried(rate, before, judged(further(trial, sweep.steps), sweep.episodes))

    known = [tried(rate) for rate in advice.sweep]
    for _ in range(sweep.beyond):
        side = (
            edge(known, choose(parts.recipe, known, advice.alpha, sweep.steps)[0])
            if any(t.scores for t in known)
            else "lower"
        )
        if side is None:
            break
        rates = [t.rate for t in known]
        apart = max(b / a for a, b in itertools.pairwise(rates))
        known.append(tried(max(rates) * apart if side == "upper" else min(rates) / apart))
        known.sort(key=lambda t: t.rate)
    if not any(t.scores for t in known):
        raise all_diverged([t.rate for t in known])
    return known


def choose(recipe: Recipe, tried: Sequence[Tried], middle: float, steps: int) -> tuple[Tried, list[Tried]]:
    """The rate to take, and all around the best one that cannot be told from it, itself included.

    Of those the one nearest to the middle of the range is taken: a score that may be chance is no reason to
    go to an end of it.
    """
    higher = is_classification(_loss(recipe))
    usable = [t for t in tried if t.scores]
    best = (max if higher else min)(usable, key=lambda t: _mean(t.scores))

    def alike(other: Tried) -> bool:
        """Whether a rate cannot be told from the best, or would overtake it in a whole run."""
        return not _clearly(best, other, higher) or _overtaken(best, other, recipe.outer.steps / steps)

    at = usable.index(best)
    below = [*itertools.takewhile(alike, reversed(usable[:at]))]
    above = [*itertools.takewhile(alike, usable[at + 1 :])]
    level = [*reversed(below), best, *above]
    return min(level, key=lambda t: (abs(math.log(t.rate / middle)), t is not best)), level


def _loss(recipe: Recipe) -> Loss:
    return get_loss(recipe.outer.loss or recipe.inner.loss)


def _clearly(best: Tried, other: Tried, higher: bool) -> bool:
    """Whether the difference on the same tasks is beyond chance; of errors also the number of tasks won.

    One task that went wrong at a large rate makes the mean's interval wide: that is no reason to call the
    two alike.
    """
    if compare(best.scores, other.scores, higher).verdict == "first":
        return True
    won = sum(a < b for a, b in zip(best.scores, other.scores, strict=True))
    lost = sum(a > b for a, b in zip(best.scores, other.scores, strict=True))
    return not higher and won > lost and sign_chance(won, lost) < 0.05


def _overtaken(best: Tried, other: Tried, longer: float) -> bool:
    """Whether training closes the gap so fast that it is gone before a run ``longer`` times the sweep ends.

    Small rates do least harm to untrained weights, and so lead at first wherever larger ones learn faster.
    """
    if not best.before or not other.before:
        return False
    gaps = [abs(_mean(b) - _mean(o)) for b, o in ((best.before, other.before), (best.scores, other.scores))]
    return gaps[0] - gaps[1] > gaps[1] / max(longer - 1, 1e-9) and _led(best, other)


def _led(best: Tried, other: Tried) -> bool:
    """Whether the best one was ahead on the same side before training."""
    return (_mean(best.before) - _mean(other.before)) * (_mean(best.scores) - _mean(other.scores)) > 0


def _mean(values: Sequence[float]) -> float:
    return mean_interval(values).mean


def sign_chance(won: int, lost: int) -> float:
    """How likely a fair coin falls at least as far to one side (two-sided sign test).

    >>> sign_chance(5, 0), round(sign_chance(15, 5), 4)
    (0.0625, 0.0414)
    """
    n = won + lost
    tail = sum(math.comb(n, k) for k in range(max(won, lost), n + 1)) / 2**n
    return min(1.0, 2 * tail)


def edge(tried: Sequence[Tried], taken: Tried) -> str | None:
    """``lower`` or ``upper`` if nothing was tried beyond the rate taken, diverged ones included."""
    rates = [t.rate for t in tried]
    return "lower" if taken.rate == min(rates) else "upper" if taken.rate == max(rates) else None


def _decision(recipe: Recipe, tried: list[Tried], advice: RateAdvice, sweep: Sweep) -> dict[str, Any]:
    """The record of a finished sweep, with sentences on what it could not tell."""
    taken, level = choose(recipe, tried, advice.alpha, sweep.steps)
    side = edge(tried, taken)
    reasons = [*advice.reasons]
    if len(level) > 1:
        rates = ", ".join(f"{t.rate:.3g}" for t in level)
        reasons.append(
            f"the sweep could not tell {rates} apart: after {sweep.steps} steps they differ on the same "
            f"{sweep.episodes} tasks by no more than chance (95 %), or the lead is being lost; "
            f"{taken.rate:.3g} is the one nearest to the middle of the range"
        )
    if side is not None:
        reasons.append(
            f"{taken.rate:.3g} is the {side} end of what was tried: better ones may lie beyond, "
            f"try {'smaller' if side == 'lower' else 'larger'} rates"
        )
    rows = []
    for t in tried:
        interval = mean_interval(t.scores) if t.scores else None
        mean, half = (interval.mean, interval.ci95) if interval else (None, None)
        before = _mean(t.before) if t.before else None
        entry = {"rate": t.rate, "before": before, "score": mean, "ci95": half}
        rows.append({**entry, "of": score_name(_loss(recipe))})
    ends = {"low": min(advice.low, tried[0].rate), "high": max(advice.high, tried[-1].rate)}
    told = {"sweep_decided": len(level) == 1, "sweep_edge": side}
    return {"alpha": taken.rate, **ends, "sweep": rows, "reasons": reasons, **told}
