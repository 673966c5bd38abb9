"""A process that has imported everything slow, and forks a child for every script that it is given.

A script then starts within milliseconds instead of seconds, and still has a process to itself. Requests and
answers are lines of JSON; :class:`Warm` is the end that tests hold.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

SLOW = ("matplotlib.backends.backend_agg", "matplotlib.figure", "sklearn.datasets", "torch._dynamo")
"""Modules that scripts import, and one that torch imports when it first makes an optimiser."""


class Done(NamedTuple):
    """What became of a script: its exit code, what it printed, and the seconds of processors it took."""

    code: int
    out: str
    err: str
    seconds: float


class Warm:
    """A warm process. Its environment is fixed when it starts: libraries read theirs as they are loaded."""

    def __init__(self, environment: dict[str, str], patience: float) -> None:
        self._patience = patience
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def run(self, script: Path, folder: Path) -> Done:
        """Runs a script in a folder, which is its working directory."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            request = {"script": str(script), "folder": str(folder), "place": place}
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            assert select.select([self._process.stdout], [], [], self._patience)[0], "waited in vain"
            code, seconds = json.loads(self._process.stdout.readline())
            out, err = (Path(place, name).read_text(encoding="utf-8") for name in ("out", "err"))
        return Done(code, out, err, seconds)

    def __enter__(self) -> Warm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:  # closes its input, which ends it, and waits
            if kind is not None:
                os.killpg(self._process.pid, signal.SIGKILL)


def _preload() -> None:
    """Imports what scripts of the gallery import, and draws the characters that several of them use."""
    for name in SLOW:
        importlib.import_module(name)
    library = importlib.import_module("innerloop")
    for name in dir(library):  # its names load on first use
        getattr(library, name)
    library.glyphs()


def _child(script: str, folder: str, place: str) -> None:
    """Never returns: the child must not go on serving."""
    code = 1
    try:
        for number, name in enumerate((os.devnull, f"{place}/out", f"{place}/err")):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
        os.chdir(folder)
        sys.argv = [script]
        runpy.run_path(script, run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    _preload()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _child(**json.loads(line))
        _, status, used = os.wait4(pid, 0)
        answer = [os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
    os._exit(0)  # what libraries tidy up at the end takes seconds
