"""Starts trainings in child processes and kills them, for the resume tests.

Reads one JSON object per line: ``folder``, ``run`` (or null), ``settings`` and ``after`` (a number or null);
forks a child that trains, or resumes the run; the child is killed at its so many-th function call, wherever
that is; answers ``killed``, ``failed``, or ``done`` with the number of calls that there were. Calls are
counted and not seconds, so that nothing depends on the speed of the machine. Everything slow is imported
once, before the forks.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # torch.func imports it at its first use: seconds that every child would need

from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.resuming import resume
from innerloop.experiment.training import train


def work(request: dict[str, Any]) -> None:
    """What a child does."""
    torch.set_num_threads(1)
    if request["run"] is None:
        train(
            load_recipe("sine-maml", [*request["settings"], f"run.folder={request['folder']}"]),
            progress=False,
        )
    else:
        resume(Path(request["run"]), progress=False)


def die_at(call: int | None) -> list[int]:
    """Kills this process at a call of a function, of Python or of C; counts them until then."""
    calls = [0]

    def seen(frame: object, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            calls[0] += 1
            if calls[0] == call:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(seen)
    return calls


def child(request: dict[str, Any], report: int) -> None:
    """Never returns: the child must not go on serving."""
    code = 1
    calls = die_at(request["after"])
    try:
        work(request)
        sys.setprofile(None)
        os.write(report, str(calls[0]).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def serve(request: dict[str, Any]) -> str:
    """Forks and waits; the child is always reaped."""
    end, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end)
        child(request, report)
    os.close(report)
    with os.fdopen(end) as file:
        calls = file.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return "killed" if os.WTERMSIG(status) == signal.SIGKILL else "failed"
    return f"done {calls}" if status == 0 else "failed"


if __name__ == "__main__":
    for line in sys.stdin:
        answer = serve(json.loads(line))
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
