"""``inner.lr=auto``: the estimate, and a race of rates where theory gives a range only.

The race may take at most 5 % of the run's steps and time. Only ratios of measured times enter, coarsely
rounded, so that a busy machine decides as an idle one does. All rates are judged on the same validation
tasks, before and after their short training.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.choose.race import Entrant, Racer, is_beyond_chance, keep_race, lead, place
from innerloop.choose.rate_advice import RateAdvice, advise_rate, warning_for
from innerloop.choose.trials import Costs, Trial, decide_once, measure_costs, run_trial
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss, is_classification, score_name
from innerloop.core.resources import available_cores
from innerloop.core.types import Loss
from innerloop.experiment.learner import test_steps
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.weights import for_test
from innerloop.training.execution.auto import expected_speedup
from innerloop.training.execution.plan import Plan

SHARE = 0.05
"""Of the run's meta-steps, and of its time, that a sweep may take in all."""

LEAST_STEPS, LEAST_EPISODES = 10, 20
"""A rate that took fewer steps, or is judged on fewer tasks, tells nothing: below that there is no sweep."""

TIMED_TASKS = 4
"""What is timed; where tasks run in one batched computation, all that a sweep would judge at least."""

BEYOND = 2
"""Rates that may be added where the best one is an end of the range."""

CHECKED = 32
"""Tasks that a user's own rate is checked against."""

Say = Callable[[str], None]


def advice_for(parts: Parts, tasks: int | None = None) -> RateAdvice:
    """The estimate for a recipe's learner at its first weights."""
    inner = parts.recipe.inner
    return advise_rate(
        parts.network,
        *for_test(parts.params, parts.buffers),
        parts.data.train,
        get_loss(inner.loss),
        method=inner.method,
        steps=inner.steps,
        optimiser=inner.optimiser,
        momentum=inner.momentum,
        tasks=tasks,
        seed=parts.recipe.run.seed,
    )


def estimate(parts: Parts, folder: Path, say: Say) -> dict[str, Any]:
    """The record of ``auto``: the advice, and the sweep where there is one (the folder keeps its trials)."""
    advice = advice_for(parts)
    record: dict[str, Any] = {"setting": "auto", **advice.as_dict()}
    say(f"inner.lr=auto: {advice.kind} [{advice.low:.3g}, {advice.high:.3g}], looked at {advice.tasks} tasks")
    for reason in advice.reasons:
        say(reason)
    if len(advice.sweep) > 1:
        record |= sweep_rates(parts, advice, folder, say)
    say(f"inner.lr={record['alpha']:.4g} ({advice.convention})")
    return record


def compare_rate(parts: Parts, rate: float) -> dict[str, Any] | None:
    """A user's own rate beside the bracket, with a warning if it lies far outside; None without a bracket."""
    try:
        advice = advice_for(parts, tasks=CHECKED)
    except UserError:  # no bracket: nothing to compare with
        return None
    return {
        "setting": rate,
        "low": advice.low,
        "high": advice.high,
        "warning": warning_for(rate, advice),
        "tasks": CHECKED,
    }


class Sweep(NamedTuple):
    """What a sweep does at every rate."""

    steps: int
    episodes: int
    beyond: int


NONE = Sweep(0, 0, 0)
"""No sweep."""


def steps_of_each(steps: int, rates: int) -> int:
    """The steps that 5 % of a run leave for each rate."""
    return int(SHARE * steps) // rates


def too_short(recipe: Recipe, rates: int) -> str | None:
    """Why a run has too few steps for any sweep; None if it has enough."""
    if steps_of_each(recipe.outer.steps, rates) >= LEAST_STEPS:
        return None
    enough = math.ceil(LEAST_STEPS * rates / SHARE)
    return (
        f"outer.steps={recipe.outer.steps} leaves no room for a sweep: {SHARE:.0%} of the steps are fewer "
        f"than the {LEAST_STEPS} for each of {rates} rates that tell anything (outer.steps={enough} has them)"
    )


def too_dear(recipe: Recipe, rates: int, costs: Costs) -> str:
    """Why a run has too little time for a sweep."""
    least = rates * (LEAST_STEPS * costs.step + 2 * LEAST_EPISODES * costs.episode + costs.build)
    whole = run_seconds(recipe, costs)
    return (
        f"there is no time for a sweep: {LEAST_STEPS} steps and twice {LEAST_EPISODES} validation tasks for "
        f"each of {rates} rates would take about {least:.3g} s, and {SHARE:.0%} of the run are about "
        f"{SHARE * whole:.3g} s"
    )


def affordable(recipe: Recipe, rates: int, costs: Costs) -> Sweep | None:
    """The longest sweep within the budget, with room beyond the ends if possible; None if there is none."""
    step = max(costs.step, 1e-9)
    episode, build = _power_of_two(costs.episode / step), _power_of_two(costs.build / step)
    budget = SHARE * run_seconds(recipe, Costs(1.0, episode, build), step)
    task = 2 * episode  # each is judged on twice
    for beyond in (BEYOND, 0):
        each = budget / (rates + beyond) - build
        cap = steps_of_each(recipe.outer.steps, rates + beyond)
        if min(cap, each - LEAST_EPISODES * task) >= LEAST_STEPS:
            wanted = max(recipe.eval.validation_episodes, LEAST_EPISODES)
            judged = _rounded(LEAST_EPISODES, min(wanted, each / 2 / task))
            if each - judged * task < LEAST_STEPS:
                judged = LEAST_EPISODES
            return Sweep(_rounded(LEAST_STEPS, min(cap, each - judged * task)), judged, beyond)
    return None


def run_seconds(recipe: Recipe, costs: Costs, step_seconds: float | None = None) -> float:
    """What the whole run is expected to take: its steps, its validations, and the evaluation at its end."""
    outer, judging = recipe.outer, recipe.eval
    seconds = costs.step if step_seconds is None else step_seconds
    pictures = recipe.tasks.family in IMAGE_FAMILIES
    faster = expected_speedup(recipe.run.compile, outer.steps, seconds, pictures)
    validations = outer.steps // (judging.every or max(1, outer.steps // 10))
    tasks = validations * judging.validation_episodes + judging.episodes
    return outer.steps * costs.step / faster + tasks * costs.episode


def _power_of_two(ratio: float) -> float:
    """The next power of two: the same for times that differ a little."""
    return float(2.0 ** math.ceil(math.log2(max(ratio, 2.0**-10))))


def _rounded(least: int, most: float) -> int:
    """The largest of 1, 1½, 2, 3, 4, 6, 8, … times the least number that is not above ``most``."""
    whole = int(least * 2 ** max(0, int(math.log2(max(most / least, 1.0)))))
    return whole * 3 // 2 if whole * 3 // 2 <= most else whole


def sweep_rates(parts: Parts, advice: RateAdvice, folder: Path, say: Say) -> dict[str, Any]:
    """What the sweep adds to the record of ``auto``: the rate, what was tried, and what could not be told."""
    started, recipe, rates = time.perf_counter(), parts.recipe, advice.sweep
    short = too_short(recipe, len(rates))
    if short is not None:
        return _without(advice, short, say)

    def decide() -> dict[str, Any]:
        costs = _costs(parts, rates)
        return {**(affordable(recipe, len(rates), costs) or NONE)._asdict(), "seconds_of": costs._asdict()}

    # how much to try depends on measured times: a run killed in the sweep decides as it did before
    folder.mkdir(parents=True, exist_ok=True)
    plan = decide_once(folder, "plan", decide)
    sweep, costs = Sweep(plan["steps"], plan["episodes"], plan["beyond"]), Costs(**plan["seconds_of"])
    if sweep == NONE:
        return _without(advice, too_dear(recipe, len(rates), costs), say)
    tried = _with_ends(parts, advice, sweep, folder)
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


def _costs(parts: Parts, rates: Sequence[float]) -> Costs:
    """Measured at the first rate that does not diverge; the smallest comes first, as the least likely to."""
    plan, steps = trial_plan(parts.recipe), test_steps(parts.recipe)
    tasks = LEAST_EPISODES if plan.mode == "vmap" else TIMED_TASKS
    for rate in rates:
        build = partial(parts.at_rate, rate)
        costs, finite = measure_costs(build, plan, tasks=tasks, most=1, test_steps=steps)
        if finite:
            return costs
    raise _all_diverged(rates)


def _all_diverged(rates: Sequence[float]) -> UserError:
    return UserError(
        f"every rate of the sweep ({min(rates):.3g} to {max(rates):.3g}) made the loss infinite: "
        "set inner.lr to a smaller number, or outer.clip=10."
    )


def trial_plan(recipe: Recipe) -> Plan:
    """Pictures a task per core; vectors all at once, where small operations are faster on one thread."""
    pictures = recipe.tasks.family in IMAGE_FAMILIES or recipe.inner.checkpoint
    cores = recipe.run.threads or available_cores()
    return Plan("threads", cores) if pictures else Plan("vmap", 1, recipe.run.chunk)


def _without(advice: RateAdvice, why: str, say: Say) -> dict[str, Any]:
    why = f"{why}: {advice.alpha:.3g}, the middle of the range, is taken without"
    say(why)
    return {"sweep": [], "sweep_steps": 0, "reasons": [*advice.reasons, why]}


def _with_ends(parts: Parts, advice: RateAdvice, sweep: Sweep, folder: Path) -> list[Racer]:
    """All rates of the range, and beyond an end while that is the one to take and the budget allows it."""

    def tried(rate: float) -> Racer:
        """One rate before and after its short training."""
        at = parts.at_rate(rate)
        racer = Racer(Entrant(f"{rate:.6g}", at.recipe, about=float(rate)), [])
        plan, judged = trial_plan(parts.recipe), test_steps(parts.recipe)
        for name, steps in (("before", 0), ("rung-1", sweep.steps)):
            trial = Trial({}, folder / racer.name, name, steps, sweep.episodes)
            racer.rungs.append(run_trial(trial, at, plan, judged))
        return racer

    known = [tried(rate) for rate in advice.sweep]
    for _ in range(sweep.beyond):
        side = "lower"
        if any(racer.last.scores for racer in known):
            found = edge(known, choose(parts.recipe, known, advice.alpha, sweep.steps)[0])
            if found is None:
                break
            side = found
        rates = [rate_of(racer) for racer in known]
        apart = max(b / a for a, b in itertools.pairwise(rates))
        known.append(tried(max(rates) * apart if side == "upper" else min(rates) / apart))
        known.sort(key=rate_of)
    keep_race(folder, known)
    if not any(racer.last.scores for racer in known):
        raise _all_diverged([rate_of(racer) for racer in known])
    return known


def choose(recipe: Recipe, tried: Sequence[Racer], middle: float, steps: int) -> tuple[Racer, list[Racer]]:
    """The rate to take, and all around the best one that cannot be told from it, itself included.

    Of those the one nearest to the middle of the range is taken: a score that may be chance is no reason to
    go to an end of it.
    """
    better = 1 if is_classification(_loss(recipe)) else -1
    usable = [racer for racer in tried if racer.last.scores]
    best = min(usable, key=lambda racer: place(racer.last, better))

    def alike(other: Racer) -> bool:
        """Whether a rate cannot be told from the best, or would overtake it in a whole run."""
        return not _clearly(best, other, better) or _overtaken(best, other, recipe.outer.steps / steps)

    at = usable.index(best)
    below = [*itertools.takewhile(alike, reversed(usable[:at]))]
    above = [*itertools.takewhile(alike, usable[at + 1 :])]
    level = [*reversed(below), best, *above]
    return min(level, key=lambda t: (abs(math.log(rate_of(t) / middle)), t is not best)), level


def rate_of(racer: Racer) -> float:
    """The rate of an entrant."""
    return float(racer.entrant.about)


def _loss(recipe: Recipe) -> Loss:
    return get_loss(recipe.outer.loss or recipe.inner.loss)


def _clearly(best: Racer, other: Racer, better: int) -> bool:
    """Whether the difference on the same tasks is beyond chance; of errors also the number of tasks won."""
    # one task that went wrong at a large rate makes the mean's interval wide: no reason to call them alike
    ours, theirs = best.last.scores, other.last.scores
    if is_beyond_chance(lead(ours, theirs, better)):
        return True
    won = sum(a < b for a, b in zip(ours, theirs, strict=True))
    lost = sum(a > b for a, b in zip(ours, theirs, strict=True))
    return better < 0 and won > lost and sign_chance(won, lost) < 0.05


def _overtaken(best: Racer, other: Racer, longer: float) -> bool:
    """Whether training closes the gap so fast that it is gone within a run ``longer`` times the sweep."""
    # small rates do least harm to untrained weights, and so lead at first wherever larger ones learn faster
    means = [(b.mean, o.mean) for b, o in zip(best.rungs, other.rungs, strict=True)]
    before, after = (None if b is None or o is None else b - o for b, o in means)
    if before is None or after is None:
        return False
    closed = abs(before) - abs(after)
    return closed > abs(after) / max(longer - 1, 1e-9) and before * after > 0


def sign_chance(won: int, lost: int) -> float:
    """How likely a fair coin falls at least as far to one side (two-sided sign test)."""
    n = won + lost
    tail = sum(math.comb(n, k) for k in range(max(won, lost), n + 1)) / 2**n
    return min(1.0, 2 * tail)


def edge(tried: Sequence[Racer], taken: Racer) -> str | None:
    """``lower`` or ``upper`` if nothing was tried beyond the rate taken, diverged ones included."""
    rates, rate = [rate_of(racer) for racer in tried], rate_of(taken)
    return "lower" if rate == min(rates) else "upper" if rate == max(rates) else None


def _decision(recipe: Recipe, tried: list[Racer], advice: RateAdvice, sweep: Sweep) -> dict[str, Any]:
    """The record of a finished sweep, with sentences on what it could not tell."""
    taken, level = choose(recipe, tried, advice.alpha, sweep.steps)
    side, rate = edge(tried, taken), rate_of(taken)
    reasons = [*advice.reasons]
    if len(level) > 1:
        rates = ", ".join(f"{rate_of(racer):.3g}" for racer in level)
        reasons.append(
            f"the sweep could not tell {rates} apart: after {sweep.steps} steps they differ on the same "
            f"{sweep.episodes} tasks by no more than chance (95 %), or the lead is being lost; "
            f"{rate:.3g} is the one nearest to the middle of the range"
        )
    if side is not None:
        reasons.append(
            f"{rate:.3g} is the {side} end of what was tried: better ones may lie beyond, "
            f"try {'smaller' if side == 'lower' else 'larger'} rates"
        )
    of = score_name(_loss(recipe))
    rows = [
        {"rate": rate_of(t), "before": t.rungs[0].mean, "score": t.last.mean, "ci95": t.last.ci95, "of": of}
        for t in tried
    ]
    ends = {"low": min(advice.low, rate_of(tried[0])), "high": max(advice.high, rate_of(tried[-1]))}
    told = {"sweep_decided": len(level) == 1, "sweep_edge": side}
    return {"alpha": rate, **ends, "sweep": rows, "reasons": reasons, **told}
