"""Thousands of few-shot heads at once, against a loop of scikit-learn's estimators.

Run as a module (``python -m innerloop_studies.bench.heads``) it is the child process of one side.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from innerloop_studies.bench import harness
from innerloop_studies.bench.child import Child, thread_limits
from innerloop_studies.bench.harness import Array, Measured, Say
from innerloop_studies.bench.heads_solutions import (
    DIMENSIONS,
    DTYPES,
    SHOTS,
    WAYS,
    C,
    estimator,
    problems,
    solutions,
)
from innerloop_studies.bench.messages import Answer, Spec
from innerloop_studies.bench.rows import Report, Row, Side, better, busy, comparison, on_threads
from innerloop_studies.bench.worker import Worker, keep_freed_memory, serve

WHAT = "2,000 few-shot heads on 640-d features, against a loop of scikit-learn's estimators"
VERSION = 1

MODULE = "innerloop_studies.bench.heads"
PROBLEMS = 2000
LOOPED = 100  # problems of a peer's block; a loop takes twenty times as long for twenty times as many
AT_LEAST = {"logistic": 20.0}


def build(spec: Spec) -> Callable[[], Any]:
    """The side asked for by ``side``, ``head``, ``dtype``, ``threads``, ``normalise`` and ``sizes``."""
    head, sizes = spec["head"], spec.get("sizes", {})
    count = sizes.get("problems", PROBLEMS) if spec["side"] == "ours" else sizes.get("looped", LOOPED)
    x, y, _ = problems(count, spec["normalise"], sizes.get("dimensions", DIMENSIONS))
    x = x.astype(spec["dtype"])
    if spec["side"] == "scikit-learn":
        return peer(head, x, y, spec["threads"])
    import torch

    from innerloop import solvers

    torch.set_num_threads(1)
    heads: dict[str, Callable[..., Any]] = {
        "logistic": solvers.logistic,
        "svm": solvers.linear_svm,
        "svc": solvers.svc,
        "crammer-singer": solvers.crammer_singer,
    }
    fit, features, labels = heads[head], torch.from_numpy(x), torch.from_numpy(y)
    return lambda: fit(features, labels, WAYS, C=C[head], threads=spec["threads"])


def peer(head: str, x: Array, y: Array, threads: int) -> Callable[[], Any]:
    """A loop of scikit-learn's estimators, in a process without torch, on exactly this many threads.

    The limit is set after all of its libraries are loaded: one that is loaded later would not obey it.
    """
    from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped,unused-ignore]

    warnings.simplefilter("ignore")
    estimator(head).fit(x[0], y[0])
    threadpool_limits(threads)
    assert all(library["num_threads"] <= threads for library in threadpool_info())
    assert "torch" not in sys.modules
    return lambda: [estimator(head).fit(a, b) for a, b in zip(x, y, strict=True)]


class HeadsWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: Spec, gradient: str | None = None) -> Answer:  # noqa: ARG002
        """Builds a side and runs it once; ours also says whether all problems converged."""
        if spec["side"] == "ours":
            keep_freed_memory()
        self.call = build(spec)
        start = time.perf_counter()
        solved = self.call()
        took = time.perf_counter() - start
        if spec["side"] != "ours":
            return {"first_call_s": took}
        return {
            "first_call_s": took,
            "converged": float(solved.converged.double().mean()),
            "steps": float(solved.iterations.double().mean()),
        }

    def solutions(self, normalise: bool, sizes: dict[str, int]) -> Answer:
        """See :func:`solutions`."""
        return solutions(normalise, sizes)


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> Report:
    """Logistic regression on features of unit length and as they come; then the support vector machines."""
    cases = [("logistic", True), ("logistic", False)]
    if not quick:
        cases += [("svm", True), ("svc", True), ("crammer-singer", True)]
    rows = [row for head, normalise in cases for row in one_case(head, normalise, quick, say, sizes or {})]
    return {"cases": rows, "machine": harness.machine()}


def one_case(head: str, normalise: bool, quick: bool, say: Say, sizes: dict[str, int]) -> list[Row]:
    """Ours in float32 and float64 against scikit-learn, each at its better thread count."""
    from innerloop.core.cores import available_cores

    base, counts = {"head": head, "normalise": normalise, "sizes": sizes}, sorted({1, available_cores()})
    sides = [
        side
        for who in ("ours", "scikit-learn")
        for dtype in DTYPES
        for side in on_threads(f"{who} {dtype}", {**base, "side": who, "dtype": dtype}, counts)
    ]
    looped = sizes.get("problems", PROBLEMS) / sizes.get("looped", LOOPED)

    def scale(side: Side) -> float:
        """A peer solves fewer problems, so its time is scaled to as many as ours."""
        return 1.0 if side.spec["side"] == "ours" else looped

    with harness.started(sides, MODULE, environment=lambda s: thread_limits(s.spec["threads"])) as both:
        off: dict[str, float] = {}
        if head == "logistic":
            with Child("solutions", MODULE) as child:  # torch and scikit-learn in one process: apart
                off = child.ask("solutions", normalise=normalise, sizes=sizes)
        turns = (3, 0.5, 0.0) if quick else (9, 1.0, harness.PATIENCE)
        measurement = harness.measured(both, *turns, scale=scale)
    title = f"{head}, {WAYS}-way {SHOTS}-shot, {'unit length' if normalise else 'as they come'}"
    rows = []
    for dtype in DTYPES:
        ours, peer = better(measurement.timings, f"ours {dtype}"), better(measurement.timings, "scikit-learn")
        notes = _notes(dtype, measurement, both.answers[f"ours {dtype}@1"], off)
        name, promised = peer.side.name.partition("@")[0], AT_LEAST.get(head)
        row = comparison(f"{title}, {dtype}", name, ours, peer, promised, notes)
        say(f"{row['case']}: {row['ratio']:.0f}×; {row['notes']}")
        rows.append(row)
    return rows


def _notes(dtype: str, measurement: Measured, answer: Answer, off: dict[str, float]) -> list[str]:
    """All times of the peer, whether ours converged, and how the solutions differ where that is known."""
    peers = [t for name, t in measurement.timings.items() if name.startswith("scikit-learn")]
    told = ", ".join(f"{t.side.name.removeprefix('scikit-learn ')} {t.ms:,.0f} ms" for t in peers)
    notes = [f"scikit-learn's better of {told}"]
    notes += [f"{100 * answer['converged']:.1f} % converged, {answer['steps']:.1f} steps"]
    if off:
        notes += [
            f"objective within {off[f'objective {dtype}']:.0e} of scikit-learn's at tol=1e-10",
            f"{100 * off[f'labels {dtype}']:.2f} % of labels the same",
        ]
    return [*notes, *busy(measurement.bystanders)]


if __name__ == "__main__":
    serve(HeadsWorker())
