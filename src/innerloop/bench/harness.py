"""Both sides alternate in one run, each in a process of its own: neither's threads touch the other."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

Say = Callable[[str], None]


class Side(NamedTuple):
    """One competitor: ``module:function`` that makes its step, its threads, the function's arguments."""

    label: str
    target: str
    threads: int
    options: dict[str, Any]


class Measured(NamedTuple):
    """Median milliseconds of a call, peak memory, and what the side says of its gradient."""

    side: Side
    milliseconds: float
    spread: float
    megabytes: float
    digest: list[float]
    setup_seconds: float
    repeats: int


class Child:
    """A worker process that is told to run its step so many times."""

    def __init__(self, side: Side) -> None:
        self.side = side
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(side.threads),
            "MKL_NUM_THREADS": str(side.threads),
        }
        command = [sys.executable, "-m", "innerloop.bench.worker", side.target, str(side.threads)]
        self.process = subprocess.Popen(
            [*command, json.dumps(side.options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.ready = self._read()
        self.times: list[float] = []

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"benchmark side '{self.side.label}' stopped without an answer")
        return json.loads(line)

    def ask(self, **message: Any) -> dict[str, Any]:
        """Sends a request and waits for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        return self._read()

    def close(self) -> dict[str, Any]:
        """Ends the process; returns its peak memory."""
        last = self.ask(do="quit")
        self.process.wait(timeout=60)
        return last


def alternate(sides: list[Side], *, blocks: int, seconds: float, say: Say) -> list[Measured]:
    """Blocks of calls, side after side, again and again; the median over all calls of each side.

    Args:
        sides: who competes.
        blocks: how often each side has its turn.
        seconds: about how long a turn lasts.
        say: progress.
    """
    children = []
    try:
        for side in sides:
            say(f"  starting {side.label} ({side.threads} thread{'s' * (side.threads > 1)})")
            children.append(Child(side))
        for block in range(blocks):
            for child in children:
                calls = max(1, min(50, int(seconds / max(child.ready["call_seconds"], 1e-6))))
                child.times += child.ask(do="run", calls=calls)["seconds"]
            say(f"  block {block + 1} of {blocks}")
        return [_measured(child) for child in children]
    finally:
        for child in children:
            if child.process.poll() is None:
                child.process.kill()


def _measured(child: Child) -> Measured:
    digest = child.ask(do="digest")["digest"]
    memory = child.close()["peak_mb"]
    middle = statistics.median(child.times)
    quartiles = statistics.quantiles(child.times, n=4) if len(child.times) > 3 else [middle, middle, middle]
    spread = (quartiles[2] - quartiles[0]) / middle
    setup = child.ready["setup_seconds"]
    return Measured(child.side, 1000 * middle, spread, memory, digest, setup, len(child.times))


def agree(a: Measured, b: Measured, tolerance: float = 1e-3) -> bool:
    """Whether two sides computed the same gradient: norm and random projections, relative to the norm."""
    scale = max(abs(a.digest[0]), abs(b.digest[0]), 1e-12)
    return all(abs(x - y) <= tolerance * scale for x, y in zip(a.digest, b.digest, strict=True))


def case_row(
    case: str, ours: Measured, peer: Measured, flops: float | None, sgemm: float, **more: Any
) -> dict[str, Any]:
    """One row of the table."""
    rate = flops / ours.milliseconds / 1e6 if flops else None
    return {
        "case": case,
        "peer": peer.side.label,
        "ours": ours.side.label,
        "ours_ms": ours.milliseconds,
        "peer_ms": peer.milliseconds,
        "ratio": peer.milliseconds / ours.milliseconds,
        "ours_mb": ours.megabytes,
        "peer_mb": peer.megabytes,
        "threads": {"ours": ours.side.threads, "peer": peer.side.threads},
        "repeats": {"ours": ours.repeats, "peer": peer.repeats},
        "spread": {"ours": ours.spread, "peer": peer.spread},
        "gflops": rate,
        "sgemm_share": rate / sgemm if rate else None,
        "same_gradient": agree(ours, peer),
        "setup_seconds": ours.setup_seconds,
        **more,
    }


def better(measured: list[Measured]) -> Measured:
    """The fastest of a side's thread counts."""
    return min(measured, key=lambda m: m.milliseconds)


def stopwatch() -> Callable[[], float]:
    """Seconds since it was made."""
    start = time.perf_counter()
    return lambda: time.perf_counter() - start
