"""What scripts of this repository have measured that no command of ``innerloop`` does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from innerloop.runs.manifest import now
from innerloop_studies.measurements import proximal as measure_proximal
from innerloop_studies.recorded.files import ROOT, keep, required, this_machine

DATA = "INNERLOOP_TEST_DATA"


class Measurement(NamedTuple):
    """A module to run and its arguments."""

    script: str
    words: Sequence[str]
    module: str
    folder: bool = False


SURENESS = ("innerloop_studies.measurements.sureness", "innerloop.classify.sureness")
MEASUREMENTS = {
    "sureness": Measurement(SURENESS[0], (), SURENESS[1], folder=True),
    "sureness-many-queries": Measurement(
        SURENESS[0], ("--each", "60", "--queries", "55"), SURENESS[1], folder=True
    ),
    "proximal": Measurement("innerloop_studies.measurements.proximal", (), "innerloop.learners.proximal"),
}
"""By the name of the file."""


def measure(name: str, made_by: Mapping[str, str | None]) -> str | None:
    """Measures and keeps it; returns what went wrong."""
    one, folder = MEASUREMENTS[name], os.environ.get(DATA)
    if one.folder and not folder:
        return f"set {DATA} to the folder of pictures that {one.script} names"
    place = [folder] if one.folder and folder else []
    called = [sys.executable, "-m", one.script, *place, *one.words, "--json"]
    ended = subprocess.run(called, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        return f"ended with code {ended.returncode}"
    content: dict[str, Any] = {"name": name, **json.loads(ended.stdout)}
    content["command"] = " ".join(["python", "-m", one.script, *([f"${DATA}"] if place else []), *one.words])
    keep("measurements", name, {**content, "machine": this_machine(), "made_by": made_by, "ended": now()})
    return None


def proximal() -> str:
    """How well iMAML's inner problem is solved, a line for each penalty."""
    return measure_proximal.table(required("measurements", "proximal")["rows"])
