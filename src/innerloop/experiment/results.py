"""What training, judging and comparing come to, as values."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.formatting import score_text
from innerloop.core.statistics import Interval
from innerloop.evaluation.baselines import Baseline
from innerloop.evaluation.comparison import Comparison
from innerloop.evaluation.episodes import Episodes, drawn_episodes
from innerloop.evaluation.scores import GridRow
from innerloop.experiment.recipe.protocols import CHANGED, evaluation_line
from innerloop.training.execution.plan import Plan

UNSURE_BELOW = 0.5
"""Predictions less probable than this are marked unsure, unless one says otherwise."""


class AfterSteps(NamedTuple):
    """A score after some number of inner steps.

    Attributes:
        steps: how many.
        mean: over the tasks.
        ci95: half the width of its 95 % interval.
    """

    steps: int
    mean: float
    ci95: float


class Judged(NamedTuple):
    """How a run did on held-out tasks.

    Attributes:
        score: ``accuracy`` or ``mse``.
        mean: over the tasks.
        ci95: half the width of its 95 % interval, over tasks.
        episodes: how many there were.
        scores: one for every task, in order.
        protocol: everything that the number depends on besides the training.
        by_step: mean and interval after fewer inner steps, and after all of them.
        notes: warnings, such as pictures that are not as they were.
        file: where all this is kept.
        drawn: which tasks these were, where its file tells it: ``innerloop.compare`` asks for the same.
        not_finite: how many tasks have no finite score.
        changed: settings that are not the run's own.
        baselines: what needs no training, on the first of these tasks.
        grid: every setting of a head that was judged beside; the last row is the mean of their probabilities.
        unconverged: tasks whose head is not a proven solution.
    """

    score: str
    mean: float
    ci95: float
    episodes: int
    scores: list[float]
    protocol: dict[str, Any]
    by_step: list[AfterSteps]
    notes: list[str]
    file: Path
    drawn: Episodes | None
    not_finite: int
    changed: Mapping[str, Any]
    baselines: list[Baseline]
    grid: tuple[GridRow, ...]
    unconverged: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``innerloop eval --json`` prints them; scores of single tasks are in ``file``."""
        told: dict[str, Any] = {
            "score": self.score,
            self.score: self.mean,
            "mean": self.mean,
            "ci95": self.ci95,
            "episodes": self.episodes,
            "drawn": None if self.drawn is None else self.drawn.as_dict(),
            "by_step": [row._asdict() for row in self.by_step],
            "not_finite": self.not_finite,
            CHANGED: dict(self.changed),
            "protocol": self.protocol,
            **({"baselines": [baseline.as_dict() for baseline in self.baselines]} if self.baselines else {}),
            "notes": self.notes,
        }
        if self.grid:
            *settings, ensemble = (row.as_dict() for row in self.grid)
            told |= {"grid": settings, "ensemble": {name: ensemble[name] for name in ("accuracy", "ci95")}}
        if self.unconverged:
            told["unconverged_heads"] = self.unconverged
        return {**told, "file": str(self.file)}

    def __str__(self) -> str:
        before = next((row for row in self.by_step if row.steps == 0 != self.by_step[-1].steps), None)
        text = evaluation_line(self._asdict())
        if before is None:
            return text
        unadapted = score_text(self.score, before.mean, before.ci95)
        return f"{text}; without adapting: {unadapted}"

    def _repr_html_(self) -> str:
        """In a notebook."""
        return html.escape(str(self))


def judged_from(result: Mapping[str, Any]) -> Judged:
    """From the file that an evaluation wrote, with its own place as ``file``."""
    return Judged(
        **{name: result[name] for name in ("score", "mean", "ci95", "episodes", "scores")},
        protocol=dict(result["protocol"]),
        by_step=[AfterSteps(row["steps"], row["mean"], row["ci95"]) for row in result["by_step"]],
        notes=list(result.get("notes") or []),
        file=Path(str(result["file"])),
        drawn=drawn_episodes(result),
        not_finite=result.get("not_finite") or 0,
        changed=result.get(CHANGED) or {},
        baselines=[_baseline(row) for row in result.get("baselines") or []],
        grid=_grid(result),
        unconverged=result.get("unconverged_heads") or 0,
    )


def _baseline(row: Mapping[str, Any]) -> Baseline:
    count = row["episodes"]
    return Baseline(
        row["name"], Interval(row["mean"], row["ci95"], count), Interval(row["gain"], row["gain_ci95"], count)
    )


def _grid(result: Mapping[str, Any]) -> tuple[GridRow, ...]:
    rows, count = result.get("grid") or [], result["episodes"]
    return tuple(
        GridRow(row.get("C"), row.get("normalise"), Interval(row["accuracy"], row["ci95"], count))
        for row in ([*rows, result["ensemble"]] if rows else [])
    )


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
