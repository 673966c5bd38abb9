"""Thousands of episodes on features that are there, against a loop of scikit-learn's estimators.

Run as a module (``python -m innerloop_studies.bench.own_pictures_episodes``) it is the child process of one
side.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from innerloop_studies.bench import harness
from innerloop_studies.bench.child import thread_limits
from innerloop_studies.bench.harness import Array
from innerloop_studies.bench.messages import Answer, Spec
from innerloop_studies.bench.rows import Row, Side, better, busy, comparison, on_threads
from innerloop_studies.bench.worker import Worker, keep_freed_memory, serve

MODULE = "innerloop_studies.bench.own_pictures_episodes"
EPISODES, LOOPED = 2000, 100  # a loop takes twenty times as long for twenty times as many
WAYS, SHOTS, QUERIES, C = 5, 5, 15, 1.0
AT_LEAST = 20.0
AGREE = 2e-3
"""How far the mean accuracies of both sides may differ: a query on the border may fall to either side."""


def build(spec: Spec) -> Callable[[], Any]:
    """The side asked for by ``side``, ``threads``, ``features``, ``episodes`` and ``sizes``."""
    features = np.load(spec["features"])
    return peer(features, spec) if spec["side"] == "scikit-learn" else ours(features, spec)


def ours(features: Array, spec: Spec) -> Callable[[], Any]:
    """All episodes, as ``innerloop eval --backbone`` judges them once features are there."""
    import torch

    from innerloop.evaluation.frozen import evaluate_features
    from innerloop.evaluation.protocol import Protocol
    from innerloop.training.execution.plan import Plan

    shape, values = spec["sizes"], torch.from_numpy(features)
    source, plan = labelled(spec["labels"]), Plan("loop", spec["threads"])
    protocol = Protocol(WAYS, shape["shots"], shape["queries"], shape["episodes"], head="logistic", C=C)
    return lambda: evaluate_features(lambda rows: values[rows], source, protocol, plan=plan).scores


def labelled(labels: Sequence[str]) -> Any:
    """A source of pictures whose pixels nobody looks at: only which row is of which class."""
    from innerloop.data.source import ImageSource, NumberedFiles

    names, counts = np.unique(labels, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    images, splits = np.zeros((len(labels), 1, 1, 1), np.uint8), {"test": np.arange(len(names))}
    return ImageSource(
        "features", images, starts, tuple(map(str, names)), splits, None, (), NumberedFiles("{row}"), ""
    )


def peer(features: Array, spec: Spec) -> Callable[[], Any]:
    """A loop over the same episodes, in a process without torch; features have length one before it."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

    warnings.simplefilter("ignore")
    with np.load(spec["drawn"]) as drawn:
        support, query, y, truth = (drawn[n] for n in ("support", "query", "y", "truth"))
    z = features / np.linalg.norm(features, axis=1, keepdims=True)
    LogisticRegression(C=C).fit(z[support[0]], y[0])  # loads what it needs, so that the limit holds for all
    threadpool_limits(spec["threads"])

    def call() -> list[float]:
        """The accuracy of every episode."""
        return [
            float(LogisticRegression(C=C, max_iter=1000).fit(z[s], a).score(z[q], b))
            for s, q, a, b in zip(support, query, y, truth, strict=True)
        ]

    return call


class EpisodesWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: Spec, gradient: str | None = None) -> Answer:
        """Builds a side, runs it once, and writes the accuracy of every episode to a file."""
        if spec["side"] == "ours":
            keep_freed_memory()
        self.call = build(spec)
        assert spec["side"] == "ours" or "torch" not in sys.modules  # its threads would be in the way
        start = time.perf_counter()
        accuracies = self.call()
        took = time.perf_counter() - start
        if gradient:
            np.save(gradient, np.asarray(accuracies))
        return {"first_call_s": took}


def write_episodes(labels: Sequence[str], sizes: dict[str, int], file: Path) -> None:
    """The rows of the first episodes, for the loop."""
    from innerloop.tasks.episodes import Shape
    from innerloop.tasks.few_shot import Kind, few_shot

    kinds = (Kind(Shape(WAYS, sizes["shots"], sizes["queries"])),)
    rows = few_shot(labelled(labels), "test", 0, kinds, True).rows(np.arange(sizes["looped"]), 0)
    np.savez(file, support=rows.support, query=rows.query, y=rows.support_labels, truth=rows.query_labels)


def episodes_case(
    features: Array, labels: Sequence[str], quick: bool, what: str, given: dict[str, int]
) -> Row:
    """A row: ours against the loop, each at its better number of threads."""
    from innerloop.core.cores import available_cores

    fewest = int(np.unique(labels, return_counts=True)[1].min())
    queries = given.get("queries", min(QUERIES, fewest - SHOTS))
    sizes = {"episodes": EPISODES, "looped": LOOPED, "shots": SHOTS, **given, "queries": queries}
    with tempfile.TemporaryDirectory() as folder:
        spec: Spec = {"labels": list(labels), "sizes": sizes}
        spec["features"] = str(Path(folder, "features.npy"))
        spec["drawn"] = str(Path(folder, "drawn.npz"))
        np.save(spec["features"], features)
        write_episodes(labels, sizes, Path(spec["drawn"]))
        counts = sorted({1, available_cores()})
        sides = [
            side
            for who in ("ours", "scikit-learn")
            for side in on_threads(who, {**spec, "side": who}, counts)
        ]
        times = sizes["episodes"] / sizes["looped"]

        def scale(side: Side) -> float:
            """The loop runs over fewer episodes, so its time is scaled to all of them."""
            return 1.0 if side.spec["side"] == "ours" else times

        with harness.started(sides, MODULE, environment=lambda s: thread_limits(s.spec["threads"])) as both:
            off = disagreement(both.results, sizes["looped"])
            turns = (2, 0.1, 0.0) if quick else (5, 1.0, harness.PATIENCE)
            measurement = harness.measured(both, *turns, scale=scale, warm=1)
    mean = float(np.mean(both.results["ours@1"]))
    notes = [what, f"accuracy {100 * mean:.1f} %, that of the loop differs by {100 * off:.2g} points"]
    case = f"{sizes['episodes']:,} episodes on cached features, {WAYS}-way {sizes['shots']}-shot, logistic"
    mine, loop = better(measurement.timings, "ours"), better(measurement.timings, "scikit-learn")
    return comparison(case, "scikit-learn", mine, loop, AT_LEAST, [*notes, *busy(measurement.bystanders)])


def disagreement(accuracies: dict[str, Array], looped: int) -> float:
    """How far the mean accuracies on the first episodes differ."""
    theirs = accuracies["scikit-learn@1"]
    off = max(abs(float(np.mean(a[:looped] - theirs))) for a in accuracies.values())
    if not off <= AGREE:
        raise RuntimeError(f"our accuracy differs from scikit-learn's by {off:.2g} on the same episodes")
    return off


if __name__ == "__main__":
    serve(EpisodesWorker())
