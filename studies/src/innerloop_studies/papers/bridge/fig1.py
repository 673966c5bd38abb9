"""Bridge, Figure 1: ‖F_ANIL − F_MTL‖ against depth and λτ, with analytic kernels and the paper's own way."""

from __future__ import annotations

from typing import Any

from innerloop.kernels.analytic.networks import mlp_kernel
from innerloop.kernels.meta.predict import MeanError, mean_error
from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop_studies.papers.bridge import fig1_paper as paper
from innerloop_studies.papers.bridge.corollary import DEEP, RESIDUAL, gap_rows, residual_gaps
from innerloop_studies.papers.bridge.fig1_gaps import (
    DEPTH,
    DEPTHS,
    TIMES,
    by_time,
    cancellation,
    depth_gaps,
    draw,
    kept,
)
from innerloop_studies.papers.bridge.fig1_rows import depth_rows, time_rows
from innerloop_studies.reproduce.rows import Reproduction, Say

SIZES = {"smoke": (1, 1), "cpu": (40, 5), "paper": (40, 40)}
"""Draws for the depths (shared heads), and for everything else."""


def run(scale: str, say: Say) -> Reproduction:
    """Gaps by depth and network, by λτ (six variants), and both from empirical kernels."""
    draws, few = SIZES[scale]
    tasks = [draw(seed) for seed in range(max(draws, few))]
    by_draw = [depth_gaps(mlp_kernel(depth), tasks[:draws]) for depth in DEPTHS]
    apart = [depth_gaps(mlp_kernel(depth), tasks[:few], heads="independent") for depth in DEPTHS]
    gaps = {"shared": [mean_error(v) for v in by_draw], "independent": [mean_error(v) for v in apart]}
    five = [mean_error(values[:5]).mean for values in by_draw]
    shown = [f"L={d}: {g.mean:.2f}" for d, g in zip(DEPTHS, gaps["shared"], strict=True)]
    say("by depth: " + ", ".join(shown))
    residual = residual_gaps([(one.train, one.test) for one in tasks[:few]])
    times = by_time(tasks[:few], [kept(mlp_kernel(DEPTH), one) for one in tasks[:few]])
    off = cancellation(mlp_kernel(DEPTH), tasks[0])
    empirical = paper.compute(scale, say)
    rows = depth_rows(gaps, five, draws) + gap_rows(residual) + time_rows(times, off)
    rows += paper.rows(empirical, scale)
    data: dict[str, Any] = {
        "depths": DEPTHS,
        "times": TIMES,
        "by_depth": _plain(gaps),
        "five_draws": five,
        "by_time": _plain(times),
        "residual": _plain(residual),
        "residual_depths": DEEP,
        "cancellation": off,
        "paper": empirical.as_dict(),
    }
    figures = {"bridge-fig1": _figure(gaps, times, residual), "bridge-fig1-paper": _paper_figure(empirical)}
    return Reproduction(rows, figures, data, _protocol(draws, few, empirical))


def _protocol(draws: int, few: int, empirical: paper.DrawnGaps) -> dict[str, Any]:
    return {
        "draws": f"{draws} for the depths with shared heads, {few} for independent heads, residual networks "
        f"and λτ, {empirical.draws} for empirical kernels, a network each",
        "tasks": "20 training tasks × 10, 20 test tasks, 5 support and 10 query samples, d = 10; ‖x‖ = √d, "
        "for empirical kernels as drawn",
        "test time ŝ": 1.0,
        "kernels": f"analytic, ReLU, He's initialisation; empirical of width {empirical.width}",
        "error": "standard error over draws",
        "seeds": f"0 to {draws - 1}",
    }


def _plain(gaps: dict[str, list[MeanError]]) -> dict[str, list[dict[str, float]]]:
    return {name: [one._asdict() for one in each] for name, each in gaps.items()}


def _figure(
    gaps: dict[str, list[MeanError]], times: dict[str, list[MeanError]], residual: dict[str, list[MeanError]]
) -> Any:
    shared = [g.mean for g in gaps["shared"]]
    law = [shared[0] * DEPTHS[0] / d for d in DEPTHS]
    by_depth = [_line(f"{heads} heads", DEPTHS, each) for heads, each in gaps.items()]
    by_depth += [_line(RESIDUAL[name], DEEP, each) for name, each in residual.items()]
    return panels_figure(
        [
            panel(
                "depth L",
                "‖F_ANIL − F_MTL‖, λτ = 0",
                [*by_depth, line("∝ 1/L", DEPTHS, law)],
                log_x=True,
                log_y=True,
            ),
            panel(
                "λτ",
                f"‖F_ANIL − F_MTL‖, L = {DEPTH}, shared heads",
                [_line(name, TIMES, each) for name, each in times.items()],
                log_y=True,
            ),
        ]
    )


def _line(name: str, x: Any, gaps: list[MeanError]) -> Any:
    return line(name, x, [g.mean for g in gaps], [g.error for g in gaps])


def _paper_figure(empirical: paper.DrawnGaps) -> Any:
    return panels_figure(paper.panels(empirical))
