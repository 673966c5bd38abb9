"""What this machine can do at most, and who else is using it."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import TypedDict

QUIET = 0.1
"""Cores that others may keep busy while we measure."""


class Machine(TypedDict):
    """A machine, in the JSON of every benchmark."""

    cpu: str
    cores: int
    torch: str
    python: str
    compiler: bool
    bfloat16: bool
    sgemm_gflops: dict[str, float]


def describe() -> Machine:
    """Processor, cores, torch, and the best sgemm on one thread and on all (GFLOP/s)."""
    import torch

    from innerloop.core.cores import available_cores
    from innerloop.training.execution.plan import bfloat16_works, compiler_works

    cores = available_cores()
    return {
        "cpu": cpu_name(),
        "cores": cores,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "compiler": compiler_works().works,
        "bfloat16": bfloat16_works().works,
        "sgemm_gflops": {str(n): sgemm(n) for n in sorted({1, cores})},
    }


def sgemm(threads: int, size: int = 768, repeats: int = 200) -> float:
    """The fastest of some products of two square float32 matrices."""
    import torch

    torch.set_num_threads(threads)
    a, b, out = (torch.randn(size, size) for _ in range(3))
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e9


def cpu_name() -> str:
    """The processor's own name, where the system tells."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def busy_seconds() -> float | None:
    """Processor seconds that everybody has used since the machine started; None if not known (not Linux)."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    fields = [int(f) for f in stat.read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def used_seconds(pid: int) -> float:
    """Processor seconds of one process (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bystanders:
    """How much of the machine others used while we measured: such numbers are not to be quoted."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = [os.getpid(), *pids]
        self.start = time.perf_counter()
        self.before = self._others()

    def _others(self) -> float | None:
        total = busy_seconds()
        return None if total is None else total - sum(used_seconds(pid) for pid in self.pids)

    def cores(self) -> float | None:
        """Cores that others kept busy on average; None if the system does not tell."""
        now = self._others()
        if now is None or self.before is None:
            return None
        return max(0.0, now - self.before) / max(time.perf_counter() - self.start, 1e-9)


def wait_for_quiet(deadline: float, look: float = 0.2) -> None:
    """Waits until others leave the machine alone for a moment, or until ``deadline`` (``time.monotonic``)."""
    while time.monotonic() < deadline:
        watch = Bystanders([])
        time.sleep(look)
        others = watch.cores()
        if others is None or others <= QUIET:
            return
