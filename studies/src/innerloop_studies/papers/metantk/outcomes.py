"""What searches and trainings of MetaNTK-NAS' tables give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Searched(NamedTuple):
    """One search."""

    genotype: Mapping[str, Any]
    scores: Mapping[str, float]
    reliability: Mapping[str, Any]
    measured: int
    seconds: float
    parameters: int


class Trained(NamedTuple):
    """One training."""

    seconds: float
    steps: int
    parameters: int
    scores: dict[str, list[float]]


class CaseRun(NamedTuple):
    """Search, training and test of one case."""

    genotype: Any
    search: Searched | None
    training: Trained
