"""The child process of a benchmark: reads a line of JSON, does it, answers with a line of JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from innerloop_studies.bench.messages import Answer, Spec

TINY = {
    "sine": {"tasks": 2, "hidden": 2},
    "conv": {"tasks": 2, "ways": 2, "queries": 1, "filters": 2},
    "pooled": {"tasks": 2, "ways": 2, "shots": 1, "queries": 1, "filters": 2, "size": 16},
}


def peak_mb() -> float:
    """Peak resident memory of this process, in MB (2²⁰ bytes).

    From the kernel's ``VmHWM`` where there is one: ``ru_maxrss`` also remembers the parent's memory.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(row for row in status.read_text().splitlines() if row.startswith("VmHWM:"))
        return float(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def peak_with_workers_mb() -> float:
    """Peak memory of this process and of those that it has started, each page counted once.

    What a worker shares with us (libraries and data that it was forked with, parameters and tasks) is ours:
    of its own it has the rest of its peak.
    """
    import multiprocessing

    return peak_mb() + sum(own_peak_mb(process.pid or 0) for process in multiprocessing.active_children())


def own_peak_mb(pid: int) -> float:
    """Peak memory of a process in MB without what it shares with others now; 0 where that is not told."""
    folder = Path(f"/proc/{pid}")
    if not (folder / "smaps_rollup").exists():
        return 0.0
    shared = _kilobytes(folder / "smaps_rollup", "Shared_Clean:", "Shared_Dirty:")
    return (_kilobytes(folder / "status", "VmHWM:") - shared) / 1024


def _kilobytes(file: Path, *names: str) -> float:
    return sum(float(row.split()[1]) for row in file.read_text().splitlines() if row.startswith(names))


def worker_pids() -> list[int]:
    """This process and those that it has started."""
    import multiprocessing

    return [os.getpid(), *(process.pid or 0 for process in multiprocessing.active_children())]


def keep_freed_memory() -> None:
    """Lets all sides alike keep the memory they free.

    glibc returns it to the system at once until it has seen one large block freed. Getting the pages back
    costs a fifth of the time of a convolutional step on some machines, and at random: ratios would blur.
    """
    import torch

    block = torch.empty(32 * 2**20 - 2**16, dtype=torch.uint8)  # never touched, so it takes no memory
    del block


class Worker:
    """What a child can be asked to do: a method for every request."""

    def __init__(self) -> None:
        self.call: Callable[[], Any] = lambda: None
        self.empty_mb = 0.0

    def setup(self, spec: Spec, gradient: str | None = None) -> Answer:
        """Builds a side, runs it once, and writes its gradient to a file."""
        from innerloop_studies.bench import sides

        keep_freed_memory()
        if spec.get("compile") != "full":  # imports whatever the side needs, so that it counts as a library
            sides.build({**spec, "sizes": TINY[spec["workload"]]})()
        return self.begin(sides.build(spec), gradient, lambda grads: [grads[name] for name in sorted(grads)])

    def begin(self, call: Callable[[], Any], file: str | None, tensors: Callable[[Any], list[Any]]) -> Answer:
        """Runs what will be timed once, and writes the tensors that it finds to a file, one after another."""
        import numpy as np

        self.call, self.empty_mb = call, peak_mb()
        start = time.perf_counter()
        outcome = call()
        took = time.perf_counter() - start
        if file:
            flat = [tensor.detach().double().flatten().numpy() for tensor in tensors(outcome)]
            np.save(file, np.concatenate(flat))
        return {"first_call_s": took}

    def flops(self) -> Answer:
        """Floating point operations of one call (matrix products and convolutions)."""
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            self.call()
        return {"flops": counter.get_total_flops()}

    def block(self, repeats: int) -> Answer:
        """Times single calls."""
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            self.call()
            seconds.append(time.perf_counter() - start)
        used = {"peak_mb": peak_with_workers_mb(), "empty_mb": self.empty_mb}
        return {"seconds": seconds, **used, "pids": worker_pids()}

    def machine(self) -> Answer:
        """The limits of this machine."""
        from innerloop_studies.bench.machine import describe

        return dict(describe())

    def train(self, spec: Spec) -> Answer:
        """Trains, and tells the peak memory on the way."""
        from innerloop_studies.bench.training_run import peaks

        return {"peaks": peaks(spec, peak_mb)}


def serve(worker: Worker) -> None:
    """Answers until standard input ends."""
    # whatever libraries print must not be taken for an answer
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(worker, request.pop("do"))(**request)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(Worker())
