"""What must hold after every kill: a file that has its name is whole; and what must be equal at the end."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from innerloop.data.hashing import content_hash
from innerloop.data.source import map_array
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.metrics import read_metrics

TIMES = frozenset(
    (
        "seconds",
        "tasks_per_second",
        "time",
        "made",
        "over_budget",
        "spent",
        "started",
        "ended",
        "milliseconds",
    )
)
"""Entries that a clock decides; everything else must be the same, bit for bit."""

PLACES = frozenset(("run", "file", "folder", "recipe", "command", "report"))
"""Entries that name the folder of the round."""


def unfinished(folder: Path) -> list[str]:
    """What killed processes left under names that say so; it may be removed, and is never read."""
    return [str(path) for path in folder.rglob(".*") if _is_unfinished(path.name)]


def _is_unfinished(name: str) -> bool:
    return name.startswith((".tmp-", ".partial-", ".replaced-")) or name.endswith(".tmp")


def check_run(run: Path) -> None:
    """Every file of a run that has its name can be read, whatever moment the run was killed at."""
    for file in run.rglob("*.json"):
        if not any(_is_unfinished(part) for part in file.relative_to(run).parts):
            json.loads(file.read_text(encoding="utf-8"))
    for file in run.glob("*.toml"):
        tomllib.loads(file.read_text(encoding="utf-8"))
    for folder in {file.parent.parent for file in run.rglob("checkpoints/*.json")}:
        for tag in ("last", "best"):
            load_checkpoint(folder, tag)  # compares checksums
    read_metrics(run / "metrics.jsonl")


def check_store(folder: Path, allowed: set[str]) -> None:
    """A data set is not there, or is a whole one: the pixels that its index says, and no others."""
    if not folder.exists():
        return
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    found = content_hash(map_array(folder / "images.npy"))
    assert found == index["content_sha256"], f"{folder}: pixels and index differ"
    assert found in allowed, f"{folder}: neither the old data set nor the new one"
    assert len(json.loads((folder / "files.json").read_text(encoding="utf-8"))) == index["images"]


def run_content(run: Path) -> dict[str, Any]:
    """What a finished training is: its checkpoints bit for bit, its metrics and its evaluation."""
    found: dict[str, Any] = {"metrics": untimed(read_metrics(run / "metrics.jsonl"))}
    for tag in ("last", "best"):
        saved = load_checkpoint(run, tag)
        assert saved is not None, f"{run} has no checkpoint '{tag}'"
        found[tag] = {name: (str(t.dtype), t.numpy().tobytes().hex()) for name, t in saved[0].items()}
        found[f"{tag} state"] = saved[1]
    found["evaluations"] = newest_evaluation(run)
    found["status"] = json.loads((run / "manifest.json").read_text())["status"]
    return found


def newest_evaluation(run: Path) -> Any:
    """The last evaluation of a run."""
    files = sorted((run / "eval").glob("*.json"), key=lambda file: int(file.stem.rpartition("-")[2]))
    return untimed(json.loads(files[-1].read_text(encoding="utf-8")))


def store_content(folder: Path) -> dict[str, Any]:
    """The files of a data set, and its index."""
    return {
        "images": (folder / "images.npy").read_bytes().hex(),
        "files": (folder / "files.json").read_text(encoding="utf-8"),
        "index": untimed(json.loads((folder / "index.json").read_text(encoding="utf-8"))),
        "beside it": sorted(path.name for path in folder.parent.iterdir()),
    }


def untimed(value: Any) -> Any:
    """Without what a clock said, and where."""
    if isinstance(value, dict):
        return {
            key: untimed(item)
            for key, item in value.items()
            if key not in TIMES | PLACES and not key.endswith("_seconds")
        }
    return [untimed(item) for item in value] if isinstance(value, list) else value
