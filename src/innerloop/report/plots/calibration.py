"""Calibration: how often labels were right against how probable they were called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from innerloop.report.plots.style import INK, colour, label, legend, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 15
"""As many as the expected calibration error is commonly taken over."""


class Calibration(TypedDict):
    """Per bin of equal width: labels in it, their mean probability and their share that is right.

    Bins without labels are left out of ``called`` and ``right``. ``error`` is the expected calibration error,
    the mean distance between the two over all labels.
    """

    counts: list[int]
    called: list[float]
    right: list[float]
    error: float


def calibration_data(probability: Sequence[float], right: Sequence[bool], bins: int = BINS) -> Calibration:
    """From the probability of every label that was given, and whether it is right.

    Args:
        probability: of the label that was given.
        right: whether that label is right.
        bins: of equal width from 0 to 1.

    >>> data = calibration_data([0.8, 0.8, 0.3], [True, False, False], bins=2)
    >>> data["counts"], data["right"], round(data["error"], 3)
    ([1, 2], [0.0, 0.5], 0.3)
    """
    called, hits = np.asarray(probability, np.float64), np.asarray(right, np.float64)
    place = np.clip(np.ceil(called * bins).astype(np.int64), 1, bins) - 1
    counts = np.bincount(place, minlength=bins)
    sums = [np.bincount(place, weights=values, minlength=bins) for values in (called, hits)]
    full = counts > 0
    means = [(total[full] / counts[full]).tolist() for total in sums]
    error = float(np.abs(sums[0] - sums[1]).sum() / max(1, len(called)))
    return {"counts": counts.tolist(), "called": means[0], "right": means[1], "error": error}


def calibration_figure(data: Calibration) -> Figure:
    """Draws :func:`calibration_data`: right against called above, how many labels of each below."""
    figure, (above, below) = new_figure(rows=2, height=4.2)
    above.plot(
        [0, 100], [0, 100], color=INK, alpha=0.5, linewidth=1.0, linestyle=(0, (4, 3)), label="as called"
    )
    called, right = ([100 * share for share in shares] for shares in (data["called"], data["right"]))
    above.plot(called, right, color=colour(0), linewidth=1.8, marker="o", markersize=4, label="these labels")
    above.set_xlim(0, 100)
    above.set_ylim(0, 103)
    edges = np.linspace(0, 100, len(data["counts"]) + 1)
    below.stairs(data["counts"], edges, fill=True, color=colour(0), alpha=0.45)
    legend(above, loc="upper left")
    label(above, y="right, per cent")
    label(below, x="how probable the label was called, per cent", y="labels")
    return figure
