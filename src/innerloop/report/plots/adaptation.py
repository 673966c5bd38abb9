"""The adaptation curve: score on held-out tasks against the number of inner steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from innerloop.report.plots.style import (
    colour,
    dash,
    label,
    legend,
    log_scale,
    new_figure,
    wants_log,
    whole_steps,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class AdaptationRun(TypedDict):
    """One line of the picture and its 95 % band."""

    name: str
    steps: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


class AdaptationCurve(TypedDict):
    """Several runs under one score."""

    score: str
    runs: list[AdaptationRun]
    log: bool


def adaptation_curve_data(evaluations: Mapping[str, Mapping[str, Any]]) -> AdaptationCurve:
    """From evaluations by name (as in ``eval/*.json``); those without ``by_step`` are left out.

    >>> row = {"steps": 0, "mean": 4.0, "ci95": 0.5}
    >>> data = adaptation_curve_data({"maml": {"score": "mse", "by_step": [row]}})
    >>> data["runs"][0]["low"], data["runs"][0]["high"]
    ([3.5], [4.5])
    """
    runs: list[AdaptationRun] = []
    score = ""
    for name, evaluation in evaluations.items():
        rows = sorted(evaluation.get("by_step") or [], key=lambda row: int(row["steps"]))
        if not rows:
            continue
        score = score or str(evaluation.get("score", "score"))
        if str(evaluation.get("score", "score")) != score:
            raise ValueError(
                f"'{name}' reports {evaluation.get('score')}, the others {score}: draw them apart"
            )
        mean = [float(row["mean"]) for row in rows]
        half = [float(row.get("ci95") or 0.0) for row in rows]
        runs.append(
            {
                "name": name,
                "steps": [int(row["steps"]) for row in rows],
                "mean": mean,
                "low": [m - h for m, h in zip(mean, half, strict=True)],
                "high": [m + h for m, h in zip(mean, half, strict=True)],
            }
        )
    means = [mean for run in runs for mean in run["mean"]]
    return {"score": score, "runs": runs, "log": wants_log(means, score)}


def adaptation_curve_figure(data: AdaptationCurve) -> Figure:
    """Draws :func:`adaptation_curve_data`: a line with markers per run, its 95 % band behind it."""
    figure, (axes,) = new_figure()
    means = [mean for run in data["runs"] for mean in run["mean"]]
    if data["log"]:
        log_scale(axes, means)
    least = min(means, default=1.0)
    for i, run in enumerate(data["runs"]):
        # a band that reaches below zero has no place on a logarithmic axis: cut it under the lowest line
        low = [max(value, least / 2) for value in run["low"]] if data["log"] else run["low"]
        axes.fill_between(run["steps"], low, run["high"], color=colour(i), alpha=0.2, linewidth=0)
        axes.plot(
            run["steps"],
            run["mean"],
            color=colour(i),
            linestyle=dash(i),
            linewidth=1.8,
            marker="o",
            markersize=4,
            label=run["name"],
        )
    whole_steps(axes)
    label(axes, x="inner steps on the support set", y=f"{data['score']} on held-out tasks, 95 % band")
    legend(axes, loc="best")
    return figure
