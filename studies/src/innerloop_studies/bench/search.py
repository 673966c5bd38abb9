"""Scores of architectures against the released manner: a kernel, regions, a round; and whole searches.

Run as a module (``python -m innerloop_studies.bench.search``) it is the child process of one side.
"""

from __future__ import annotations

from typing import NamedTuple

from innerloop.core.cores import available_cores
from innerloop.core.heap import keep_freed_memory
from innerloop_studies.bench import harness
from innerloop_studies.bench.child import thread_limits
from innerloop_studies.bench.harness import Say
from innerloop_studies.bench.messages import Answer, Spec
from innerloop_studies.bench.rows import Report, Row, Side, better, busy, comparison, on_threads
from innerloop_studies.bench.worker import Worker, serve

WHAT = "scores of architectures against per-sample gradients, a round of a search, and whole searches"
VERSION = 1

MODULE = "innerloop_studies.bench.search"
SIZES = {"channels": 16, "cells": 5, "side": 32, "crops": 3000, "candidates": 7}


class Part(NamedTuple):
    """What is measured."""

    title: str
    at_least: float
    threads: tuple[tuple[int, ...], tuple[int, ...]]
    rounds: tuple[int, int]


PARTS = {
    "kernel": Part("one kernel of the supernet, 30 pictures", 2.0, ((1,), (1,)), (5, 2)),
    "regions": Part("linear regions of the thin supernet", 3.5, ((1,), (1, 0)), (3, 1)),
    "regions, float32": Part("linear regions of the thin supernet", 3.5, ((1,), (1, 0)), (7, 2)),
    "round": Part("a round of candidates, all cores", 6.0, ((1,), (0,)), (3, 1)),
}


PAIRS = {
    "regions": "matrix of pairs, half precision as released",
    "regions, float32": "matrix of pairs, float32",
}
"""Peers where regions are counted, by part."""


class SearchWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: Spec, gradient: str | None = None) -> Answer:
        """Builds a side, runs it once, and writes what it found to a file."""
        from innerloop_studies.bench.search_sides import SMALL, build

        keep_freed_memory()
        if spec["part"] != "round":  # ours keeps processes, which are started once
            build({**spec, "sizes": SMALL})()
        return self.begin(build(spec), gradient, lambda answer: [answer])

    def whole(self, sizes: dict[str, int], quick: bool) -> Answer:
        """A robust search, or what it would take."""
        from innerloop_studies.bench.search_whole import robust_seconds

        return robust_seconds(sizes, quick)._asdict()


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> Report:
    """Every part; whole searches after them."""
    from innerloop_studies.bench.search_modules import has_opacus
    from innerloop_studies.bench.search_whole import whole_searches

    peer = "per-sample gradients by Opacus" if has_opacus() else "per-sample gradients as Opacus takes them"
    if not has_opacus():
        say("Opacus is not installed: its per-sample gradients are taken by hooks and patches of our own")
    common = {**SIZES, **({"candidates": 3} if quick else {}), **(sizes or {})}
    cases = [one_case(part, common, peer, quick, say) for part in PARTS]
    if not quick and sizes is None:
        cases.append(one_case("kernel", {**common, "channels": 48}, peer, quick, say))
    if sizes is None:
        cases += whole_searches(common, quick, say)
    return {"cases": cases, "machine": harness.machine(0.0 if quick else None)}


def one_case(name: str, sizes: dict[str, int], peer: str, quick: bool, say: Say) -> Row:
    """Ours against the released manner."""
    part, cores = PARTS[name], available_cores()
    spec = {"part": name, "sizes": sizes}
    peer = PAIRS.get(name, peer)
    sides = [
        side
        for who, counts in zip(("ours", "peer"), part.threads, strict=True)
        for side in on_threads(who, {**spec, "side": who}, sorted({count or cores for count in counts}))
    ]
    with harness.started(sides, MODULE, environment=_limits, say=say) as both:
        off = harness.disagreement(both.results, sides[-1].name)
        if name in PAIRS and off:
            raise RuntimeError(f"counts of regions differ by {off:.2g}")
        rounds = part.rounds[quick]
        measurement = harness.measured(both, rounds, 0.2, 0.0 if quick else harness.PATIENCE, warm=1)
    ours, theirs = better(measurement.timings, "ours"), better(measurement.timings, "peer")
    title = f"{part.title}, {_described(name, sizes)}"
    notes = [_agreement(name, off), *_share(name, sizes), *busy(measurement.bystanders)]
    row = comparison(title, peer, ours, theirs, part.at_least, notes)
    say(f"{row['case']}: {row['ratio']:.1f}× {row['peer']}; {row['notes']}")
    return row


def _described(name: str, sizes: dict[str, int]) -> str:
    if name in PAIRS:
        return f"{sizes['crops']:,} crops"
    return f"C = {sizes['channels']}, {sizes['cells']} cells, {sizes['side']}×{sizes['side']}"


def _agreement(name: str, off: float) -> str:
    if name in PAIRS:
        return "identical counts"
    return f"{'kernels' if name == 'kernel' else 'logarithms of scores'} agree to {off:.0e}"


def _share(name: str, sizes: dict[str, int]) -> list[str]:
    if name != "round":
        return []
    few = sizes["candidates"]
    return [
        f"{few} candidates of the first round's 126, and the network they are compared with: measured {few} "
        "times as released and once by us, where a whole round has 126 candidates for that once"
    ]


def _limits(side: Side) -> dict[str, str]:
    return thread_limits(side.spec["threads"])


if __name__ == "__main__":
    serve(SearchWorker())
