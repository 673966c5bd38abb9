"""Figures as files: a PNG for people, an SVG for pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from innerloop.report.plots.svg import figure_to_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_figures(folder: Path, figures: Mapping[str, Figure]) -> list[str]:
    """Writes every figure as ``STEM.png`` and ``STEM.svg``; returns the paths of the PNGs, in order."""
    written = []
    for stem, figure in figures.items():
        figure.savefig(folder / f"{stem}.png", dpi=160, facecolor="white")
        (folder / f"{stem}.svg").write_text(figure_to_svg(figure, stem), encoding="utf-8")
        written.append(str(folder / f"{stem}.png"))
    return written
