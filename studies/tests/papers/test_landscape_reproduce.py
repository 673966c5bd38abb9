"""Landscape's figures and tables: closed-form ones whole, trained ones at smoke scale; their helpers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from innerloop.core.losses import get_loss
from innerloop.core.statistics import Interval
from innerloop.core.types import TaskBatch
from innerloop.data.catalogue import class_list
from innerloop.data.glyphs import glyphs
from innerloop.learners import episodic, erm, maml
from innerloop.nets.neurons import logistic_model, neurons
from innerloop.report.plots.panels import line, panel, panels_figure, points
from innerloop.tasks.hard_groups import group_errors
from innerloop.testing.closeness import ROUNDED, assert_close, assert_mean
from innerloop.theory.landscape.finite import TaskMoments, empirical_maml, empirical_nal
from innerloop.training.task_weights import weighted_gradient
from innerloop_studies.bench import landscape as bench
from innerloop_studies.papers import figures as plots
from innerloop_studies.papers.landscape import fig4 as neuron
from innerloop_studies.papers.landscape import fig8 as logistic
from innerloop_studies.papers.landscape import finite, images, table1, table2, table3
from innerloop_studies.papers.landscape import table1 as alphabets
from innerloop_studies.papers.landscape import table2 as cifar
from innerloop_studies.reproduce import find

F64 = torch.float64
SMOKE = (
    "fig1",
    "fig2",
    "fig3",
    "fig4",
    "table1",
    "table2",
    "table3",
    "proposition1",
    "theorem1",
    "theorem2",
    "theorem3",
    "hard-share",
)


LONG = ("fig4", "theorem1", "theorem2", "theorem3", "table1", "table2", "hard-share")
"""For these CI has no time: they take seconds."""
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in SMOKE]


@pytest.mark.parametrize("name", NAMES)
def test_smoke(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # finished parts are kept under ./runs
    said: list[str] = []
    made = find(f"landscape-{name}")("smoke", said.append)
    assert all(row.ok for row in made.rows), [row for row in made.rows if not row.ok]
    assert said
    for stem, figure in made.figures.items():
        figure.savefig(tmp_path / f"{stem}.png", dpi=40)
    assert made.protocol


@pytest.mark.slow
def test_figure_8_smoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert all(row.ok for row in find("landscape-fig8")("smoke", lambda _: None).rows)


def test_rows_of_table_3_say_their_rule_and_keep_to_it() -> None:
    by_method = {
        name: {"coordinate": c + 1.9 * d, "deviation": d, "errors": {"2000": e, "500": e + 2.1 * s}}
        for name, (c, d, e, s) in table3.PUBLISHED.items()
    }
    rows = [row for row in table3._rows(by_method, 5, "cpu") if "within 2 published" in row.what]
    assert len(rows) == 15
    for row in rows:
        assert row.holds is ("m = 500" not in row.what)
    assert "(2.1 deviations off)" in rows[2].ours
    assert "(1.9 deviations off)" in rows[0].ours


# ---- finite samples: Theorems 2 and 3 ----


def test_solutions_from_moments_equal_those_from_samples() -> None:
    g = torch.Generator().manual_seed(3)
    optima = torch.randn(5, 3, generator=g, dtype=F64)
    data, moments = [], []
    for n in (7, 9):
        x = torch.randn(5, n, 3, generator=g, dtype=F64)
        z = 0.4 * torch.randn(5, n, generator=g, dtype=F64)
        data += [x, (x @ optima[..., None])[..., 0] + z]
        moments.append(TaskMoments(x.mT @ x / n, (x.mT @ z[..., None])[..., 0] / n))
    (inner, outer), (x_in, y_in, x_out, y_out) = moments, data
    assert_close(finite.nal_of_moments(inner, optima), empirical_nal(x_in, y_in))
    solution = finite.maml_of_moments(inner, outer, optima, 0.6)
    assert_close(solution, empirical_maml(x_in, y_in, x_out, y_out, 0.6))


def test_the_environment_keeps_the_assumptions_and_moments_have_its_covariances() -> None:
    g = torch.Generator().manual_seed(0)
    env = finite.draw_environment(3, g)
    values = torch.linalg.eigvalsh(env.covariances)
    assert float(values.min()) >= finite.LEAST
    assert float(values.max()) <= finite.LARGEST
    assert float(env.optima.norm(dim=-1).max()) <= finite.LONGEST
    assert_close(env.roots @ env.roots, env.covariances)
    many = finite.take(env, torch.zeros(40_000, dtype=torch.long))
    drawn = finite.task_moments(many, 5, g)
    for i in range(3):
        assert_mean(drawn.pull[:, i], 0.0)
        for j in range(i + 1):
            assert_mean(drawn.gram[:, i, j], float(env.covariances[0, i, j]))


# ---- logistic regression ----


def logistic_batch() -> TaskBatch:
    g = torch.Generator().manual_seed(0)
    rho, best = torch.tensor([0.3, 1.0], dtype=F64), torch.ones(2, 3, dtype=F64)
    (a, ya), (b, yb) = (logistic.draw(rho, best, n, g) for n in (7, 5))
    return TaskBatch(a, ya.long(), b, yb.long(), torch.arange(2))


def test_logistic_gradients_equal_autograd() -> None:
    batch = logistic_batch()
    net, loss = logistic_model(3), get_loss("cross-entropy")
    w = torch.tensor([0.4, -0.3, 0.2], dtype=F64)
    inner, outer = (batch.x_support, batch.y_support.double()), (batch.x_query, batch.y_query.double())
    x, y = torch.cat([inner[0], outer[0]], 1), torch.cat([inner[1], outer[1]], 1)
    for objective, gradient in (
        (erm(net, loss), logistic.gradient(w.expand(2, -1), x, y)),
        (
            episodic(maml(net, loss, 0.7, 1), loss),
            logistic.maml_gradient(w.expand(2, -1), inner, outer, 0.7),
        ),
    ):
        expected, _, _ = weighted_gradient(objective, {"layer0.weight": w[None]}, {}, batch)
        assert_close(gradient.mean(0)[None], expected["layer0.weight"])


def test_logistic_excess_loss_is_the_population_one() -> None:
    rho, best = torch.tensor(0.6, dtype=F64), torch.tensor([1.0, -0.5, 0.8], dtype=F64)
    w = torch.tensor([0.2, 0.4, 1.5], dtype=F64)
    x, y = logistic.draw(rho, best, 400_000, torch.Generator().manual_seed(1))
    each = [torch.nn.functional.softplus(x @ v) - y * (x @ v) for v in (w, best)]
    assert_mean(each[0] - each[1], float(logistic.excess_loss(w, rho, best)))
    assert float(logistic.excess_loss(best, rho, best)) == pytest.approx(0, abs=ROUNDED)


# ---- neurons ----


@pytest.mark.parametrize("activation", ["softplus", "sigmoid"])
def test_neuron_losses_on_a_grid_equal_autograd(activation: str) -> None:
    task = neuron.NeuronTask((1.0, -0.5), 0.5)
    assert task.kind == "hard"
    x = neuron.inputs(task, 30, torch.Generator().manual_seed(0))
    _, w = neuron.grid(-1, 1, 3)
    net, loss = neurons(2, 1, activation), get_loss("half-mse")
    y = net.head(
        {}, net.features({"neurons.weight": torch.tensor([task.weight], dtype=F64)}, {}, x, "batch")[0]
    )
    learner = maml(net, loss, 0.9, 1)
    moved = neuron.step(w, x, task, activation, 0.9)
    losses = neuron.loss(w, x, task, activation)
    for i in range(len(w)):
        params = {"neurons.weight": w[i : i + 1]}
        assert_close(learner.adapt(params, {}, x, y).params["neurons.weight"][0], moved[i])
        outputs = net.head(params, net.features(params, {}, x, "batch")[0])
        assert float(losses[i]) == pytest.approx(float(loss.value(outputs, y)), rel=ROUNDED)


# ---- pictures ----


def test_hard_alphabets_are_disjoint_and_ranked() -> None:
    source = glyphs()
    ranked = group_errors(source, "all", alphabets.WAYS, episodes=4)
    assert sorted(ranked) == sorted(source.group_names)


def test_a_subset_is_made_of_the_right_pictures() -> None:
    source = glyphs()
    part = cifar.subset(source, np.array([5, 2]), 3, 7)
    assert part.counts.tolist() == [4, 4]
    assert part.class_names == (source.class_names[5], source.class_names[2])
    assert (part.images[4:] == source.images[source.starts[2] + 3 : source.starts[2] + 7]).all()


@pytest.mark.parametrize(
    ("name", "optimiser", "rate", "seen", "adapted"),
    [
        ("MAML", "sgd", 1e-3, 55, 5),
        ("NAL-1", "sgd", 1e-6, 75, 5),
        ("NAL-10", "sgd", 1e-6, 100, 50),
        ("MAML by Adam", "adam", 1e-3, 55, 5),
        ("NAL-1 by Adam", "adam", 1e-6, 75, 5),
    ],
)
def test_omniglot_is_trained_as_c4_says(
    name: str, optimiser: str, rate: float, seen: int, adapted: int
) -> None:
    arm, budget = alphabets.ARMS[name], images.Budget(2, 3, 2, "stride", 1)
    (source, kinds), judged = alphabets.tasks_of("smoke", "Large", arm)
    parts = images.parts_of(arm.method, source, kinds, budget, 0, arm.training)
    assert (parts.recipe.outer.optimiser, parts.recipe.outer.lr) == (optimiser, rate)
    batch = parts.data.train.batch(0, 3)
    assert isinstance(batch, TaskBatch)
    assert batch.x_support.shape[1] + batch.x_query.shape[1] == seen
    assert {kind.ways * kind.shots for _, kind in judged.values()} == {adapted}
    assert {kind.ways * kind.queries for _, kind in judged.values()} == {50}


def test_all_drawings_three_times_weigh_as_they_do_once() -> None:
    """C.4's 300 pictures of NAL-10 are not there: 5 characters have 100, and repeating changes nothing."""
    arm, budget = alphabets.ARMS["NAL-10"], images.Budget(2, 1, 2, "stride", 1)
    (source, kinds), _ = alphabets.tasks_of("smoke", "Large", arm)
    parts = images.parts_of("NAL", source, kinds, budget, 0, arm.training)
    batch = parts.data.train.batch(0, 1)
    assert isinstance(batch, TaskBatch)
    assert len(batch.x_support[0].flatten(1).unique(dim=0)) + batch.x_query.shape[1] == 100
    once = TaskBatch(*(x.double() if x.is_floating_point() else x for x in batch))
    thrice = once._replace(
        **{name: getattr(once, name).repeat_interleave(3, 1) for name in TaskBatch._fields[:4]}
    )
    params = {name: value.double() for name, value in parts.params.items()}
    gradients = [weighted_gradient(parts.objective, params, {}, one)[0] for one in (once, thrice)]
    for name, gradient in gradients[0].items():
        assert_close(gradients[1][name], gradient)


def test_fs_cifar100_is_trained_as_c5_says() -> None:
    for method, easy, hard in (("NAL", 15, 15), ("MAML", 60, 15)):
        shapes = cifar.learned_shapes("cpu", method)
        assert shapes["easy"].shots + shapes["easy"].queries == easy
        assert shapes["hard"].shots + shapes["hard"].queries == hard
    paper = {name: kind[:3] for name, kind in cifar.shapes("paper").items()}
    assert paper == {"easy": (2, 50, 10), "hard": (20, 5, 10)}
    assert table2.BUDGETS["paper"][:4] == (20_000, 8, 64, "stride")
    assert table2.BUDGETS["paper"].pooling == table1.BUDGETS["paper"].pooling


def test_classes_to_test_on_are_of_other_groups() -> None:
    """Oreshkin's split keeps superclasses together; the glyphs' keeps alphabets together."""
    sources = cifar.sources_of("smoke")
    groups = {part: {name.split("/")[0] for name in source.class_names} for part, source in sources.items()}
    assert groups["learn"] == groups["train"]
    assert not groups["learn"] & groups["test"]
    known = class_list("cifar100")
    assert known.groups is not None
    of_class = dict(zip(known.names, known.groups, strict=True))
    parts = {name: {of_class[c] for c in classes} for name, classes in known.splits["fc100"].items()}
    assert len(parts["train"] | parts["validation"]) == 16
    assert not (parts["train"] | parts["validation"]) & parts["test"]


def test_rows_say_what_is_not_as_published() -> None:
    assert "2% of the paper's 20,000 of 8" in table1.deviations("cpu")
    assert "0.5% of C.5's 20,000 steps of 8 tasks" in table2.deviations("cpu")
    assert "would make it 4%" in table2.deviations("cpu")
    interval = Interval(50.0, 1.0, 3)
    accuracies = {
        f"{setting} {name}": dict.fromkeys(images.JUDGED, interval)
        for setting in ("Large", "Small")
        for name in table1.METHODS["cpu"]
    }
    accuracies["Large MAML by Adam"] = dict.fromkeys(images.JUDGED, interval._replace(mean=60.0))
    rows = {row.what: row for row in table1._rows(accuracies, "cpu", {})[1:]}
    assert all("nearest neighbours" in row.reason for row in rows.values())
    judged = rows["Large: MAML above NAL-10 on test hard tasks, points"]
    assert (judged.ours, judged.holds, judged.paper) == ("0.0 (by Adam 10.0)", False, 33.3)
    assert "C.4's 300" in judged.reason
    assert set(table1.FAILS) <= set(rows)


def test_pictures_are_drawn_from_plain_data(tmp_path: Path) -> None:
    rows = {"MAML": (80.0, 1.0), "NAL-1": (40.0, math.nan)}
    plots.bars_figure({"hard": rows, "easy": rows}, "title").savefig(tmp_path / "bars.png")
    measured = points([0.5], [1.5], [0.1])
    curve = line("NAL", [0, 1], [1, 2], ink=plots.INKS["NAL"], points=measured)
    alone = line("ours", [], [], points=measured)
    one = panel("x", "t", [curve, alone], log_y=True, heights={"here": 1.2}, limits=(0.5, 3.0))
    figure = panels_figure([one, one, panel("", "u", [alone], ticks=["a", "b"])], shared_legend=True)
    assert len(figure.axes) == 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["NAL", "ours"]
    assert [tick.get_text() for tick in figure.axes[2].get_xticklabels()] == ["a", "b"]
    assert figure.axes[0].get_ylim() == (0.5, 3.0)
    assert all(axes.get_legend() is None for axes in figure.axes)


# ---- the benchmark ----


def test_both_sides_of_the_benchmark_agree() -> None:
    s, w = bench.environments(40, 3, 4)
    spec = {"environments": 40, "tasks": 3, "dim": 4, "threads": 1}
    gains = [np.asarray(bench.build({**spec, "side": side})()) for side in ("ours", "numpy-loop")]
    assert np.max(np.abs(gains[0] / gains[1] - 1)) < ROUNDED
    np.testing.assert_allclose(gains[1], bench.numpy_loop(s, w))


@pytest.mark.slow  # four processes that take turns
def test_benchmark_runs_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"environments": 64, "dim": 3}
    result = bench.run(quick=True, say=lambda _: None, sizes=sizes)
    (case,) = result["cases"]
    assert case["peer"] == "numpy-loop"
    assert case["ratio"] > 0
    assert "differ" in case["notes"]
    monkeypatch.setattr(bench, "AGREE", -1.0)
    with pytest.raises(RuntimeError, match="disagree"):
        bench.run(quick=True, say=lambda _: None, sizes=sizes)
