"""The files of ``results/``: where they are, what is in them, and how a finished command becomes one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from innerloop.core.files import write_json_atomic
from innerloop.runs.manifest import now, read_manifest
from innerloop.runs.process import identity
from innerloop_studies.bench.machine import cpu_name
from innerloop_studies.reproduce import REPRODUCTIONS

ROOT = Path(__file__).parents[4]
RESULTS = ROOT / "results"
KINDS = ("reproductions", "benchmarks", "evaluations", "predictions", "measurements", "printed")
SCALE = "cpu"
TABLED = (
    *("advice-numbers", "advice-race", "bridge-table3", "landscape-table1", "landscape-table2"),
    *("metantk-table2", "rate-regret", "rate-unseen"),
)
"""Reproductions with a table of their own, for which the data behind their rows are kept."""
LONG = 12
"""Lists of more numbers are draws or curves, which no table prints; the run itself keeps them."""


def read(kind: str, name: str) -> dict[str, Any] | None:
    """What is recorded of a reproduction, benchmark or evaluation; None if there is no file."""
    file = path_of(kind, name)
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def required(kind: str, name: str) -> dict[str, Any]:
    """What is recorded, for a table that cannot do without it."""
    kept = read(kind, name)
    if kept is None:
        raise SystemExit(f"results/{kind}/{name}.json is missing: run or adopt {name} first.")
    return kept


def path_of(kind: str, name: str) -> Path:
    """Where the file is, or will be."""
    return RESULTS / kind / f"{name}.json"


def keep(kind: str, name: str, content: dict[str, Any]) -> Path:
    """Writes a file; after a crash the old one or the new one is there."""
    file = path_of(kind, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(file, content)
    return file


def adopt_run(run: Path) -> Path:
    """Keeps what a finished ``innerloop reproduce NAME --scale cpu`` has found."""
    manifest = read_manifest(run)
    if manifest.get("kind") != "reproduce" or manifest["status"] != "finished":
        raise SystemExit(f"{run} is no finished reproduction: it is {manifest['status']}.")
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    name = result["name"]
    if result["scale"] != SCALE or name not in REPRODUCTIONS:
        raise SystemExit(f"{run} is {name} at {result['scale']}; the documentation shows those at {SCALE}.")
    newest = read("reproductions", name)
    if newest and newest["ended"] > manifest["ended"]:
        raise SystemExit(f"{path_of('reproductions', name)} is of a later run than {run}.")
    content = {key: result[key] for key in ("name", "redoes", "scale", "rows", "protocol", "seconds")}
    content |= {"earlier": list(earlier_attempts(run, manifest)), "command": command_of(name)}
    content |= {key: manifest.get(key) for key in ("versions", "made_by", "started", "ended")}
    content["machine"] = machine_of(manifest)
    if name in TABLED:
        content["data"] = short(result["data"])
    return keep("reproductions", name, content)


def adopt_benchmark(
    result: dict[str, Any], made_by: dict[str, str | None] | None, ended: str | None = None
) -> Path:
    """Keeps what ``innerloop bench NAME --json`` has printed."""
    if "cases" not in result or "machine" not in result:
        raise SystemExit(f"this is no result of a benchmark: {str(result)[:80]}")
    content = {key: short(value) for key, value in result.items() if key != "figure"}
    content |= {"command": f"innerloop bench {result['name']}", "made_by": made_by, "ended": ended or now()}
    return keep("benchmarks", result["name"], content)


def adopt(path: Path) -> Path:
    """Keeps a finished run of ``innerloop reproduce``, or a file with what a benchmark printed."""
    if path.is_dir():
        return adopt_run(path)
    ended = datetime.fromtimestamp(path.stat().st_mtime).astimezone().isoformat(timespec="seconds")
    return adopt_benchmark(json.loads(path.read_text(encoding="utf-8")), None, ended)


def command_of(name: str) -> str:
    """What to type for a reproduction."""
    return f"innerloop reproduce {name} --scale {SCALE}"


def earlier_attempts(run: Path, manifest: dict[str, Any]) -> Iterator[float | None]:
    """Seconds of the runs before this one in its folder, whose parts it may have used again.

    None stands for one that was killed: nobody wrote down when.
    """
    for other in sorted(run.resolve().parent.iterdir()):
        if other.is_dir() and other.name < run.resolve().name:
            before = read_manifest(other)
            if before.get("scale") == manifest["scale"]:
                yield elapsed(before)


def elapsed(manifest: dict[str, Any]) -> float | None:
    """Seconds between the start and the end of a run, by the clock; None if its end is not known."""
    if not manifest.get("ended"):
        return None
    started, ended = (datetime.fromisoformat(manifest[key]) for key in ("started", "ended"))
    return (ended - started).total_seconds()


def machine_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """Where a run was made; its processor is known if this machine has not been started anew since."""
    here = manifest.get("boot") is not None and manifest.get("boot") == identity().get("boot")
    known = {key: manifest.get(key) for key in ("platform", "cores", "device")}
    return {"cpu": cpu_name() if here else None, **known}


def this_machine() -> dict[str, Any]:
    """Where something was measured that has no manifest to say so."""
    return {"cpu": cpu_name(), "cores": os.cpu_count()}


def is_curve(value: Any) -> bool:
    """Whether it is a long list of numbers."""
    return isinstance(value, list) and len(value) > LONG and not isinstance(value[0], dict)


def short(data: Any) -> Any:
    """Data without lists that no table prints, and with six digits of every number.

    >>> short({"mean": 1 / 3, "draws": [0.0] * 50, "rates": [1, 2]})
    {'mean': 0.333333, 'rates': [1, 2]}
    """
    if isinstance(data, dict):
        return {k: short(v) for k, v in data.items() if not is_curve(v)}
    if isinstance(data, float):
        return float(f"{data:.6g}")
    return [short(value) for value in data] if isinstance(data, list) else data
