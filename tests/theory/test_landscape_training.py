"""SGD on the NAL and MAML objectives, with and without weights on hard tasks, ends at the closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import TaskBatch
from innerloop.learners import episodic, erm, maml, reptile
from innerloop.nets import conv4, mlp
from innerloop.nets.network import apply
from innerloop.nets.neurons import logistic_model, neurons
from innerloop.testing import check_network
from innerloop.testing.closeness import (
    ROUNDED,
    SINGLE,
    SINGLE_BITS,
    STANDARD_ERRORS,
    assert_close,
    assert_mean,
    assert_trees_close,
)
from innerloop.theory.landscape.finite import (
    GaussianTasks,
    draw_moments,
    linear_sgd,
    maml_gradient,
    nal_gradient,
)
from innerloop.theory.landscape.forms import maml_solution, nal_solution
from innerloop.theory.landscape.geography import Geography, geography
from innerloop.training import Plan, meta_gradient
from innerloop.training.task_weights import descend, hard_weights, weighted_gradient

F64 = torch.float64
HALF = get_loss("half-mse")


def regression(count: int, shots: int, queries: int, d: int, seed: int) -> tuple[TaskBatch, torch.Tensor]:
    """Hard (ρ = 0.2, optimum 1) and easy (ρ = 1, optimum −1) tasks in turn, and which are hard."""
    g = torch.Generator().manual_seed(seed)
    hard = torch.arange(count) % 2 == 0
    rho = torch.where(hard, 0.2, 1.0).double().sqrt()[:, None, None]
    w = torch.where(hard, 1.0, -1.0).double()[:, None, None].expand(-1, d, 1)
    x = [rho * torch.randn(count, n, d, generator=g, dtype=F64) for n in (shots, queries)]
    y = [a @ w + 0.1 * torch.randn(*a.shape[:2], 1, generator=g, dtype=F64) for a in x]
    return TaskBatch(x[0], y[0], x[1], y[1], torch.arange(count)), hard


def recorder(losses: list[float]) -> Callable[[int, torch.Tensor], None]:
    """Keeps the mean loss of every step."""
    return lambda _, value: losses.append(float(value.mean()))


# ---- the gradient ----


def test_equal_weights_give_the_ordinary_meta_gradient() -> None:
    batch, _ = regression(4, 5, 6, 3, 0)
    net = mlp(3, [4], 1, activation="tanh")
    params, _ = net.init(torch.Generator().manual_seed(0))
    params = {k: v.double() for k, v in params.items()}
    objective = episodic(maml(net, HALF, 0.3, 2), HALF)
    grads, losses, _ = weighted_gradient(objective, params, {}, batch)
    expected = meta_gradient(objective.loss, Plan("loop"))(params, {}, batch)
    assert_trees_close(grads, expected.grads)
    assert_close(losses, expected.losses)


def test_weights_are_normalised_within_the_batch() -> None:
    weights = hard_weights(torch.tensor([True] * 6 + [False] * 4), zeta=2.0)
    assert float(weights.sum()) == pytest.approx(1)
    assert (float(weights[0]), float(weights[9])) == (pytest.approx(1 / 8), pytest.approx(1 / 16))
    assert_close(hard_weights(torch.tensor([True, True]), 7.0), torch.tensor([0.5, 0.5]))
    with pytest.raises(UserError, match="positive"):
        hard_weights(torch.tensor([True]), 0.0)


def test_a_weighted_gradient_is_the_weighted_sum() -> None:
    batch, hard = regression(4, 5, 6, 3, 0)
    net = mlp(3, [], 1, bias=False)
    params = {"layer0.weight": torch.tensor([[0.3, -0.2, 0.5]], dtype=F64)}
    objective = erm(net, HALF)
    weights = hard_weights(hard, 3.0)
    grads, _, _ = weighted_gradient(objective, params, {}, batch, weights)
    by_hand = torch.zeros(3, dtype=F64)
    for t in range(4):
        x = torch.cat([batch.x_support[t], batch.x_query[t]])
        y = torch.cat([batch.y_support[t], batch.y_query[t]])[:, 0]
        by_hand += weights[t].double() * x.T @ (x @ params["layer0.weight"][0] - y) / len(y)
    # hard_weights are float32 by default: rounded once
    assert_close(grads["layer0.weight"][0], by_hand, (SINGLE, SINGLE_BITS))
    with pytest.raises(UserError, match="no loss to weigh"):
        weighted_gradient(reptile(maml(net, HALF, 0.1), HALF), params, {}, batch)


# ---- where it ends ----


def batches(steps: int, size: int, zeta: float | None = None) -> list[tuple[TaskBatch, torch.Tensor | None]]:
    made = [regression(size, 12, 8, 3, seed) for seed in range(steps)]
    return [(batch, None if zeta is None else hard_weights(hard, zeta)) for batch, hard in made]


@pytest.mark.parametrize(("method", "zeta"), [("nal", None), ("maml", None), ("nal", 4.0)])
@pytest.mark.one_in(3)
def test_descent_approaches_the_closed_forms(method: str, zeta: float | None) -> None:
    net = mlp(3, [], 1, bias=False)
    objective = erm(net, HALF) if method == "nal" else episodic(maml(net, HALF, 1.0, 1), HALF)
    params = {"layer0.weight": torch.zeros(1, 3, dtype=F64)}
    watched: list[float] = []
    tail = []
    for batch in batches(500, 8, zeta):
        params, _ = descend(objective, params, {}, [batch], 0.25, watch=recorder(watched))
        tail.append(params["layer0.weight"][0])
    eye, one = torch.eye(3, dtype=F64), torch.ones(3, dtype=F64)
    s, w = torch.stack([0.2 * eye, eye]), torch.stack([one, -one])
    weights = torch.tensor([zeta or 1.0, 1.0], dtype=F64)
    expected = nal_solution(s, w, weights) if method == "nal" else maml_solution(s, w, 1.0, 12, weights)
    ends = torch.stack(tail[200:]).view(10, 30, 3).mean(1)  # blocks long enough to be nearly independent
    error = ends.std(0) / math.sqrt(10)
    gap = (ends.mean(0) - expected).abs()
    assert bool((gap <= STANDARD_ERRORS * error).all()), f"{ends.mean(0)} is not {expected} ± {error}"
    assert float(error.max()) < 0.05
    assert len(watched) == 500


def test_descent_stops_at_a_loss_that_is_not_finite() -> None:
    net = mlp(3, [], 1, bias=False)
    params = {"layer0.weight": torch.full((1, 3), math.nan, dtype=F64)}
    with pytest.raises(UserError, match="not finite"):
        descend(erm(net, HALF), params, {}, batches(1, 2), 0.1)


# ---- the models ----


@pytest.mark.parametrize("activation", ["relu", "softplus", "sigmoid", "tanh"])
def test_neurons_train_under_a_fixed_second_layer(activation: str) -> None:
    net = neurons(3, 2, activation)
    truth = {"neurons.weight": torch.tensor([[1.0, 0.0, 0.5], [-0.5, 1.0, 0.0]], dtype=F64)}
    g = torch.Generator().manual_seed(0)
    x = torch.randn(4, 80, 3, generator=g, dtype=F64)
    y = torch.stack([apply(net, truth, {}, task)[0] for task in x])
    batch = TaskBatch(x[:, :40], y[:, :40], x[:, 40:], y[:, 40:], torch.arange(4))
    params = {k: v.double() for k, v in net.init(torch.Generator().manual_seed(4))[0].items()}
    for objective in (erm(net, HALF), episodic(maml(net, HALF, 0.2, 1), HALF)):
        losses: list[float] = []
        descend(
            objective,
            params,
            {},
            [(batch, None)] * 60,
            0.3,
            watch=recorder(losses),
        )
        assert losses[-1] < 0.6 * losses[0], objective.name
    with pytest.raises(UserError, match="did you mean"):
        neurons(3, 2, "softplusx")


def test_logistic_model_is_logistic_regression() -> None:
    net = logistic_model(3)
    w = torch.tensor([[0.5, -1.0, 2.0]], dtype=F64)
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    y = torch.arange(10) % 2
    value = get_loss("cross-entropy").value(apply(net, {"layer0.weight": w}, {}, x)[0], y)
    sign = 2 * y.double() - 1
    assert float(value) == pytest.approx(
        float(torch.log1p(torch.exp(-sign * (x @ w[0]))).mean()), rel=ROUNDED
    )


@pytest.mark.parametrize("net", [neurons(3, 2), logistic_model(3)], ids=["neurons", "logistic"])
def test_models_are_networks(net: object) -> None:
    check_network(net, torch.randn(4, 3))  # type: ignore[arg-type]


def test_convolutional_models_take_weights_too() -> None:
    net = conv4(1, 16, 3, filters=2)
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 6, 1, 16, 16, generator=g), torch.arange(6).remainder(3).expand(2, -1)
    batch = TaskBatch(x, y, x, y, torch.zeros(2, 3, dtype=torch.int64))
    params, buffers = net.init(g)
    loss = get_loss("cross-entropy")
    for objective in (erm(net, loss), episodic(maml(net, loss, 0.1, 1), loss)):
        seen: list[float] = []
        pairs = [(batch, hard_weights(torch.tensor([True, False]), 2.0))] * 8
        descend(objective, params, buffers, pairs, 0.1, watch=recorder(seen))
        assert seen[-1] < seen[0]


# ---- thousands of linear runs from sufficient statistics ----


def test_moments_have_the_distribution_of_the_samples() -> None:
    g = torch.Generator().manual_seed(0)
    rho = torch.full((40_000,), 0.7, dtype=F64)
    moments = draw_moments(rho, 3, 5, 0.4, g)
    x = math.sqrt(0.7) * torch.randn(40_000, 5, 3, generator=g, dtype=F64)
    z = 0.4 * torch.randn(40_000, 5, 1, generator=g, dtype=F64)
    gram, pull = x.mT @ x / 5, (x.mT @ z / 5)[..., 0]
    for statistic in (
        lambda a, _: a[:, 0, 0],
        lambda a, _: a[:, 0, 1].square(),
        lambda a, _: a[:, 0, 0] * a[:, 1, 1],
        lambda a, _: torch.linalg.det(a),
        lambda a, b: b[:, 1].square(),
        lambda a, b: (b * (a @ b[..., None])[..., 0]).sum(-1),
    ):
        ours, direct = statistic(moments.gram, moments.pull), statistic(gram, pull)
        error = math.sqrt(float(ours.var() + direct.var()) / 40_000)
        assert abs(float(ours.mean() - direct.mean())) < 4.5 * error
    with pytest.raises(UserError, match="as many samples"):
        draw_moments(rho, 6, 5, 0.1, g)


def test_gradients_from_moments_equal_those_from_samples() -> None:
    batch, _ = regression(4, 7, 9, 3, 0)
    net = mlp(3, [], 1, bias=False)
    w = torch.tensor([0.3, -0.2, 0.5], dtype=F64)
    optima = torch.tensor([1.0, -1, 1, -1], dtype=F64)[:, None].expand(4, 3)

    def moments(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        noise = y - x @ optima[..., None]
        return x.mT @ x / x.shape[1], (x.mT @ noise / x.shape[1])[..., 0]

    from innerloop.theory.landscape.finite import TaskMoments

    inner, outer = (
        TaskMoments(*moments(batch.x_support, batch.y_support)),
        TaskMoments(*moments(batch.x_query, batch.y_query)),
    )
    whole = TaskMoments(
        *moments(
            torch.cat([batch.x_support, batch.x_query], 1), torch.cat([batch.y_support, batch.y_query], 1)
        )
    )
    params = {"layer0.weight": w[None]}
    for objective, gradient in (
        (erm(net, HALF), nal_gradient(w, optima, whole)),
        (episodic(maml(net, HALF, 0.6, 1), HALF), maml_gradient(w, optima, inner, outer, 0.6)),
    ):
        expected, _, _ = weighted_gradient(objective, params, {}, batch)
        assert_close(gradient.mean(0)[None], expected["layer0.weight"])


@pytest.mark.parametrize("method", ["nal", "maml"])
def test_many_linear_runs_end_at_the_geography(method: str) -> None:
    env = Geography(dim=4, rho_hard=0.2, rho_easy=1.0, R=2.0, r_hard=0.3, r_easy=0.3)

    def draw(g: torch.Generator) -> GaussianTasks:
        hard = torch.rand(60, 5, generator=g) < 0.5
        rho = torch.where(hard, 0.2, 1.0).double()
        w = torch.where(hard, 2.0, 0.0).double()[..., None] + math.sqrt(0.3) * torch.randn(
            60, 5, 4, generator=g, dtype=F64
        )
        return GaussianTasks(rho, w)

    ends = linear_sgd(
        draw,
        start=torch.zeros(60, 4, dtype=F64),
        method=method,
        lr=1.0,
        outer_lr=0.1,
        inner_shots=30,
        outer_shots=10,
        noise=0.1,
        steps=400,
        generator=torch.Generator().manual_seed(0),
    )
    places = geography(env, 1.0, 30, 30)
    assert_mean(ends, float(getattr(places, method).coordinate))
    with pytest.raises(UserError, match="nal or maml"):
        linear_sgd(
            draw,
            start=torch.zeros(60, 4, dtype=F64),
            method="reptile",
            lr=1.0,
            outer_lr=0.1,
            inner_shots=30,
            outer_shots=10,
            noise=0.1,
            steps=1,
            generator=torch.Generator(),
        )
