"""``analyze --save``: a run directory with everything its page needs, so that ``report`` reads files only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.analysis import ANALYSES
from innerloop.recipes.flat import FlatSettings, describe
from innerloop.recipes.problems import show
from innerloop.runs.directory import create_run
from innerloop.runs.files import json_line, write_json_atomic
from innerloop.runs.manifest import start_manifest, update_manifest


def keep(
    kind: str,
    module: Any,
    result: dict[str, Any],
    settings: FlatSettings,
    *,
    argv: list[str],
    folder: Path,
    started: str,
) -> Path:
    """Writes ``result.json`` with the words of the terminal, and figures; ``report`` makes its page of them.

    Words and settings are kept as text because JSON has no infinity, which several settings take.

    Args:
        kind: name of the analysis (a result may have a ``kind`` of its own).
        module: of the analysis.
        result: what it found, with ``settings``.
        settings: the same settings, before JSON.
        argv: the command as typed.
        folder: where run directories live.
        started: when the analysis began.

    Returns:
        The run directory.
    """
    run = create_run(folder, f"analyze-{kind}", int(getattr(settings, "seed", 0)))
    about = {"kind": "analyze", "analysis": kind, "started": started}
    start_manifest(run, argv, json_line(result["settings"]), about)
    kept = {
        **result,
        "tells": ANALYSES.get(kind, ""),
        "words": module.render(result),
        "keys": _keys(settings, result["settings"].get("recipe")),
        "figures": _figures(module, result, run),
    }
    write_json_atomic(run / "result.json", kept)
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


def _figures(module: Any, result: dict[str, Any], run: Path) -> list[str]:
    if not hasattr(module, "figures"):
        return []
    from innerloop.plots.files import write_figures

    return write_figures(run, module.figures(result))
