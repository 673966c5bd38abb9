"""The rate's estimator, streamed over thousands of tasks: memory, share of sgemm, and forming S beside it."""

import statistics
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from innerloop.theory.rate import limit_moments, stream
from innerloop_studies.bench import harness
from innerloop_studies.bench.worker import Answer, Worker, peak_mb

TITLE = "the adaptation rate's estimator over 5,000 tasks, streamed, against sgemm and forming S"
VERSION = 1

TASKS, SAMPLES, DIM = 5000, 50, 2000
CHUNKS = (2, 5, 10, 25)  # tasks at a time; the fastest on a hundred tasks is taken, as a user would
CHECKED = 20
MEMORY_MB = 1024.0
SHARE = 0.5
AGREE = 1e-10


def run(quick: bool = False, say: harness.Say = print) -> harness.Report:
    """Eq. 3.3 on 5,000 tasks of 50 samples, 2,000 features, made chunk by chunk; S formed on 20."""
    tasks = 200 if quick else TASKS
    rounds = [_child("streamed", tasks) for _ in range(1 if quick else 3)]
    machine = harness.machine(quick)
    seconds = statistics.median(each["seconds"] for each in rounds)
    flops = tasks * (2.0 * SAMPLES**2 * DIM + 2.0 * SAMPLES**3 + 4.0 * SAMPLES**2)
    gflops = flops / seconds / 1e9  # of the Gram, its square and two inner products
    share = gflops / machine["sgemm_gflops"]["1"]
    peak = max(each["peak_mb"] for each in rounds)
    say(f"{tasks} tasks: {seconds:.2f} s, {gflops:.0f} GFLOP/s, {share:.0%} of sgemm, {peak:.0f} MB")
    formed = _child("formed", 2 if quick else CHECKED)
    off = formed["difference"]
    say(f"forming S on {formed['tasks']} tasks in float64: relative difference {off:.1g}")
    if off > AGREE:
        raise RuntimeError(f"the Gram form and forming S differ by {off:.2g}")
    promised = f"promised: at least {SHARE:.0%} of sgemm and below {MEMORY_MB:.0f} MB"
    case = f"eq. 3.3, {tasks} tasks, K={SAMPLES}, d={DIM}, streamed"
    found = {"ours_ms": seconds * 1e3, "ours_mb": peak, "gflops": gflops, "sgemm_share": share}
    notes = f"{promised}; making the features is not counted; {rounds[0]['chunk']} tasks at a time"
    streamed = harness.single_row(case, "this machine's sgemm", found, notes, repeats=len(rounds))
    ours, peer = formed["ours"], formed["peer"]
    times = {"ours_ms": ours * 1e3, "peer_ms": peer * 1e3, "ratio": peer / ours}
    case, notes = f"eq. 3.3, {formed['tasks']} tasks, float64", f"the two values differ by {off:.1g}"
    by_forming = harness.single_row(case, "forming S", times, notes)
    return {"machine": machine, "cases": [streamed, by_forming]}


def _child(what: str, tasks: int) -> Answer:
    """What one side gives in a process of its own, so that its peak memory is its own."""
    with harness.Child(f"bench rate: {what}", __name__, harness.thread_limits(1)) as child:
        return child.ask(what, tasks=tasks)


class RateWorker(Worker):
    """Measures one side."""

    def streamed(self, tasks: int) -> Answer:
        """The estimator over a stream: seconds, peak memory, its value, and tasks at a time."""
        torch.set_num_threads(1)
        trial = min(100, tasks)
        chunk = min(CHUNKS, key=lambda size: min(_pass(trial, size)[0] for _ in range(2)))
        seconds, rate = _pass(tasks, chunk)
        return {"seconds": seconds, "peak_mb": peak_mb(), "rate": rate, "chunk": chunk}

    def formed(self, tasks: int) -> Answer:
        """The same by forming S: seconds of ours and of that, and how far the two values differ."""
        torch.set_num_threads(1)
        made = torch.Generator().manual_seed(0)
        x = torch.randn(tasks, SAMPLES, DIM, generator=made, dtype=torch.float64)
        start = time.perf_counter()
        ours = limit_moments(x).rate
        took = time.perf_counter() - start
        start = time.perf_counter()
        above = below = 0.0
        for phi in x:
            s = phi.T @ phi
            square = s @ s
            above += float(torch.trace(square))
            below += float((square * s).sum())
        peer = SAMPLES * above / (2 * below)
        seconds = {"ours": took, "peer": time.perf_counter() - start}
        return {"tasks": tasks, **seconds, "difference": abs(ours / peer - 1)}


def _pass(tasks: int, chunk: int) -> tuple[float, float]:
    """Seconds of the estimator alone over ``tasks`` tasks, and its value; each chunk is made just before."""
    spent = 0.0

    def chunks() -> Iterator[tuple[Tensor]]:
        nonlocal spent
        made = torch.Generator().manual_seed(0)
        features = torch.empty(chunk, SAMPLES, DIM)
        for _ in range(max(1, tasks // chunk)):
            start = time.perf_counter()
            features.normal_(generator=made)
            spent += time.perf_counter() - start
            yield (features,)

    start = time.perf_counter()
    rate = stream(limit_moments, chunks()).rate
    return time.perf_counter() - start - spent, rate


WORKER = RateWorker()
