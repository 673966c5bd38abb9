"""Two runs on the same tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.evaluation.comparison import Comparison, compare
from innerloop.evaluation.episodes import differences
from innerloop.experiment.judged import Judged, judged_from
from innerloop.experiment.run import evaluate_run


def compare_runs(run: Path, other: Path, overrides: list[str], *, trust: bool = False) -> dict[str, Any]:
    """Judges two runs by the same protocol, and compares them task by task.

    ``trust`` says whether code that their recipes name may be imported.

    Raises:
        UserError: if they do not see the same episodes.
    """
    results = [evaluate_run(path, overrides, trust=trust) for path in (run, other)]
    first, second = (judged_from(each, path) for each, path in zip(results, (run, other), strict=True))
    found = compare_judged(first, second, (str(run), str(other)))
    return {**results[0], "comparison": {"against": str(other), **found.as_dict()}}


def compare_judged(first: Judged, second: Judged, names: tuple[str, str]) -> Comparison:
    """Which of two runs is better on the episodes that both saw; ``names`` is what to call them.

    Raises:
        UserError: if they did not see the same episodes.
    """
    differing = differences(first.drawn, second.drawn) if first.drawn and second.drawn else []
    if first.score != second.score:
        differing = [f"score {first.score} and {second.score}", *differing]
    if differing:
        raise UserError(
            f"{names[0]} and {names[1]} saw other episodes ({', '.join(differing)}): give settings that make "
            "these alike; what is given here holds for both."
        )
    return compare(first, second)
