"""What only some benchmarks have in their JSON: the growth of predictions, the cost of ranks."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Growth(TypedDict):
    """Times of predictions, in the JSON of the benchmark."""

    points: list[int]
    seconds: dict[str, list[float]]
    outputs: int
    depth: int
    exponent: NotRequired[dict[str, float]]


class Extrapolated(TypedDict):
    """One way at one size, in the JSON of the benchmark."""

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
    """The cost model of one number of inner steps, in the JSON of the benchmark."""

    step: dict[str, float]
    link: dict[str, float]
    measured_speed_up: dict[int, float]
    extrapolated: list[Extrapolated]
