"""Dask clusters of real processes on this machine: a scheduler, and workers that can be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oracles.patience import wait_until

TESTS = str(Path(__file__).parents[1])
QUIET = {"DASK_LOGGING__DISTRIBUTED": "error"}


class DaskCluster:
    """A scheduler and its workers; all are ended with the context of :func:`dask_cluster`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, list[subprocess.Popen[bytes]]()
        self.file = folder / "scheduler.json"
        self._start("scheduler", "--port", "0", "--scheduler-file", str(self.file), "--host", "127.0.0.1")
        wait_until(lambda: self.file.is_file() and bool(self.file.read_text().strip()))
        self.address = str(json.loads(self.file.read_text())["address"])

    def worker(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """Starts a worker of one thread; without a nanny, so that to kill it is to kill the worker."""
        return self._start(
            "worker", self.address, "--nthreads", "1", *(options or ("--no-nanny",)), **environment
        )

    def _start(self, what: str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard", *options]
        path = os.pathsep.join([environment.pop("PYTHONPATH", ""), TESTS, os.environ.get("PYTHONPATH", "")])
        given = {**os.environ, **QUIET, "PYTHONPATH": path, **environment}
        log = (self.folder / f"{what}-{len(self.processes)}.log").open("wb")
        process = subprocess.Popen(command, env=given, cwd=self.folder, stdout=log, stderr=log)
        self.processes.append(process)
        return process


@contextmanager
def dask_cluster(folder: Path, workers: int = 1) -> Iterator[DaskCluster]:
    """A cluster in a folder of its own while the context lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = DaskCluster(folder)
    try:
        for _ in range(workers):
            cluster.worker()
        yield cluster
    finally:
        for process in reversed(cluster.processes):
            process.kill()
            process.wait()
