"""Networks that ``bridge-agreement`` trains, and what each of them answers."""

from __future__ import annotations

from typing import NamedTuple


class Wide(NamedTuple):
    """One network on the quadratic tasks."""

    method: str
    depth: int
    width: int
    seed: int
    steps: int
    regime: str


class Pictures(NamedTuple):
    """One Conv4 on picture tasks."""

    method: str
    seed: int
    steps: int
    episodes: int
    filters: int
    data: str


class WideAnswers(NamedTuple):
    """What a network on the quadratic tasks predicts."""

    outputs: list[list[float | None]]
    left: float | None


class PictureAnswers(NamedTuple):
    """Class probabilities, in thousandths, for the queries of the test tasks, and the accuracy."""

    thousandths: list[list[int]]
    accuracy: float
