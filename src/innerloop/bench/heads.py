"""Thousands of few-shot heads at once, against a loop of scikit-learn's estimators.

Run as a module (``python -m innerloop.bench.heads``) it is the child process of one side.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from innerloop.bench import harness
from innerloop.bench.harness import Say, Side, Timing
from innerloop.bench.machine import QUIET
from innerloop.bench.worker import Worker, keep_freed_memory
from innerloop.execution.plan import available_cores

WAYS, SHOTS, QUERIES, DIMENSIONS, PROBLEMS = 5, 5, 100, 640, 2000
LOOPED = 200  # problems of a peer's block; a loop takes ten times as long for ten times as many
TIGHT = 40  # problems that scikit-learn also solves at tol=1e-10, for the comparison of solutions
C = {"logistic": 3.0, "svm": 1.0, "crammer-singer": 0.1}
AT_LEAST = {"logistic": 20.0}
DTYPES = ("float32", "float64")


def problems(count: int, normalise: bool, dimensions: int, queries: int = 0) -> tuple[Any, Any, Any]:
    """Non-negative features around overlapping class means: support, its labels, and queries."""
    import torch

    generator = torch.Generator().manual_seed(0)
    means = 0.3 * torch.randn(count, WAYS, 1, dimensions, generator=generator)

    def draw(n: int) -> Any:
        x = torch.randn(count, WAYS, n, dimensions, generator=generator).add_(means).relu_()
        if normalise:
            x.div_(x.norm(dim=-1, keepdim=True))
        return x.view(count, WAYS * n, dimensions)

    y = torch.arange(WAYS).repeat_interleave(SHOTS).expand(count, -1).contiguous()
    return draw(SHOTS), y, draw(queries)


def estimator(head: str, **options: Any) -> Any:
    """Scikit-learn's, with its own tolerance unless one is given."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if head == "logistic":
        return LogisticRegression(**{"C": C[head], "max_iter": 1000, **options})
    kind = "crammer_singer" if head == "crammer-singer" else "ovr"
    return LinearSVC(**{"C": C[head], "multi_class": kind, **options})


def build(spec: dict[str, Any]) -> Callable[[], Any]:
    """The side asked for by ``side``, ``head``, ``dtype``, ``threads``, ``normalise`` and ``sizes``."""
    import torch

    from innerloop import solvers

    head, sizes = spec["head"], spec.get("sizes", {})
    count = sizes.get("problems", PROBLEMS) if spec["side"] == "ours" else sizes.get("looped", LOOPED)
    x, y, _ = problems(count, spec["normalise"], sizes.get("dimensions", DIMENSIONS))
    x = x.to(getattr(torch, spec["dtype"]))
    torch.set_num_threads(1)
    if spec["side"] == "ours":
        heads = {
            "logistic": solvers.logistic,
            "svm": solvers.linear_svm,
            "crammer-singer": solvers.crammer_singer,
        }
        fit = heads[head]
        return lambda: fit(x, y, WAYS, C=C[head], threads=spec["threads"])
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

    threadpool_limits(spec["threads"])
    warnings.simplefilter("ignore")
    features, labels = x.numpy(), y.numpy()
    return lambda: [estimator(head).fit(a, b) for a, b in zip(features, labels, strict=True)]


def solutions(normalise: bool, sizes: dict[str, int]) -> dict[str, float]:
    """How logistic regressions differ from scikit-learn's at tol=1e-10: objective, and labels of queries."""
    import numpy as np
    import torch

    from innerloop import solvers

    count, dimensions = min(TIGHT, sizes.get("looped", TIGHT)), sizes.get("dimensions", DIMENSIONS)
    x, y, queries = problems(count, normalise, dimensions, QUERIES)
    warnings.simplefilter("ignore")
    tight = [estimator("logistic", tol=1e-10, max_iter=100_000) for _ in range(count)]
    fitted = [m.fit(a.double().numpy(), b.numpy()) for m, a, b in zip(tight, x, y, strict=True)]
    weights = torch.from_numpy(np.stack([m.coef_ for m in fitted]))
    bias = torch.from_numpy(np.stack([m.intercept_ for m in fitted]))
    labels = solvers.scores((weights, bias), queries.double()).argmax(-1)
    reference = objective(x, y, weights, bias)
    out: dict[str, float] = {}
    for name in DTYPES:
        dtype = getattr(torch, name)
        found = solvers.logistic(x.to(dtype), y, WAYS, C=C["logistic"])
        mine = objective(x, y, found.weights.double(), found.bias.double())
        same = solvers.scores(found, queries.to(dtype)).argmax(-1) == labels
        out[f"objective {name}"] = float(((mine - reference) / reference).abs().max())
        out[f"labels {name}"] = float(same.double().mean())
    return out


def objective(x: Any, y: Any, weights: Any, bias: Any) -> Any:
    """Logistic regression's, per problem, in float64."""
    import torch

    outputs = x.double() @ weights.mT + bias[:, None]
    loss = torch.nn.functional.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="none")
    return C["logistic"] * loss.view(y.shape).sum(1) + 0.5 * weights.square().sum((1, 2))


class Child(harness.Child):
    """A side's process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  (closed on exit)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "innerloop.bench.heads"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            encoding="utf-8",
        )


class HeadsWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: dict[str, Any], gradient: str | None = None) -> dict[str, Any]:  # noqa: ARG002
        """Builds a side and runs it once; ours also says whether all problems converged."""
        keep_freed_memory()
        self.call = build(spec)
        start = time.perf_counter()
        found = self.call()
        took = time.perf_counter() - start
        if spec["side"] != "ours":
            return {"first_call_s": took}
        return {
            "first_call_s": took,
            "converged": float(found.converged.double().mean()),
            "steps": float(found.iterations.double().mean()),
        }

    def solutions(self, normalise: bool, sizes: dict[str, int]) -> dict[str, Any]:
        """See :func:`solutions`."""
        return solutions(normalise, sizes)


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> dict[str, Any]:
    """Logistic regression on features of unit length and as they come; then the support vector machines.

    Args:
        quick: few repeats, and only logistic regression.
        say: receives lines for people.
        sizes: ``problems``, ``looped`` and ``dimensions``, for tests.
    """
    cases = [("logistic", True), ("logistic", False)]
    if not quick:
        cases += [("svm", True), ("crammer-singer", True)]
    rows = [row for head, normalise in cases for row in one_case(head, normalise, quick, say, sizes or {})]
    return {"cases": rows, "machine": harness.machine()}


def one_case(
    head: str, normalise: bool, quick: bool, say: Say, sizes: dict[str, int]
) -> list[dict[str, Any]]:
    """Ours in float32 and float64 against scikit-learn, each at its better thread count."""
    base = {"head": head, "normalise": normalise, "sizes": sizes}
    counts = sorted({1, available_cores()})
    sides = [
        Side(f"{who} {dtype}@{n}", {**base, "side": who, "dtype": dtype, "threads": n})
        for who in ("ours", "scikit-learn")
        for dtype in DTYPES
        for n in counts
        if who == "ours" or dtype == "float32" or n == 1
    ]
    title = f"{head}, {WAYS}-way {SHOTS}-shot, {'unit length' if normalise else 'as they come'}"
    with ExitStack() as stack:
        children: dict[str, harness.Child] = {s.name: stack.enter_context(Child(s.name)) for s in sides}
        first = {s.name: children[s.name].ask("setup", spec=s.spec) for s in sides}
        off: dict[str, float] = {}
        if head == "logistic":
            off = children[sides[-1].name].ask("solutions", normalise=normalise, sizes=sizes)
        turns = (3, 0.5, 0.0) if quick else (9, 1.0, harness.PATIENCE)
        blocks = harness.take_turns(children, *turns)
    timings = {s.name: _timing(s, blocks[s.name], first[s.name], sizes) for s in sides}
    seen = [b["others"] for b in blocks[sides[0].name] if b.get("others") is not None]
    rows = []
    for dtype in DTYPES:
        row, answer = _row(title, dtype, timings, AT_LEAST.get(head)), first[f"ours {dtype}@1"]
        notes = [f"{100 * answer['converged']:.1f} % converged, {answer['steps']:.1f} steps"]
        if off:
            notes += [
                f"objective within {off[f'objective {dtype}']:.0e} of scikit-learn's at tol=1e-10",
                f"{100 * off[f'labels {dtype}']:.2f} % of labels the same",
            ]
        if seen and statistics.mean(seen) > QUIET:
            notes.append(f"others kept {statistics.mean(seen):.1f} cores busy")
        rows.append({**row, "notes": "; ".join(notes)})
        say(f"{row['case']}: {row['ratio']:.0f}×; {rows[-1]['notes']}")
    return rows


def _timing(side: Side, blocks: list[dict[str, Any]], first: dict[str, Any], sizes: dict[str, int]) -> Timing:
    """What was measured of a side, per ``PROBLEMS`` problems."""
    looped = sizes.get("problems", PROBLEMS) / sizes.get("looped", LOOPED)
    scale = 1e3 * (1.0 if side.spec["side"] == "ours" else looped)
    rounds = [statistics.median(block["seconds"]) * scale for block in blocks]
    peak = max(block["peak_mb"] for block in blocks)
    return Timing(side, rounds, peak, 0.0, sum(len(b["seconds"]) for b in blocks), first["first_call_s"])


def _row(title: str, dtype: str, timings: dict[str, Timing], at_least: float | None) -> dict[str, Any]:
    ours = min((t for n, t in timings.items() if n.startswith(f"ours {dtype}")), key=lambda t: t.ms)
    peer = min((t for n, t in timings.items() if n.startswith("scikit-learn")), key=lambda t: t.ms)
    return {
        "case": f"{title}, {dtype}",
        "peer": peer.side.name.partition("@")[0],
        "ours_ms": ours.ms,
        "peer_ms": peer.ms,
        "ratio": harness.ratio(ours, peer),
        "ours_mb": ours.peak_mb,
        "peer_mb": peer.peak_mb,
        "threads": f"{ours.side.spec['threads']} / {peer.side.spec['threads']}",
        "repeats": min(ours.repeats, peer.repeats),
        "at_least": at_least,
    }


def main() -> None:
    """Answers until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print must not be taken for an answer
    worker = HeadsWorker()
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(getattr(worker, request.pop("do"))(**request)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
