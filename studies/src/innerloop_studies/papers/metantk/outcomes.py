"""What searches and trainings of MetaNTK-NAS' tables give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Searched(NamedTuple):
    """One search.

    Attributes:
        genotype: the cell, as a table.
        scores: of the cell, by name.
        reliability: as the search tells it.
        measured: how many measurements were made.
        seconds: of one core: processor time; of a search that went on after an interruption, time by the
            clock of all its measurements.
        parameters: of the network, without the last layer.
    """

    genotype: Mapping[str, Any]
    scores: Mapping[str, float]
    reliability: Mapping[str, Any]
    measured: int
    seconds: float
    parameters: int


class Trained(NamedTuple):
    """One training.

    Attributes:
        seconds: of one core.
        steps: of training.
        parameters: of the network, the last layer among them.
        scores: accuracy of every test task, by name of the head.
    """

    seconds: float
    steps: int
    parameters: int
    scores: dict[str, list[float]]


class CaseRun(NamedTuple):
    """Search, training and test of one case.

    Attributes:
        genotype: the cell, as a table, or the name of a published one.
        search: None if nothing was searched.
        training: and test.
    """

    genotype: Any
    search: Searched | None
    training: Trained
