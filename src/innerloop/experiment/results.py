"""What training a recipe, and comparing two runs, come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from innerloop.evaluation.comparison import Comparison
from innerloop.experiment.judged import Judged
from innerloop.training.execution.plan import Plan


class TrainResult(NamedTuple):
    """A run that was trained, or judged without training, to its end.

    Attributes:
        run: its directory.
        steps: how many it has been trained.
        evaluation: how it does on held-out tasks.
        tasks_per_second: of this training; None where no step was taken.
        plan: how it was executed; None where nothing was trained.
        seconds: of all this.
        notes: warnings, such as settings that are not read.
    """

    run: Path
    steps: int
    evaluation: Judged
    tasks_per_second: float | None
    plan: Plan | None
    seconds: float
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``innerloop train --json`` prints them."""
        metrics = self.evaluation.as_dict()
        return {
            "run": str(self.run),
            "steps": self.steps,
            "metrics": {name: value for name, value in metrics.items() if name != "notes" or value},
            "tasks_per_second": self.tasks_per_second,
            "plan": None if self.plan is None else self.plan.as_dict(),
            "seconds": self.seconds,
            "notes": self.notes,
        }


class ComparedRuns(NamedTuple):
    """Two runs that were judged on the same tasks."""

    evaluation: Judged
    against: Path
    comparison: Comparison
    run: Path | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``innerloop eval --against RUN --json`` prints them."""
        return {
            **self.evaluation.as_dict(),
            **({} if self.run is None else {"run": str(self.run)}),
            "comparison": {"against": str(self.against), **self.comparison.as_dict()},
        }
