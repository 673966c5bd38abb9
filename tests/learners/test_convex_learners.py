"""Heads that are solved for: R2D2, MetaOptNet, logistic regression; against scikit-learn and slopes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import Params, Task
from innerloop.evaluation import evaluate
from innerloop.learners import (
    LEARNERS,
    Learner,
    episodic,
    logistic_head,
    metaoptnet_ridge,
    metaoptnet_svm,
    r2d2,
)
from innerloop.nets import Network, mlp
from innerloop.tasks import Sampler
from innerloop.testing.closeness import ANY_FINITE_DIFFERENCE, CHAINED, SOLVED, SOLVED_FINELY, SOLVED_ROUGHLY
from innerloop.testing.collect import slope
from innerloop.testing.suites import labels
from oracles import solvers_sklearn as twin

WAYS = 3
HEADS: dict[str, Callable[..., Learner]] = {
    "r2d2": r2d2,
    "metaoptnet-ridge": metaoptnet_ridge,
    "metaoptnet-svm": metaoptnet_svm,
    "logistic-head": logistic_head,
}
heads = pytest.mark.parametrize("name", HEADS)


def network(features: int = 6) -> Network:
    return mlp(4, [8, features], WAYS, activation="tanh")


def started(learner: Learner, net: Network) -> Params:
    params, _ = net.init(torch.Generator().manual_seed(0))
    return learner.init({name: 2 * value.double() for name, value in params.items()})


def drawn(shots: int = 2, seed: int = 0) -> Task:
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(WAYS).repeat(shots)
    centres = torch.randn(WAYS, 4, generator=draw, dtype=torch.float64)
    x = [centres[y] + torch.randn(len(y), 4, generator=draw, dtype=torch.float64) for _ in range(2)]
    return Task(x[0], y, x[1], y, torch.arange(WAYS))


def outputs(learner: Learner, params: Params, task: Task, training: bool = False) -> Tensor:
    adapted = learner.adapt(params, {}, task.x_support, task.y_support, training)
    return learner.predict(adapted, task.x_query, training)[0]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in HEADS),
        ("metaoptnet-svm", {"C": 3.0}),
        ("metaoptnet-svm", {"C": 3.0, "steps": 1}),
        ("metaoptnet-svm", {"C": 0.5, "steps": 3}),
    ],
)
@pytest.mark.parametrize("shots", [1, 5])  # fewer and more samples than features
def test_gradients_are_slopes(name: str, settings: dict[str, float], shots: int, training: bool) -> None:
    net = network(20 if name == "metaoptnet-svm" else 6)
    learner, task = HEADS[name](net, WAYS, **settings), drawn(shots)
    params = started(learner, net)

    def loss(p: Params) -> Tensor:
        return F.cross_entropy(outputs(learner, p, task, training), task.y_query)

    leaves = {k: v.clone().requires_grad_() for k, v in params.items()}
    grads = torch.autograd.grad(loss(leaves), list(leaves.values()), materialize_grads=True)
    rtol, atol = ANY_FINITE_DIFFERENCE
    for (k, grad), draw in zip(zip(leaves, grads, strict=True), range(99), strict=False):
        if k in net.head_names:
            assert not grad.any(), "the network's last layer is not used"
            continue
        along = torch.randn(grad.shape, generator=torch.Generator().manual_seed(draw), dtype=torch.float64)
        direction = {**{n: torch.zeros_like(v) for n, v in params.items()}, k: along}
        with torch.no_grad():
            expected = slope(loss, params, direction)
        assert abs(float((grad * along).sum()) - expected) <= atol + rtol * abs(expected), k
    own = [k for k in leaves if k.startswith("learner.") and k != "learner.shift"]
    assert own
    assert all(float(grads[list(leaves).index(k)].abs()) > 1e-6 for k in own), "learned, so it must matter"


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("C", [0.1, 3.0])
def test_machines_with_more_samples_than_features_keep_their_digits(C: float, training: bool) -> None:
    """Their Gram matrices are singular, which must cost nothing once the bounds are settled."""
    net = network()
    learner, task = metaoptnet_svm(net, WAYS, C), drawn(5)
    params = started(learner, net)

    def loss(p: Params) -> Tensor:
        return F.cross_entropy(outputs(learner, p, task, training), task.y_query)

    leaves = {k: v.clone().requires_grad_() for k, v in params.items()}
    grads = torch.autograd.grad(loss(leaves), list(leaves.values()), materialize_grads=True)
    draw = torch.Generator().manual_seed(0)
    along = {k: torch.randn(v.shape, generator=draw, dtype=torch.float64) for k, v in params.items()}
    with torch.no_grad():
        expected = slope(loss, params, along)
    actual = sum(float((g * a).sum()) for g, a in zip(grads, along.values(), strict=True))
    assert abs(expected) > 1e-3
    assert actual == pytest.approx(expected, rel=ANY_FINITE_DIFFERENCE[0])


@heads
def test_heads_equal_the_definition(name: str) -> None:
    net = network()
    task, learner = drawn(4), HEADS[name](net, WAYS)
    params = started(learner, net)
    z, q = (net.features(params, {}, x, "batch")[0] for x in (task.x_support, task.x_query))
    hot = torch.eye(WAYS, dtype=torch.float64)[task.y_support]
    scale = params["learner.scale"]
    if name == "r2d2":
        bias = [torch.cat([each, torch.ones_like(each[:, :1])], 1) for each in (z, q)]
        system = bias[0].T @ bias[0] + len(z) * params["learner.log_penalty"].exp() * torch.eye(7)
        expected = scale * bias[1] @ torch.linalg.solve(system, bias[0].T @ hot) + params["learner.shift"]
    elif name == "metaoptnet-ridge":
        expected = scale * q @ z.T @ torch.linalg.solve(z @ z.T + 50 * torch.eye(len(z)), hot)
    elif name == "metaoptnet-svm":
        fitted = twin.svc(z[None], task.y_support[None], 0.1, False, "crammer_singer")
        expected = scale * q @ fitted.weights[0].T
    else:
        fitted = twin.logistic(z[None], task.y_support[None], 1.0, False, solver="newton-cg")
        expected = scale * q @ fitted.weights[0].T
    close = CHAINED if "ridge" in name or name == "r2d2" else SOLVED_ROUGHLY  # scikit-learn's own tolerance
    torch.testing.assert_close(outputs(learner, params, task), expected, rtol=close, atol=close)


@pytest.mark.parametrize("ways", [2, 3])
def test_the_logistic_head_is_a_softmax_for_two_classes_too(ways: int) -> None:
    """Cross-entropy and a row per class, minimised by torch's own optimiser."""
    net = network()
    task, learner = drawn(4), logistic_head(net, WAYS, C=0.7)
    task = task._replace(**{side: getattr(task, side)[task.y_support < ways] for side in task._fields[:3]})
    params = started(learner, net)
    z, q = (net.features(params, {}, x, "batch")[0].detach() for x in (task.x_support, task.x_query))
    rows = torch.zeros(ways, z.shape[1], dtype=torch.float64, requires_grad=True)
    descent = torch.optim.LBFGS([rows], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        descent.zero_grad()
        value = 0.5 * rows.square().sum() + 0.7 * F.cross_entropy(z @ rows.T, task.y_support, reduction="sum")
        value.backward()
        return value

    descent.step(objective)
    torch.testing.assert_close(
        outputs(learner, params, task)[:, :ways],
        params["learner.scale"] * q @ rows.detach().T,
        rtol=SOLVED_ROUGHLY,
        atol=SOLVED_ROUGHLY,
    )


@heads
def test_both_spaces_and_both_purposes_give_one_head(name: str) -> None:
    for features in (4, 40):  # samples against features: 12
        net = network(features)
        learner, task = HEADS[name](net, WAYS), drawn(4)
        params = started(learner, net)
        torch.testing.assert_close(
            outputs(learner, params, task, training=True),
            outputs(learner, params, task),
            rtol=SOLVED,
            atol=SOLVED_FINELY,
        )


@heads
def test_a_class_without_samples_is_never_predicted_and_changes_nothing(name: str) -> None:
    net = network()
    task = drawn(3)
    learner, wide = HEADS[name](net, WAYS), HEADS[name](net, WAYS + 2)
    params = started(learner, net)
    moved = task._replace(y_support=task.y_support + (task.y_support > 0), y_query=task.y_query)
    for training in (False, True):
        expected = outputs(learner, params, task, training)
        scores = outputs(wide, params, moved, training)
        assert scores[:, [1, 4]].eq(-torch.inf).all()
        torch.testing.assert_close(scores[:, [0, 2, 3]], expected)
        leaves = {k: v.clone().requires_grad_() for k, v in params.items()}
        loss = F.cross_entropy(outputs(wide, leaves, moved, training), moved.y_support)
        grads = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        assert all(bool(torch.isfinite(g).all()) for g in grads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["separable", "duplicated", "contradictory", "long", "short", "offset"])
@heads
def test_supports_that_are_not_kind(name: str, kind: str, dtype: torch.dtype) -> None:
    """Finite heads and gradients, in training and at test, and an honest status."""
    net = Network(lambda g: ({}, {}), lambda p, b, x, s: (x, b), lambda p, z: z, (), "none")
    task = drawn(4)
    x, y = task.x_support, task.y_support
    if kind == "separable":
        x = x + 20 * torch.eye(4, dtype=x.dtype)[y]
    elif kind in ("duplicated", "contradictory"):
        x, y = torch.cat([x, x]), torch.cat([y, y if kind == "duplicated" else y.roll(1)])
    else:
        x = {"long": 1e3 * x, "short": 1e-3 * x, "offset": x + 100}[kind]
    learner = HEADS[name](net, WAYS)
    params = learner.init({"w": torch.ones((), dtype=dtype)})
    for training in (False, True):
        leaf = x.to(dtype).requires_grad_()
        adapted = learner.adapt(params, {}, leaf, y, training)
        out, _ = learner.predict(adapted, task.x_query.to(dtype), training)
        (grad,) = torch.autograd.grad(F.cross_entropy(out, task.y_query), leaf)
        assert bool(torch.isfinite(out).all())
        assert bool(torch.isfinite(grad).all())
        if not training and dtype == torch.float64:
            assert learner.converged is not None
            assert bool(learner.converged(adapted))


def test_evaluations_count_heads_that_are_not_solved() -> None:
    case = labels()
    learner = metaoptnet_svm(case.network, WAYS)
    never = learner._replace(converged=lambda adapted: torch.zeros((), dtype=torch.bool))
    params, buffers = case.network.init(torch.Generator().manual_seed(0))
    sampler = Sampler(lambda indices: case.batch, name="three")
    loss = get_loss("cross-entropy")
    evaluations = [
        evaluate(each, each.init(params), buffers, sampler, loss, 3).unconverged for each in (learner, never)
    ]
    assert evaluations == [0, 3]


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("r2d2", {"penalty": 0.0}, "the learner's penalty=0: it must be positive"),
        ("metaoptnet-ridge", {"scale": -1.0}, "the learner's scale=-1: it must be positive"),
        ("metaoptnet-svm", {"C": float("inf")}, "the learner's C=inf: it must be positive"),
        ("metaoptnet-svm", {"steps": -1}, "give 3, or 0 to solve to the end"),
    ],
)
def test_settings_without_a_meaning_are_refused(name: str, settings: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        HEADS[name](network(), WAYS, **settings)


def test_every_head_here_is_in_the_table() -> None:
    assert [n for n, e in LEARNERS.items() if (e.adapts, e.held_by) == ("head", "l2")] == list(HEADS)


@heads
def test_training_passes_gradients_to_what_the_learner_owns(name: str) -> None:
    case = labels()
    learner = HEADS[name](case.network, WAYS)
    params, buffers = case.network.init(torch.Generator().manual_seed(0))
    objective = episodic(learner, get_loss("cross-entropy"))
    assert objective.loss is not None
    leaves = {k: v.requires_grad_() for k, v in learner.init(params).items()}
    objective.loss(leaves, buffers, case.batch.task(0))[0].backward()
    assert float(leaves["learner.scale"].grad.abs()) > 0
