"""Pictures of analyses, from plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from innerloop.report.plots.panels import line, panel, panels_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def bound_figure(loss: Sequence[float], bound: Sequence[float]) -> Figure:
    """The loss along training beside its bound."""
    steps = list(range(len(loss)))
    lines = [line("training loss", steps, loss), line("bound", steps, bound)]
    part = panel("outer steps", "training loss and its bound", lines, log_y=True)
    return panels_figure([part], width=5.5)


def spectrum_figure(name: str, eigenvalues: Sequence[float]) -> Figure:
    """A spectrum; eigenvalues that rounding made negative or zero are left out."""
    values = [value for value in eigenvalues if value > 0]
    series = line(name, range(1, len(values) + 1), values, dots=True)
    return panels_figure([panel("rank", "eigenvalue", [series], log_y=True)], width=5.5)
