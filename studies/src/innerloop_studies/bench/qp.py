"""MetaOptNet's and R2D2's heads, forward and backward, against a general solver and a plain linear head.

Run as a module (``python -m innerloop_studies.bench.qp``) it is the child process of one side. ``qpth`` takes
part where it can be imported, which may be from a folder of its own: ``pip install --no-deps --target DIR
qpth`` and then ``PYTHONPATH=DIR innerloop bench qp``.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from innerloop_studies.bench import harness
from innerloop_studies.bench.child import thread_limits
from innerloop_studies.bench.harness import Say, Started
from innerloop_studies.bench.messages import Answer, Spec
from innerloop_studies.bench.rows import Report, Row, Side, Timing, better, busy, comparison, on_threads
from innerloop_studies.bench.worker import Worker, keep_freed_memory, serve

WHAT = "8 heads of MetaOptNet and R2D2, forward and backward, against a general solver and a linear head"
VERSION = 1

MODULE = "innerloop_studies.bench.qp"
Size = dict[str, float]
"""Arguments of :func:`innerloop_studies.bench.qp_sides.drawn`."""
SIZES: list[Size] = [
    {"tasks": 8, "shots": 5, "queries": 15, "dimensions": 640},
    {"tasks": 8, "shots": 15, "queries": 6, "dimensions": 16_000},
    {"tasks": 8, "shots": 15, "queries": 6, "dimensions": 640, "spread": 1.5},  # half of the bounds bind
]
TINY: Size = {"tasks": 2, "shots": 2, "queries": 1, "dimensions": 30}
NAMES = {"qpth": "qpth, one by one", "dense": "dense interior point, one by one", "linear": "linear head"}


class Part(NamedTuple):
    """What is measured: a title, who else does it, and the ratio that we promise."""

    title: str
    peers: tuple[str, ...]
    at_least: float
    same: bool


PARTS = {
    "head": Part("SVM heads", ("qpth", "dense"), 10.0, True),
    "programmes": Part("their quadratic programmes alone", ("qpth", "dense"), 10.0, True),
    "ridge": Part("R2D2 heads", ("linear",), 0.5, False),
}


class QPWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: Spec, gradient: str | None = None) -> Answer:
        """Builds a side, runs it once, and writes its gradients to a file."""
        from innerloop_studies.bench.qp_sides import build

        keep_freed_memory()
        build({**spec, "sizes": TINY})()  # loads whatever the side needs, so that it counts as a library
        return self.begin(build(spec), gradient, list)


def run(quick: bool = False, say: Say = print, sizes: list[Size] | None = None) -> Report:
    """Heads of eight tasks at several sizes; whole, and the programmes alone."""
    if find_spec("qpth") is None:
        say("qpth is not installed: the general solver is a dense interior point of our own")
    cases = [row for part in PARTS for size in sizes or SIZES for row in one_case(part, size, quick, say)]
    return {"cases": cases, "machine": harness.machine(0.0 if quick else None)}


def one_case(name: str, size: Size, quick: bool, say: Say) -> list[Row]:
    """Ours against every peer that is there, each at its better thread count."""
    from innerloop.core.cores import available_cores

    part, counts = PARTS[name], sorted({1, available_cores()})
    peers = [who for who in part.peers if who != "qpth" or find_spec("qpth") is not None]
    sides = [
        side
        for who in ("ours", *peers)
        for side in on_threads(who, {"part": name, "side": who, "sizes": size}, counts)
    ]
    with harness.started(sides, MODULE, environment=_limits, say=say) as all_sides:
        agreed = _agreement(all_sides) if part.same else []
        turns = (2, 0.3, 0.0) if quick else (5, 1.0, harness.PATIENCE / 9)  # nine cases share the patience
        measurement = harness.measured(all_sides, *turns)
    ours = better(measurement.timings, "ours")
    title = f"{part.title}, {size['shots']}-shot, {size['dimensions']:,} features"
    title += ", many bound" if "spread" in size else ""
    rows = []
    for who in peers:
        peer = better(measurement.timings, who)
        notes = [*agreed, _memory(ours, peer), *busy(measurement.bystanders)]
        row = comparison(title, NAMES[who], ours, peer, part.at_least, notes)
        say(f"{row['case']}: {row['ratio']:.2g}× {row['peer']}; {row['notes']}")
        rows.append(row)
    return rows


def _limits(side: Side) -> dict[str, str]:
    return thread_limits(side.spec["threads"])


def _agreement(run: Started) -> list[str]:
    """How far the gradients of all sides differ at most, if they do not differ by too much."""
    off = harness.disagreement(run.results, run.sides[0].name)
    return [f"gradients agree to {off:.0e}"]


def _memory(ours: Timing, peer: Timing) -> str:
    """Peak memory on top of libraries and features."""
    mine, theirs = (t.peak_mb - t.empty_mb for t in (ours, peer))
    return f"on top of libraries and features {mine:.0f} MB against {theirs:.0f} MB"


if __name__ == "__main__":
    serve(QPWorker())
