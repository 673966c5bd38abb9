"""Peak memory: it must not grow with meta-steps, nor iMAML's with inner steps; other loops beside it."""

from innerloop_studies.bench import harness
from innerloop_studies.bench.harness import Child, Comparison, Report, Say, Side, Timing, single_row

TITLE = "peak memory over thousands of meta-steps, of first-order and checkpointed loops, and of iMAML"
VERSION = 1
WORKER = "innerloop_studies.bench.maml"

GROWTH = 1.01  # peak memory after all meta-steps, over that after the first hundred: the most we allow
STEADY = 1.10  # iMAML's memory beyond libraries and data at many inner steps, over that at few: at most
WAYS = {"iMAML": {"implicit": True}, "MAML": {}, "checkpointed MAML": {"checkpoint": True}}
"""Learners whose memory is measured at few and at many inner steps, with what their workers are told."""


def run(quick: bool = False, say: Say = print) -> Report:
    """Long sinusoid runs by ``fit``, and single meta-gradients of Conv4 with five inner steps, and fifty."""
    steps, every = (200, 50) if quick else (3000, 100)
    rows = [growth("vmap", compile, steps, every, say) for compile in ("off", "trace")]
    rows += savings(quick, say)
    rows += [steadiness(name, 5, 10 if quick else 50, quick, say) for name in WAYS]
    return {"cases": rows, "machine": harness.machine(quick)}


def growth(mode: str, compile: str, steps: int, every: int, say: Say) -> Comparison:
    """One process, one call of ``fit``: the peak at its end against that after ``every`` steps."""
    spec = {"mode": mode, "compile": compile, "threads": 1, "steps": steps, "every": every}
    with Child("training", WORKER) as child:
        seen = child.ask("train", spec=spec)["peaks"]
    early, late = seen[str(every)], seen[str(steps)]
    say(f"{mode}, compile={compile}: {early:.1f} MB after {every} meta-steps, {late:.1f} MB after {steps}")
    case = f"sine MAML, {mode}, compile={compile}, after {steps} meta-steps"
    peaks = {"ours_mb": late, "peer_mb": early, "ratio": late / early, "at_most": GROWTH}
    return single_row(case, f"after {every}", peaks, "ratio of peak resident memory, late over early")


def measure(steps: int, options: dict[str, bool], repeats: int) -> Timing:
    """A meta-gradient of Conv4 on four tasks, in a process of its own."""
    base = {"side": "ours", "workload": "conv", "steps": steps, "mode": "loop", "threads": 1}
    side = Side("a meta-gradient", {**base, **options})
    with Child(side.name, WORKER) as child:
        first = child.ask("setup", spec=side.spec)["first_call_s"]
        return Timing.of(side, [child.ask("block", repeats=repeats)], first)


def savings(quick: bool, say: Say) -> list[Comparison]:
    """What first-order and checkpointed inner loops need of a full one, beyond libraries and data."""
    ways = {"second-order": {}, "first-order": {"first_order": True}, "checkpointed": {"checkpoint": True}}
    peaks: dict[str, Timing] = {}
    for name, options in ways.items():
        each = peaks[name] = measure(5, options, 2 if quick else 10)
        say(f"Conv4, 5 steps, {name}: {each.added_mb:.0f} MB beyond libraries and data, {each.ms:.0f} ms")
    full = peaks.pop("second-order")
    return [_row(f"Conv4 MAML, 5 steps, {name}", "second-order", each, full) for name, each in peaks.items()]


def steadiness(name: str, few: int, many: int, quick: bool, say: Say) -> Comparison:
    """One of :data:`WAYS` at many inner steps against few; we promise something of iMAML only."""
    little, much = (measure(steps, WAYS[name], 2 if quick else 5) for steps in (few, many))
    say(f"Conv4, {name}: {little.added_mb:.0f} MB at {few} inner steps, {much.added_mb:.0f} MB at {many}")
    row = _row(f"Conv4 {name}, {many} inner steps", f"{few} inner steps", much, little)
    return {**row, "at_most": STEADY} if name == "iMAML" else row


def _row(case: str, peer: str, ours: Timing, other: Timing) -> Comparison:
    both = {"ours_ms": ours.ms, "peer_ms": other.ms, "ours_mb": ours.added_mb, "peer_mb": other.added_mb}
    both["ratio"], notes = ours.added_mb / other.added_mb, "ratio of peak memory beyond libraries and data"
    return single_row(case, peer, both, notes, repeats=ours.repeats)
