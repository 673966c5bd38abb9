"""Curves of runs: meta-loss and validation over training, scores over inner steps, a task adapted to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from innerloop.report.plots.style import (
    INK,
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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMOOTH_FROM = 40  # with more points than this a running median is drawn over the noisy losses


class TrainingCurve(TypedDict):
    """What the picture shows; plain lists, so it can be saved as JSON."""

    steps: list[int]
    loss: list[float]
    trend: list[float]
    loss_name: str
    validation_steps: list[int]
    validation: list[float]
    ci95: list[float]
    score: str
    one_axis: bool


def training_curve_data(metrics: Iterable[Mapping[str, Any]], loss_name: str = "") -> TrainingCurve:
    """From the lines of ``metrics.jsonl``. A step met twice (after a resume) counts once, as last written.

    Loss and validation share an axis only if they measure the same thing: ``loss_name`` equals the score.

    >>> lines = [{"step": 1, "loss": 4.0}, {"step": 2, "loss": 3.0}]
    >>> lines += [{"step": 2, "validation": 2.5, "ci95": 0.1, "score": "mse"}]
    >>> data = training_curve_data(lines, loss_name="mse")
    >>> data["steps"], data["loss"], data["validation"], data["one_axis"]
    ([1, 2], [4.0, 3.0], [2.5], True)
    """
    losses: dict[int, float] = {}
    checks: dict[int, tuple[float, float]] = {}
    score = ""
    for line in metrics:
        if _finite(line.get("loss")):
            losses[int(line["step"])] = float(line["loss"])
        if _finite(line.get("validation")):
            half = float(line["ci95"]) if _finite(line.get("ci95")) else 0.0
            checks[int(line["step"])] = (float(line["validation"]), half)
            score = str(line.get("score", score))
    steps, marks = sorted(losses), sorted(checks)
    loss = [losses[step] for step in steps]
    return {
        "steps": steps,
        "loss": loss,
        "trend": running_median(loss) if len(loss) > SMOOTH_FROM else [],
        "loss_name": loss_name,
        "validation_steps": marks,
        "validation": [checks[step][0] for step in marks],
        "ci95": [checks[step][1] for step in marks],
        "score": score,
        "one_axis": bool(score) and loss_name == score,
    }


def running_median(values: list[float]) -> list[float]:
    """Median over a centred window of a twentieth of the run; shorter at the ends."""
    reach = len(values) // 40
    return [statistics.median(values[max(0, i - reach) : i + reach + 1]) for i in range(len(values))]


def training_curve_figure(data: TrainingCurve) -> Figure:
    """Draws :func:`training_curve_data`: one panel, or two when loss and score are different things."""
    two = bool(data["validation"]) and bool(data["loss"]) and not data["one_axis"]
    figure, axes = new_figure(rows=2 if two else 1, height=4.2 if two else 3.1)
    if data["loss"]:
        _draw_loss(axes[0], data)
    if data["validation"]:
        _draw_validation(axes[-1], data)
    shown = [data["loss"], data["validation"]] if two else [data["loss"] + data["validation"]]
    scores = ["", data["score"]] if two else [data["score"]]
    for panel, values, score in zip(axes, shown, scores, strict=True):
        if wants_log(values, score):
            log_scale(panel, values)
        legend(panel, loc="upper right")
    whole_steps(axes[-1])
    label(axes[-1], x="meta-steps")
    label(axes[0], y=_loss_title(data, two))
    if two:
        label(axes[1], y=f"validation {data['score']}, with 95 % interval")
    return figure


def _loss_title(data: TrainingCurve, two: bool) -> str:
    name = f" ({data['loss_name']})" if data["loss_name"] else ""
    if two or not data["validation"]:
        return f"meta-loss{name}"
    return data["score"] if data["one_axis"] else f"validation {data['score']}"


def _draw_loss(axes: Axes, data: TrainingCurve) -> None:
    faint = bool(data["trend"])
    axes.plot(
        data["steps"],
        data["loss"],
        color=colour(0),
        linewidth=0.9 if faint else 1.6,
        alpha=0.35 if faint else 1.0,
        marker="o" if len(data["steps"]) == 1 else None,
        label=None if faint else "training tasks",
    )
    if faint:
        axes.plot(data["steps"], data["trend"], color=colour(0), linewidth=1.8, label="training tasks")


def _draw_validation(axes: Axes, data: TrainingCurve) -> None:
    axes.errorbar(
        data["validation_steps"],
        data["validation"],
        yerr=data["ci95"],
        color=colour(1),
        linewidth=1.6,
        elinewidth=1.1,
        capsize=2.5,
        marker="o",
        markersize=3.5,
        label="held-out tasks",
    )


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


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


class SinusoidPicture(TypedDict):
    """Curves on a common grid ``x``, sorted, and the support points."""

    x: list[float]
    truth: list[float]
    before: list[float]
    after: list[float]
    x_support: list[float]
    y_support: list[float]
    steps: int


def sinusoid_data(
    x: Iterable[float],
    truth: Iterable[float],
    before: Iterable[float],
    after: Iterable[float],
    x_support: Iterable[float],
    y_support: Iterable[float],
    steps: int,
) -> SinusoidPicture:
    """Sorts the curves by ``x``. Takes lists or one-dimensional tensors.

    Args:
        x: places of the curves, in any order.
        truth: the task's own function there.
        before: the prediction before adaptation.
        after: the prediction after it.
        x_support: inputs of the support set.
        y_support: their targets.
        steps: inner steps between ``before`` and ``after``.

    >>> data = sinusoid_data([2.0, 1.0], [0.2, 0.1], [0.0, 0.0], [0.2, 0.1], [1.5], [0.15], steps=5)
    >>> data["x"], data["truth"]
    ([1.0, 2.0], [0.1, 0.2])
    """
    rows = sorted(zip(*map(_floats, (x, truth, before, after)), strict=True))
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    return {
        "x": columns[0],
        "truth": columns[1],
        "before": columns[2],
        "after": columns[3],
        "x_support": _floats(x_support),
        "y_support": _floats(y_support),
        "steps": steps,
    }


def _floats(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values]


def sinusoid_figure(data: SinusoidPicture) -> Figure:
    """Draws :func:`sinusoid_data`: truth in ink, prediction before (dashed) and after adaptation."""
    figure, (axes,) = new_figure()
    steps = f"{data['steps']} step" + ("" if data["steps"] == 1 else "s")
    axes.plot(data["x"], data["truth"], color=INK, linewidth=1.4, alpha=0.8, label="true function")
    axes.plot(
        data["x"], data["before"], color=colour(0), linewidth=1.4, linestyle=(0, (4, 2)), label="before"
    )
    axes.plot(data["x"], data["after"], color=colour(1), linewidth=2.0, label=f"after {steps}")
    axes.plot(
        data["x_support"],
        data["y_support"],
        linestyle="none",
        marker="o",
        markersize=5.5,
        markerfacecolor=colour(2),
        markeredgecolor=colour(2),
        label="support points",
    )
    axes.legend(
        *axes.get_legend_handles_labels(),
        frameon=False,
        fontsize=9.0,
        labelcolor=INK,
        ncols=2,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        handlelength=1.8,
    )
    label(axes, x="x")
    return figure
