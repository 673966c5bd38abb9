"""Alternates sides block by block, each in its own process, and compares them.

Timings drift: with temperature, with neighbours on the same machine, with what ran just before. So every side
lives in a child process for the whole run (its threads and its memory are its own), only one of them computes
at a time, they take turns in short blocks, and a ratio is taken between blocks of the same round.

Nothing here imports torch: the peers of some benchmarks must run without it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, Required, TypedDict, cast

import numpy as np

from innerloop.core.child_processes import python_command
from innerloop_studies.bench.worker import QUIET, Answer, Bystanders, Machine, Spec, wait_for_quiet

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
WORKER = "innerloop_studies.bench.maml"
"""The worker of meta-gradients; other benchmarks have their own."""


# ---- what a benchmark reports ----


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
    growth: dict[str, Any]
    exchanges: list[dict[str, float]]
    models: dict[str, Any]
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

    @property
    def added_mb(self) -> float:
        """Peak memory beyond libraries and data."""
        return self.peak_mb - self.empty_mb


def timing(side: Side, blocks: Sequence[Block], first_call_s: float, scale: float = 1.0) -> Timing:
    """What a side's blocks amount to; ``scale`` is the whole work over that of a call."""
    return Timing(
        side,
        [statistics.median(block.seconds) * 1e3 * scale for block in blocks],
        max(block.peak_mb for block in blocks),
        blocks[0].empty_mb,
        sum(len(block.seconds) for block in blocks),
        first_call_s,
    )


def on_threads(name: str, spec: Spec, counts: Iterable[int]) -> list[Side]:
    """The same side once per thread count.

    >>> [side.name for side in on_threads("ours", {"side": "ours"}, (1, 2))]
    ['ours@1', 'ours@2']
    """
    return [Side(f"{name}@{n}", {**spec, "threads": n}) for n in counts]


def each_on_threads(names: Iterable[str], spec: Spec, counts: Iterable[int]) -> list[Side]:
    """Several sides, each once per thread count; ``side`` of the specification is the name."""
    return [side for name in names for side in on_threads(name, {**spec, "side": name}, counts)]


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


# ---- sides in processes of their own ----


class Child:
    """A worker process that is asked in lines of JSON; use as a context."""

    def __init__(self, name: str, module: str = WORKER, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self.errors: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  (closed on exit)
        self.process = subprocess.Popen(
            python_command("-m", module),
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

    def ask(self, do: str, **request: Any) -> Answer:
        """One request, one answer."""
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


def thread_limits(threads: int) -> dict[str, str]:
    """The environment in which libraries that read their thread count once get this one."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def limited(side: Side) -> dict[str, str]:
    """The environment of a side whose libraries are to have its threads from the start."""
    return thread_limits(side.spec["threads"])


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

    def row(self, case: str, peer: str, at_least: float | None, notes: Sequence[str], name: str = "") -> Row:
        """Ours against a peer, each at its better thread count; ``name`` is the peer's for people."""
        ours, theirs = better(self.timings, "ours"), better(self.timings, peer)
        return comparison(case, name or peer, ours, theirs, at_least, [*notes, *busy(self.bystanders)])


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
            answers[side.name] = children[side.name].ask("setup", spec=side.spec, result=str(file))
            first = float(answers[side.name]["first_call_s"])
            if say and first > SLOW:
                say(f"{side.name}: first call {first:.0f} s")
            if file.exists():
                results[side.name] = np.load(file)
        yield Started(sides, children, answers, results)


def peers_times(factor: float) -> Callable[[Side], float]:
    """For peers that do only a part of the work: their times are scaled to all of it."""
    return lambda side: 1.0 if side.spec["side"] == "ours" else factor


def measured(
    run: Started,
    rounds: int,
    block_seconds: float,
    patience: float | None = None,
    scale: Callable[[Side], float] = lambda _: 1.0,
    warm: int = WARM,
) -> Measured:
    """Lets the sides take turns (see :func:`take_turns`); ``scale`` as in :func:`timing`, by side."""
    blocks = take_turns(run.children, rounds, block_seconds, patience, warm)
    timings = {
        s.name: timing(s, blocks[s.name], float(run.answers[s.name]["first_call_s"]), scale(s))
        for s in run.sides
    }
    return Measured(timings, bystanders(blocks[run.sides[0].name]))


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
            for name, answer in answers.items():
                block = Block(answer["seconds"], answer["peak_mb"], answer["empty_mb"], others)
                blocks[name].append(block)
    return blocks


def disagreement(results: dict[str, Array], reference: str) -> float:
    """The largest relative distance of what sides computed from the reference; too large a one is refused."""
    norm = float(np.linalg.norm(results[reference]))
    worst = 0.0
    for name, result in results.items():
        off = float(np.linalg.norm(result - results[reference])) / norm
        if not off <= AGREE:
            raise RuntimeError(
                f"{name} and {reference} disagree: meta-gradients differ by {off:.2g} of the norm"
            )
        worst = max(worst, off)
    return worst


def machine(patience: float | None = None) -> Machine:
    """Limits of this machine, measured in a process of its own, in a quiet moment if one comes."""
    with Child("the machine's limits", "innerloop_studies.bench.worker") as child:
        wait_for_quiet(time.monotonic() + (PATIENCE if patience is None else patience))
        return cast(Machine, child.ask("machine"))
