"""What only some benchmarks have in their JSON: the growth of predictions, the cost of ranks."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Growth(TypedDict):
    """Times of predictions, in the JSON of the benchmark.

    Attributes:
        points: training samples.
        seconds: of a fit and its predictions, by method.
        outputs: of the network.
        depth: of the network.
        exponent: the power by which they grow, by method, where that can be told.
    """

    points: list[int]
    seconds: dict[str, list[float]]
    outputs: int
    depth: int
    exponent: NotRequired[dict[str, float]]


class Extrapolated(TypedDict):
    """One way at one size, in the JSON of the benchmark.

    Attributes:
        way: name of it.
        cores: in all.
        ranks: that share them.
        tasks: of a step.
        grows: whether the batch grows with the cores.
        ms: milliseconds of a step.
        all_reduce_ms: of them, the exchange.
        speed_up: over one core.
        efficiency: speed-up for every core.
    """

    way: str
    cores: int
    ranks: int
    tasks: int
    grows: bool
    ms: float
    all_reduce_ms: float
    speed_up: float
    efficiency: float


class CostModel(TypedDict):
    """The cost model of one number of inner steps, in the JSON of the benchmark.

    Attributes:
        step: a :class:`~innerloop_studies.bench.cost_model.Step` by name.
        link: a :class:`~innerloop_studies.bench.cost_model.Link` by name.
        measured_speed_up: on this machine, by ranks.
        extrapolated: to others.
    """

    step: dict[str, float]
    link: dict[str, float]
    measured_speed_up: dict[int, float]
    extrapolated: list[Extrapolated]
