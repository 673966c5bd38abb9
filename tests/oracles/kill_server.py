"""Starts trainings in child processes and kills them, for the resume tests.

Reads one JSON object per line: ``folder``, ``run`` (or null), ``settings`` and ``after`` (seconds or null);
forks a child that trains, or resumes the run; kills it after so many seconds if it still runs; and answers
``killed``, ``done`` or ``failed``. Everything slow is imported once, before the forks.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # torch.func imports it at its first use: seconds that every child would need

from innerloop.recipes.library import load_recipe
from innerloop.recipes.run import resume, train


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


def child(request: dict[str, Any]) -> None:
    """Never returns: the child must not go on serving."""
    code = 1
    try:
        work(request)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def serve(request: dict[str, Any]) -> str:
    """Forks, waits, kills; the child is always reaped."""
    pid = os.fork()
    if pid == 0:
        child(request)
    deadline = time.monotonic() + (request["after"] if request["after"] is not None else 1e9)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return "done" if status == 0 else "failed"
        if time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            return "killed" if os.WIFSIGNALED(status) else "done" if status == 0 else "failed"
        time.sleep(0.002)


if __name__ == "__main__":
    for line in sys.stdin:
        answer = serve(json.loads(line))
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
