"""One measurement: every asked score of one architecture on one repeat's data. Plain data in and out."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop._version import __version__
from innerloop.choose.architectures.draws import CROP_BATCH, Draw
from innerloop.choose.architectures.space import Space
from innerloop.choose.scores.conditions import fresh_head
from innerloop.choose.scores.patterns import linear_regions
from innerloop.choose.scores.table import find
from innerloop.choose.scores.tell import Scored, score
from innerloop.core.random import derive_seed
from innerloop.core.types import Buffers, Params
from innerloop.nets.network import Network

REGIONS = "regions"


class Seeds(NamedTuple):
    """Where the random numbers of a network come from."""

    weights: int
    head: int
    thin: tuple[int, ...]


class Job(NamedTuple):
    """What is measured, as plain data that can be sent to another process."""

    candidate: Any
    names: tuple[str, ...]
    draw: int
    seeds: Seeds | None = None
    network: Mapping[str, Any] = {}
    thin: Mapping[str, Any] = {}
    settings: Mapping[str, Mapping[str, Any]] = {}


class Measured(NamedTuple):
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


def job_key(space: str, job: Job, draw: str) -> str:
    """A name for the measurement that no other one has, of the space's name and the digest of the data."""
    said = (space, job._replace(draw=-1), draw, torch.__version__, __version__)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:24]


def measure(space: Space[Any], job: Job, draw: Draw) -> Measured:
    """Every score of the job.

    Condition numbers, gradients and NASWOT are those of the network under group norm with a fresh last layer
    of as many outputs as a task has classes; SynFlow that of the network without normalisation; sizes those
    of the network as it is trained; regions are counted on crops by thin networks, if the space has them.
    """
    began = time.perf_counter()
    seeds = job.seeds or own_seeds(draw.seed)
    scored = {name: _one(name, space, job, draw, seeds) for name in job.names}
    values = {name: float(each[0]) for name, each in scored.items()}
    reasons = {name: each[1] for name, each in scored.items() if each[1]}
    return Measured(values, reasons, time.perf_counter() - began)


def _one(name: str, space: Space[Any], job: Job, draw: Draw, seeds: Seeds) -> tuple[float, str]:
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
    scored: Scored = score(name, network, params, buffers, draw.tasks, **more)
    return scored.value, scored.reason


def _regions(
    space: Space[Any], job: Job, draw: Draw, seeds: Seeds, settings: dict[str, Any]
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
