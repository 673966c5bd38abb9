"""Runs a reproduction in a run directory of its own and writes what it found there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError, did_you_mean
from innerloop.reproduce import SCALES, find
from innerloop.reproduce.rows import Reproduction, Say
from innerloop.runs.directory import create_run
from innerloop.runs.files import write_json_atomic
from innerloop.runs.manifest import start_manifest, update_manifest


def carry_out(name: str, scale: str, *, argv: list[str] | None, say: Say, folder: Path) -> dict[str, Any]:
    """Redoes a table or figure.

    Args:
        name: of the reproduction.
        scale: ``smoke``, ``cpu`` or ``paper``.
        argv: the command as typed.
        say: receives lines for people.
        folder: where run directories live.

    Returns:
        ``name``, ``scale``, ``rows``, ``figure``, ``figures``, ``protocol``, ``seconds`` and ``run``.
    """
    if scale not in SCALES:
        raise UserError(f"there is no scale '{scale}'{did_you_mean(scale, SCALES)}: {', '.join(SCALES)}.")
    module = find(name)
    run = create_run(folder, f"reproduce-{name}", 0)
    start_manifest(run, argv, f"reproduce {name} --scale {scale}", {"kind": "reproduce", "scale": scale})
    started = time.perf_counter()
    try:
        found: Reproduction = module.run(scale, say)
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt)
        update_manifest(run, status="interrupted" if stopped else "failed", reason=str(error) or None)
        raise
    figures = _write_figures(run, found)
    result: dict[str, Any] = {
        "name": name,
        "scale": scale,
        "rows": [row._asdict() for row in found.rows],
        "protocol": dict(found.protocol),
        "figure": figures[0] if figures else None,
        "figures": figures,
        "seconds": time.perf_counter() - started,
        "run": str(run),
    }
    write_json_atomic(run / "result.json", {**result, "data": dict(found.data)})
    update_manifest(run, status="finished")
    return result


def _write_figures(run: Path, found: Reproduction) -> list[str]:
    from innerloop.plots.svg import figure_to_svg
    from innerloop.runs.files import write_text_atomic

    written = []
    for stem, figure in found.figures.items():
        figure.savefig(run / f"{stem}.png", dpi=160, facecolor="white")
        write_text_atomic(run / f"{stem}.svg", figure_to_svg(figure, stem))
        written.append(str(run / f"{stem}.png"))
    return written
