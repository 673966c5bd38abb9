"""Figures: the data functions are exact, the renderers draw that data and nothing global."""

import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from innerloop.report import plots
from innerloop.report.plots.curves import SMOOTH_FROM
from innerloop.report.plots.style import COLOURS, INK, wants_log


def metrics(steps=20, score="mse"):
    lines = [{"step": s, "loss": 4.0 / s, "grad_norm": 1.0, "lr": 1e-3} for s in range(1, steps + 1)]
    lines += [{"step": s, "validation": 3.0 / s, "ci95": 0.1, "episodes": 9, "score": score} for s in (5, 10)]
    return lines


def evaluation(start=4.0):
    rows = [{"steps": k, "mean": start * 0.5**k, "ci95": 0.01} for k in range(5)]
    return {"score": "mse", "by_step": rows, "scores": [0.1, 0.2, 0.4]}


def all_figures():
    x = [i / 10 for i in range(-50, 51)]
    sine = [math.sin(v) for v in x]
    return {
        "training": plots.training_curve_figure(plots.training_curve_data(metrics(), "mse")),
        "two-panels": plots.training_curve_figure(
            plots.training_curve_data(metrics(score="accuracy"), "cross-entropy")
        ),
        "adaptation": plots.adaptation_curve_figure(
            plots.adaptation_curve_data({"maml": evaluation(), "anil": evaluation(3.0)})
        ),
        "histogram": plots.score_histogram_figure(
            plots.score_histogram_data({"maml": [0.1, 0.2, 0.4], "anil": [0.3, 0.3, 0.5]}, "mse")
        ),
        "sinusoid": plots.sinusoid_figure(plots.sinusoid_data(x, sine, [0.0] * 101, sine, [0.0], [0.0], 5)),
    }


def test_training_data_takes_the_last_word_on_a_step_and_drops_non_finite():
    lines = [{"step": 2, "loss": 1.0}, {"step": 1, "loss": 9.0}, {"step": 2, "loss": 2.0}]
    lines += [{"step": 3, "loss": None}, {"step": 4, "loss": math.inf}, {"step": 5, "loss": math.nan}]
    data = plots.training_curve_data(lines)
    assert data["steps"] == [1, 2]
    assert data["loss"] == [9.0, 2.0]
    assert data["validation"] == []
    assert not data["one_axis"]


def test_loss_and_score_share_an_axis_only_when_they_are_the_same_thing():
    assert plots.training_curve_data(metrics(), "mse")["one_axis"]
    assert not plots.training_curve_data(metrics(), "half-mse")["one_axis"]
    one = plots.training_curve_figure(plots.training_curve_data(metrics(), "mse"))
    two = plots.training_curve_figure(plots.training_curve_data(metrics(), "half-mse"))
    assert (len(one.axes), len(two.axes)) == (1, 2)


def test_long_runs_get_a_trend_that_ignores_an_outlier():
    lines = [{"step": s, "loss": 1.0 if s != 50 else 1000.0} for s in range(1, 101)]
    data = plots.training_curve_data(lines)
    assert data["loss"][49] == 1000.0
    assert data["trend"] == [1.0] * 100
    assert plots.training_curve_data(lines[:SMOOTH_FROM])["trend"] == []


def test_error_bars_and_bands_are_the_intervals_given():
    data = plots.adaptation_curve_data({"maml": evaluation()})
    (run,) = data["runs"]
    assert run["steps"] == [0, 1, 2, 3, 4]
    assert run["low"] == pytest.approx([m - 0.01 for m in run["mean"]])
    assert run["high"] == pytest.approx([m + 0.01 for m in run["mean"]])
    figure = plots.adaptation_curve_figure(data)
    (line,) = figure.axes[0].lines
    assert list(line.get_ydata()) == run["mean"]
    assert figure.axes[0].get_yscale() == "log"  # 4.0 down to 0.25


def test_evaluations_without_steps_are_left_out_and_scores_do_not_mix():
    assert plots.adaptation_curve_data({"a": {"score": "mse"}})["runs"] == []
    accuracy = {"score": "accuracy", "by_step": [{"steps": 0, "mean": 0.2, "ci95": 0.1}]}
    with pytest.raises(ValueError, match="accuracy"):
        plots.adaptation_curve_data({"a": evaluation(), "b": accuracy})


def test_histogram_counts_every_finite_episode_once():
    scores = [0.05 * i for i in range(100)] + [math.nan, math.inf]
    data = plots.score_histogram_data({"a": scores, "b": [50.0]}, "mse")
    assert [sum(run["counts"]) for run in data["runs"]] == [100, 1]
    assert [run["not_finite"] for run in data["runs"]] == [2, 0]
    assert data["edges"] == sorted(data["edges"])
    assert data["runs"][0]["mean"] == pytest.approx(2.475)


@pytest.mark.parametrize("scores", [[], [0.5], [0.5] * 10, [0.0, 1.0], [2e25], [0.3, 0.3 + 6e-17]])
def test_histogram_of_hardly_any_scores_still_draws(scores):
    data = plots.score_histogram_data({"a": scores}, "accuracy")
    assert sum(data["runs"][0]["counts"]) == len(scores)
    assert plots.figure_to_svg(plots.score_histogram_figure(data)).startswith("<svg")


def test_decades_of_scores_get_logarithmic_bins_but_accuracies_never():
    spread = [10.0**k for k in range(-4, 5)]
    assert plots.score_histogram_data({"a": spread}, "mse")["log"]
    assert not plots.score_histogram_data({"a": [0.001, 0.9]}, "accuracy")["log"]
    assert not wants_log([0.01, 1.0], "accuracy")


def test_sinusoid_curves_are_sorted_together():
    data = plots.sinusoid_data([3, 1, 2], [30, 10, 20], [31, 11, 21], [32, 12, 22], [5], [6], 1)
    assert data["x"] == [1, 2, 3]
    assert data["truth"] == [10, 20, 30]
    assert data["after"] == [12, 22, 32]
    with pytest.raises(ValueError, match="shorter than"):
        plots.sinusoid_data([1, 2], [1], [1, 2], [1, 2], [], [], 1)


def test_data_is_plain_json():
    for data in (
        plots.training_curve_data(metrics(), "mse"),
        plots.adaptation_curve_data({"maml": evaluation()}),
        plots.score_histogram_data({"maml": [0.1, 0.2]}, "mse"),
        plots.sinusoid_data([1], [1], [1], [1], [1], [1], 1),
    ):
        assert json.loads(json.dumps(data, allow_nan=False)) == data


@pytest.mark.parametrize("name", list(all_figures()))
def test_svg_is_well_formed_reproducible_and_follows_the_page_colour(name):
    first, second = (plots.figure_to_svg(all_figures()[name], name, "A < title", "words") for _ in range(2))
    assert first == second
    root = ElementTree.fromstring(first)
    assert root.attrib["role"] == "img"
    ids = re.findall(r'\bid="([^"]+)"', first)
    assert len(ids) == len(set(ids))
    assert all(i.startswith(f"{name}-") for i in ids)
    targets = set(re.findall(r'(?:url\(#|href="#)([^")]+)', first))
    assert targets <= set(ids)
    assert "currentColor" in first
    assert INK not in first.lower()
    assert "<title" in first
    assert "A &lt; title" in first


def test_two_figures_on_a_page_share_no_id():
    made = all_figures()
    ids = [i for n, f in made.items() for i in re.findall(r'\bid="([^"]+)"', plots.figure_to_svg(f, n))]
    assert len(ids) == len(set(ids))


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("paper", ["#ffffff", "#14181f"])
@pytest.mark.parametrize("colour", COLOURS)
def test_every_series_colour_reads_on_light_and_dark_paper(colour, paper):
    light, dark = sorted((luminance(colour), luminance(paper)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3.0  # WCAG's bar for graphics


def test_drawing_leaves_no_global_state():
    code = (
        "import sys\n"
        "from matplotlib import rcParams as rc\n"
        "read = lambda: {k: rc[k] for k in rc if k != 'backend'}\n"
        "before = read()\n"
        "from innerloop.report import plots\n"
        "f = plots.adaptation_curve_figure(plots.adaptation_curve_data("
        "{'a': {'score': 'mse', 'by_step': [{'steps': 0, 'mean': 1.0, 'ci95': 0.1}]}}))\n"
        "plots.figure_to_svg(f)\n"
        "after = read()\n"
        "print('matplotlib.pyplot' in sys.modules, [k for k in after if after[k] != before.get(k)])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False []"
