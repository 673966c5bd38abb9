"""Kernel predictions against Kronecker products, 50-digit values and networks trained in the lazy regime."""

from __future__ import annotations

import json
import math

import pytest
import torch

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import TaskBatch, stack_tasks
from innerloop.evaluation import evaluate
from innerloop.kernels.analytic.networks import mlp_kernel
from innerloop.kernels.empirical.kernel import empirical_kernel
from innerloop.kernels.meta.descent import Descent, respond
from innerloop.kernels.meta.kernel import anil_kernel_without_split, mtl_kernel, stack
from innerloop.kernels.meta.predict import fit, predict_tasks
from innerloop.learners import anil, kernel_learner, maml, multitask
from innerloop.learners.kernel import regression_tasks
from innerloop.nets.antisymmetric import antisymmetric
from innerloop.nets.mlp import mlp
from innerloop.nets.network import apply
from innerloop.tasks.families import FAMILIES
from innerloop.tasks.sampler import make_sampler
from innerloop.testing.closeness import CHAINED, DEEP, SINGLE_SUMMED, SUMMED, assert_close
from innerloop.training import Plan
from innerloop.training.wide import descend, episodic_loss, meta_outputs, objective_loss
from oracles import metakernels as slow
from support import places

KERNEL = mlp_kernel(3)
GOLDEN = json.loads((places.GOLDEN / "kernel_predictions.json").read_text())["cases"]
TRAIN, TEST = slow.regression_tasks(4, 3, 4), slow.regression_tasks(3, 2, 5, seed=1)


def without_query(tasks):
    """The same tasks with all samples in the support set."""
    return tasks._replace(
        x_support=torch.cat([tasks.x_support, tasks.x_query], 1),
        y_support=torch.cat([tasks.y_support, tasks.y_query], 1),
        x_query=tasks.x_query[:, :0],
        y_query=tasks.y_query[:, :0],
    )


def predictions(fitted):
    return stack(predict_tasks(fitted, TEST.x_query, TEST.x_support, TEST.y_support))


# ---- values that others computed ----


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["id"])
def test_plain_kernel_regression_at_five_times(case):
    x, y, test = (torch.tensor(case[key], dtype=torch.float64) for key in ("x_train", "y_train", "x_test"))
    kernel = mlp_kernel(case["L"], weight_var=case["W_std_squared"], bias_var=case["b_std_squared"])
    for row in case["times"]:
        time = math.inf if row["t"] is None else case["learning_rate"] * row["t"] / y.numel()
        coefficients = respond(kernel(x, x).ntk, y, Descent(time))
        for points, key in ((test, "fx_test_mp"), (x, "fx_train_mp")):
            expected = torch.tensor(row[key], dtype=torch.float64)
            assert_close(kernel(points, x).ntk @ coefficients, expected, (CHAINED, CHAINED))


# ---- Kronecker products ----


@pytest.mark.parametrize("time", [0.3, math.inf])
@pytest.mark.parametrize("method", ["maml", "anil"])
def test_split_predictions(method, time):
    fitted = fit(
        KERNEL,
        TRAIN,
        method,
        inner=Descent(0.2),
        outer=Descent(time),
        test=Descent(0.8),
        split=True,
        **({"test_head": "trained"} if method == "anil" else {}),
    )
    inner = "ntk" if method == "maml" else "nngp"
    phi = slow.loop_split_kernel(KERNEL, TRAIN, TRAIN, (0.2, 0.2), method)
    cross = slow.loop_split_kernel(KERNEL, TEST, TRAIN, (0.8, 0.2), method)
    left = stack(TRAIN.y_query) - slow.adapted_labels(KERNEL, TRAIN, 0.2, inner)
    expected = slow.adapted_labels(KERNEL, TEST, 0.8, inner) + slow.kronecker_regression(
        phi, cross, left, time
    )
    assert_close(predictions(fitted), expected, (DEEP, SUMMED))


@pytest.mark.parametrize("time", [0.3, math.inf])
@pytest.mark.parametrize("head", ["initial", "trained"])
def test_predictions_without_split(head, time):
    tasks = without_query(TRAIN)
    options = {"outer": Descent(time), "test": Descent(0.8)}
    anil_fit = fit(KERNEL, tasks, "anil", inner=Descent(0.02), test_head=head, **options)
    mtl_fit = fit(KERNEL, tasks, "mtl", **options)
    phi_anil, phi_mtl = slow.loop_without_split(KERNEL, tasks.x_support, 0.02)
    cross_anil, cross_mtl = slow.bridge_cross(KERNEL, TEST, tasks.x_support, 0.02, 0.8, head)
    y, start = stack(tasks.y_support), slow.adapted_labels(KERNEL, TEST, 0.8, "nngp")
    own = tasks._replace(x_query=tasks.x_support, y_query=tasks.y_support)
    left = y - slow.adapted_labels(KERNEL, own, 0.02, "nngp")
    expected = start + slow.kronecker_regression(phi_anil, cross_anil, left, time)
    assert_close(predictions(anil_fit), expected, (DEEP, SUMMED))
    if head == "initial":
        expected = start + slow.kronecker_regression(phi_mtl, cross_mtl, y, time)
        assert_close(predictions(mtl_fit), expected, (DEEP, SUMMED))


def test_support_and_query_are_one_set_without_a_split():
    joined = fit(KERNEL, without_query(TRAIN), "mtl", test=Descent(0.5))
    assert_close(predictions(fit(KERNEL, TRAIN, "mtl", test=Descent(0.5))), predictions(joined))


def test_chunks_of_test_tasks_change_nothing(monkeypatch):
    fitted = fit(KERNEL, TRAIN, "maml", inner=Descent(0.3))
    whole = predictions(fitted)
    monkeypatch.setattr("innerloop.kernels.meta.predict.CHUNK_ROWS", 7)
    assert_close(predictions(fitted), whole)


def test_first_outputs_shift_labels_and_come_back():
    net = mlp(4, [64], 2, parametrisation="ntk")
    params = {n: p.double() for n, p in net.init(torch.Generator().manual_seed(0))[0].items()}
    initial = lambda x: apply(net, params, {}, x)[0]  # noqa: E731
    fitted = fit(KERNEL, TRAIN, "maml", inner=Descent(0.3), initial=initial)
    own = TRAIN._replace(
        y_support=TRAIN.y_support - initial(stack(TRAIN.x_support)).view_as(TRAIN.y_support),
        y_query=TRAIN.y_query - initial(stack(TRAIN.x_query)).view_as(TRAIN.y_query),
    )
    shifted = fit(KERNEL, own, "maml", inner=Descent(0.3))
    y = TEST.y_support - initial(stack(TEST.x_support)).view_as(TEST.y_support)
    expected = predict_tasks(shifted, TEST.x_query, TEST.x_support, y)
    assert_close(predictions(fitted), stack(expected) + initial(stack(TEST.x_query)))


@pytest.mark.parametrize("short", ["x_query", "x_support", "y_support"])
def test_tasks_of_unequal_number_get_a_sentence(short, monkeypatch):
    monkeypatch.setattr("innerloop.kernels.meta.predict.CHUNK_ROWS", 1)  # one task at a time
    fitted = fit(KERNEL, TRAIN, "maml", inner=Descent(0.3))
    given = {"x_query": TEST.x_query, "x_support": TEST.x_support, "y_support": TEST.y_support}
    given[short] = given[short][:2]
    with pytest.raises(UserError, match="give equally many tasks, and a target each"):
        predict_tasks(fitted, **given)


def test_to_convergence_training_tasks_are_met():
    """F on the training tasks themselves is Y: MAML with its own support sets as test tasks."""
    fitted = fit(KERNEL, TRAIN, "maml", inner=Descent(0.3))
    predicted = predict_tasks(fitted, TRAIN.x_query, TRAIN.x_support, TRAIN.y_support)
    assert_close(predicted, TRAIN.y_query, (DEEP, SUMMED))


# ---- networks trained in the lazy regime ----

EPSILON = 1e-5
LAZY = 1e-3


def lazy_setting(seed=0):
    """A network that starts at zero, its own kernels, and tasks with small labels."""
    net = antisymmetric(mlp(4, [48, 48], 1, parametrisation="ntk"))
    params, _ = net.init(torch.Generator().manual_seed(seed))
    params = {name: value.double() for name, value in params.items()}
    tasks = slow.regression_tasks(3, 3, 4, outputs=1, seed=seed)
    test = slow.regression_tasks(2, 3, 4, outputs=1, seed=seed + 1)
    return net, params, empirical_kernel(net, params), small(tasks), small(test)


def small(tasks):
    return tasks._replace(y_support=EPSILON * tasks.y_support, y_query=EPSILON * tasks.y_query)


def assert_lazily_close(outputs, expected):
    off = float((outputs - expected).norm() / expected.norm())
    assert off < LAZY, f"{off:.2g} of the norm"


LOSS = get_loss("half-sse")
INNER, FAR, OUTER = Descent(0.06, 3), Descent(0.2, 10), Descent(0.5, 100)


def rate(descent):
    return descent.time / descent.steps


@pytest.mark.parametrize("split", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("head", ["initial", "trained"])
def test_trained_anil_networks_predict_f_anil_in_both_protocols(head, split):
    net, params, kernel, tasks, test = lazy_setting()
    learner, tester = anil(net, LOSS, rate(INNER), INNER.steps), anil(net, LOSS, rate(FAR), FAR.steps)
    seen = (
        tasks
        if split
        else without_query(tasks)._replace(
            x_query=without_query(tasks).x_support, y_query=without_query(tasks).y_support
        )
    )
    trained = descend(episodic_loss(learner, seen), params, rate(OUTER), OUTER.steps)
    if head == "initial":
        trained = {**trained, **{name: params[name] for name in net.head_names}}
    options = {"inner": INNER, "outer": OUTER, "test": FAR, "split": split, "test_head": head}
    fitted = fit(kernel, tasks, "anil", **options)
    outputs = meta_outputs(tester, trained, test)
    assert_lazily_close(outputs, predict_tasks(fitted, test.x_query, test.x_support, test.y_support))
    other = fit(
        kernel, tasks, "anil", **{**options, "test_head": "trained" if head == "initial" else "initial"}
    )
    wrong = predict_tasks(other, test.x_query, test.x_support, test.y_support)
    assert (
        float((outputs - wrong).norm() / outputs.norm()) > 20 * LAZY
    )  # the other protocol is another prediction


def test_trained_multi_head_networks_predict_f_mtl():
    net, params, kernel, tasks, test = lazy_setting()
    objective = multitask(net, LOSS, tasks.size, heads="shared")
    started = objective.init(params, torch.Generator().manual_seed(0))
    trained = descend(objective_loss(objective, tasks), started, rate(OUTER), OUTER.steps)
    tester = anil(net, LOSS, rate(FAR), FAR.steps)
    outputs = meta_outputs(tester, {name: trained[name] for name in params}, test)
    fitted = fit(kernel, tasks, "mtl", outer=OUTER, test=FAR)
    assert_lazily_close(outputs, predict_tasks(fitted, test.x_query, test.x_support, test.y_support))


def test_trained_maml_networks_predict_f_maml():
    net, params, kernel, tasks, test = lazy_setting()
    outer = Descent(0.2, 100)
    learner, tester = maml(net, LOSS, 0.01, 3), maml(net, LOSS, 0.01, 5)
    trained = descend(episodic_loss(learner, tasks), params, rate(outer), outer.steps)
    fitted = fit(kernel, tasks, "maml", inner=Descent(0.03, 3), outer=outer, test=Descent(0.05, 5))
    expected = predict_tasks(fitted, test.x_query, test.x_support, test.y_support)
    assert_lazily_close(meta_outputs(tester, trained, test), expected)


def test_a_network_with_a_test_head_of_its_own_predicts_g_alone():
    """Slip 3: with independent heads Φ' → 0, so training the body in the lazy regime changes nothing."""
    train, test = slow.regression_tasks(4, 3, 4, outputs=1), slow.regression_tasks(3, 2, 5, outputs=1)
    fitted = fit(KERNEL, train, "mtl", test=Descent(0.8), heads="independent")
    predicted = predict_tasks(fitted, test.x_query, test.x_support, test.y_support)
    assert_close(stack(predicted), slow.adapted_labels(KERNEL, test, 0.8, "nngp"))


# ---- the learner ----


def sampled(split, n, shots=5, queries=10, dtype=torch.float64):
    return make_sampler(
        FAMILIES["bridge-quadratic"], seed=0, split=split, shots=shots, queries=queries, dtype=dtype
    ).episodes(range(n))


@pytest.mark.parametrize("mode", ["loop", "vmap"])
def test_the_kernel_learner_is_scored_like_any_other(mode):
    train = sampled("train", 8)
    fitted = fit(mlp_kernel(3), train, "anil", inner=Descent(0.01), test=Descent(0.5))
    sampler = make_sampler(
        FAMILIES["bridge-quadratic"], seed=0, split="test", shots=5, queries=10, dtype=torch.float32
    )
    judged = evaluate(kernel_learner(fitted), {}, {}, sampler, get_loss("mse"), episodes=4, plan=Plan(mode))
    test = sampler.episodes(range(4)).to(dtype=torch.float64)
    expected = predict_tasks(fitted, test.x_query, test.x_support, test.y_support)
    scores = (expected - test.y_query).square().sum(-1).mean(-1)
    assert_close(torch.tensor(judged.scores), scores.float(), (SINGLE_SUMMED, SINGLE_SUMMED))


def test_the_kernel_learner_classifies():
    generator = torch.Generator().manual_seed(0)
    means = 4 * torch.randn(3, 6, generator=generator, dtype=torch.float64)

    def task(i):
        y = torch.arange(3).repeat(4)
        x = means[y] + torch.randn(12, 6, generator=generator, dtype=torch.float64)
        return TaskBatch(x[None, :6], y[None, :6], x[None, 6:], y[None, 6:], torch.tensor([i])).task(0)

    train, test = stack_tasks([task(i) for i in range(5)]), task(9)
    fitted = fit(mlp_kernel(2), regression_tasks(train, 3), "maml", inner=Descent(1.0))
    learner = kernel_learner(fitted, ways=3)
    adapted = learner.adapt({}, {}, test.x_support, test.y_support)
    assert (learner.predict(adapted, test.x_query)[0].argmax(-1) == test.y_query).all()


# ---- what is refused ----


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("reptile", {}, "mtl, anil or maml"),
        ("anil", {}, "needs an inner loop"),
        ("maml", {"inner": Descent(1.0), "split": False}, "does not go with maml"),
        ("mtl", {"test_head": "trained"}, "choice of anil"),
        ("mtl", {"train_head": False}, "split=True"),
        ("anil", {"inner": Descent()}, "finite inner time"),
    ],
)
def test_contradictions_are_refused(method, options, words):
    with pytest.raises(UserError, match=words):
        fit(KERNEL, TRAIN, method, **options)


# ---- slip 4: λτ cancels ----


def test_inner_time_cancels_from_f_anil_trained_to_convergence():
    """(EΘE)⁻¹E = E⁻¹Θ⁻¹: formed naively from the kernels, F_ANIL at t = ∞ is the same for every λτ."""
    tasks = without_query(TRAIN)
    x, y = stack(tasks.x_support), stack(tasks.y_support)
    base, answers = KERNEL(x, x), []
    for time in (0.0, 0.01, 0.03):
        phi = anil_kernel_without_split(base.ntk, base.nngp, 4, Descent(time))
        cross, _ = slow.bridge_cross(KERNEL, TEST, tasks.x_support, time, 0.8, "initial")
        own = tasks._replace(x_query=tasks.x_support)
        left = y - slow.adapted_labels(KERNEL, own, time, "nngp") if time else y
        answers.append(cross @ torch.linalg.solve(phi, left))
    assert_close(answers[1], answers[0], (DEEP, SUMMED))
    assert_close(answers[2], answers[0], (DEEP, SUMMED))
    finite = [
        fit(KERNEL, tasks, "anil", inner=Descent(t), outer=Descent(0.5), test=Descent(0.8))
        for t in (0.0, 0.03)
    ]
    gap = (predictions(finite[0]) - predictions(finite[1])).norm()
    assert float(gap / predictions(finite[0]).norm()) > 1e-3  # at a finite time it matters


def test_f_mtl_and_f_anil_differ_by_the_difference_of_inverses():
    """Bridge, eq. 68: the gap is Φ'_MTL (Θ⁻¹ − Φ_MTL⁻¹) 𝒴."""
    tasks = without_query(TRAIN)
    x, y = stack(tasks.x_support), stack(tasks.y_support)
    base = KERNEL(x, x)
    _, cross = slow.bridge_cross(KERNEL, TEST, tasks.x_support, 0.1, 0.8, "initial")
    inverses = torch.linalg.inv(base.ntk) - torch.linalg.inv(mtl_kernel(base.ntk, base.nngp, 4))
    options = {"test": Descent(0.8)}
    gap = predictions(fit(KERNEL, tasks, "anil", inner=Descent(0.1), **options)) - predictions(
        fit(KERNEL, tasks, "mtl", **options)
    )
    assert_close(gap, cross @ inverses @ y, (DEEP, SUMMED))
