"""Measurements on all cores: one process per core with one thread each, kept as they come.

What is measured depends on the job alone, never on the process or its neighbours: one worker and many give
the same numbers, and an interrupted search goes on where it was.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from innerloop.choose.architectures.draws import Draw, Draws, digest
from innerloop.choose.architectures.measure import Job, Measured, job_key, measure, space_print
from innerloop.choose.architectures.space import Space
from innerloop.core.children import end_with_parent
from innerloop.core.cores import available_cores
from innerloop.core.errors import UserError
from innerloop.core.heap import keep_freed_memory
from innerloop.training.execution.plain import from_leader, plain_out
from innerloop.training.execution.plan import Plan, torch_threads
from innerloop.training.execution.starting import beginning, ended_by_errors, new_pool, start_method

Tick = Callable[[int, bool], None]
"""Told after every job its place among the jobs, and whether it was kept from an earlier search."""

_DRAWS_HELD = 8
_TOGETHER = 4  # jobs of a worker between exchanges of ranks: what an interrupt may lose


class Bench:
    """Measures jobs of one space on one source of draws.

    Owns the worker processes and the file of results.
    """

    def __init__(
        self,
        space: Space[Any],
        draws: Draws,
        workers: int | None = None,
        keep: Path | None = None,
        ranks: int = 1,
    ) -> None:
        if workers is not None and workers < 1:
            raise UserError(f"workers={workers} is not a number of processes: give 1 or more.")
        self.space, self.keep, self.ranks = space, keep, ranks
        self.draws: Draws = lru_cache(_DRAWS_HELD)(draws)
        self.workers = (workers or available_cores()) if _can_be_sent(space, draws) else 1
        self.seconds = 0.0
        self._given = draws
        self._pool: ProcessPoolExecutor | None = None
        self._print = space_print(space)
        self._seen: dict[int, tuple[str, int]] = {}
        self._known = read_kept(keep) if keep is not None else {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, jobs: Sequence[Job], tick: Tick = lambda _, __: None) -> list[Measured]:
        """The measurements, in the order of the jobs."""
        keys = [job_key(self._print, job, self.look(job.draw)[0]) for job in jobs]
        self._learn(keys)
        for place, key in enumerate(keys):
            if key in self._known:
                tick(place, True)
        new = {key: place for place, key in enumerate(keys) if key not in self._known}
        todo = sorted(new.values())
        for place, measured in self._on_ranks(jobs, todo) if self.ranks > 1 else self._measured(jobs, todo):
            self._record(keys[place], measured)
            tick(place, False)
        return [self._known[key] for key in keys]

    def look(self, draw: int) -> tuple[str, int]:
        """The digest of a repeat's data, and its seed; both are remembered, the data are not for long."""
        if draw not in self._seen:
            made = self.draws(draw)
            self._seen[draw] = digest(made), made.seed
        return self._seen[draw]

    def _learn(self, keys: Sequence[str]) -> None:
        """On ranks, what rank 0 knows is known to all, so that all have the same left to do."""
        if self.ranks > 1:
            lines = from_leader(
                lambda: [_line(key, self._known[key]) for key in keys if key in self._known], self.ranks
            )
            self._known.update(_read_lines(lines))

    def _on_ranks(self, jobs: Sequence[Job], todo: list[int]) -> Iterator[tuple[int, Measured]]:
        """Everybody's results, round by round."""
        together = _TOGETHER * self.workers

        def share(places: list[int]) -> list[str]:
            """The measurements of some jobs, as text that can be sent."""
            measured = dict(self._measured(jobs, places))
            return [_line("", measured[place]) for place in places]

        for start in range(0, len(todo), together * self.ranks):
            some = todo[start : start + together * self.ranks]
            for place, line in zip(some, plain_out(share, some, self.ranks, together), strict=True):
                yield place, _measured(json.loads(line))

    def _measured(self, jobs: Sequence[Job], todo: list[int]) -> Iterator[tuple[int, Measured]]:
        parallel = self.workers > 1 and len(todo) > 1
        return self._several(jobs, todo) if parallel else self._here(jobs, todo)

    def _record(self, key: str, result: Measured) -> None:
        self._known[key] = result
        self.seconds += result.seconds
        if self.keep is not None:
            self.keep.parent.mkdir(parents=True, exist_ok=True)
            with self.keep.open("a", encoding="utf-8") as file:
                file.write(_line(key, result) + "\n")

    def _here(self, jobs: Sequence[Job], todo: list[int]) -> Iterator[tuple[int, Measured]]:
        for place in todo:
            with _one_thread():
                measured = measure(self.space, jobs[place], self.draws(jobs[place].draw))
            yield place, measured

    def _several(self, jobs: Sequence[Job], todo: list[int]) -> Iterator[tuple[int, Measured]]:
        """As they are finished. Few are handed out at a time, so that an interrupt loses little."""
        pool = self._processes()
        waiting, running = iter(todo), dict[Future[Measured], int]()
        try:
            with ended_by_errors(pool):
                for place in waiting:
                    with beginning():
                        running[pool.submit(_measure_there, jobs[place])] = place
                    if len(running) > self.workers:
                        yield from _finished(running)
                while running:
                    yield from _finished(running)
        except BaseException:
            self._pool = None
            raise

    def _processes(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = new_pool(self.workers, _prepare, self.space, self._given, os.getpid())
        return self._pool


def _finished(running: dict[Future[Measured], int]) -> Iterator[tuple[int, Measured]]:
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in sorted(done, key=lambda future: running[future]):
        yield running.pop(future), future.result()


def _can_be_sent(*parts: Any) -> bool:
    """Whether worker processes can have these: forked ones have everything, others what can be pickled."""
    if start_method() == "fork":
        return True
    try:
        pickle.dumps(parts)
    except Exception:  # pickle raises whatever the object's own methods raise
        return False
    return True


@contextmanager
def _one_thread() -> Iterator[None]:
    """What workers have: sums in another order are other numbers."""
    with torch_threads(Plan("loop", 1)):
        yield


_THERE: dict[str, Any] = {}


def _prepare(space: Space[Any], draws: Draws, parent: int) -> None:
    """Runs first in every worker. An interrupt is the parent's business, and its end theirs."""
    end_with_parent(parent)
    torch.set_num_threads(1)
    keep_freed_memory()
    held: Callable[[int], Draw] = lru_cache(_DRAWS_HELD)(draws)
    _THERE.update(space=space, draws=held)


def _measure_there(job: Job) -> Measured:
    return measure(_THERE["space"], job, _THERE["draws"](job.draw))


def _line(key: str, result: Measured) -> str:
    """JSON has no infinities: numbers are written as Python writes them, which is read back bit for bit."""
    values = {name: repr(value) for name, value in result.values.items()}
    return json.dumps({"key": key, "values": values, "reasons": result.reasons, "seconds": result.seconds})


def read_kept(file: Path) -> dict[str, Measured]:
    """What an earlier search kept; a line that was being written when it ended is left out."""
    if not file.exists():
        return {}
    text = file.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):  # the last line was cut off: what is appended must not join it
        text = text[: text.rfind("\n") + 1]
        file.write_text(text, encoding="utf-8")
    try:
        return _read_lines(text.splitlines())
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{file} holds no measurements of a search: give another file, or remove it."
        ) from None


def _read_lines(lines: Sequence[str]) -> dict[str, Measured]:
    rows = [json.loads(line) for line in lines]
    return {row["key"]: _measured(row) for row in rows}


def _measured(row: dict[str, Any]) -> Measured:
    return Measured({name: float(v) for name, v in row["values"].items()}, row["reasons"], row["seconds"])
