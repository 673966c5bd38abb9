"""Alternates sides block by block, each in its own process, and compares them; imports no torch.

Timings drift, with temperature, neighbours, what ran just before: sides take turns in short blocks, one of
them computes at a time, and a ratio is taken between blocks of the same round.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, Required, Self, TypedDict, cast

import numpy as np

from innerloop.core.child_processes import python_command
from innerloop.core.resources import available_cores
from innerloop_studies.bench.environments import Environment
from innerloop_studies.bench.worker import QUIET, Answer, Bystanders, Spec, wait_for_quiet

Say = Callable[[str], None]
Array = np.ndarray[Any, Any]
AGREE = 1e-3  # relative to the norm, in float32: sides must compute the same
PATIENCE = 60.0  # seconds that a comparison may spend on waiting for a quiet machine and on disturbed rounds
WARM = 3  # calls before the first that counts; the fastest of them says how many make a block
SLOW = 5.0  # seconds of a first call that people are told about


# ---- what a benchmark reports ----


class Comparison(TypedDict, total=False):
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
    cases: Required[list[Comparison]]
    machine: Required[Answer]
    growth: dict[str, Any]
    exchanges: list[dict[str, float]]
    models: dict[str, Any]
    summary: list[str]


class Side(NamedTuple):
    """Who takes part: a name for people, what the worker is to build, and where if not here."""

    name: str
    spec: Spec
    module: str = ""
    environment: Environment | None = None


class Timing(NamedTuple):
    """What was measured of one side: milliseconds of its rounds, and what it used."""

    side: Side
    rounds: list[float]
    peak_mb: float
    empty_mb: float
    repeats: int
    first_call_s: float

    @classmethod
    def of(cls, side: Side, blocks: Sequence[Answer], first_call_s: float, scale: float = 1.0) -> Self:
        """What a side's blocks amount to; ``scale`` is the whole work over that of a call."""
        rounds = [statistics.median(block["seconds"]) * 1e3 * scale for block in blocks]
        repeats = sum(len(block["seconds"]) for block in blocks)
        peak, empty = max(block["peak_mb"] for block in blocks), blocks[0]["empty_mb"]
        return cls(side, rounds, peak, empty, repeats, first_call_s)

    @property
    def ms(self) -> float:
        """Median over rounds."""
        return statistics.median(self.rounds)

    @property
    def added_mb(self) -> float:
        """Peak memory beyond libraries and data."""
        return self.peak_mb - self.empty_mb


def on_threads(
    names: Iterable[str], spec: Spec, counts: Iterable[int] | None = None, *where: Any
) -> list[Side]:
    """Sides once per thread count, such as ``ours@1``; on one thread and on all if none are given."""
    given = sorted({1, available_cores()}) if counts is None else counts  # ``side`` is the name if not said
    pairs = [(name, n) for name in names for n in given]
    return [Side(f"{name}@{n}", {"side": name, **spec, "threads": n}, *where) for name, n in pairs]


def better(timings: dict[str, Timing], start: str) -> Timing:
    """The fastest of the sides whose names start so: one side at its better thread count."""
    return min((t for name, t in timings.items() if name.startswith(start)), key=lambda t: t.ms)


def ratio(ours: Timing, peer: Timing) -> float:
    """How many times our time the peer takes: the median over rounds of the ratio within a round."""
    return statistics.median(p / o for p, o in zip(peer.rounds, ours.rounds, strict=True))


def bystanders(blocks: Sequence[Answer]) -> float | None:
    """Cores that others kept busy on average; None if the system does not tell."""
    seen = [block["others"] for block in blocks if block["others"] is not None]
    return statistics.mean(seen) if seen else None


def busy(others: float | None) -> list[str]:
    """A remark for a row if others disturbed the measurement, else nothing."""
    return [] if others is None or others <= QUIET else [f"others kept {others:.1f} cores busy"]


# ---- sides in processes of their own ----


class Child:
    """A worker process that is asked in lines of JSON; use as a context."""

    def __init__(
        self, name: str, module: str, environment: dict[str, str] | None = None, python: str = sys.executable
    ) -> None:
        self.name = name
        self.errors: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  (closed on exit)
        command = [python, *python_command("-m", "innerloop_studies.bench.worker", module)[1:]]
        talk: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        variables = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(command, env=variables, text=True, encoding="utf-8", **talk)

    def __enter__(self) -> Self:
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
        self.send(do, **request)
        return self.receive()

    def send(self, do: str, **request: Any) -> None:
        """One request."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it died: the empty answer says why
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()

    def receive(self) -> Answer:
        """The answer to it."""
        assert self.process.stdout is not None
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


class Started(NamedTuple):
    """Sides that are built and have run once."""

    sides: Sequence[Side]
    children: dict[str, Any]
    answers: dict[str, Answer]
    results: dict[str, Array]
    say: Say

    def measured(
        self,
        quick: bool,
        few: tuple[int, float],
        many: tuple[int, float],
        patience: float | None = None,
        scale: Callable[[Side], float] = lambda _: 1.0,
        warm: int = WARM,
    ) -> "Measured":
        """Lets the sides take turns: rounds and seconds of a block if quick, and else; ``scale`` by side."""
        blocks = take_turns(self.children, *(few if quick else many), 0.0 if quick else patience, warm)
        first = {name: float(answer["first_call_s"]) for name, answer in self.answers.items()}
        timings = {s.name: Timing.of(s, blocks[s.name], first[s.name], scale(s)) for s in self.sides}
        return Measured(timings, bystanders(blocks[self.sides[0].name]), self.say)


class Measured(NamedTuple):
    """All sides, and how many cores others kept busy meanwhile."""

    timings: dict[str, Timing]
    bystanders: float | None
    say: Say = lambda _: None

    def row(
        self,
        case: str,
        peer: str,
        at_least: float | None,
        notes: Sequence[str],
        name: str = "",
        ours: str = "ours",
    ) -> Comparison:
        """Ours against a peer, each at its better thread count; ``name`` is the peer's for people."""
        mine, theirs = better(self.timings, ours), better(self.timings, peer)
        times = {"ours_ms": mine.ms, "peer_ms": theirs.ms, "ratio": ratio(mine, theirs)}
        memory, told = {"ours_mb": mine.peak_mb, "peer_mb": theirs.peak_mb}, [*notes, *busy(self.bystanders)]
        both: dict[str, Any] = {"threads": f"{mine.side.spec['threads']} / {theirs.side.spec['threads']}"}
        both |= {"repeats": min(mine.repeats, theirs.repeats), "at_least": at_least, "notes": "; ".join(told)}
        row = cast(Comparison, {"case": case, "peer": name or peer, **times, **memory, **both})
        self.say(f"{case}: {row['ratio']:.2f}× {row['peer']}; {row['notes']}")
        return row


def single_row(
    case: str, peer: str, measured: dict[str, Any], notes: str, *, threads: str = "1", repeats: int = 1
) -> Comparison:
    """A row of what was not measured in turns."""
    told = {"case": case, "peer": peer, **measured, "threads": threads, "repeats": repeats, "notes": notes}
    return cast(Comparison, told)


def _child(side: Side, module: str, limits: dict[str, str]) -> Child:
    if side.environment is None:
        return Child(side.name, module, limits)
    return Child(side.name, side.module, {**limits, **side.environment.variables}, side.environment.python)


@contextmanager
def started(
    sides: Sequence[Side], module: str, say: Say, child: Callable[..., Any] | None = None
) -> Iterator[Started]:
    """Every side in a process of its own, built and run once, until the context ends."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        limits = {s.name: thread_limits(s.spec["threads"]) for s in sides}
        child = child or _child
        children = {s.name: stack.enter_context(child(s, module, limits[s.name])) for s in sides}
        answers, results = {}, {}
        for i, side in enumerate(sides):
            file = folder / f"{i}.npy"
            answers[side.name] = children[side.name].ask("setup", spec=side.spec, result=str(file))
            first = float(answers[side.name]["first_call_s"])
            if first > SLOW:
                say(f"{side.name}: first call {first:.0f} s")
            if file.exists():
                results[side.name] = np.load(file)
        yield Started(sides, children, answers, results, say)


def timed_command(name: str, *words: str, **options: Any) -> tuple[float, str]:
    """Seconds that ``innerloop`` takes with these words, its start included, and what it printed."""
    start, command = time.perf_counter(), python_command("-m", "innerloop", *words)
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"innerloop {name} failed:\n{done.stderr[-2000:]}")
    return seconds, done.stdout


def peers_times(factor: float) -> Callable[[Side], float]:
    """For peers that do only a part of the work: their times are scaled to all of it."""
    return lambda side: 1.0 if side.spec["side"] == "ours" else factor


def take_turns(
    children: dict[str, Child],
    rounds: int,
    block_seconds: float,
    patience: float | None = None,
    warm: int = WARM,
) -> dict[str, list[Answer]]:
    """``rounds`` blocks of every child, in an order that moves on by one each round."""
    names = list(children)
    repeats, pids = {}, {child.process.pid for child in children.values()}
    for name in names:  # also the warm-up
        answer = children[name].ask("block", repeats=warm)
        repeats[name] = max(1, min(1000, round(block_seconds / min(answer["seconds"]))))
        pids |= set(answer.get("pids", ()))  # a side may have processes of its own
    blocks: dict[str, list[Answer]] = {name: [] for name in names}
    # until then, a round waits for a quiet machine, and is taken again if others disturbed it
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
                blocks[name].append({**answer, "others": others})
    return blocks


def disagreement(
    results: dict[str, Array], reference: str, at_most: float = AGREE, what: str = "meta-gradients"
) -> float:
    """The largest relative distance of what sides computed from the reference; too large a one is refused."""
    right, norm = results[reference], float(np.linalg.norm(results[reference]))
    off = {name: float(np.linalg.norm(result - right)) / norm for name, result in results.items()}
    for name, one in off.items():
        if not one <= at_most:
            raise RuntimeError(f"{name} and {reference} disagree: {what} differ by {one:.2g} of the norm")
    return max(off.values())


def machine(quick: bool = False) -> Answer:
    """Limits of this machine, measured in a process of its own, in a quiet moment if one comes."""
    with Child("the machine's limits", "innerloop_studies.bench.worker") as child:
        wait_for_quiet(time.monotonic() + (0.0 if quick else PATIENCE))
        return child.ask("machine")
