"""How a run went, and where: rows that every page has."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from innerloop.core.words import duration
from innerloop.report.read_run import RunData, flatten
from innerloop.report.words import moment, number, when


def course_rows(run: RunData) -> list[tuple[str, str]]:
    """How a training run went: command, times, steps, speed."""
    rows = time_rows(run.manifest)
    planned = flatten(run.recipe).get("outer.steps")
    of = f" of {number(planned)}" if isinstance(planned, int) else ""
    rows.append(("meta-steps", f"{number(run.steps_done)}{of}" if run.metrics else "none logged"))
    speeds = [line["tasks_per_second"] for line in run.metrics if line.get("tasks_per_second")]
    if speeds:
        rows.append(("speed", f"{number(round(speeds[-1]))} tasks per second (last logged)"))
    return rows


def time_rows(manifest: Mapping[str, Any], seconds: Any = None) -> list[tuple[str, str]]:
    """Command, beginning and end; ``seconds`` is what the run measured itself, if it did."""
    rows: list[tuple[str, str]] = []
    argv = manifest.get("argv")
    rows.append(("command", command_text(argv) if isinstance(argv, list) and argv else "started from Python"))
    rows.append(("started", when(manifest.get("started"))))
    started, ended = moment(manifest.get("started")), moment(manifest.get("ended"))
    if ended:
        rows.append(("ended", when(manifest.get("ended"))))
    if isinstance(seconds, int | float):
        rows.append(("took", duration(seconds)))
    elif started and ended and (started.tzinfo is None) == (ended.tzinfo is None):
        rows.append(("took", duration(max(0.0, (ended - started).total_seconds()))))
    return rows


def command_text(argv: list[Any]) -> str:
    """The command as typed, without the path of the executable."""
    words = [str(word) for word in argv]
    if "/" in words[0] or "\\" in words[0]:
        words[0] = "innerloop"
    return shlex.join(words)


def environment_rows(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Versions, machine, hashes, as far as recorded."""
    rows = []
    versions = manifest.get("versions")
    for key, value in (versions if isinstance(versions, Mapping) else {}).items():
        rows.append((str(key), str(value)))
    for key in ("innerloop", "torch", "numpy", "python", "platform", "device", "cores"):
        if manifest.get(key) is not None:
            rows.append((key, str(manifest[key])))
    for key in ("recipe_sha256", "recipe_hash"):
        if manifest.get(key):
            rows.append(("recipe hash", str(manifest[key])[:16]))
    data = manifest.get("data")
    for key, value in flatten(data).items() if isinstance(data, Mapping) else ():
        rows.append((f"data {key}".replace("_", " "), str(value)))
    return rows
