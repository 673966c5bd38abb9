"""A worker process that is asked in lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import IO, Any

from innerloop.core.children import python_command
from innerloop_studies.bench.messages import Answer

WORKER = "innerloop_studies.bench.worker"
"""The common worker; some benchmarks have their own."""


class Child:
    """A worker process; use as a context."""

    def __init__(self, name: str, module: str = WORKER, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self.errors: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  (closed on exit)
        self.process = subprocess.Popen(
            python_command("-m", module),
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.stdin and self.process.stdout:
            self.process.stdin.close()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()
        self.errors.close()

    def ask(self, do: str, **request: Any) -> Answer:
        """One request, one answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it died: the empty answer below says why
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            raise RuntimeError(f"{self.name} failed:\n{self.errors.read()[-2000:]}")
        return dict(json.loads(line))


def thread_limits(threads: int) -> dict[str, str]:
    """The environment in which libraries that read their thread count once get this one."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(threads))
