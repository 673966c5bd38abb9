"""From the table to a recommendation: what to do, how sure that is, and what stands behind every sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from innerloop.choose.advisor.evidence import RACES
from innerloop.choose.advisor.problem import Problem
from innerloop.choose.advisor.race import Race, Racer
from innerloop.choose.advisor.result import Row
from innerloop.choose.advisor.untrained import Ground
from innerloop.core.statistics import Interval, mean_interval, paired_difference
from innerloop.core.words import difference_text, duration, score_text


def trained_row(racer: Racer, parameters: int) -> Row:
    """A line of the table from how a method did in the race."""
    judged = racer.fresh or racer.last
    note = "query pictures of a task are normalised together" if racer.entrant.together else ""
    return Row(
        racer.entrant.name,
        racer.entrant.words,
        "trained",
        mean_interval(judged.scores) if judged.scores else None,
        len(judged.scores),
        racer.fresh is not None,
        judged.steps,
        sum(rung.seconds for rung in racer.rungs),
        parameters,
        racer.costs.step,
        racer.whole_seconds,
        note if judged.scores else "it diverged",
        tuple(judged.scores),
    )


def in_order(rows: Sequence[Row], better: int) -> list[Row]:
    """Best first; what diverged comes last. Trained methods that dropped out stand behind the last ones."""

    def key(row: Row) -> tuple[bool, bool, float]:
        score = row.score
        return (score is None, not row.fresh, 0.0 if score is None else -better * score.mean)

    return sorted(rows, key=key)


def ahead_of(first: Row, second: Row, better: int) -> Interval | None:
    """By how much one row is better than another, task by task; None where they have no tasks in common."""
    n = min(len(first.scores), len(second.scores))
    if not (first.fresh and second.fresh) or n < 2:
        return None
    gap = paired_difference(list(first.scores[:n]), list(second.scores[:n]))
    return gap._replace(mean=better * gap.mean)


def is_beyond_chance(gap: Interval | None) -> bool:
    """Whether a difference is larger than its interval."""
    return gap is not None and math.isfinite(gap.ci95) and gap.mean > gap.ci95


def choice(rows: Sequence[Row]) -> Row:
    """The best row on fresh tasks, whatever kind it is."""
    return next(row for row in rows if row.score is not None)


def sentence_of(problem: Problem, chosen: Row, race: Race) -> str:
    """What to do."""
    assert chosen.score is not None
    where = score_words(problem, chosen)
    if chosen.kind == "untrained":
        why = (
            "no method that was raced is better" if race.racers else "no method was raced in so short a time"
        )
        return f"Train nothing yet: {chosen.words} has {where}, and {why}."
    if chosen.kind == "pretrained":
        short = "" if race.racers else "; there was no time to race methods that train"
        return f"Train nothing: {chosen.words} has {where}{short}."
    whole = duration(round(chosen.whole_seconds or 0.0))
    rest = f"its whole training takes about {whole} on one core"
    return f"Use {chosen.words}: {where} after {chosen.steps} steps; {rest}."


def score_words(problem: Problem, row: Row) -> str:
    """How a row did, and on how many tasks."""
    assert row.score is not None
    said = score_text(problem.score, row.score.mean, row.score.ci95)
    return f"{said} on {row.episodes} fresh validation tasks"


def sureness_of(problem: Problem, rows: Sequence[Row], race: Race) -> tuple[str, bool]:
    """How sure the choice is, in one sentence, and whether it is beyond chance on these tasks."""
    chosen, others = rows[0], [row for row in rows[1:] if ahead_of(rows[0], row, problem.better) is not None]
    if not others:
        return "Nothing else was judged on the same tasks, so that there is no comparison.", False
    second = others[0]
    gap = ahead_of(chosen, second, problem.better)
    assert gap is not None
    decided = is_beyond_chance(gap)
    told = f"It leads {second.words} by {lead_text(problem.score, gap)} on the same tasks"
    end = "which is more than chance" if decided else "which may be chance"
    share = _share_trained(chosen, race)
    short = f" This is after {share} of its training: longer training may change the order." if share else ""
    return f"{told}, {end}.{short}", decided


def lead_text(score: str, gap: Interval) -> str:
    """By how much something is better, in the unit of the score.

    >>> lead_text("accuracy", Interval(0.021, 0.01, 80)), lead_text("mse", Interval(1.872, 0.53, 96))
    ('2.1 ± 1.0 points', '1.872 ± 0.53 in mse')
    """
    said = difference_text(score, gap.mean, gap.ci95).removeprefix("+")
    return said if score == "accuracy" else f"{said} in {score}"


def _share_trained(chosen: Row, race: Race) -> str:
    steps = next((r.entrant.recipe.outer.steps for r in race.racers if r.entrant.name == chosen.method), 0)
    return f"{100 * chosen.steps / steps:.2g} %" if steps else ""


def reasons_of(problem: Problem, rows: Sequence[Row], race: Race, ground: Ground) -> list[str]:
    """What else the table says, each sentence with its evidence."""
    told, trained = [], [row for row in rows if row.kind == "trained" and row.score is not None]
    floor = next((row for row in rows if row.kind != "trained" and row.score is not None), None)
    best = trained[0] if trained else None
    gap = ahead_of(best, floor, problem.better) if best and floor else None
    if best and floor and gap:
        word = "better than" if is_beyond_chance(gap) else "not clearly better than"
        behind = gap._replace(mean=-gap.mean)
        if is_beyond_chance(behind):
            word, gap = "worse than", behind
        said = f"by {lead_text(problem.score, gap)} on {min(len(best.scores), len(floor.scores))} tasks"
        told.append(
            f"After {best.steps} steps {best.words} is {word} the best of what needs no training here, "
            f"{floor.words} ({said})."
        )
    cheap = [row for row in trained[1:] if row.fresh and _is_much_cheaper(row, best)]
    for row in cheap:
        close = ahead_of(best, row, problem.better) if best else None
        if best and close and not is_beyond_chance(close):
            told.append(
                f"{row.words} cannot be told apart from {best.words} on these tasks, and its whole training "
                f"takes {duration(round(row.whole_seconds or 0))} on one core instead of "
                f"{duration(round(best.whole_seconds or 0))}."
            )
    if ground.pool:
        shown = ground.data.pictures
        told.append(
            f"All fresh tasks are the same for every row, and draw on {len(shown.images)} pictures of "
            f"{shown.n_classes} validation classes."
        )
    if not race.racers:
        return told
    rungs = ", ".join(f"{s:.3g}" for s in race.rungs.seconds)
    told.append(
        f"{len(race.racers)} methods were trained for {rungs} seconds each, the better half going on, and "
        f"judged on the same {race.rungs.episodes} validation tasks; test classes were not looked at."
    )
    known = RACES.get(problem.asked.kind)
    return [*told, known] if known and len(race.racers) > 1 else told


def _is_much_cheaper(row: Row, best: Row | None) -> bool:
    return best is not None and 2 * (row.whole_seconds or 0.0) < (best.whole_seconds or 0.0)
