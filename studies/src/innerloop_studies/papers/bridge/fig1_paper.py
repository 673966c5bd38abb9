"""Bridge, Figure 1 the paper's way: empirical kernels of drawn networks, inputs not rescaled."""

from __future__ import annotations

from typing import Any, NamedTuple

from innerloop.kernels.meta.predict import MeanError, mean_error
from innerloop.kernels.types import KernelFunction
from innerloop.report.plots.panels import Panel, line, panel
from innerloop.theory.spectra import log_slope
from innerloop_studies.papers.bridge.fig1_gaps import (
    DEPTH,
    DEPTHS,
    LEMMA,
    PRINTED,
    TIMES,
    by_time,
    depth_gaps,
    draw,
    drawn_kernel,
    printed_gap,
)
from innerloop_studies.papers.bridge.fig1_rows import time_row
from innerloop_studies.reproduce.rows import Row, Say, row

SIZES = {"smoke": (1, 32), "cpu": (5, 512), "paper": (5, 512)}
"""Draws of tasks and network, and width; the paper's are 5 and 512."""
_GROWING = ("finite t: ηt = 0.05", "t = ∞, split 10 + 10")
RISES: dict[str, tuple[str, ...]] = {"smoke": (), "cpu": _GROWING, "paper": _GROWING}
"""Variants that are recorded as growing with λτ, but for one dip at the smallest."""

EXACT = 0.05
"""Up to this λτ the printed formula keeps digits in float64."""
PRINTED_TIMES = [*TIMES, 1.0]
"""One more: there e^{−λτ‖K‖} is below the rounding of every precision."""


class DrawnGaps(NamedTuple):
    """Gaps from empirical kernels."""

    draws: int
    width: int
    by_depth: list[MeanError]
    by_time: dict[str, list[MeanError]]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        by_time = {name: [one._asdict() for one in gaps] for name, gaps in self.by_time.items()}
        return {**self._asdict(), "by_depth": [one._asdict() for one in self.by_depth], "by_time": by_time}


def compute(scale: str, say: Say) -> DrawnGaps:
    """Gaps by depth and by λτ; every draw has tasks and a network of its own."""
    draws, width = SIZES[scale]
    tasks = [draw(seed, sphere=False) for seed in range(draws)]
    depths: list[MeanError] = []
    kernels: list[KernelFunction] = []
    for depth in DEPTHS:
        here = [drawn_kernel(one, seed, width, depth) for seed, one in enumerate(tasks)]
        gaps_here = [depth_gaps(kernel, [one])[0] for one, kernel in zip(tasks, here, strict=True)]
        depths.append(mean_error(gaps_here))
        kernels = here if depth == DEPTH else kernels
        say(f"empirical kernels of width {width}, L = {depth}: {depths[-1].mean:.2f}")
    times = by_time(tasks, kernels)
    for name, dtype in PRINTED.items():
        times[f"as printed, {name}"] = [
            mean_error(
                [printed_gap(kernel, one, time, dtype) for one, kernel in zip(tasks, kernels, strict=True)]
            )
            for time in PRINTED_TIMES
        ]
    return DrawnGaps(draws, width, depths, times)


def rows(drawn: DrawnGaps, scale: str) -> list[Row]:
    """What Figure 1 shows, beside what its own computation gives."""
    width, by_depth = drawn.width, [one.mean for one in drawn.by_depth]
    slope = log_slope([float(d) for d in DEPTHS], by_depth)
    how = f"empirical kernels of width {width}, inputs not rescaled"
    out = [
        row(
            f"Figure 1, left, the paper's way ({how}): the gap falls with L",
            "falls",
            ", ".join(f"{value:.1f}" for value in by_depth) + f" at L = {DEPTHS}; slope {slope:.2f}",
            by_depth[-1] < by_depth[0],
        )
    ]
    for name, gaps in drawn.by_time.items():
        means = [one.mean for one in gaps]
        if name.startswith("as printed"):
            out.append(_printed_row(f"Figure 1, right, the paper's way: Lemma 1 {name}", means))
        elif name == LEMMA:
            out.append(_cancelled_row(means[0], drawn.by_time["as printed, float64"]))
        else:
            what = f"Figure 1, right, the paper's way: {name}"
            out.append(time_row(what, means, name in RISES[scale]))
    return out


def _cancelled_row(cancelled: float, printed: list[MeanError]) -> Row:
    """Whether λτ is in Lemma 1 at all: the formula without it beside the printed one, in float64."""
    small = [time for time in PRINTED_TIMES if time <= EXACT]
    off = max(abs(printed[PRINTED_TIMES.index(time)].mean / cancelled - 1) for time in small)
    return row(
        f"Figure 1, right, the paper's way: Lemma 1 has a gap of its own for every λτ up to {EXACT:g}",
        "grows",
        f"with λτ cancelled {cancelled:.4g}; as printed (float64) at most {off:.0e} off at λτ = {small}",
        off > 1e-3,
        expected=False,
        reason="λτ cancels; a difference below 10⁻³ is rounding",
    )


def _printed_row(what: str, means: list[float]) -> Row:
    exact = [m for m in means if abs(m / means[0] - 1) < 1e-3]
    last = PRINTED_TIMES[len(exact) - 1]
    return row(
        what,
        "grows",
        ", ".join(f"{m:.4g}" for m in means) + f" at λτ = {PRINTED_TIMES}",
        max(means) > 1.02 * means[0] and min(means) > 0.98 * means[0],
        reason=f"constant to 0.1 % up to λτ = {last:g}; what grows beyond is the rounding error of Φ_ANIL⁻¹, "
        "whose condition is e^{2λτ‖K‖} times that of Θ",
    )


def panels(drawn: DrawnGaps) -> list[Panel]:
    """The same two panels as with analytic kernels."""
    return [
        panel(
            "depth L",
            f"‖F_ANIL − F_MTL‖, λτ = 0, width {drawn.width}",
            [line("empirical kernels", DEPTHS, [one.mean for one in drawn.by_depth])],
            log_x=True,
            log_y=True,
        ),
        panel(
            "λτ",
            f"‖F_ANIL − F_MTL‖, L = {DEPTH}, width {drawn.width}",
            [
                line(name, PRINTED_TIMES[: len(gaps)], [one.mean for one in gaps])
                for name, gaps in drawn.by_time.items()
            ],
            log_y=True,
        ),
    ]
