"""Landscapes estimated from samples, hardness rankings, and why permuted classes have gain 1."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsClassifier

from innerloop.core.errors import UserError
from innerloop.testing.closeness import CHAINED, SUMMED, assert_close
from innerloop.theory import hardness
from innerloop.theory.landscape.data import (
    TaskFits,
    bootstrap,
    estimated_dimension,
    fit_tasks,
    left_after_step,
    predict,
    sample_curvature,
    solutions,
)
from innerloop.theory.landscape.features import with_constant
from innerloop.theory.landscape.forms import adapted_curvature, weighted_optimum
from innerloop.theory.landscape.geography import Geography, effective_dimension, geography
from innerloop.theory.landscape.permuted import REASON, permuted_landscape

F64 = torch.float64
ENV = Geography(dim=5, rho_hard=0.2, rho_easy=1.0, R=1.5, r_hard=0.4, r_easy=0.8)


def tasks(
    count: int, n: int, noise: float = 0.3, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Samples of ``count`` hard and as many easy tasks of ``ENV``."""
    g = torch.Generator().manual_seed(seed)
    d = ENV.dim
    hard = torch.arange(2 * count) < count
    centre = torch.where(hard[:, None], ENV.R, 0.0).double()
    spread = torch.where(hard, ENV.r_hard, ENV.r_easy).double().sqrt()[:, None]
    w = centre + spread * torch.randn(2 * count, d, generator=g, dtype=F64)
    rho = torch.where(hard, ENV.rho_hard, ENV.rho_easy).double()
    x = rho.sqrt()[:, None, None] * torch.randn(2 * count, n, d, generator=g, dtype=F64)
    y = x @ w[..., None] + noise * torch.randn(2 * count, n, 1, generator=g, dtype=F64)
    return x, y, hard


def test_fits_are_least_squares() -> None:
    x, y, _ = tasks(50, 40)
    fits = fit_tasks(x, y)
    for i in (0, 1, 99):
        ours = LinearRegression(fit_intercept=False).fit(x[i].numpy(), y[i].numpy())
        assert_close(fits.optima[i], torch.from_numpy(ours.coef_.T))
    assert float(fits.noise.mean().sqrt()) == pytest.approx(0.3, rel=0.03)


def test_fourth_moments_of_gaussian_inputs_give_the_closed_form() -> None:
    x, y, _ = tasks(1, 200_000)
    fits = fit_tasks(x, y)
    exact = adapted_curvature(torch.stack([r * torch.eye(5, dtype=F64) for r in (0.2, 1.0)]), 0.9, 4)
    assert_close(sample_curvature(fits, 0.9, 4), exact, (0.03, 0.0))


@pytest.mark.parametrize("n", [6, 7])
def test_sample_curvature_is_without_bias_for_any_inputs(n: int) -> None:
    """Uniform inputs, six samples a task: the mean over tasks is what simulated steps leave."""
    rng = np.random.default_rng(0)
    scale = np.array([1.0, 3.0])
    x = torch.from_numpy(rng.uniform(-1, 1, (60_000, n, 2)) * scale)
    curvature = sample_curvature(fit_tasks(x, torch.zeros(60_000, n, 1, dtype=F64)), 0.2, 3)
    drawn = rng.uniform(-1, 1, (60_000, 3, 2)) * scale
    p = np.eye(2) - 0.2 * np.einsum("cni,cnj->cij", drawn, drawn) / 3
    steps = np.einsum("cji,jk,ckl->cil", p, np.diag(scale**2 / 3), p)
    error = np.sqrt((steps.var(0) + curvature.numpy().var(0)) / 60_000)
    assert (np.abs(curvature.mean(0).numpy() - steps.mean(0)) < 4.5 * error).all()


def test_estimates_recover_the_environment() -> None:
    x, y, hard = tasks(150, 60)
    fits = fit_tasks(x, y)
    intervals = bootstrap(fits, hard, 1.0, 20, 20, torch.Generator().manual_seed(0))
    exact = geography(ENV, 1.0, 20)
    truth = {
        "R": 1.5,
        "r_hard": 0.4,
        "r_easy": 0.8,
        "rho_hard": 0.2,
        "rho_easy": 1.0,
        "gain": float(exact.gain),
        "nal_risk": float(exact.nal.risk),
        "maml_risk": float(exact.maml.risk),
        "nal_hard": float(exact.nal.risk_hard),
        "maml_easy": float(exact.maml.risk_easy),
    }
    for name, expected in truth.items():
        value, low, high = intervals[name]
        assert value == pytest.approx(expected, rel=0.2), name
        assert low - 0.05 * expected <= expected <= high + 0.05 * expected, name
        assert low <= value <= high, name


def test_what_estimating_optima_adds_is_taken_away() -> None:
    """Few, noisy samples: without the correction risks are far too large and the gain is drawn to 1."""
    x, y, hard = tasks(400, 12, noise=1.0)
    fits = fit_tasks(x, y)
    exact = geography(ENV, 1.0, 20)
    corrected = predict(fits, hard, 1.0, 20, 20)
    naive = predict(fits._replace(scatter=torch.zeros_like(fits.scatter)), hard, 1.0, 20, 20)
    truth = float(exact.maml.risk)
    assert abs(float(corrected.maml_risk) - truth) < 0.4 * abs(float(naive.maml_risk) - truth)
    assert abs(float(corrected.r_hard) - 0.4) < 0.4 * abs(float(naive.r_hard) - 0.4)


def test_effective_dimension_is_not_that_of_the_samples() -> None:
    """Ten samples per feature: the closed form comes back, for one strong direction and for none.

    The sample covariance's own tr/‖·‖ is far too small where all directions are alike.
    """
    d, n = 6, 60
    x = torch.randn(400, n, d, generator=torch.Generator().manual_seed(1), dtype=F64)
    for values in (torch.ones(d, dtype=F64), torch.tensor([9.0, 1, 1, 1, 1, 1], dtype=F64)):
        known = effective_dimension(torch.diag(values))  # 6, and 14/9
        fits = fit_tasks(x * values.sqrt(), torch.zeros(400, n, 1, dtype=F64))
        assert float(estimated_dimension(fits) / known) == pytest.approx(1, abs=0.05)
    alike = fit_tasks(x, torch.zeros(400, n, 1, dtype=F64))
    assert float(effective_dimension(alike.covariances).mean()) < 4.5


def test_hardness_orders_tasks_as_rho_does() -> None:
    x, y, hard = tasks(30, 60)
    left = left_after_step(fit_tasks(x, y), 0.8)
    assert float(left[hard].min()) > float(left[~hard].max())
    assert float(left[hard].mean()) == pytest.approx((1 - 0.8 * 0.2) ** 2, rel=0.15)


def test_solutions_are_those_of_the_closed_forms() -> None:
    x, y, _ = tasks(4, 30)
    fits = fit_tasks(x, y)
    nal, maml = solutions(fits, 0.7, 6)
    assert_close(nal[:, 0], weighted_optimum(fits.covariances, fits.optima[..., 0]))
    assert_close(maml[:, 0], weighted_optimum(sample_curvature(fits, 0.7, 6), fits.optima[..., 0]))


def test_too_few_samples_are_refused() -> None:
    x, y, hard = tasks(3, 5)
    with pytest.raises(UserError, match="more samples"):
        fit_tasks(x, y)
    with pytest.raises(UserError, match="tasks, samples"):
        fit_tasks(x, y[:2])
    with pytest.raises(UserError, match="linearly dependent"):
        fit_tasks(torch.zeros(2, 9, 2, dtype=F64), torch.zeros(2, 9, 1, dtype=F64))
    x, y, hard = tasks(1, 30)
    with pytest.raises(UserError, match="at least two"):
        bootstrap(fit_tasks(x, y), hard, 1.0, 5, 5, torch.Generator())


# ---- permuted classes ----


def classes(count: int, ways: int, n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Blobs of very different scale from task to task: there would be much to gain, were it regression."""
    g = torch.Generator().manual_seed(3)
    labels = torch.arange(n).remainder(ways).expand(count, -1)
    means = 2 * torch.randn(count, ways, d, generator=g, dtype=F64)
    scale = torch.logspace(-1, 0.5, count, dtype=F64)[:, None, None]
    x = scale * (
        means.gather(1, labels[..., None].expand(-1, -1, d))
        + torch.randn(count, n, d, generator=g, dtype=F64)
    )
    return x, labels


def test_permuted_classes_have_gain_one() -> None:
    x, labels = classes(6, 3, 24, 4)
    landscape = permuted_landscape(x, labels, 3, lr=0.2, shots=9, inner_shots=5)
    assert float(landscape.gain) == pytest.approx(1, abs=SUMMED)
    constant = torch.zeros(5, 3, dtype=F64)
    constant[-1] = 1 / 3
    assert_close(landscape.nal, constant, (CHAINED, CHAINED))
    assert_close(landscape.maml, constant, (CHAINED, CHAINED))
    assert "exactly 1" in REASON


def test_the_symmetry_holds_over_all_labellings_one_by_one() -> None:
    """Every task under all 3! labellings as tasks of their own, through the general functions."""
    x, labels = classes(4, 3, 24, 4)
    every = [torch.tensor(p)[labels] for p in itertools.permutations(range(3))]
    z = with_constant(x).repeat(6, 1, 1)
    y = torch.nn.functional.one_hot(torch.cat(every), 3).double()
    fits: TaskFits = fit_tasks(z, y)
    nal, maml = solutions(fits, 0.2, 5)
    expected = permuted_landscape(x, labels, 3, lr=0.2, shots=9, inner_shots=5)
    assert_close(nal, expected.nal, (CHAINED, CHAINED))
    assert_close(maml, expected.maml, (CHAINED, CHAINED))
    test = sample_curvature(fits, 0.2, 9)
    risks = [0.5 * ((test @ (w - fits.optima)) * (w - fits.optima)).sum((1, 2)).mean() for w in (nal, maml)]
    assert float(risks[0] / risks[1]) == pytest.approx(1, abs=SUMMED)
    # and with the labels as they are, the same environment has something to gain: the symmetry is the reason
    fixed = fit_tasks(with_constant(x), torch.nn.functional.one_hot(labels, 3).double())
    a, b = solutions(fixed, 0.2, 5)
    assert float((a - b).norm()) > 0.01


# ---- hardness ----


def test_losses_after_steps_equal_autograd() -> None:
    x, labels = classes(3, 3, 12, 4)
    losses = hardness.losses_after_steps(
        x[:, :6], labels[:, :6], x[:, 6:], labels[:, 6:], 0.1, (1, 3), ways=3
    )
    for t in range(3):
        head = torch.zeros(4, 3, dtype=F64, requires_grad=True)
        for step in range(1, 4):
            loss = torch.nn.functional.cross_entropy(x[t, :6] @ head, labels[t, :6])
            head = (head - 0.1 * torch.autograd.grad(loss, head)[0]).detach().requires_grad_()
            if step in (1, 3):
                expected = torch.nn.functional.cross_entropy(x[t, 6:] @ head, labels[t, 6:])
                assert float(losses[t, step // 2]) == pytest.approx(expected.item(), rel=SUMMED)
    with pytest.raises(UserError, match="ways"):
        hardness.losses_after_steps(x, labels, x, labels, 0.1)


def test_nearest_neighbours_and_ranks_equal_other_libraries() -> None:
    x, labels = classes(4, 3, 30, 3)
    errors = hardness.nearest_neighbour_error(x[:, :15], labels[:, :15], x[:, 15:], labels[:, 15:])
    for t in range(4):
        peer = KNeighborsClassifier(1).fit(x[t, :15].numpy(), labels[t, :15].numpy())
        assert float(errors[t]) == pytest.approx(1 - peer.score(x[t, 15:].numpy(), labels[t, 15:].numpy()))
    a, b = torch.tensor([3.0, 1.0, 2.0, 2.0, 5.0]), torch.tensor([1.0, 1.0, 4.0, 0.0, 9.0])
    assert hardness.rank_correlation(a, b) == pytest.approx(float(spearmanr(a, b).statistic))


def test_hard_tasks_rank_high() -> None:
    x, y, hard = tasks(20, 40, noise=0.05)
    lr = hardness.head_rate(x, classes=False)
    losses = hardness.losses_after_steps(x[:, :20], y[:, :20], x[:, 20:], y[:, 20:], lr, (10,))[:, 0]
    share = losses / y.square().mean((1, 2))  # of the loss at zero
    assert float(share[hard].mean()) > 2 * float(share[~hard].mean())
    assert float(hardness.smallest_eigenvalue(x)[hard].max()) < float(
        hardness.smallest_eigenvalue(x)[~hard].min()
    )
