"""The reproductions of AdaptLR at smoke scale, and what they are made of."""

from __future__ import annotations

import math
from pathlib import Path

import numpy
import pytest
import torch

from innerloop.choose.rate_advice import NORMALISED, UNNORMALISED
from innerloop.report.plots.panels import line, mark, panel, panels_figure
from innerloop.testing.closeness import SUMMED, assert_close, assert_mean
from innerloop_studies.bench import rate as bench_rate
from innerloop_studies.papers.adaptlr.shared import (
    Law,
    same_variance,
    seeded,
    tangent_entries,
    tangent_gram,
    wide_net,
)
from innerloop_studies.papers.adaptlr.table2 import floor
from innerloop_studies.papers.further import rate_regret
from innerloop_studies.papers.further.rate_regret import cases
from innerloop_studies.papers.further.rates import GRID, RateEntry, RateProblem, Reached, source, summary
from innerloop_studies.reproduce import find

DOUBLE = torch.float64


@pytest.mark.parametrize(
    "name", ["fig1", "fig4", "fig5", "fig6", "fig9", "fig11", "proposition1", "statements"]
)
@pytest.mark.one_in(2)
def test_closed_form_figures_are_as_recorded(name: str) -> None:
    made = find(f"adaptlr-{name}")("smoke", lambda _: None)
    assert all(row.ok for row in made.rows), [row for row in made.rows if not row.ok]
    assert f"adaptlr-{name}" in made.figures


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fig2", "fig3", "fig8", "fig10", "fig12", "table2"])
def test_longer_ones_are_as_recorded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = find(f"adaptlr-{name}")("smoke", lambda _: None)
    assert all(row.ok for row in made.rows), [row for row in made.rows if not row.ok]


@pytest.mark.slow
def test_the_regret_study_runs_on_the_embedded_glyphs_and_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    redo = find("rate-regret")
    first = redo("smoke", lambda _: None)
    kept = list((tmp_path / "runs" / "reproduce-parts" / "rate-regret").glob("*.json"))
    assert len(kept) == 2 * 10  # two cases: eight rates, auto, and the number that it settled on
    assert all(row.ok for row in first.rows)
    times = {path: path.stat().st_mtime_ns for path in kept}
    again = redo("smoke", lambda _: None)
    assert {path: path.stat().st_mtime_ns for path in kept} == times
    assert [row.ours for row in again.rows] == [row.ours for row in first.rows]


def regret_entry(case: RateProblem, rate: float, at: float) -> RateEntry:
    return RateEntry(case, [0.5 if r == at else 0.3 for r in GRID], 0.45, rate)


def test_the_stated_uncertainty_is_held_against_the_cases() -> None:
    """Six cases each: all within the stated factor hold, one beyond it does not."""
    chosen = rate_regret.cases("cpu")
    for beyond in (0.9, 1.1):
        stated = {True: NORMALISED * beyond, False: UNNORMALISED * beyond}
        table = [regret_entry(case, 3.0 / stated[case.normalised], 3.0) for case in chosen]
        rows = rate_regret._rows(table, "cpu")[-2:]
        assert [row.holds for row in rows] == [beyond < 1] * 2
        assert [row.paper for row in rows] == [f"stated: {NORMALISED:g}", f"stated: {UNNORMALISED:g}"]


def test_regret_is_read_off_for_other_ways_to_divide() -> None:
    case = RateProblem("quickdraw", 5, "none", 4)
    scores = dict(zip(GRID, [0.1, 0.1, 0.2, 0.3, 0.5, 0.4, 0.3, 0.2], strict=True))
    results = {(case, rate, 0): Reached(score, 0.01, rate, False) for rate, score in scores.items()}
    entry = summary(case, {**results, (case, "auto", 0): Reached(0.45, 0.01, 0.15, False)}, 1)
    at = numpy.interp(numpy.log([0.075, 0.3]), numpy.log(GRID), list(scores.values()))
    assert entry.regret == pytest.approx(0.05)
    assert [entry.divided, entry.undivided] == pytest.approx(list(0.5 - at))
    assert entry.factor == pytest.approx(2.0)


def test_the_regret_study_covers_what_it_says() -> None:
    every = cases("cpu")
    assert len(every) == len(set(every)) == 12
    assert {case.data for case in every if case.ways == 20} == {"quickdraw"}
    assert {(case.norm, case.steps) for case in every} == {
        (n, s) for n in ("transductive", "none") for s in (1, 5)
    }
    assert source("cifar-fs") == "cifar-fs"


def test_tangents_of_a_wide_net_are_those_of_autograd() -> None:
    net = wide_net(seeded(0), 2, 7, "normal")
    x = torch.randn(5, 2, generator=seeded(1), dtype=DOUBLE)
    leaves = [net.first.clone().requires_grad_(), net.second.clone().requires_grad_()]
    bias = torch.zeros(1, dtype=DOUBLE, requires_grad=True)
    outputs = (x @ leaves[0]).relu() @ leaves[1] + bias
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(out, [*leaves, bias], retain_graph=True)])
        for out in outputs
    ]
    features = torch.stack(rows)
    assert_close(tangent_gram(net, x, x), features @ features.T)
    assert tangent_entries(net, x) == pytest.approx(float(features.var(correction=0)), rel=SUMMED)


@pytest.mark.parametrize("kind", ["uniform", "normal", "exponential"])
def test_laws_have_the_variance_they_are_asked_for(kind: str) -> None:
    law = same_variance(kind, 4.0)
    x = law.draw(seeded(0), 200_000)
    centre = 2.0 if kind == "exponential" else 0.0
    assert_mean((x - centre).square(), 4.0)
    assert str(law)
    assert_mean(Law("chi-square", 7).draw(seeded(0), 50_000), 7.0)


def test_no_predictor_without_adaptation_is_below_the_floor() -> None:
    """The floor of Table 2 is the error of the best predictor, cos x."""
    made = seeded(0)
    x = Law("uniform", -5, 5).draw(made, 200_000)
    a, b = (Law("uniform", 0, math.pi).draw(made, 200_000) for _ in range(2))
    assert_mean((a * torch.sin(x + b) - torch.cos(x)).square(), floor())


def test_panels_draw_lines_bands_marks_and_spans() -> None:
    one = panel(
        "x",
        "y",
        [line("a", [1.0, 10.0], [1.0, 2.0], half=[0.1, 0.1])],
        [mark("m", 2.0)],
        span=(1.0, 2.0),
        log_x=True,
    )
    two = panel("x", "y", [line("b", [0.0, 1.0], [0.0, 1.0], dots=True)], [mark("p", 0.5, 0.5)])
    figure = panels_figure([one, two])
    assert len(figure.axes) == 2
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a", "m"]


def test_both_sides_of_the_benchmark_agree() -> None:
    formed = bench_rate.WORKER.formed(1)
    assert formed["difference"] < bench_rate.AGREE
    streamed = bench_rate.WORKER.streamed(20)
    assert streamed["rate"] == pytest.approx(50 / (2 * 2000), rel=0.1)  # isotropic, d ≫ K: about K/(2d)
