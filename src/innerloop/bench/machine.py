"""What this machine can do at most: the yardstick for every rate we state."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

from innerloop.execution.plan import available_cores


def cpu_name() -> str:
    """The processor's own name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def sgemm_gflops(threads: int, size: int = 2048, seconds: float = 1.0) -> float:
    """The best rate of a square float32 matrix product, in GFLOP/s."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a, b = torch.randn(size, size), torch.randn(size, size)
    a @ b
    best, spent = float("inf"), 0.0
    while spent < seconds:
        start = time.perf_counter()
        a @ b
        took = time.perf_counter() - start
        best, spent = min(best, took), spent + took
    torch.set_num_threads(before)
    return 2 * size**3 / best / 1e9


def machine(quick: bool = False) -> dict[str, Any]:
    """Name, cores, versions, and the measured sgemm rate on one and on all cores."""
    import torch

    cores = available_cores()
    size, seconds = (512, 0.1) if quick else (2048, 1.5)
    return {
        "cpu": cpu_name(),
        "cores": cores,
        "torch": torch.__version__,
        "sgemm_gflops": {str(n): sgemm_gflops(n, size, seconds) for n in sorted({1, cores})},
    }
