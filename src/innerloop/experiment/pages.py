"""Pages about runs, with the one picture that needs the run's network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from innerloop.report.page import write_page

if TYPE_CHECKING:
    from innerloop.report.plots.sinusoid import SinusoidPicture


def write_report(runs: list[Path], out: Path | None = None) -> Path:
    """As :func:`innerloop.report.write_page`, with the picture of a held-out task."""
    return write_page(runs, out, _held_out)


def _held_out(run: Path) -> SinusoidPicture | None:
    from innerloop.experiment.held_out import adapted_data  # imports torch, which other pages do without

    return adapted_data(run)
