"""One training run behind Bridge's picture tables, as rows and figures read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class ValidationPoint(NamedTuple):
    """One validation along the way."""

    step: int
    validation: float
    ci95: float
    seconds: float


class PictureRun(NamedTuple):
    """A trained network, how it came about, and how it was judged."""

    curve: list[ValidationPoint]
    seconds: float
    steps: int
    best_step: int
    best_seconds: float
    scores: dict[str, list[float]]
    penalties: dict[str, list[float]]

    def as_dict(self) -> dict[str, Any]:
        """As plain data, which a finished part keeps."""
        return {**self._asdict(), "curve": [point._asdict() for point in self.curve]}


def picture_run(kept: Mapping[str, Any]) -> PictureRun:
    """A run, from the plain data that a finished part keeps."""
    return PictureRun(**{**kept, "curve": [ValidationPoint(**point) for point in kept["curve"]]})
