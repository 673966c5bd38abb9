"""What the MAML benchmarks share: sides, cases, and a table row for every pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from innerloop_studies.bench import harness, peers
from innerloop_studies.bench.harness import Comparison, Say
from innerloop_studies.bench.machine import Machine
from innerloop_studies.bench.messages import Spec
from innerloop_studies.bench.rows import Report, Row, Timing, better, busy, comparison, on_threads

PLAIN = "plain-loop"


class Ours(NamedTuple):
    """One way of ours."""

    name: str
    plan: Spec
    at_least: dict[str, float]
    threads: Sequence[int] | None = None


def run_cases(
    workload: str,
    cases: Sequence[tuple[int, Sequence[Ours]]],
    *,
    quick: bool,
    say: Say,
    sizes: dict[str, int] | None = None,
    libraries: bool = True,
    rounds: int = 11,
    warm: int = harness.WARM,
    prefix: str = "",
    exact: Spec | None = None,
) -> Report:
    """Runs every number of inner steps, with all ways of ours and all peers, on one thread and on all."""
    patience = 0.0 if quick else None
    machine = harness.machine(patience)
    speeds = ", ".join(f"{g:.0f} on {n}" for n, g in machine["sgemm_gflops"].items())
    say(f"{machine['cpu']}, {machine['cores']} cores; sgemm reaches {speeds} thread(s), in GFLOP/s")
    available = peers.installed() if libraries else []
    for name in peers.LIBRARIES:
        if libraries and name not in available:
            say(f"{name} is not installed and left out: pip install 'innerloop[peers]'")
    threads = [1] if quick else sorted({1, int(machine["cores"])})
    rows: list[Row] = []
    for steps, ways in cases:
        base = {"workload": workload, "steps": steps, "sizes": sizes or {}}
        sides = [
            side for peer in (PLAIN, *available) for side in on_threads(peer, {**base, "side": peer}, threads)
        ]
        sides += [
            side
            for way in ways
            for side in on_threads(way.name, {**base, "side": "ours", **way.plan}, way.threads or threads)
        ]
        result = harness.compare(
            sides,
            rounds=3 if quick else rounds,
            block_seconds=0.05 if quick else 0.5,
            say=say,
            reference=sides[0].name,
            patience=patience,
            warm=warm,
            exact=exact,
        )
        mine = table(steps, ways, result, (PLAIN, *available), machine, harness.flops(sides[0]), prefix)
        for row in mine:
            say(f"{row['case']}: {row['ratio']:.2f}× {row['peer']}; {row['notes']}")
        rows += mine
    return {"cases": rows, "machine": machine}


def table(
    steps: int,
    ways: Sequence[Ours],
    result: Comparison,
    names: Sequence[str],
    machine: Machine,
    flops: float,
    prefix: str = "",
) -> list[Row]:
    """One row for every way of ours and every peer."""
    rows: list[Row] = []
    for way in ways:
        ours = better(result.timings, f"{way.name}@")
        threads = ours.side.spec["threads"]
        gflops = flops / ours.ms / 1e6
        for name in names:
            peer = better(result.timings, f"{name}@")
            case = f"{prefix}{steps} step{'s' if steps > 1 else ''}, {way.name}"
            row = comparison(case, name, ours, peer, way.at_least.get(name), notes(ours, peer, result))
            row |= {"gflops": gflops, "sgemm_share": gflops / machine["sgemm_gflops"][str(threads)]}
            rows.append(row)
    return rows


def notes(ours: Timing, peer: Timing, result: Comparison) -> list[str]:
    """What a reader should know about a row."""
    work = f"memory beyond libraries and data {ours.peak_mb - ours.empty_mb:.0f} MB"
    parts = [
        f"gradients differ by {result.disagreement:.1g}",
        f"{work}, peer {peer.peak_mb - peer.empty_mb:.0f} MB",
    ]
    if ours.first_call_s > 1:
        parts.append(f"first call {ours.first_call_s:.0f} s")
    return [*parts, *busy(result.bystanders)]
