"""The command in a process of its own, and what it answers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from oracles.patience import PATIENCE

TINY = [
    "outer.steps=3",
    "eval.episodes=4",
    "eval.validation_episodes=2",
    "run.execution=vmap",
    "run.compile=off",
]
TINY += ["outer.batch=2", "model.hidden=[8]"]
"""Settings with which a recipe of sinusoids takes no time."""


def answer(out: str) -> dict[str, Any]:
    """The JSON object on the last line of standard output; NaN is an error in it."""

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} in JSON")

    return dict(json.loads(out.splitlines()[-1], parse_constant=refuse))


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "innerloop", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err
