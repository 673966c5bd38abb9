"""Two runs on the same tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.evaluation import compare
from innerloop.evaluation.episodes import Episodes, differences
from innerloop.experiment.run import evaluate_run
from innerloop.recipes.told import DRAWN
from innerloop.runs.files import read_json


def compare_runs(run: Path, other: Path, overrides: list[str], *, trust: bool = False) -> dict[str, Any]:
    """Judges two runs by the same protocol, and compares them task by task.

    ``trust`` says whether code that their recipes name may be imported.

    Raises:
        UserError: if they do not see the same episodes.
    """
    results = [evaluate_run(path, overrides, trust=trust) for path in (run, other)]
    scores = [found["score"] for found in results]
    differing = differences(*(Episodes.from_dict(found[DRAWN]) for found in results))
    if scores[0] != scores[1]:
        differing = [f"score {scores[0]} and {scores[1]}", *differing]
    if differing:
        raise UserError(
            f"{run} and {other} saw other episodes ({', '.join(differing)}): give settings that make these "
            "alike; what is given here holds for both."
        )
    first, second = (read_json(Path(found["file"]))["scores"] for found in results)
    found = compare(first, second, higher_is_better=results[0]["score"] == "accuracy")
    return {**results[0], "comparison": {"against": str(other), **found.as_dict()}}
