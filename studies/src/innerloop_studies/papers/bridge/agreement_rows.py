"""Rows of ``bridge-agreement``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from innerloop.theory.spectra import log_slope
from innerloop_studies.reproduce.rows import Row, row

METHODS = ("anil", "mtl")
SHRINKS = {"depth 16": True, "depth 64": True, "depth 256": True, "depth 512": True, "floor": True}
RECORDED: dict[str, dict[str, bool]] = {
    # a few steps from the start: pictures are labelled by their common weights
    "smoke": SHRINKS | {"width": False, "recipe depth": False, "recipe floor": True, "pictures": True},
    "cpu": SHRINKS | {"width": True, "recipe depth": False, "recipe floor": True, "pictures": False},
    "paper": SHRINKS | {"width": True, "recipe depth": False, "recipe floor": True, "pictures": False},
}
"""As found at ``smoke`` and ``cpu``; ``paper`` has not been run."""


class Apart(NamedTuple):
    """How far predictions lie apart in one cell, as a share of their own size."""

    gap: float
    anil: float
    mtl: float
    left: float | None

    @property
    def floor(self) -> float:
        """What another seed changes, at least."""
        return min(self.anil, self.mtl)


class Labels(NamedTuple):
    """How often pairs of networks give a picture the same label; how far their probabilities are apart."""

    agreement: float
    distance: float


class PicturesApart(NamedTuple):
    """Networks on picture tasks."""

    gap: Labels
    accuracy: dict[str, list[float]]
    seeds: dict[str, Labels]

    def as_dict(self) -> dict[str, Any]:
        """As plain data, the methods beside the rest."""
        seeds = {method: one._asdict() for method, one in self.seeds.items()}
        return {"gap": self.gap._asdict(), "accuracy": self.accuracy, **seeds}


def theorem_rows(depths: list[int], theorem: dict[int, list[Apart]], scale: str) -> list[Row]:
    """Gradient descent in the theorem's setting."""
    rows, wide = [], max(theorem)
    for width, cells in theorem.items():
        gaps = [one.gap for one in cells]
        slope = log_slope([float(d) for d in depths], gaps)
        rows.append(
            row(
                f"Theorem 1, width {width}: the gap of trained networks shrinks with depth",
                "shrinks",
                _list(gaps) + f" of the predictions' size at L = {depths}; slope {slope:.2f}",
                gaps[-1] < gaps[0] and slope < 0,
                expected=RECORDED[scale][f"depth {width}"],
                reason="holds if the slope on log–log axes is negative and the deepest gap the smaller",
            )
        )
    narrow = min(theorem)
    pairs = list(zip(theorem[narrow], theorem[wide], strict=True))
    rows.append(
        row(
            "Theorem 1: the gap shrinks with width",
            "shrinks (the ε of h > O(ε⁻²))",
            f"{_list([b.gap / a.gap for a, b in pairs])} times from width {narrow} to {wide} at L = {depths}",
            all(b.gap < a.gap for a, b in pairs),
            expected=RECORDED[scale]["width"],
        )
    )
    ratios = [one.gap / one.floor for cells in theorem.values() for one in cells]
    rows.append(
        row(
            "ANIL and MTL from one start are nearer to each other than two seeds of one method",
            "close",
            f"the gap is {min(ratios):.2f} to {max(ratios):.2f} of the smaller distance of two seeds",
            max(ratios) < 1,
            expected=RECORDED[scale]["floor"],
            reason="holds if it is so in every cell",
        )
    )
    return rows


def recipe_rows(depths: list[int], cells: list[Apart], scale: str) -> list[Row]:
    """Adam, as the shipped recipes train."""
    gaps, ratios = [one.gap for one in cells], [one.gap / one.floor for one in cells]
    slope = log_slope([float(d) for d in depths], gaps)
    return [
        row(
            "the recipes (Adam, raw labels): the gap shrinks with depth",
            "shrinks",
            _list(gaps) + f" of the predictions' size at L = {depths}; slope {slope:.2f}",
            gaps[-1] < gaps[0] and slope < 0,
            expected=RECORDED[scale]["recipe depth"],
            reason="far from the lazy regime that the theorem speaks of",
        ),
        row(
            "the recipes: ANIL and MTL from one start are nearer than two seeds of one method",
            "close",
            f"{_list(ratios)} of the smaller distance of two seeds at L = {depths}",
            max(ratios) < 1,
            expected=RECORDED[scale]["recipe floor"],
        ),
    ]


def picture_rows(pictures: PicturesApart, scale: str) -> list[Row]:
    """Labels of pictures."""
    gap, seeds = pictures.gap, pictures.seeds.values()
    floor = max(one.agreement for one in seeds)
    accuracy = ", ".join(f"{m.upper()} {100 * sum(a) / len(a):.1f} %" for m, a in pictures.accuracy.items())
    return [
        row(
            "Conv4, 5-way 5-shot: ANIL and MTL give the same labels as often as two seeds of one do",
            "close",
            f"{100 * gap.agreement:.1f} % of labels against {100 * floor:.1f} % (two seeds, the better of "
            f"both methods); probabilities {gap.distance:.3f} apart against "
            f"{min(one.distance for one in seeds):.3f}; accuracy {accuracy}",
            gap.agreement >= floor,
            expected=RECORDED[scale]["pictures"],
        )
    ]


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
