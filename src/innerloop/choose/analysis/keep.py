"""``analyze --save``: a run directory with everything its page needs, so that ``report`` reads files only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from innerloop.choose.analysis import ANALYSES
from innerloop.core.files import json_line, write_json_atomic
from innerloop.experiment.recipe.flat import FlatSettings, describe
from innerloop.experiment.recipe.problems import show
from innerloop.runs.directory import create_run
from innerloop.runs.manifest import start_manifest, update_manifest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Kept(NamedTuple):
    """What is kept of an analysis."""

    kind: str
    result: dict[str, Any]
    settings: FlatSettings
    words: list[str]
    figures: dict[str, Figure]


def keep(kept: Kept, *, argv: list[str], folder: Path, started: str) -> Path:
    """Writes ``result.json`` with the words of the terminal, and figures; ``report`` makes its page of them.

    Words and settings are kept as text because JSON has no infinity, which several settings take.
    """
    kind, settings = kept.kind, kept.result["settings"]
    run = create_run(folder, f"analyze-{kind}", int(getattr(kept.settings, "seed", 0)))
    about = {"kind": "analyze", "analysis": kind, "started": started}
    start_manifest(run, argv, json_line(settings), about)
    record = {
        **kept.result,
        "tells": ANALYSES.get(kind, ""),
        "words": kept.words,
        "keys": _keys(kept.settings, settings.get("recipe")),
        "figures": _figures(run, kept.figures),
    }
    write_json_atomic(run / "result.json", record)
    update_manifest(run, status="finished")
    return run


def _keys(settings: FlatSettings, recipe: str | None) -> list[dict[str, str]]:
    rows = [
        {
            "key": row["key"],
            "value": _typed(getattr(settings, row["key"])),
            "default": _typed(row["default"]),
            "meaning": row["meaning"],
        }
        for row in describe(type(settings))
    ]
    about = "whose tasks were looked at"
    return (
        [{"key": "recipe", "value": recipe, "default": "none", "meaning": about}, *rows] if recipe else rows
    )


def _typed(value: Any) -> str:
    return "inf" if value == float("inf") else show(value).strip("'")


def _figures(run: Path, figures: dict[str, Figure]) -> list[str]:
    if not figures:
        return []
    from innerloop.report.plots.files import write_figures

    return write_figures(run, figures)
