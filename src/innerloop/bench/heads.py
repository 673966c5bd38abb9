"""Thousands of few-shot heads at once, against a loop of scikit-learn's estimators.

Run as a module (``python -m innerloop.bench.heads``) it is the child process of one side.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeAlias

import numpy as np

from innerloop.bench import harness
from innerloop.bench.harness import Say, Side, Timing
from innerloop.bench.machine import QUIET
from innerloop.bench.worker import Worker, keep_freed_memory, serve

MODULE = "innerloop.bench.heads"
Array: TypeAlias = "np.ndarray[Any, Any]"
WAYS, SHOTS, QUERIES, DIMENSIONS, PROBLEMS = 5, 5, 100, 640, 2000
LOOPED = 100  # problems of a peer's block; a loop takes twenty times as long for twenty times as many
TIGHT = 40  # problems that scikit-learn also solves at tol=1e-10, for the comparison of solutions
C = {"logistic": 3.0, "svm": 1.0, "crammer-singer": 0.1}
AT_LEAST = {"logistic": 20.0}
DTYPES = ("float32", "float64")


def problems(count: int, normalise: bool, dimensions: int, queries: int = 0) -> tuple[Array, Array, Array]:
    """Non-negative features around overlapping class means: support, its labels, and queries; float32."""
    rng = np.random.default_rng(0)
    means = np.float32(0.3) * rng.standard_normal((count, WAYS, 1, dimensions), np.float32)

    def draw(n: int) -> Array:
        x = np.maximum(rng.standard_normal((count, WAYS, n, dimensions), np.float32) + means, 0)
        if normalise:
            x /= np.linalg.norm(x, axis=-1, keepdims=True)
        return x.reshape(count, WAYS * n, dimensions)

    y = np.tile(np.repeat(np.arange(WAYS), SHOTS), (count, 1))
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
    head, sizes = spec["head"], spec.get("sizes", {})
    count = sizes.get("problems", PROBLEMS) if spec["side"] == "ours" else sizes.get("looped", LOOPED)
    x, y, _ = problems(count, spec["normalise"], sizes.get("dimensions", DIMENSIONS))
    x = x.astype(spec["dtype"])
    if spec["side"] == "scikit-learn":
        return peer(head, x, y, spec["threads"])
    import torch

    from innerloop import solvers

    torch.set_num_threads(1)
    heads = {
        "logistic": solvers.logistic,
        "svm": solvers.linear_svm,
        "crammer-singer": solvers.crammer_singer,
    }
    fit, features, labels = heads[head], torch.from_numpy(x), torch.from_numpy(y)
    return lambda: fit(features, labels, WAYS, C=C[head], threads=spec["threads"])


def peer(head: str, x: Array, y: Array, threads: int) -> Callable[[], Any]:
    """A loop of scikit-learn's estimators, in a process without torch, on exactly so many threads.

    The limit is set after all of its libraries are loaded: one that is loaded later would not obey it.
    """
    from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped,unused-ignore]

    warnings.simplefilter("ignore")
    estimator(head).fit(x[0], y[0])
    threadpool_limits(threads)
    assert all(library["num_threads"] <= threads for library in threadpool_info())
    assert "torch" not in sys.modules
    return lambda: [estimator(head).fit(a, b) for a, b in zip(x, y, strict=True)]


def solutions(normalise: bool, sizes: dict[str, int]) -> dict[str, float]:
    """How logistic regressions differ from scikit-learn's at tol=1e-10: objective, and labels of queries."""
    import torch

    from innerloop import solvers

    count, dimensions = min(TIGHT, sizes.get("looped", TIGHT)), sizes.get("dimensions", DIMENSIONS)
    drawn = problems(count, normalise, dimensions, QUERIES)
    warnings.simplefilter("ignore")
    tight = [estimator("logistic", tol=1e-10, max_iter=100_000) for _ in range(count)]
    fitted = [m.fit(a.astype(np.float64), b) for m, a, b in zip(tight, *drawn[:2], strict=True)]
    x, y, queries = (torch.from_numpy(part) for part in drawn)
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


class HeadsWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: dict[str, Any], gradient: str | None = None) -> dict[str, Any]:  # noqa: ARG002
        """Builds a side and runs it once; ours also says whether all problems converged."""
        if spec["side"] == "ours":
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
    from innerloop.execution.plan import available_cores

    base = {"head": head, "normalise": normalise, "sizes": sizes}
    counts = sorted({1, available_cores()})
    sides = [
        Side(f"{who} {dtype}@{n}", {**base, "side": who, "dtype": dtype, "threads": n})
        for who in ("ours", "scikit-learn")
        for dtype in DTYPES
        for n in counts
    ]
    title = f"{head}, {WAYS}-way {SHOTS}-shot, {'unit length' if normalise else 'as they come'}"
    with ExitStack() as stack:
        children = {s.name: stack.enter_context(_child(s)) for s in sides}
        first = {s.name: children[s.name].ask("setup", spec=s.spec) for s in sides}
        off: dict[str, float] = {}
        if head == "logistic":
            with harness.Child("solutions", MODULE) as child:  # torch and scikit-learn in one process: apart
                off = child.ask("solutions", normalise=normalise, sizes=sizes)
        turns = (3, 0.5, 0.0) if quick else (9, 1.0, harness.PATIENCE)
        blocks = harness.take_turns(children, *turns)
    timings = {s.name: _timing(s, blocks[s.name], first[s.name], sizes) for s in sides}
    seen = [b["others"] for b in blocks[sides[0].name] if b.get("others") is not None]
    rows = []
    for dtype in DTYPES:
        row, answer = _row(title, dtype, timings, AT_LEAST.get(head)), first[f"ours {dtype}@1"]
        peers = [t for name, t in timings.items() if name.startswith("scikit-learn")]
        told = ", ".join(f"{t.side.name.removeprefix('scikit-learn ')} {t.ms:,.0f} ms" for t in peers)
        notes = [f"scikit-learn's better of {told}"]
        notes += [f"{100 * answer['converged']:.1f} % converged, {answer['steps']:.1f} steps"]
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


def _child(side: Side) -> harness.Child:
    """Its process; libraries that take their thread count from the environment get the right one there."""
    n = str(side.spec["threads"])
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return harness.Child(side.name, MODULE, dict.fromkeys(names, n))


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


if __name__ == "__main__":
    serve(HeadsWorker())
