"""Alternates sides block by block, each in its own process, and compares them.

Timings drift: with temperature, with neighbours on the same machine, with what ran just before. So every side
lives in a child process for the whole run (its threads and its memory are its own), only one of them computes
at a time, they take turns in short blocks, and a ratio is taken between blocks of the same round.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from innerloop_studies.bench.child import WORKER, Child
from innerloop_studies.bench.machine import QUIET, Bystanders, Machine, wait_for_quiet
from innerloop_studies.bench.messages import Answer, Spec
from innerloop_studies.bench.rows import Block, Side, Timing, block_of, busy, bystanders, timing

Say = Callable[[str], None]
Array = np.ndarray[Any, Any]
AGREE = 1e-3
"""Sides must have the same meta-gradient: float32, relative to its norm."""
PATIENCE = 60.0
"""Seconds that a comparison may spend on waiting for a quiet machine and on repeating disturbed rounds."""
WARM = 3
"""Calls before the first that counts; the fastest of them says how many make a block."""
SLOW = 5.0
"""Seconds of a first call that people are told about."""


class Started(NamedTuple):
    """Sides that are built and have run once."""

    sides: Sequence[Side]
    children: dict[str, Child]
    answers: dict[str, Answer]
    results: dict[str, Array]


class Measured(NamedTuple):
    """All sides, and how many cores others kept busy meanwhile."""

    timings: dict[str, Timing]
    bystanders: float | None


class Comparison(NamedTuple):
    """All sides, how far their gradients differ, and how many cores others kept busy meanwhile."""

    timings: dict[str, Timing]
    disagreement: float
    bystanders: float | None


@contextmanager
def started(
    sides: Sequence[Side],
    module: str = WORKER,
    *,
    environment: Callable[[Side], dict[str, str]] | None = None,
    say: Say | None = None,
) -> Iterator[Started]:
    """Every side in a process of its own, built and run once, until the context ends."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        variables = {side.name: environment(side) if environment else None for side in sides}
        children = {s.name: stack.enter_context(Child(s.name, module, variables[s.name])) for s in sides}
        answers, results = {}, {}
        for i, side in enumerate(sides):
            file = folder / f"{i}.npy"
            answers[side.name] = children[side.name].ask("setup", spec=side.spec, gradient=str(file))
            first = float(answers[side.name]["first_call_s"])
            if say and first > SLOW:
                say(f"{side.name}: first call {first:.0f} s")
            if file.exists():
                results[side.name] = np.load(file)
        yield Started(sides, children, answers, results)


def measured(
    run: Started,
    rounds: int,
    block_seconds: float,
    patience: float | None = None,
    scale: Callable[[Side], float] = lambda _: 1.0,
    warm: int = WARM,
) -> Measured:
    """Lets the sides take turns (see :func:`take_turns`); ``scale`` as in :func:`rows.timing`, by side."""
    blocks = take_turns(run.children, rounds, block_seconds, patience, warm)
    timings = {
        s.name: timing(s, blocks[s.name], float(run.answers[s.name]["first_call_s"]), scale(s))
        for s in run.sides
    }
    return Measured(timings, bystanders(blocks[run.sides[0].name]))


def compare(
    sides: Sequence[Side],
    *,
    rounds: int,
    block_seconds: float,
    say: Say,
    reference: str,
    patience: float | None = None,
    warm: int = WARM,
    exact: Spec | None = None,
) -> Comparison:
    """Builds all sides, makes sure that they compute the same, then lets them take turns."""
    off = None if exact is None else _off_in_float64(sides, exact, reference)
    with started(sides, say=say) as run:
        if off is None:
            off = disagreement(run.results, reference)
        precision = "" if exact is None else " in float64"
        say(
            f"{len(sides)} sides compute the same meta-gradient{precision} (largest relative difference "
            f"{off:.1g})"
        )
        measurement = measured(run, rounds, block_seconds, patience, warm=warm)
    for remark in busy(measurement.bystanders):
        say(f"{remark} meanwhile: measure again on an idle machine before quoting")
    return Comparison(measurement.timings, off, measurement.bystanders)


def _off_in_float64(sides: Sequence[Side], exact: Spec, reference: str) -> float:
    precise = [side._replace(spec={**side.spec, **exact, "dtype": "float64"}) for side in sides]
    with started(precise) as run:
        return disagreement(run.results, reference)


def disagreement(gradients: dict[str, Array], reference: str) -> float:
    """The largest relative distance from the reference gradient."""
    norm = float(np.linalg.norm(gradients[reference]))
    worst = 0.0
    for name, gradient in gradients.items():
        off = float(np.linalg.norm(gradient - gradients[reference])) / norm
        if not off <= AGREE:
            raise RuntimeError(
                f"{name} and {reference} disagree: meta-gradients differ by {off:.2g} of the norm"
            )
        worst = max(worst, off)
    return worst


def take_turns(
    children: dict[str, Child],
    rounds: int,
    block_seconds: float,
    patience: float | None = None,
    warm: int = WARM,
) -> dict[str, list[Block]]:
    """``rounds`` blocks of every child, in an order that moves on by one each round.

    While ``patience`` lasts (seconds; :data:`PATIENCE` if omitted), a round waits for the machine to be quiet
    and is taken again if others disturbed it. Every turn says how many cores ``others`` kept busy.
    """
    names = list(children)
    repeats, pids = {}, {child.process.pid for child in children.values()}
    for name in names:  # also the warm-up
        answer = children[name].ask("block", repeats=warm)
        repeats[name] = max(1, min(1000, round(block_seconds / min(answer["seconds"]))))
        pids |= set(answer.get("pids", ()))  # a side may have processes of its own
    blocks: dict[str, list[Block]] = {name: [] for name in names}
    deadline = time.monotonic() + (PATIENCE if patience is None else patience)
    taken = 0
    while len(blocks[names[0]]) < rounds:
        wait_for_quiet(deadline)
        order = [names[(taken + j) % len(names)] for j in range(len(names))]
        watch = Bystanders(sorted(pids))
        answers = {name: children[name].ask("block", repeats=repeats[name]) for name in order}
        others = watch.cores()
        taken += 1
        if others is None or others <= QUIET or time.monotonic() >= deadline:
            for name in names:
                blocks[name].append(block_of(answers[name], others))
    return blocks


def machine(patience: float | None = None) -> Machine:
    """Limits of this machine, measured in a process of its own, in a quiet moment if one comes."""
    with Child("the machine's limits") as child:
        wait_for_quiet(time.monotonic() + (PATIENCE if patience is None else patience))
        return cast(Machine, child.ask("machine"))


def flops(side: Side) -> float:
    """Floating point operations of one call, counted in a process of its own: counting costs memory."""
    with Child(side.name) as child:
        child.ask("setup", spec=side.spec)
        return float(child.ask("flops")["flops"])
