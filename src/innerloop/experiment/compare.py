"""Two runs on the same tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.evaluation import compare
from innerloop.experiment.run import evaluate_run
from innerloop.recipes.protocols import SAME_TASKS
from innerloop.runs.files import read_json


def compare_runs(run: Path, other: Path, overrides: list[str], *, trust: bool = False) -> dict[str, Any]:
    """Judges two runs by the same protocol, and compares them task by task.

    ``trust`` says whether code that their recipes name may be imported.

    Raises:
        UserError: if their protocols do not give the same tasks.
    """
    results = [evaluate_run(path, overrides, trust=trust) for path in (run, other)]
    told = [{"score": found["score"], **found["protocol"]} for found in results]
    differing = sorted(
        name
        for name in ("score", *SAME_TASKS)
        if told[0].get(name) != told[1].get(name)  # both are of this version, so that both state everything
    )
    if differing:
        what = ", ".join(f"{name} ({told[0].get(name)} and {told[1].get(name)})" for name in differing)
        raise UserError(f"{run} and {other} saw other tasks: {what} differ; set them alike.")
    first, second = (read_json(Path(found["file"]))["scores"] for found in results)
    found = compare(first, second, higher_is_better=results[0]["score"] == "accuracy")
    return {**results[0], "comparison": {"against": str(other), **found.as_dict()}}
