"""Runs a reproduction in a run directory of its own and writes what it found there."""

from __future__ import annotations

import time
from pathlib import Path

from innerloop.core.errors import UserError
from innerloop.core.files import write_json_atomic
from innerloop.runs.directory import create_run
from innerloop.runs.manifest import start_manifest, update_manifest
from innerloop_studies.reproduce import REPRODUCTIONS, check, find
from innerloop_studies.reproduce.members import MADE_BY, made_by
from innerloop_studies.reproduce.results import Result
from innerloop_studies.reproduce.rows import Reproduction, Say


def carry_out(name: str, scale: str, *, argv: list[str] | None, say: Say, folder: Path) -> Result:
    """Redoes a table or figure."""
    check(name, scale)
    return carry_on(begin(name, scale, argv, folder), name, scale, say)


def begin(name: str, scale: str, argv: list[str] | None, folder: Path) -> Path:
    """The run directory of a reproduction that is about to start."""
    run = create_run(folder, f"reproduce-{name}", 0)
    about = {"kind": "reproduce", "scale": scale, "redoes": REPRODUCTIONS[name], MADE_BY: made_by(name)}
    start_manifest(run, argv, f"reproduce {name} --scale {scale}", about)
    return run


def carry_on(run: Path, name: str, scale: str, say: Say) -> Result:
    """Redoes it in this directory; the manifest says how it ended, whatever happens."""
    try:
        return _redo(name, scale, say, run)
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt)
        told = str(error) if stopped or isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        update_manifest(run, status="interrupted" if stopped else "failed", reason=told or None)
        raise


def _redo(name: str, scale: str, say: Say, run: Path) -> Result:
    started = time.perf_counter()
    reproduction: Reproduction = find(name)(scale, say)
    from innerloop.report.plots.style import write_figures

    figures = write_figures(run, reproduction.figures)
    result: Result = {
        "name": name,
        "redoes": REPRODUCTIONS[name],
        "scale": scale,
        "rows": [row._asdict() for row in reproduction.rows],
        "protocol": dict(reproduction.protocol),
        "figure": figures[0] if figures else None,
        "figures": figures,
        "seconds": time.perf_counter() - started,
        "run": str(run),
    }
    write_json_atomic(run / "result.json", {**result, "data": dict(reproduction.data)})
    update_manifest(run, status="finished")
    return result
