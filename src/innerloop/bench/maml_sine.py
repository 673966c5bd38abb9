"""MAML on sinusoids: MLP 1-40-40-1, 25 tasks, 10 support and 10 query points."""

from __future__ import annotations

from typing import Any

from innerloop.bench.flops import count_flops
from innerloop.bench.harness import Measured, Say, Side, alternate, better, case_row
from innerloop.bench.machine import machine
from innerloop.bench.peers import installed
from innerloop.execution.plan import available_cores, cpp_compiler

# What we promise at least, per form of ours and peer; from the project's own targets.
AT_LEAST = {
    ("full", "plain-loop"): 30.0,
    ("off", "plain-loop"): 5.0,
    ("full", "higher"): 50.0,
    ("off", "higher"): 8.0,
}
FORMS = {"full": "compiled", "trace": "captured graph", "off": "eager vmap"}


def run(*, quick: bool, say: Say) -> dict[str, Any]:
    """All forms of ours against all peers, for one and five inner steps."""
    about = machine(quick)
    cases: list[dict[str, Any]] = []
    for steps in (1,) if quick else (5, 1):
        say(f"MAML, MLP 1-40-40-1, 25 tasks, {steps} inner step{'s' * (steps > 1)}")
        cases += _cases(steps, quick, say, max(about["sgemm_gflops"].values()))
    return {"machine": about, "cases": cases}


def _cases(steps: int, quick: bool, say: Say, sgemm: float) -> list[dict[str, Any]]:
    counts = sorted({1, available_cores()})
    forms = [form for form in FORMS if form != "full" or (cpp_compiler() and not quick)]
    sides = [
        Side(f"ours ({FORMS[form]})", "innerloop.bench.ours:sine", n, {"steps": steps, "compile": form})
        for form in forms
        for n in counts
    ]
    sides += [Side("plain-loop", "innerloop.bench.plain_loop:sine", n, {"steps": steps}) for n in counts]
    sides += [
        Side(name, "innerloop.bench.peers:sine", n, {"steps": steps, "library": name})
        for name in installed()
        for n in counts
    ]
    blocks, seconds = (1, 0.05) if quick else (7, 0.7)
    measured = alternate(sides, blocks=blocks, seconds=seconds, say=say)
    flops = count_flops("innerloop.bench.plain_loop:sine", {"steps": steps})
    best = {
        label: better([m for m in measured if m.side.label == label]) for label in {s.label for s in sides}
    }
    rows = []
    for form in forms:
        ours = best[f"ours ({FORMS[form]})"]
        for peer in ("plain-loop", *installed()):
            rows.append(_row(steps, form, ours, best[peer], flops, sgemm))
    return rows


def _row(steps: int, form: str, ours: Measured, peer: Measured, flops: float, sgemm: float) -> dict[str, Any]:
    case = f"MLP 1-40-40-1, 25 tasks, {steps} steps, {FORMS[form]}"
    at_least = AT_LEAST.get((form, peer.side.label)) if steps == 5 else None
    return case_row(case, ours, peer, flops, sgemm, at_least=at_least)
