"""How a run did on held-out tasks, as a value."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.words import score_text
from innerloop.evaluation.episodes import Episodes
from innerloop.recipes.library import read_recipe
from innerloop.recipes.protocols import evaluation_line
from innerloop.recipes.told import told_episodes
from innerloop.runs.files import read_json
from innerloop.runs.manifest import read_manifest


class Judged(NamedTuple):
    """How a run did on held-out tasks.

    Attributes:
        score: ``accuracy`` or ``mse``.
        mean: over the tasks.
        ci95: half the width of its 95 % interval, over tasks.
        episodes: how many there were.
        scores: one for every task, in order.
        protocol: everything that the number depends on besides the training.
        by_step: mean and interval after fewer inner steps.
        notes: warnings, such as pictures that are not as they were.
        file: where all this is kept.
        drawn: which tasks these were, where its file tells it: ``innerloop.compare`` asks for the same.
    """

    score: str
    mean: float
    ci95: float
    episodes: int
    scores: list[float]
    protocol: dict[str, Any]
    by_step: list[dict[str, Any]]
    notes: list[str]
    file: Path
    drawn: Episodes | None

    def __str__(self) -> str:
        before = next((row for row in self.by_step if row["steps"] == 0 != self.by_step[-1]["steps"]), None)
        text = evaluation_line(self._asdict())
        if before is None:
            return text
        unadapted = score_text(self.score, before["mean"], before["ci95"])
        return f"{text}; without adapting: {unadapted}"

    def _repr_html_(self) -> str:
        """In a notebook."""
        return html.escape(str(self))


def judged_from(result: Mapping[str, Any], run: Path) -> Judged:
    """From what an evaluation of a run wrote."""
    file = Path(str(result["file"]))
    scores = result["scores"] if "scores" in result else read_json(file)["scores"]
    return Judged(
        score=result["score"],
        mean=result["mean"],
        ci95=result["ci95"],
        episodes=result["episodes"],
        scores=scores,
        protocol=dict(result["protocol"]),
        by_step=list(result["by_step"]),
        notes=list(result.get("notes") or []),
        file=file,
        drawn=told_episodes(read_recipe(str(run)).model_dump(), result, read_manifest(run)),
    )
