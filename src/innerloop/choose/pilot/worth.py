"""How a race ended: which of the last two is better on fresh tasks, and what the score was worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from innerloop.choose.pilot.racers import Racer
from innerloop.choose.pilot.trials import Reached
from innerloop.core.statistics import Interval, mean_interval, paired_difference
from innerloop.core.words import difference_text, duration, score_text


class Closing(NamedTuple):
    """The end of a race."""

    chosen: Racer
    other: Racer
    difference: Interval | None
    decided: bool
    fresh: dict[str, Reached]
    sentence: str


class Spent(NamedTuple):
    """Seconds on one core: of scoring, and of training the two fields."""

    scoring: float
    score: float
    random: float


class Worth(NamedTuple):
    """What the score was worth."""

    difference: float | None
    ci95: float | None
    decided: bool
    field_difference: float | None
    field_ci95: float | None
    random_candidates: int
    seconds: Spent
    sentence: str
    cost: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON, where the seconds of the score's candidates have those of scoring in them."""
        scoring, score, random = self.seconds
        return self._asdict() | {"seconds": {"score": scoring + score, "random": random, "scoring": scoring}}


def closing(finalists: Sequence[Racer], fresh: Sequence[Reached]) -> Closing:
    """Chooses between the score's last candidate and the random one."""
    (first, second), (ours, theirs) = finalists, fresh
    whole = ours.mean is not None and theirs.mean is not None
    difference = paired_difference(ours.scores, theirs.scores) if whole else None
    ahead = difference.mean >= 0 if difference else ours.mean is not None
    chosen, other = (first, second) if ahead else (second, first)
    result = ours if ahead else theirs
    decided = bool(difference and math.isfinite(difference.ci95) and abs(difference.mean) > difference.ci95)
    said = score_text("accuracy", result.mean, result.ci95)
    if difference is None:
        behind = f"{other.name} diverged"
    else:
        gap = difference_text("accuracy", abs(difference.mean), difference.ci95)
        behind = f"{gap} against {other.name}" + (
            "" if decided else ", which these tasks cannot tell from none"
        )
    sentence = f"{chosen.name} is chosen: {said} on {result.episodes} fresh validation tasks, {behind}."
    return Closing(chosen, other, difference, decided, {first.name: ours, second.name: theirs}, sentence)


def judged_worth(racers: Sequence[Racer], last: Closing, spent: Spent, k: int) -> Worth:
    """What the score was worth: the best by the score against the best of random ones, at what cost."""
    ours, theirs = ([r for r in racers if r.field == field] for field in ("score", "random"))
    firsts = [(a.results[0].mean, b.results[0].mean) for a, b in zip(ours, theirs, strict=False)]
    pairs = [a - b for a, b in firsts if a is not None and b is not None]
    field = mean_interval(pairs) if len(pairs) > 1 else None
    gap = last.difference
    ours_took, scoring, theirs_took = map(
        duration, (spent.scoring + spent.score, spent.scoring, spent.random)
    )
    return Worth(
        difference=gap.mean if gap else None,
        ci95=gap.ci95 if gap else None,
        decided=last.decided,
        field_difference=field.mean if field else None,
        field_ci95=field.ci95 if field else None,
        random_candidates=len(theirs),
        seconds=spent,
        sentence=_sentence(gap, last.decided, field, k, len(theirs)),
        cost=(
            f"On one core, the score's candidates took {ours_took} (scoring alone {scoring}), "
            f"the random ones {theirs_took}."
        ),
    )


def _sentence(gap: Interval | None, decided: bool, field: Interval | None, k: int, others: int) -> str:
    if gap is None:
        return "One of the last two diverged, so there is no difference to tell."
    said = difference_text("accuracy", gap.mean, gap.ci95)
    beyond = "beyond chance on these tasks" if decided else "no more than chance on these tasks"
    text = f"The best of {k} by the score against the best of {others} random ones: {said}, {beyond}."
    if field is not None:
        mean = difference_text("accuracy", field.mean, field.ci95)
        text += f" Over pairs of equal size after the first rung: {mean} (interval over {field.n} pairs)."
    return text
