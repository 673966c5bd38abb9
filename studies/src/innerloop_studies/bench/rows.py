"""What a benchmark reports: sides, their timings, and the row that sets two of them side by side.

Nothing here imports torch: the peers of some benchmarks must run without it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Required, TypedDict

from innerloop_studies.bench.machine import QUIET, Machine
from innerloop_studies.bench.messages import Answer, Spec
from innerloop_studies.bench.report_parts import CostModel, Growth


class Row(TypedDict, total=False):
    """What ``innerloop bench`` prints of two sides, and its JSON: a key is missing where it means nothing."""

    case: Required[str]
    peer: Required[str]
    ours_ms: float
    peer_ms: float
    ratio: float
    ours_mb: float | None
    peer_mb: float | None
    threads: Required[str]
    repeats: Required[int]
    gflops: float
    sgemm_share: float
    memory_ratio: float
    all_reduce_share: float
    waiting_share: float
    at_least: float | None
    at_most: float
    notes: Required[str]


class Report(TypedDict, total=False):
    """What a benchmark gives: its rows, the machine, and what only some of them have."""

    name: str
    cases: Required[list[Row]]
    machine: Required[Machine]
    growth: Growth
    exchanges: list[dict[str, float]]
    models: dict[str, CostModel]
    summary: list[str]


class Side(NamedTuple):
    """Who takes part: a name for people, and what the worker is to build."""

    name: str
    spec: Spec


class Block(NamedTuple):
    """One turn of a side."""

    seconds: list[float]
    peak_mb: float
    empty_mb: float
    others: float | None = None


def block_of(answer: Answer, others: float | None = None) -> Block:
    """A turn, from what the side's process answered."""
    return Block(answer["seconds"], answer["peak_mb"], answer["empty_mb"], others)


class Timing(NamedTuple):
    """What was measured of one side."""

    side: Side
    rounds: list[float]
    peak_mb: float
    empty_mb: float
    repeats: int
    first_call_s: float

    @property
    def ms(self) -> float:
        """Median over rounds."""
        return statistics.median(self.rounds)


def on_threads(name: str, spec: Spec, counts: Iterable[int]) -> list[Side]:
    """The same side once per thread count.

    >>> [side.name for side in on_threads("ours", {"side": "ours"}, (1, 2))]
    ['ours@1', 'ours@2']
    """
    return [Side(f"{name}@{n}", {**spec, "threads": n}) for n in counts]


def timing(side: Side, blocks: Sequence[Block], first_call_s: float, scale: float = 1.0) -> Timing:
    """What a side's blocks amount to."""
    return Timing(
        side,
        [statistics.median(block.seconds) * 1e3 * scale for block in blocks],
        max(block.peak_mb for block in blocks),
        blocks[0].empty_mb,
        sum(len(block.seconds) for block in blocks),
        first_call_s,
    )


def better(timings: dict[str, Timing], start: str) -> Timing:
    """The fastest of the sides whose names start so: one side at its better thread count."""
    return min((t for name, t in timings.items() if name.startswith(start)), key=lambda t: t.ms)


def ratio(ours: Timing, peer: Timing) -> float:
    """How many times our time the peer takes: the median over rounds of the ratio within a round."""
    return statistics.median(p / o for p, o in zip(peer.rounds, ours.rounds, strict=True))


def bystanders(blocks: Sequence[Block]) -> float | None:
    """Cores that others kept busy on average; None if the system does not tell."""
    seen = [block.others for block in blocks if block.others is not None]
    return statistics.mean(seen) if seen else None


def busy(others: float | None) -> list[str]:
    """A remark for a row if others disturbed the measurement, else nothing.

    >>> busy(0.5), busy(0.0), busy(None)
    (['others kept 0.5 cores busy'], [], [])
    """
    return [] if others is None or others <= QUIET else [f"others kept {others:.1f} cores busy"]


def comparison(
    case: str, name: str, ours: Timing, peer: Timing, at_least: float | None, notes: Sequence[str]
) -> Row:
    """A row as ``innerloop bench`` prints it."""
    return {
        "case": case,
        "peer": name,
        "ours_ms": ours.ms,
        "peer_ms": peer.ms,
        "ratio": ratio(ours, peer),
        "ours_mb": ours.peak_mb,
        "peer_mb": peer.peak_mb,
        "threads": f"{ours.side.spec['threads']} / {peer.side.spec['threads']}",
        "repeats": min(ours.repeats, peer.repeats),
        "at_least": at_least,
        "notes": "; ".join(notes),
    }
