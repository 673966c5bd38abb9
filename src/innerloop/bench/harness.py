"""Alternates sides block by block, each in its own process, and compares them.

Timings drift: with temperature, with neighbours on the same machine, with what ran just before. So every side
lives in a child process for the whole run (its threads and its memory are its own), only one of them computes
at a time, they take turns in short blocks, and a ratio is taken between blocks of the same round.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from innerloop.bench.machine import QUIET, Bystanders, wait_for_quiet

Say = Callable[[str], None]
AGREE = 1e-3
"""Sides must have the same meta-gradient: float32, relative to its norm."""
PATIENCE = 60.0
"""Seconds that a comparison may spend on waiting for a quiet machine and on repeating disturbed rounds."""


class Side(NamedTuple):
    """Who takes part: a name for people, and what the worker is to build."""

    name: str
    spec: dict[str, Any]


class Timing(NamedTuple):
    """What was measured of one side.

    Attributes:
        side: which.
        rounds: milliseconds per call, one median per round.
        peak_mb: peak resident memory of its process.
        empty_mb: the same before the first call: interpreter, libraries, parameters and data.
        repeats: calls that were timed.
        first_call_s: seconds of the first call, compiling included.
    """

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


class Comparison(NamedTuple):
    """All sides, how far their gradients differ, and how many cores others kept busy meanwhile."""

    timings: dict[str, Timing]
    disagreement: float
    bystanders: float | None


class Child:
    """A worker process; use as a context.

    Args:
        name: for people.
        module: what it runs: the common worker, or a benchmark's own.
        environment: variables on top of ours, such as the thread counts of libraries that read them once.
    """

    def __init__(
        self, name: str, module: str = "innerloop.bench.worker", environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.errors: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  (closed on exit)
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.stdin and self.process.stdout:
            self.process.stdin.close()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()
        self.errors.close()

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """One request, one answer.

        Raises:
            RuntimeError: with the end of the worker's error output, if it died.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it died: the empty answer below says why
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            raise RuntimeError(f"{self.name} failed:\n{self.errors.read()[-2000:]}")
        return dict(json.loads(line))


def compare(
    sides: Sequence[Side],
    *,
    rounds: int,
    block_seconds: float,
    say: Say,
    reference: str,
    patience: float | None = None,
) -> Comparison:
    """Builds all sides, makes sure that they compute the same, then lets them take turns.

    Args:
        sides: who takes part.
        rounds: how many turns each gets.
        block_seconds: about how long one turn lasts.
        say: receives lines for people.
        reference: name of the side whose gradient the others' must equal.
        patience: see :func:`take_turns`.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        children = {side.name: stack.enter_context(Child(side.name)) for side in sides}
        first = {}
        for i, side in enumerate(sides):
            answer = children[side.name].ask("setup", spec=side.spec, gradient=str(folder / f"{i}.npy"))
            first[side.name] = float(answer["first_call_s"])
            if first[side.name] > 5:
                say(f"{side.name}: first call {first[side.name]:.0f} s")
        gradients = {side.name: np.load(folder / f"{i}.npy") for i, side in enumerate(sides)}
        off = disagreement(gradients, reference)
        say(f"{len(sides)} sides compute the same meta-gradient (largest relative difference {off:.1g})")
        blocks = take_turns(children, rounds, block_seconds, patience)
    seen = [answer["others"] for answer in blocks[sides[0].name] if answer["others"] is not None]
    others = statistics.mean(seen) if seen else None
    timings = {
        side.name: Timing(
            side,
            [statistics.median(answer["seconds"]) * 1e3 for answer in blocks[side.name]],
            max(answer["peak_mb"] for answer in blocks[side.name]),
            blocks[side.name][0]["empty_mb"],
            sum(len(answer["seconds"]) for answer in blocks[side.name]),
            first[side.name],
        )
        for side in sides
    }
    if others is not None and others > QUIET:
        say(f"others kept {others:.1f} cores busy meanwhile: measure again on an idle machine before quoting")
    return Comparison(timings, off, others)


def disagreement(gradients: dict[str, np.ndarray[Any, Any]], reference: str) -> float:
    """The largest relative distance from the reference gradient.

    Raises:
        RuntimeError: if it exceeds :data:`AGREE`; a faster wrong answer is no result.
    """
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
    children: dict[str, Child], rounds: int, block_seconds: float, patience: float | None = None
) -> dict[str, list[dict[str, Any]]]:
    """``rounds`` blocks of every child, in an order that moves on by one each round.

    While ``patience`` lasts (seconds; :data:`PATIENCE` if omitted), a round waits for the machine to be quiet
    and is taken again if others disturbed it. Every answer says how many cores ``others`` kept busy.
    """
    names = list(children)
    repeats = {}
    for name in names:  # also the warm-up
        seconds = children[name].ask("block", repeats=3)["seconds"]
        repeats[name] = max(1, min(1000, round(block_seconds / min(seconds))))
    pids = [child.process.pid for child in children.values()]
    blocks: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    deadline = time.monotonic() + (PATIENCE if patience is None else patience)
    taken = 0
    while len(blocks[names[0]]) < rounds:
        wait_for_quiet(deadline)
        order = [names[(taken + j) % len(names)] for j in range(len(names))]
        watch = Bystanders(pids)
        answers = {name: children[name].ask("block", repeats=repeats[name]) for name in order}
        others = watch.cores()
        taken += 1
        if others is None or others <= QUIET or time.monotonic() >= deadline:
            for name in names:
                blocks[name].append({**answers[name], "others": others})
    return blocks


def ratio(ours: Timing, peer: Timing) -> float:
    """How many times our time the peer takes: the median over rounds of the ratio within a round."""
    return statistics.median(p / o for p, o in zip(peer.rounds, ours.rounds, strict=True))


def machine(patience: float | None = None) -> dict[str, Any]:
    """Limits of this machine, measured in a process of its own, in a quiet moment if one comes."""
    with Child("the machine's limits") as child:
        wait_for_quiet(time.monotonic() + (PATIENCE if patience is None else patience))
        return child.ask("machine")


def flops(side: Side) -> float:
    """Floating point operations of one call, counted in a process of its own: counting costs memory."""
    with Child(side.name) as child:
        child.ask("setup", spec=side.spec)
        return float(child.ask("flops")["flops"])
