"""Linear regression, where risk, gradient and minimiser are known (formula sheet, section 4)."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from innerloop.core.losses import get_loss
from innerloop.core.types import TaskBatch
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.training import train
from innerloop.learners import episodic, erm, maml
from innerloop.nets import mlp
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.tasks import get_family, make_sampler
from innerloop.testing.closeness import (
    CHAINED,
    ROUNDED,
    SOLVED_ROUGHLY,
    STANDARD_ERRORS,
    assert_close,
    assert_mean,
)
from innerloop.training import Plan, map_tasks, meta_gradient
from oracles import closed_forms as known

RATE, SHOTS, QUERIES, NOISE = 0.8, 5, 5, 0.1
COVARIANCES = [[[0.2, 0.0], [0.0, 1.0]], [[1.0, 0.3], [0.3, 0.5]]]
OPTIMA = [[2.0, 1.0], [-1.0, 0.5]]
SHARES = [0.3, 0.7]
S = [torch.tensor(c, dtype=torch.float64) for c in COVARIANCES]
W = [torch.tensor(w, dtype=torch.float64) for w in OPTIMA]
HALF = get_loss("half-mse")
NETWORK = mlp(2, [], 1, bias=False)


def tasks(count: int) -> TaskBatch:
    settings = {"covariances": COVARIANCES, "optima": OPTIMA, "weights": SHARES}
    sampler = make_sampler(
        get_family("linear"),
        seed=0,
        shots=SHOTS,
        queries=QUERIES,
        noise=NOISE,
        dtype=torch.float64,
        settings=settings,
    )
    batch = sampler.episodes(range(count))
    assert isinstance(batch, TaskBatch)
    return batch


def task_gradients(objective_loss: object, w: Tensor, count: int = 20_000) -> tuple[Tensor, Tensor]:
    """Loss and meta-gradient of every task at ``w``."""

    def one(params: dict[str, Tensor], buffers: dict[str, Tensor], task: object) -> tuple[Tensor, Tensor]:
        grad, value = torch.func.grad_and_value(lambda p: objective_loss(p, buffers, task)[0])(params)  # type: ignore[operator]
        return value, grad["layer0.weight"][0]

    params = {"layer0.weight": w.reshape(1, 2)}
    return map_tasks(one, Plan("vmap"))(params, {}, tasks(count))


# ---- risk and gradient at a point ----


def test_the_risk_after_one_step_is_the_closed_form() -> None:
    w = torch.tensor([0.4, -0.7], dtype=torch.float64)
    losses, _ = task_gradients(episodic(maml(NETWORK, HALF, RATE, 1), HALF).loss, w)
    expected = NOISE**2 / 2
    for share, s, best in zip(SHARES, S, W, strict=True):
        q = known.q_matrix(s, RATE, SHOTS)
        excess = 0.5 * (w - best) @ q @ (w - best)
        inner_noise = RATE**2 * NOISE**2 / (2 * SHOTS) * torch.trace(s @ s)
        expected += share * float(excess + inner_noise)
    assert_mean(losses, expected)


@pytest.mark.parametrize("kind", ["maml", "fomaml", "nal"])
def test_the_gradient_is_the_closed_form(kind: str) -> None:
    w = torch.tensor([0.4, -0.7], dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    curvature = {
        "maml": lambda s: known.q_matrix(s, RATE, SHOTS),
        "fomaml": lambda s: s @ (eye - RATE * s),  # the outer factor (I − aS) is left out, and with it 1/m
        "nal": lambda s: s,
    }[kind]
    learner = maml(NETWORK, HALF, RATE, 1, first_order=kind == "fomaml")
    objective = erm(NETWORK, HALF) if kind == "nal" else episodic(learner, HALF)
    _, grads = task_gradients(objective.loss, w)
    expected = sum(p * curvature(s) @ (w - best) for p, s, best in zip(SHARES, S, W, strict=True))
    for i in range(2):
        assert_mean(grads[:, i], float(torch.as_tensor(expected)[i]))


def test_the_oracle_says_what_the_paper_says() -> None:
    """Two tasks with S = ρI: Q = aI with a = ρ(1 − αρ)² + ((d + 1)/m) α²ρ³, and Table 3's coordinates."""
    d, m, rate = 10, 500, 1.0
    eye = torch.eye(d, dtype=torch.float64)
    hard, easy = 0.1, 1.0
    a = {rho: rho * (1 - rate * rho) ** 2 + (d + 1) / m * rate**2 * rho**3 for rho in (hard, easy)}
    for rho in (hard, easy):
        assert_close(known.q_matrix(rho * eye, rate, m), a[rho] * eye)
    optima = [2 * torch.ones(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)]
    halves = [0.5, 0.5]
    assert float(known.w_maml([hard * eye, easy * eye], optima, halves, rate, m)[0]) == pytest.approx(
        1.573, abs=1e-3
    )
    assert float(known.w_nal([hard * eye, easy * eye], optima, halves)[0]) == pytest.approx(2 * 0.1 / 1.1)
    # Slip of the paper's C.1: with 25 inner samples no rate brings the coordinate above 0.44
    rates = [0.01 * k for k in range(1, 300)]
    best = max(float(known.w_maml([hard * eye, easy * eye], optima, halves, r, 25)[0]) for r in rates)
    assert best == pytest.approx(0.443, abs=1e-3)


# ---- training ends there ----


def endpoints(folder: Path, objective: str, seeds: int) -> Tensor:
    """The weights that runs of a recipe end with."""
    settings = [
        f"tasks.settings={{covariances={COVARIANCES}, optima={OPTIMA}, weights={SHARES}}}",
        f"tasks.shots={SHOTS}",
        f"tasks.queries={QUERIES}",
        f"tasks.noise={NOISE}",
        f"inner.lr={RATE}",
        f"outer.objective={objective}",
        "outer.steps=500",
        "outer.batch=64",
        "outer.lr=0.3",
        "eval.episodes=2",
        "eval.validation_episodes=2",
        "run.execution=vmap",
        "run.compile=off",
        "run.threads=1",
        "run.dtype=float64",
        f"run.folder={folder}",
    ]
    ends = []
    for seed in range(seeds):
        run = train(load_recipe("linear-maml", [*settings, f"seed={seed}"]), progress=False).run
        saved = load_checkpoint(run, "last")
        assert saved is not None
        ends.append(saved[0]["params/layer0.weight"][0])
    return torch.stack(ends)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["episodic", "erm"])
def test_training_ends_at_the_closed_form_minimiser(objective: str, tmp_path: Path) -> None:
    maml_end = known.w_maml(S, W, SHARES, RATE, SHOTS)
    others = {"nal": known.w_nal(S, W, SHARES), "endless support": known.w_maml(S, W, SHARES, RATE, 10**9)}
    expected = maml_end if objective == "episodic" else others.pop("nal")
    ends = endpoints(tmp_path, objective, seeds=5)
    error = ends.std(0) / math.sqrt(len(ends))
    gap = (ends.mean(0) - expected).abs()
    assert bool((gap <= STANDARD_ERRORS * error).all()), f"{ends.mean(0)} is not {expected} ± {error}"
    assert float(error.max()) < 0.02
    for name, other in others.items():  # and nowhere else: the test could tell
        assert bool(((ends.mean(0) - other).abs() > 2 * STANDARD_ERRORS * error).any()), name


@pytest.mark.slow
@pytest.mark.parametrize(("name", "coordinate"), [("linear-maml", 1.573), ("linear-nal", 2 * 0.1 / 1.1)])
def test_shipped_recipes_end_where_table_3_says(name: str, coordinate: float, tmp_path: Path) -> None:
    run = train(load_recipe(name, ["run.dtype=float64", f"run.folder={tmp_path}"]), progress=False).run
    saved = load_checkpoint(run, "last")
    assert saved is not None
    weights = saved[0]["params/layer0.weight"].flatten()
    # tasks' optima have variance 1: ten coordinates, each with its own sampling error
    assert_mean(weights, coordinate)
    assert float(weights.std()) < 0.15


def test_adam_goes_there_too() -> None:
    """Full-batch descent on a fixed set of tasks, whose minimiser is a linear system."""
    batch = tasks(50)
    objective = episodic(maml(NETWORK, HALF, RATE, 1), HALF)
    run = meta_gradient(objective.loss, Plan("vmap"))

    def at(w: Tensor) -> Tensor:
        return run({"layer0.weight": w.reshape(1, 2)}, {}, batch).grads["layer0.weight"][0]

    # the gradient is affine in w: A w − b
    zero = torch.zeros(2, dtype=torch.float64)
    b = -at(zero)
    a = torch.stack([at(e) + b for e in torch.eye(2, dtype=torch.float64)], dim=1)
    expected = torch.linalg.solve(a, b)
    leaf = zero.clone()
    optimiser = torch.optim.Adam([leaf], lr=0.1)
    for step in range(400):
        optimiser.param_groups[0]["lr"] = 0.1 * 0.97**step
        leaf.grad = at(leaf)
        optimiser.step()
    assert_close(leaf, expected, (SOLVED_ROUGHLY, SOLVED_ROUGHLY))
    # the same system by hand: M_i = (1/m) X_sᵀX_s, C_i = X_q(I − aM_i), A = mean of CᵀC/n
    left, right = torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for task in batch.tasks():
        moment = task.x_support.T @ task.x_support / SHOTS
        c = task.x_query @ (torch.eye(2, dtype=torch.float64) - RATE * moment)
        shift = RATE * task.x_query @ (task.x_support.T @ task.y_support / SHOTS)
        left += c.T @ c / QUERIES
        right += (c.T @ (task.y_query - shift) / QUERIES)[:, 0]
    assert_close(expected, torch.linalg.solve(left, right), (CHAINED, ROUNDED))
