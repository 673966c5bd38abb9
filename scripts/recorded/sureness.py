"""How right and how sure a pretrained backbone is: what ``scripts/measure_sureness.py`` has measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import measure_sureness

from innerloop.runs.manifest import now
from recorded.files import ROOT, keep, required, this_machine
from recorded.text import interval

SCRIPT = "scripts/measure_sureness.py"
DATA = "INNERLOOP_TEST_DATA"
MEASUREMENTS: dict[str, Sequence[str]] = {
    "sureness": (),
    "sureness-many-queries": ("--each", "60", "--queries", "55"),
}
"""What follows the folder of pictures, by the name of the file."""
MODULE = "innerloop.evaluation.sureness"
"""Whose source these numbers depend on, beside that of the backbone."""


def measure(name: str, made_by: Mapping[str, str | None]) -> str | None:
    """Measures and keeps it; returns what went wrong."""
    folder = os.environ.get(DATA)
    if not folder:
        return f"set {DATA} to the folder of pictures that {SCRIPT} names"
    called = [sys.executable, SCRIPT, folder, *MEASUREMENTS[name], "--json"]
    ended = subprocess.run(called, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        return f"ended with code {ended.returncode}"
    content: dict[str, Any] = {"name": name, **json.loads(ended.stdout)}
    content["command"] = " ".join(["python", SCRIPT, f"${DATA}", *MEASUREMENTS[name]])
    keep("measurements", name, {**content, "machine": this_machine(), "made_by": made_by, "ended": now()})
    return None


def sureness(name: str) -> str:
    """The table of one measurement, a line for each set of pictures."""
    return measure_sureness.table(required("measurements", name)["rows"])


def sure(name: str, pictures: str, what: str) -> str:
    """One number with its interval, in per cent, for a line of text.

    Args:
        name: of the measurement.
        pictures: how the title of the set begins.
        what: a column, such as ``inside``.
    """
    rows = required("measurements", name)["rows"]
    (one,) = (row[what] for title, row in rows.items() if title.startswith(pictures))
    return f"{interval(one, 100)} %"
