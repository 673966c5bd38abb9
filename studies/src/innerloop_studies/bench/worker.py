"""The child process of a benchmark, which serves a module's ``WORKER``; what processes and machines use."""

import json
import os
import platform
import sys
import time
import timeit
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from innerloop.core.resources import available_cores, keep_freed_memory, process_fields

Spec = dict[str, Any]  # what a side's process is told to build; every benchmark has keys of its own
Answer = dict[str, Any]  # what a child process answers
QUIET = 0.1  # cores that others may keep busy while we measure
WITHOUT_TORCH = "scikit-learn"
"""The side whose process does not load torch, whose threads would be in its way."""


# ---- the machine, and who else is using it ----


def sgemm(threads: int, size: int = 768, repeats: int = 200) -> float:
    """The fastest of some products of two square float32 matrices."""
    import torch

    torch.set_num_threads(threads)
    a, b, out = (torch.randn(size, size) for _ in range(3))
    seconds = timeit.repeat(lambda: torch.mm(a, b, out=out), repeat=repeats, number=1)
    return 2 * size**3 / min(seconds) / 1e9


def cpu_name() -> str:
    """The processor's own name, where the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def busy_seconds() -> float | None:
    """Processor seconds that everybody has used since the machine started; None if not known (not Linux)."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    fields = [int(f) for f in stat.read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def used_seconds(pid: int) -> float:
    """Processor seconds of one process and of those that it has waited for (Linux)."""
    return sum(map(int, (process_fields(pid) or [])[11:15])) / os.sysconf("SC_CLK_TCK")


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


# ---- memory ----


def peak_mb() -> float:
    """Peak resident memory of this process, in MB (2²⁰ bytes)."""
    status = Path("/proc/self/status")  # ru_maxrss also remembers the parent's memory
    if status.exists():
        return _kilobytes(status, "VmHWM:") / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def own_peak_mb(pid: int) -> float:
    """Peak memory of a process in MB without what it shares with others now; 0 where that is not told."""
    folder = Path(f"/proc/{pid}")
    if not (folder / "smaps_rollup").exists():
        return 0.0
    shared = _kilobytes(folder / "smaps_rollup", "Shared_Clean:", "Shared_Dirty:")
    return (_kilobytes(folder / "status", "VmHWM:") - shared) / 1024


def _kilobytes(file: Path, *names: str) -> float:
    return sum(float(row.split()[1]) for row in file.read_text().splitlines() if row.startswith(names))


def peak_with_workers_mb() -> float:
    """Peak memory of this process and of those it has started; what is shared with them is counted once."""
    return peak_mb() + sum(own_peak_mb(pid) for pid in worker_pids()[1:])


def worker_pids() -> list[int]:
    """This process and those that it has started."""
    import multiprocessing

    return [os.getpid(), *(process.pid or 0 for process in multiprocessing.active_children())]


# ---- the child ----


def flat(outcome: Any) -> Any:
    """Tensors one after another, in float64; those that have names in their order."""
    import numpy as np

    tensors = [outcome[name] for name in sorted(outcome)] if isinstance(outcome, dict) else outcome
    return np.concatenate([tensor.detach().double().flatten().numpy() for tensor in tensors])


class Worker:
    """What a child can be asked to do: a method for every request."""

    # ``build`` makes the side of a specification, whose calls are timed; ``array`` of what they give what is
    # compared; with the settings of ``small`` a side is called first: what it imports counts as a library
    def __init__(
        self,
        build: Callable[[Spec], Callable[[], Any]] | None = None,
        array: Callable[[Any], Any] | None = None,
        small: Callable[[Spec], Spec | None] = lambda _: None,
    ) -> None:
        self.build, self.array, self.small = build, array, small
        self.call: Callable[[], Any] = lambda: None
        self.empty_mb = 0.0

    def setup(self, spec: Spec, result: str | None = None) -> Answer:
        """Builds a side, runs it once, and writes what it computed to a file."""
        assert self.build is not None
        if spec["side"] != WITHOUT_TORCH:
            keep_freed_memory()  # all alike: getting pages back costs a fifth of a step, and at random
        if small := self.small(spec):
            self.build({**spec, **small})()
        self.call, self.empty_mb = self.build(spec), peak_mb()
        assert spec["side"] != WITHOUT_TORCH or "torch" not in sys.modules
        start = time.perf_counter()
        outcome = self.call()
        took = time.perf_counter() - start
        if result and self.array:
            import numpy as np

            np.save(result, self.array(outcome))
        return {"first_call_s": took, **self.remarks(outcome)}

    def remarks(self, outcome: Any) -> Answer:  # noqa: ARG002
        """What the answer says of the first call beside its time."""
        return {}

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
        """Processor, cores, torch, and the best sgemm on one thread and on all (GFLOP/s)."""
        import torch

        from innerloop.training.execution.probes import bfloat16_works, compiler_works

        cores = available_cores()
        versions = {"torch": torch.__version__, "python": platform.python_version()}
        works = {"compiler": compiler_works().works, "bfloat16": bfloat16_works().works}
        speeds = {str(n): sgemm(n) for n in sorted({1, cores})}
        return {"cpu": cpu_name(), "cores": cores, **versions, **works, "sgemm_gflops": speeds}


WORKER = Worker()

if __name__ == "__main__":  # a line of JSON for every request, and one for its answer
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print must not be taken for an answer
    worker = import_module(sys.argv[1]).WORKER
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(getattr(worker, request.pop("do"))(**request)) + "\n")
        answers.flush()
