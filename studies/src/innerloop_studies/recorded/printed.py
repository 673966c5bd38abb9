"""What commands print for people, as pages show it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

from innerloop.runs.manifest import now
from innerloop_studies.recorded.files import ROOT, keep, required, this_machine

PRINTED: dict[str, Sequence[str]] = {"advise-glyphs": ("advise", "glyphs", "budget=60s")}
"""What is typed after ``innerloop``, by the name of the file."""
MODULE = "innerloop.cli.advise"
"""Whose source these lines depend on."""


def record(name: str, made_by: Mapping[str, str | None]) -> str | None:
    """Runs a command and keeps what it prints; returns what went wrong."""
    words = PRINTED[name]
    called = [sys.executable, "-m", "innerloop", *words]
    ended = subprocess.run(called, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        return f"ended with code {ended.returncode}"
    lines = [line.rstrip() for line in ended.stdout.strip().splitlines()]
    content = {"name": name, "command": f"innerloop {' '.join(words)}", "lines": lines}
    keep("printed", name, {**content, "machine": this_machine(), "made_by": made_by, "ended": now()})
    return None


def printed(name: str, until: str | None = None) -> str:
    """A command and what it printed, as a block of text."""
    kept = required("printed", name)
    lines = kept["lines"] if until is None else [*kept["lines"][: kept["lines"].index(until)], "…"]
    return "\n".join(["```text", f"$ {kept['command']}", *lines, "```"])
