"""Rows about short races of ``innerloop advise``, on pictures and on numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.report.plots.panels import line, panel, panels_figure, points
from innerloop.report.plots.style import INK
from innerloop_studies.papers.further.advice_runs import Case, Long, Raced
from innerloop_studies.reproduce.rows import Row, row

Regret = Callable[[float, float], float]

SHARE = 0.1
"""Of the time of the long race, that the short one has."""
ENOUGH = 0.8
"""Share of problems on which the first choice must be close to the best."""


class Judged(NamedTuple):
    """A problem: what the race chose, what was best, and how far apart they are after long training."""

    problem: str
    seed: int
    chosen: str
    best: str
    regret: float
    decided: bool
    share: float
    long: dict[str, float]
    order: list[str]


def judged_by(
    case: Case, seed: int, long: Mapping[str, Long], raced: Raced, *, worst: float, regret: Regret
) -> Judged:
    """Holds the first choice of a short race against the best method of a long one."""
    reached = {name: worst if one.score is None else one.score for name, one in long.items()}
    best = min(reached, key=reached.__getitem__) if worst else max(reached, key=reached.__getitem__)
    chosen = next((name for name in raced.order if name in reached), None)
    if chosen is None:
        raise UserError(f"{case}: {'; '.join(raced.left_out)}.")
    whole = sum(one.seconds for one in long.values())
    lost = regret(reached[chosen], reached[best])
    share = raced.seconds / whole
    return Judged(str(case), seed, chosen, best, lost, raced.decided, share, reached, raced.order)


def counted_row(problems: Sequence[Judged]) -> Row:
    """That every problem was decided, however little was trained."""
    what = "every problem has a choice among the methods that were trained for long"
    chosen = sum(one.chosen in one.long for one in problems)
    return row(what, len(problems), chosen, bool(problems) and chosen == len(problems))


def race_rows(
    problems: Sequence[Judged], close: float, what: str, said: str, fails: Collection[str] = ()
) -> list[Row]:
    """Whether first choices are close to the best, races cheap, and leads that were called decided right."""
    near = sum(one.regret <= close for one in problems)
    wrong = [one for one in problems if one.decided and one.regret > close]
    decided = sum(one.decided for one in problems)
    share = statistics.median(one.share for one in problems)
    return [
        counted_row(problems),
        row(
            what,
            f"{ENOUGH:.0%} (our aim)",
            f"{near} of {len(problems)}; {said}",
            near >= ENOUGH * len(problems),
            expected="aim" not in fails,
        ),
        row(
            "the race costs at most a tenth of the long one",
            "0.1 (our aim)",
            f"{share:.3f} at the median",
            share <= SHARE * 1.1,
            expected="cost" not in fails,
        ),
        row(
            "a lead that is called more than chance is right after long training",
            "all (our aim)",
            f"{decided - len(wrong)} of {decided}",
            not wrong,
            expected="decided" not in fails,
        ),
    ]


def race_figure(
    problems: Sequence[Judged], title: str, beside_best: Regret, limits: tuple[float, float] | None = None
) -> Any:
    """What every method reached after long training beside the best one, and what the race chose."""
    places = list(range(len(problems)))

    def heights(names: Sequence[str]) -> list[float]:
        """Of one method in each problem; not a number where it did not take part."""
        known = [
            (one.long.get(name, math.nan), one.long[one.best])
            for one, name in zip(problems, names, strict=True)
        ]
        return [beside_best(score, best) for score, best in known]

    methods = list(dict.fromkeys(name for one in problems for name in one.long))
    lines = [line(name, places, heights([name] * len(problems)), dots=True) for name in methods]
    chosen = points(places, heights([one.chosen for one in problems]))
    lines.append(line("chosen by the race", [], [], ink=INK, points=chosen))
    words = [one.problem.replace(", 5-way ", "\n").replace(", ", "\n") for one in problems]
    ticks = [text.replace("-quadratic", "-\nquadratic") for text in words]
    only = panel("", title, lines, log_y=limits is not None, limits=limits, ticks=ticks)
    return panels_figure([only], width=11.0, height=4.0)
