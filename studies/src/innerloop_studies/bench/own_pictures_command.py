"""From a folder of examples to labels of new pictures: the whole command, its start included."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from innerloop.core.children import python_command
from innerloop_studies.bench.machine import busy_seconds
from innerloop_studies.bench.rows import Row, busy

CLASSES, EXAMPLES, NEW = 10, 5, 10
"""Classes, examples of each, and new pictures of each."""
LIMIT = 40.0
"""Seconds that are promised, with nothing kept from before, on two cores."""


def laid_out(files: Sequence[Path], folder: Path) -> tuple[Path, Path, dict[str, str]]:
    """Folders of examples and of new pictures, and the classes of the latter by file name."""
    of: dict[str, list[Path]] = {}
    for file in files:
        of.setdefault(file.parent.name, []).append(file)
    examples, new, truth = folder / "examples", folder / "new", {}
    new.mkdir(parents=True)
    for label in sorted(of)[:CLASSES]:
        (examples / label).mkdir(parents=True)
        for file in of[label][:EXAMPLES]:
            shutil.copy(file, examples / label / file.name)
        for file in of[label][EXAMPLES : EXAMPLES + NEW]:
            truth[f"{label}-{file.name}"] = label
            shutil.copy(file, new / f"{label}-{file.name}")
    return examples, new, truth


def once(examples: Path, new: Path, truth: dict[str, str]) -> tuple[float, float]:
    """Seconds that the command takes with nothing kept, and the share of its labels that are right."""
    with tempfile.TemporaryDirectory() as kept:
        command = python_command("-m", "innerloop", "predict", "--support", str(examples), str(new), "--json")
        start = time.perf_counter()
        done = subprocess.run(
            [*command, "--quiet"], env={**os.environ, "INNERLOOP_DATA": kept}, capture_output=True, text=True
        )
        seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"innerloop predict failed:\n{done.stderr[-2000:]}")
    rows = json.loads(done.stdout)["predictions"]
    return seconds, sum(truth[Path(row["file"]).name] == row["label"] for row in rows) / len(truth)


def others_seconds() -> float | None:
    """Processor seconds of all but this process and those that it has waited for; None if not known."""
    everybody = busy_seconds()
    return None if everybody is None else everybody - sum(os.times()[:4])


def command_case(files: Sequence[Path], quick: bool, what: str) -> Row:
    """A row: seconds of the command against those that are promised."""
    from innerloop.core.cores import available_cores

    with tempfile.TemporaryDirectory() as folder:
        examples, new, truth = laid_out(files, Path(folder))
        learnt = len(list(examples.rglob("*.jpg")))
        before, start = others_seconds(), time.perf_counter()
        outcomes = [once(examples, new, truth) for _ in range(1 if quick else 3)]
        elapsed, after = time.perf_counter() - start, others_seconds()
    seconds = statistics.median(took for took, _ in outcomes)
    notes = [
        f"{what}; {100 * outcomes[0][1]:.0f} % of the labels are right",
        "a new process with no features kept; the system may have its files in memory",
        *busy(None if before is None or after is None else max(0.0, after - before) / elapsed),
    ]
    return {
        "case": f"{learnt} examples and {len(truth)} new pictures to labels, the whole command",
        "peer": f"promised {LIMIT:.0f} s",
        "ours_ms": 1e3 * seconds,
        "peer_ms": 1e3 * LIMIT,
        "ratio": LIMIT / seconds,
        "ours_mb": None,
        "peer_mb": None,
        "threads": f"{available_cores()} / -",
        "repeats": len(outcomes),
        "at_least": 1.0,
        "notes": "; ".join(notes),
    }
