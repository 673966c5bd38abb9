"""iMAML and Meta-MinibatchProx: gradients, residuals, linear systems, and what they keep in memory."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import Params, Task, TaskBatch
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.rules import unread
from innerloop.experiment.training import train
from innerloop.learners import Learner, episodic, imaml, minibatchprox, momentum, reptile
from innerloop.nets import Network, conv4, from_module, mlp
from innerloop.solvers.krylov import conjugate_gradients
from innerloop.testing import check_learner, check_objective
from innerloop.testing.closeness import CHAINED, FINITE_DIFFERENCE, ROUNDED, assert_close, assert_trees_close
from innerloop.training import Plan, meta_gradient
from oracles import proximal as oracle
from oracles.finite_differences import along, directional, random_direction
from oracles.problems import classification, drawn, images, regression

MSE, ENTROPY = get_loss("half-mse"), get_loss("cross-entropy")
PENALTY = 4.0
INNER, LINEAR = "learner.reported.inner_residual", "learner.reported.linear_residual"


def tanh_net() -> tuple[Network, Params, TaskBatch]:
    network = mlp(2, [3], 1, activation="tanh")
    return network, drawn(network)[0], regression(tasks=3, shots=6, queries=5)


def well_solved(network: Network, **more: Any) -> Learner:
    return imaml(network, MSE, 0.2, **{"steps": 40, "penalty": PENALTY, "cg_steps": 15, **more})


def bilevel(network: Network, like: Params, task: Task, penalty: float = PENALTY) -> oracle.Bilevel:
    def value(x: Tensor, y: Tensor) -> oracle.Value:
        def of(vector: Tensor) -> Tensor:
            params = oracle.unflat(vector, like)
            return MSE.value(network.head(params, network.features(params, {}, x, "batch")[0]), y)

        return of

    support, query = value(task.x_support, task.y_support), value(task.x_query, task.y_query)
    return oracle.Bilevel(support, query, penalty)


def dense_gradient(network: Network, params: Params, batch: TaskBatch, **options: Any) -> Params:
    theta = oracle.flat(params)
    each = [
        oracle.bilevel_gradient(bilevel(network, params, task), theta, **options) for task in batch.tasks()
    ]
    return oracle.unflat(torch.stack(each).mean(0), params)


# the gradient


@pytest.mark.parametrize("plan", [Plan("loop"), Plan("threads", 2), Plan("vmap")], ids=lambda p: p.mode)
def test_the_implicit_gradient_is_that_of_a_dense_hessian(plan: Plan) -> None:
    network, params, batch = tanh_net()
    gradient = meta_gradient(episodic(well_solved(network), MSE).loss, plan)(params, {}, batch)
    assert_trees_close(gradient.grads, dense_gradient(network, params, batch))
    assert float(gradient.buffers[INNER]) < ROUNDED
    assert float(gradient.buffers[LINEAR]) < ROUNDED


@pytest.mark.parametrize("plan", [Plan("loop"), Plan("vmap")], ids=lambda p: p.mode)
def test_adapt_is_differentiated_as_training_is(plan: Plan) -> None:
    network, params, batch = tanh_net()
    learner = well_solved(network, steps=6, cg_steps=3)  # the same steps, solved or not
    by_hand = episodic(learner._replace(outer=None), MSE)
    ours = meta_gradient(episodic(learner, MSE).loss, plan)(params, {}, batch)
    theirs = meta_gradient(by_hand.loss, plan)(params, {}, batch)
    assert_close(ours.losses, theirs.losses)
    assert_trees_close(ours.grads, theirs.grads)


def test_the_oracle_is_the_slope_of_the_bilevel_objective() -> None:
    network, params, batch = tanh_net()
    problem, theta = bilevel(network, params, batch.task(0)), oracle.flat(params)
    direction = random_direction({"theta": theta}, 3)
    expected = directional(lambda p: oracle.bilevel_value(problem, p["theta"]), {"theta": theta}, direction)
    gradient = along({"theta": oracle.bilevel_gradient(problem, theta)}, direction)
    assert_close(gradient, expected, FINITE_DIFFERENCE)


def test_on_a_linear_model_the_gradient_has_a_closed_form() -> None:
    network, batch = mlp(3, [], 1, bias=False), regression(tasks=1, shots=5, queries=4, inputs=3)
    params, task = drawn(network)[0], batch.task(0)
    learner = imaml(network, MSE, 0.5, 120, penalty=0.7, cg_steps=3)  # exact after as many steps as unknowns
    gradient = meta_gradient(episodic(learner, MSE).loss)(params, {}, batch)
    theta, eye = params["layer0.weight"].T, torch.eye(3, dtype=torch.float64)
    gram = task.x_support.T @ task.x_support / 5
    matrix = gram + 0.7 * eye
    phi = torch.linalg.solve(matrix, 0.7 * theta + task.x_support.T @ task.y_support / 5)
    down = task.x_query.T @ (task.x_query @ phi - task.y_query) / 4
    assert_close(gradient.grads["layer0.weight"].T, 0.7 * torch.linalg.solve(matrix, down))
    assert_close(gradient.losses[0], 0.5 * (task.x_query @ phi - task.y_query).square().mean())


def test_damping_solves_the_damped_system_and_counts_as_an_error() -> None:
    network, params, batch = tanh_net()
    run = meta_gradient(episodic(well_solved(network, damping=0.5), MSE).loss)
    gradient = run(params, {}, batch)
    assert_trees_close(gradient.grads, dense_gradient(network, params, batch, damping=0.5))
    assert 0.05 < float(gradient.buffers[LINEAR]) < 0.5


def test_any_update_rule_solves_the_same_problem() -> None:
    network, params, batch = tanh_net()
    learner = imaml(network, MSE, 0.15, 70, rule=momentum(0.3), penalty=PENALTY, cg_steps=15)
    gradient = meta_gradient(episodic(learner, MSE).loss)(params, {}, batch)
    assert_trees_close(gradient.grads, dense_gradient(network, params, batch))


def test_without_a_split_everything_happens_on_all_samples() -> None:
    network, params, batch = tanh_net()
    x = torch.cat([batch.x_support, batch.x_query], 1)
    y = torch.cat([batch.y_support, batch.y_query], 1)
    whole = TaskBatch(x, y, x, y, batch.id)
    gradient = meta_gradient(episodic(well_solved(network), MSE, split=False).loss)(params, {}, batch)
    assert_trees_close(gradient.grads, dense_gradient(network, params, whole))


# what is not solved shows


def test_residuals_tell_how_wrong_the_gradient_is() -> None:
    network, params, batch = tanh_net()
    exact = oracle.flat(dense_gradient(network, params, batch))

    def off(**settings: Any) -> tuple[float, float, float]:
        gradient = meta_gradient(episodic(well_solved(network, **settings), MSE).loss)(params, {}, batch)
        error = (oracle.flat(gradient.grads) - exact).norm() / exact.norm()
        return float(error), float(gradient.buffers[INNER]), float(gradient.buffers[LINEAR])

    unsolved = [off(steps=steps) for steps in (1, 3, 9)]
    for (error, inner, linear), (less, smaller, _) in itertools.pairwise(unsolved):
        assert (less < error, smaller < inner, linear < CHAINED) == (True, True, True)
    assert unsolved[0][0] > 0.01
    assert unsolved[0][1] > 0.1
    rough = [off(cg_steps=steps) for steps in (1, 2, 4)]
    for (error, inner, linear), (less, _, smaller) in itertools.pairwise(rough):
        assert (less < error, smaller < linear, inner < CHAINED) == (True, True, True)
    assert rough[0][0] > 1e-3
    assert rough[0][2] > 1e-3


def test_metrics_have_the_residuals(tmp_path: Path) -> None:
    items = ["outer.steps=2", "outer.batch=2", "eval.episodes=2", "eval.validation_episodes=2"]
    items += ["model.hidden=[4]", "run.execution=loop", "run.log_every=1", f"run.folder={tmp_path}"]
    for method, names in (("imaml", ["inner", "linear"]), ("minibatchprox", ["inner"])):
        run = train(load_recipe("sine-maml", [*items, f"inner.method={method}"]), progress=False).run
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "loss" in line]
        assert len(steps) == 2
        for line in steps:
            own = {name: value for name, value in line.items() if name.startswith("learner.")}
            assert list(own) == [f"learner.{name}_residual" for name in names]
            assert all(0 < value < math.inf for value in own.values())


# linear systems


def matrix_product(matrix: Tensor) -> Any:
    return lambda v: {
        "a": (matrix @ torch.cat([v["a"], v["b"]]))[:2],
        "b": (matrix @ torch.cat([*v.values()]))[2:],
    }


def test_conjugate_gradients_solve_what_a_dense_solver_does() -> None:
    draw = torch.Generator().manual_seed(0)
    root = torch.randn(5, 5, generator=draw, dtype=torch.float64)
    matrix, target = (
        root @ root.T + torch.eye(5, dtype=torch.float64),
        torch.arange(1.0, 6, dtype=torch.float64),
    )
    tree = {"a": target[:2], "b": target[2:]}
    for damping in (0.0, 0.7):
        solution = conjugate_gradients(matrix_product(matrix), tree, 12, damping)
        expected = torch.linalg.solve(matrix + damping * torch.eye(5, dtype=torch.float64), target)
        assert_close(torch.cat([*solution.x.values()]), expected)
        left = (target - matrix @ expected).norm() / target.norm()
        assert_close(solution.residual, left, (CHAINED, ROUNDED))


def test_each_step_of_conjugate_gradients_is_the_best_of_its_krylov_space() -> None:
    draw = torch.Generator().manual_seed(1)
    root = torch.randn(5, 5, generator=draw, dtype=torch.float64)
    matrix, target = root @ root.T, torch.randn(5, generator=draw, dtype=torch.float64)
    for steps in (1, 2, 3):
        solution = conjugate_gradients(matrix_product(matrix), {"a": target[:2], "b": target[2:]}, steps)
        powers = [target]
        for _ in range(steps - 1):
            powers.append(matrix @ powers[-1])
        basis = torch.linalg.qr(torch.stack(powers, 1))[0]
        best = basis @ torch.linalg.solve(basis.T @ matrix @ basis, basis.T @ target)
        assert_close(torch.cat([*solution.x.values()]), best, (CHAINED, ROUNDED))


def test_negative_curvature_ends_the_solve_and_shows() -> None:
    matrix = torch.diag(torch.tensor([-1.0, -2.0, 3.0, 1.0, 1.0], dtype=torch.float64))
    downwards = {"a": torch.ones(2, dtype=torch.float64), "b": torch.zeros(3, dtype=torch.float64)}
    solution = conjugate_gradients(matrix_product(matrix), downwards, 4)
    assert_trees_close(solution.x, downwards)  # at the first step: the right-hand side itself
    assert float(solution.residual) == pytest.approx((4 + 9) ** 0.5 / 2**0.5)
    later = {"a": torch.full((2,), 0.5, dtype=torch.float64), "b": torch.ones(3, dtype=torch.float64)}
    kept = conjugate_gradients(matrix_product(matrix), later, 10)
    assert all(bool(torch.isfinite(value).all()) for value in kept.x.values())
    assert float(kept.residual) > 0.1
    nothing = conjugate_gradients(matrix_product(matrix), {n: 0 * v for n, v in later.items()}, 3)
    assert float(nothing.residual) == 0.0


# Meta-MinibatchProx


@pytest.mark.parametrize("plan", [Plan("loop"), Plan("vmap")], ids=lambda p: p.mode)
def test_minibatchprox_moves_towards_the_independent_solution(plan: Plan) -> None:
    network, params, batch = tanh_net()
    learner = minibatchprox(network, MSE, 0.2, 40, penalty=PENALTY)
    gradient = meta_gradient(episodic(learner, MSE).loss, plan)(params, {}, batch)
    theta = oracle.flat(params)
    grads, values = [], []
    for task in batch.tasks():
        x, y = torch.cat([task.x_support, task.x_query]), torch.cat([task.y_support, task.y_query])
        problem = bilevel(network, params, Task(x, y, x, y, task.id))
        grads.append(oracle.envelope_gradient(problem, theta))
        phi = oracle.solution(problem, theta)
        values.append(problem.support(phi) + PENALTY / 2 * (phi - theta).square().sum())
    assert_trees_close(gradient.grads, oracle.unflat(torch.stack(grads).mean(0), params))
    assert_close(gradient.losses, torch.stack(values))


def test_reptile_with_the_proximal_learner_is_minibatchprox_over_its_penalty() -> None:
    network, params, batch = tanh_net()
    learner = minibatchprox(network, MSE, 0.1, 7, penalty=PENALTY)
    prox = meta_gradient(episodic(learner, MSE).loss)(params, {}, batch)
    moved = meta_gradient(direction=reptile(learner, MSE).direction)(params, {}, batch)
    assert_trees_close(prox.grads, {name: PENALTY * value for name, value in moved.grads.items()})


# networks with statistics


@pytest.mark.parametrize("make", [imaml, minibatchprox])
@pytest.mark.parametrize("norm", ["transductive", "support", "running", "group", "none"])
@pytest.mark.one_in(3)
def test_pictures_under_every_norm_policy(make: Any, norm: str) -> None:
    network = conv4(1, 16, 3, filters=2, pooling="stride", norm=norm)
    params, buffers = network.init(torch.Generator().manual_seed(0))
    learner = make(network, ENTROPY, 0.05, 2, penalty=1.0)
    check_learner(learner, params, buffers, images(), loss="cross-entropy", exact_gradient=False)
    buffers = learner.init_buffers(params, buffers)
    check_objective(episodic(learner, ENTROPY), params, buffers, images(), exact_gradient=False)


@pytest.mark.parametrize("norm", ["transductive", "support"])
@pytest.mark.parametrize("method", ["imaml", "minibatchprox"])
def test_gradients_pass_the_statistics(norm: str, method: str) -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    network, batch = from_module(module, norm=norm), classification(tasks=2, shots=3)
    params, buffers = network.init(torch.Generator().manual_seed(0))
    if method == "imaml":
        learner = imaml(network, ENTROPY, 0.04, 40, penalty=20.0, cg_steps=8)  # 12 may leave a rest
    else:
        learner = minibatchprox(network, ENTROPY, 0.04, 40, penalty=20.0)
    buffers = learner.init_buffers(params, buffers)
    check_objective(episodic(learner, ENTROPY), params, buffers, batch)


# memory


class _Alive:
    """A tensor kept for a backward pass; counts how much is kept at once."""

    now = peak = 0

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        _Alive.now += tensor.numel()
        _Alive.peak = max(_Alive.peak, _Alive.now)

    def __del__(self) -> None:
        _Alive.now -= self.tensor.numel()


def kept_at_once(learner: Learner, params: Params, batch: TaskBatch) -> int:
    _Alive.now = _Alive.peak = 0
    with torch.autograd.graph.saved_tensors_hooks(_Alive, lambda alive: alive.tensor):
        meta_gradient(episodic(learner, MSE).loss)(params, {}, batch)
    return _Alive.peak


def test_what_is_kept_does_not_grow_with_the_steps() -> None:
    network, params, batch = tanh_net()
    few, many = (
        kept_at_once(imaml(network, MSE, 0.1, steps, penalty=PENALTY), params, batch) for steps in (2, 40)
    )
    assert few == many > 0
    prox = [
        kept_at_once(minibatchprox(network, MSE, 0.1, n, penalty=PENALTY), params, batch) for n in (2, 40)
    ]
    assert prox[0] == prox[1]


# mistakes


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (["inner.method=imaml", "inner.settings.penalty=0"], "inner.settings.penalty must be above 0"),
        (["inner.method=minibatchprox", "inner.settings.penalty=-1"], "inner.settings.penalty must be above"),
        (["inner.method=imaml", "inner.settings.cg_steps=0"], "inner.settings.cg_steps must be at least 1"),
        (["inner.method=imaml", "inner.settings.damping=-1"], "inner.settings.damping must be 0"),
        (["inner.method=minibatchprox", "inner.settings.cg_steps=3"], "is no setting of inner.method=mini"),
        (["inner.method=imaml", "inner.lr=auto"], "set a number for inner.lr"),
    ],
)
def test_mistakes_name_the_fix(items: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        train(load_recipe("sine-maml", [*items, f"run.folder={tmp_path}"]), progress=False)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_what_they_do_not_read_is_told() -> None:
    recipe = load_recipe("sine-maml", ["inner.method=minibatchprox"])
    assert unread(recipe, ["inner.split"]) == [
        "inner.split is not read: it is for learners that are judged on queries in training."
    ]
    assert not unread(recipe, ["inner.steps", "inner.lr", "inner.optimiser", "inner.loss"])
    assert unread(load_recipe("sine-maml", ["inner.method=imaml"]), ["inner.truncate"])
