"""Scores on a repeat's data, on all cores, kept as they come: what is measured depends on the job alone."""

from __future__ import annotations

import hashlib
import json
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop._version import __version__
from innerloop.choose.architectures.draws import CROP_BATCH, Draw, Draws, digest
from innerloop.choose.architectures.space import Space
from innerloop.choose.scores.conditions import fresh_head
from innerloop.choose.scores.patterns import linear_regions
from innerloop.choose.scores.score_table import find
from innerloop.choose.scores.scoring import ScoreResult, score
from innerloop.core.child_processes import start_method
from innerloop.core.errors import UserError
from innerloop.core.formatting import duration
from innerloop.core.random import derive_seed
from innerloop.core.resources import available_cores, keep_freed_memory
from innerloop.core.types import Buffers, Params
from innerloop.nets.network import Network
from innerloop.runs.executors import as_finished, open_executor
from innerloop.training.execution.plan import Plan, torch_threads

REGIONS = "regions"


class Seeds(NamedTuple):
    """Where the random numbers of a network come from."""

    weights: int
    head: int
    thin: tuple[int, ...]


class ScoringJob(NamedTuple):
    """What is measured, as plain data that can be sent to another process."""

    candidate: Any
    names: tuple[str, ...]
    draw: int
    seeds: Seeds | None = None
    network: Mapping[str, Any] = {}
    thin: Mapping[str, Any] = {}
    settings: Mapping[str, Mapping[str, Any]] = {}


class Measurement(NamedTuple):
    """Scores by name, why some are not finite or tell nothing, and how long it took."""

    values: dict[str, float]
    reasons: dict[str, str]
    seconds: float


def own_seeds(seed: int, thin: int = 1) -> Seeds:
    """The seeds that follow from a draw's; ``thin`` networks are drawn for linear regions."""
    thin_seeds = tuple(derive_seed(seed, "thin", number) for number in range(thin))
    return Seeds(derive_seed(seed, "weights"), derive_seed(seed, "head"), thin_seeds)


def space_print(space: Space[Any]) -> str:
    """A name for the space with all its settings: those of its first candidate, and that network's shapes."""
    first = space.candidate(0)
    params, _ = space.build(first, "group").init(torch.Generator().manual_seed(0))
    shapes = {name: tuple(value.shape) for name, value in params.items()}
    said = (space.name, space.total, space.shape, space.settings(first, "group"), shapes)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def job_key(space: str, job: ScoringJob, draw: str) -> str:
    """A name for the measurement that no other one has, of the space's name and the digest of the data."""
    said = (space, job._replace(draw=-1), draw, torch.__version__, __version__)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:24]


def measure(space: Space[Any], job: ScoringJob, draw: Draw) -> Measurement:
    """Every score of the job."""
    # conditions, gradients and NASWOT: under group norm with a fresh last layer; SynFlow without; sizes as
    # it is trained; regions on crops by thin networks, if the space has them
    began = time.perf_counter()
    seeds = job.seeds or own_seeds(draw.seed)
    scored = {name: _one(name, space, job, draw, seeds) for name in job.names}
    values = {name: float(each[0]) for name, each in scored.items()}
    reasons = {name: each[1] for name, each in scored.items() if each[1]}
    return Measurement(values, reasons, time.perf_counter() - began)


def _one(name: str, space: Space[Any], job: ScoringJob, draw: Draw, seeds: Seeds) -> tuple[float, str]:
    more = dict(job.settings.get(name, {}))
    if name == REGIONS and space.thin is not None:
        return _regions(space, job, draw, seeds, more)
    entry = find(name)
    norm = "transductive" if entry.takes == "shape" and entry.mixes else "group"
    network = space.build(job.candidate, norm, **job.network)
    params, buffers = _weights(network, seeds.weights, draw.tasks.x_support.dtype)
    if entry.takes != "shape":
        ways = draw.tasks.y_support.unique().numel()
        params = fresh_head(network, params, torch.Generator().manual_seed(seeds.head), ways)
    elif not entry.mixes:  # SynFlow: the same parameters, without normalisation
        network = space.build(job.candidate, "none", **job.network)
    scored: ScoreResult = score(name, network, params, buffers, draw.tasks, **more)
    return scored.value, scored.reason


def _regions(
    space: Space[Any], job: ScoringJob, draw: Draw, seeds: Seeds, settings: dict[str, Any]
) -> tuple[float, str]:
    assert space.thin is not None
    network = space.thin(job.candidate, **job.thin)
    batches: tuple[Tensor, ...] = draw.crops.split(CROP_BATCH)
    counts, reason = [], ""
    for seed in seeds.thin:
        params, buffers = _weights(network, seed, draw.crops.dtype)
        counted = linear_regions(network, params, buffers, batches, **settings)
        counts.append(counted.value)
        reason = counted.reason or reason
    return sum(counts) / len(counts), reason


def _weights(network: Network, seed: int, dtype: torch.dtype) -> tuple[Params, Buffers]:
    params, buffers = network.init(torch.Generator().manual_seed(seed))
    cast = {name: value.to(dtype) if value.is_floating_point() else value for name, value in buffers.items()}
    return {name: value.to(dtype) for name, value in params.items()}, cast


QUIET = 10.0
"""Seconds between two lines."""


class Watch:
    """Counts work that is done and says so now and then."""

    def __init__(
        self,
        total: float,
        what: str,
        say: Callable[[str], None] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.done, self.count = total, 0.0, 0
        self._what, self._say, self._clock = what, say, clock
        self._began = self._said = clock()

    def tick(self, work: float = 1.0, kept: bool = False) -> None:
        """One more is done; what was kept from before took no time."""
        if kept:
            self.total -= work
            return
        self.done, self.count = self.done + work, self.count + 1
        now = self._clock()
        if self._say is None or now - self._said < QUIET:
            return
        self._said = now
        left = (now - self._began) * max(0.0, self.total / self.done - 1)
        self._say(f"{self.count} {self._what}, {duration(round(left))} left")


Tick = Callable[[int, bool], None]
"""Told after every job its place among the jobs, and whether it was kept from an earlier search."""

_DRAWS_HELD = 8


class Bench:
    """Measures jobs of one space on one source of draws: it owns the workers and the file of results."""

    def __init__(
        self, space: Space[Any], draws: Draws, workers: int | None = None, keep: Path | None = None
    ) -> None:
        if workers is not None and workers < 1:
            raise UserError(f"workers={workers} is not a number of processes: give 1 or more.")
        self.keep, self.seconds = keep, 0.0
        self._open = ExitStack()
        self._executor: Executor | None = None
        self._source = self._open.enter_context(_sendable(space, draws))
        self.workers = 1 if self._source is None else workers or available_cores()
        self._held = space, lru_cache(_DRAWS_HELD)(draws)
        self._print = space_print(space)
        self._seen: dict[int, tuple[str, int]] = {}
        self._known = read_measurements(keep) if keep is not None else {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def close(self) -> None:
        """Ends the worker processes."""
        self._open.close()

    def run(self, jobs: Sequence[ScoringJob], tick: Tick = lambda _, __: None) -> list[Measurement]:
        """The measurements, in the order of the jobs."""
        keys = [job_key(self._print, job, self.look(job.draw)[0]) for job in jobs]
        for place, key in enumerate(keys):
            if key in self._known:
                tick(place, True)
        new = {key: place for place, key in enumerate(keys) if key not in self._known}
        todo = sorted(new.values())
        for number, measured in self._measured([jobs[place] for place in todo]):
            self._record(keys[todo[number]], measured)
            tick(todo[number], False)
        return [self._known[key] for key in keys]

    def look(self, draw: int) -> tuple[str, int]:
        """The digest of a repeat's data, and its seed; both are remembered, the data are not for long."""
        if draw not in self._seen:
            made = self._held[1](draw)
            self._seen[draw] = digest(made), made.seed
        return self._seen[draw]

    def _measured(self, jobs: Sequence[ScoringJob]) -> Iterator[tuple[int, Measurement]]:
        if self._source is None or self.workers == 1 or len(jobs) < 2:
            space, draws = self._held
            for place, job in enumerate(jobs):
                with torch_threads(Plan("loop", 1)):  # as workers have: sums in another order differ
                    measured = measure(space, job, draws(job.draw))
                yield place, measured
            return
        if self._executor is None:
            self._executor = self._open.enter_context(open_executor(self.workers))
        yield from as_finished(self._executor, partial(_measure_there, self._source), jobs)

    def _record(self, key: str, result: Measurement) -> None:
        self._known[key] = result
        self.seconds += result.seconds
        if self.keep is not None:
            self.keep.parent.mkdir(parents=True, exist_ok=True)
            with self.keep.open("a", encoding="utf-8") as file:
                file.write(_line(key, result) + "\n")


_SENT: dict[str, tuple[Space[Any], Draws]] = {}
"""Spaces and draws that forked processes have from this one, by name."""


@contextmanager
def _sendable(space: Space[Any], draws: Draws) -> Iterator[str | None]:
    """By what name worker processes have these: forked ones have everything, others what can be pickled."""
    if start_method() == "fork":
        name = f"{id(space)}-{id(draws)}"
        _SENT[name] = space, draws
        try:
            yield name
        finally:
            del _SENT[name]
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / "space.pickle"
        try:
            file.write_bytes(pickle.dumps((space, draws)))
        except Exception:  # pickle raises whatever the object's own methods raise
            yield None
        else:
            yield str(file)


@lru_cache(1)
def _there(source: str) -> tuple[Space[Any], Draws]:
    """In a worker process, once."""
    keep_freed_memory()
    space, draws = _SENT[source] if source in _SENT else pickle.loads(Path(source).read_bytes())
    return space, lru_cache(_DRAWS_HELD)(draws)


def _measure_there(source: str, job: ScoringJob) -> Measurement:
    space, draws = _there(source)
    return measure(space, job, draws(job.draw))


def _line(key: str, result: Measurement) -> str:
    """JSON has no infinities: numbers are written as Python writes them, which is read back bit for bit."""
    values = {name: repr(value) for name, value in result.values.items()}
    return json.dumps({"key": key, "values": values, "reasons": result.reasons, "seconds": result.seconds})


def read_measurements(file: Path) -> dict[str, Measurement]:
    """What an earlier search kept; a line that was being written when it ended is left out."""
    if not file.exists():
        return {}
    text = file.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):  # the last line was cut off: what is appended must not join it
        text = text[: text.rfind("\n") + 1]
        file.write_text(text, encoding="utf-8")
    try:
        rows = [json.loads(line) for line in text.splitlines()]
        return {
            row["key"]: Measurement(
                {name: float(v) for name, v in row["values"].items()}, row["reasons"], row["seconds"]
            )
            for row in rows
        }
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{file} holds no measurements of a search: give another file, or remove it."
        ) from None
