"""Peak memory: it must not grow with the number of meta-steps; first-order and checkpointed loops save."""

from __future__ import annotations

import statistics
from typing import Any

from innerloop.bench import harness
from innerloop.bench.child import Child
from innerloop.bench.harness import Say

GROWTH = 1.01
"""Peak memory after all meta-steps, over that after the first hundred: the most we allow."""


def run(quick: bool = False, say: Say = print) -> dict[str, Any]:
    """Long sinusoid runs by ``fit``, and single meta-gradients of Conv4 with five inner steps."""
    steps, every = (200, 50) if quick else (3000, 100)
    rows = [
        growth(mode, compile, steps, every, say) for mode, compile in (("vmap", "off"), ("vmap", "trace"))
    ]
    rows += savings(quick, say)
    return {"cases": rows, "machine": harness.machine(patience=0 if quick else None)}


def growth(mode: str, compile: str, steps: int, every: int, say: Say) -> dict[str, Any]:
    """One process, one call of ``fit``: the peak at its end against that after ``every`` steps."""
    spec = {"mode": mode, "compile": compile, "threads": 1, "steps": steps, "every": every}
    with Child("training") as child:
        peaks = {int(step): mb for step, mb in child.ask("train", spec=spec)["peaks"].items()}
    early, late = peaks[every], peaks[steps]
    say(f"{mode}, compile={compile}: {early:.1f} MB after {every} meta-steps, {late:.1f} MB after {steps}")
    return {
        "case": f"sine MAML, {mode}, compile={compile}, after {steps} meta-steps",
        "peer": f"after {every}",
        "ours_mb": late,
        "peer_mb": early,
        "ratio": late / early,
        "threads": "1",
        "repeats": 1,
        "at_most": GROWTH,
        "notes": "ratio of peak resident memory, late over early",
    }


def savings(quick: bool, say: Say) -> list[dict[str, Any]]:
    """What first-order and checkpointed inner loops need of a full one, beyond libraries and data."""
    base = {"side": "ours", "workload": "conv", "steps": 5, "mode": "loop", "threads": 1}
    ways = {"second-order": {}, "first-order": {"first_order": True}, "checkpointed": {"checkpoint": True}}
    found: dict[str, tuple[float, float, int]] = {}
    for name, options in ways.items():
        with Child(name) as child:
            child.ask("setup", spec={**base, **options})
            answer = child.ask("block", repeats=2 if quick else 10)
        ms = statistics.median(answer["seconds"]) * 1e3
        found[name] = (ms, answer["peak_mb"] - answer["empty_mb"], len(answer["seconds"]))
        say(f"Conv4, 5 steps, {name}: {found[name][1]:.0f} MB beyond libraries and data, {ms:.0f} ms")
    full_ms, full_mb, _ = found["second-order"]
    return [
        {
            "case": f"Conv4 MAML, 5 steps, {name}",
            "peer": "second-order",
            "ours_ms": ms,
            "peer_ms": full_ms,
            "ours_mb": mb,
            "peer_mb": full_mb,
            "ratio": mb / full_mb,
            "threads": "1",
            "repeats": repeats,
            "notes": "ratio of peak memory beyond libraries and data",
        }
        for name, (ms, mb, repeats) in found.items()
        if name != "second-order"
    ]
