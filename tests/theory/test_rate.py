"""The adaptation rate: estimators against slow twins, theorems where they hold, and where they fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss, rate_factor
from innerloop.testing.closeness import CHAINED, MULTIPLIED, SUMMED, assert_close, printed
from innerloop.theory.rate.bracket import bracket, gradient_moments, pooled_head
from innerloop.theory.rate.estimate import (
    bounds,
    limit_moments,
    loss_constant,
    merged_range,
    merged_rate,
    split_moments,
    stacked_rate,
    variance_rate,
)
from innerloop.theory.rate.forms import (
    adapted_distance,
    adapted_loss,
    add_sums,
    best_rate,
    erm_solution,
    labelled_sums,
    maml_solution,
    risk,
    risk_curve,
    task_sums,
    theorem2_range,
    trajectory,
)
from innerloop.theory.rate.linear import gaussian_basis, polynomial_basis, random_matrix, spread_centres
from innerloop.theory.rate.moments import interval_of, stream
from oracles import rate as slow


def expected_distance(features: Tensor, rate: float, shrinkage: Tensor) -> float:
    r""":math:`E_a[(w_m)^\top Q w_m]/\sigma_a^2` over optima drawn anew, features fixed."""
    # w_m = Σ Λ_j a_j with Λ_j = (Σ M_i)⁻¹ M_j, so it is tr(Q Σ Λ_j Λ_jᵀ); with Q = E(I − 2η/K S)^2t the part
    # of E F_t(w_m(α)) that depends on α, which Theorem 2 compares with α = 0
    k = features.shape[1]
    s = features.mT @ features
    step = torch.eye(s.shape[-1], dtype=s.dtype, device=s.device) - (2 * rate / k) * s
    m = step @ s @ step
    shares = torch.linalg.solve(m.sum(0), m)
    return float(torch.einsum("ij,njk,nik->", shrinkage, shares, shares))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform(low: float, high: float, *shape: int, seed: int = 0) -> Tensor:
    made = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(*shape, generator=made, dtype=torch.float64)


# ---- estimators against slow twins ----


@pytest.mark.parametrize("shape", [(4, 3, 7), (4, 7, 3), (4, 5, 5)])
def test_both_gram_forms_equal_forming_s(shape: tuple[int, int, int]) -> None:
    x, t = normal(*shape), normal(shape[0], shape[1] + 2, shape[2], seed=1)
    assert limit_moments(x).rate == pytest.approx(slow.limit(x), rel=SUMMED)
    assert split_moments(x, t).rate == pytest.approx(slow.split(x, t), rel=SUMMED)
    assert stacked_rate(x) == pytest.approx(slow.stacked(x), rel=SUMMED)
    u, centred_t = x - x.mean(1, keepdim=True), t - x.mean(1, keepdim=True)
    assert split_moments(x, t, centre=True).rate == pytest.approx(slow.split(u, centred_t), rel=SUMMED)


def test_streaming_changes_nothing_and_refuses_nothing_at_all() -> None:
    x, t = normal(9, 4, 6), normal(9, 5, 6, seed=1)
    parts = ((x[i : i + 2], t[i : i + 2]) for i in range(0, 9, 2))
    assert stream(split_moments, parts).rate == pytest.approx(split_moments(x, t).rate, rel=SUMMED)
    with pytest.raises(UserError, match="no tasks"):
        stream(limit_moments, [])
    with pytest.raises(UserError, match="different sizes"):
        stream(limit_moments, [(x,), (t,)])


@pytest.mark.parametrize("loss", ["mse", "half-mse", "half-sse"])
def test_a_rate_means_the_same_step_in_every_convention(loss: str) -> None:
    x, t, y, yt = normal(6, 4, 3), normal(6, 5, 3, seed=1), normal(6, 4, 2, seed=2), normal(6, 5, 2, seed=3)
    head = pooled_head(torch.cat([x, t], 1), torch.cat([y, yt], 1))

    def step(rate: float, name: str) -> Tensor:
        at = head.clone().requires_grad_()
        return rate * torch.autograd.grad(get_loss(name).value(x[0] @ at, y[0]), at)[0]

    for estimate in (
        lambda name: limit_moments(x, name).rate,
        lambda name: split_moments(x, t, name).rate,
        lambda name: merged_rate(x, name),
        lambda name: variance_rate(x, name),
        lambda name: merged_range(6, 4, 3, loss=name).high,
        lambda name: bounds(x, name).low,
    ):
        assert_close(step(estimate(loss), loss), step(estimate("mse"), "mse"))
    # both losses change at once here: the query loss is only scaled, which cancels
    gradients = gradient_moments(x, t, y, yt, loss, head).rate
    assert gradients == pytest.approx(
        gradient_moments(x, t, y, yt, "mse", head).rate * rate_factor("mse", loss, 4), rel=CHAINED
    )


def test_the_constant_of_cross_entropy_comes_from_its_curvature() -> None:
    """Realisable linear residuals: H.1 with C·K is the minimiser of the quadratic model of the loss."""
    classes, u, t = 4, normal(300, 6, 3), normal(300, 8, 3, seed=1)
    w = normal(300, 3, classes, seed=2)
    p = torch.full((classes,), 1 / classes, dtype=torch.float64)
    h = torch.diag(p) - torch.outer(p, p)
    above = below = 0.0
    for phi_u, phi_t, a in zip(u, t, w, strict=True):
        g_u, g_t = (phi.T @ phi @ a @ h / len(phi) for phi in (phi_u, phi_t))
        moved = phi_t @ g_u
        above += float((g_u * g_t).sum())
        below += float((moved @ h * moved).sum()) / len(phi_t)
    expected = split_moments(u, t, "cross-entropy", classes).rate
    # w is random: the two agree up to sampling, the constant exactly
    assert above / below == pytest.approx(expected, rel=0.05)
    assert loss_constant("cross-entropy", 6, classes) == 24.0


@pytest.mark.parametrize("loss", ["mse", "half-mse", "half-sse", "cross-entropy", "cross-entropy-sum"])
@pytest.mark.parametrize("zero", [True, False])
def test_the_gradient_form_is_what_autograd_says(loss: str, zero: bool) -> None:
    u, t = normal(5, 6, 4), normal(5, 7, 4, seed=1)
    labels = loss.startswith("cross")
    made = torch.Generator().manual_seed(3)
    y_u, y_t = (
        (torch.randint(3, (5, n), generator=made) if labels else normal(5, n, 3, seed=n)) for n in (6, 7)
    )
    head = torch.zeros(4, 3, dtype=torch.float64) if zero else normal(4, 3, seed=5)
    moments = gradient_moments(u, t, y_u, y_t, loss, None if zero else head, outputs=3)
    above, below = slow.best_step(u, t, y_u, y_t, loss, head)
    assert float(moments.numerator.mean()) == pytest.approx(above, rel=SUMMED)
    assert float(moments.denominator.mean()) == pytest.approx(below, rel=SUMMED)


def test_the_gradient_form_is_the_best_single_step_for_squared_error() -> None:
    u, t, y_u, y_t = (
        normal(40, 6, 4),
        normal(40, 9, 4, seed=1),
        normal(40, 6, 1, seed=2),
        normal(40, 9, 1, seed=3),
    )
    y_u, y_t = y_u + u[..., :1], y_t + t[..., :1]
    head = torch.zeros(4, 1, dtype=torch.float64)
    rate = gradient_moments(u, t, y_u, y_t, "mse", head).rate

    def after(alpha: float) -> float:
        step = 2 * alpha / 6 * u.mT @ (u @ head - y_u)
        return float((t @ (head - step) - y_t).square().mean())

    assert all(after(rate) < after(rate * f) for f in (0.9, 1.1))


# ---- bracket and bootstrap ----


def test_the_bracket_is_ordered_and_divided_by_the_root_of_the_steps() -> None:
    u, t = normal(30, 6, 4), normal(30, 9, 4, seed=1)
    w = normal(30, 4, 1, seed=2)
    grad, trace = gradient_moments(u, t, u @ w, t @ w), split_moments(u, t)
    one, nine = bracket(grad, trace), bracket(grad, trace, steps=9)
    assert one.low <= one.point <= one.high
    assert one.point == pytest.approx(math.sqrt(one.gradient * one.trace))
    assert nine.point == pytest.approx(one.point / 3)
    assert [nine.low, nine.high, *nine.interval] == pytest.approx(
        [end / 3 for end in (one.low, one.high, *one.interval)]
    )
    assert one.interval[0] < one.point < one.interval[1]
    assert bracket(grad, trace, point="gradient").point == pytest.approx(grad.rate)
    upper = bracket(grad, trace, point="trace", steps=4)
    assert upper.point == pytest.approx(trace.rate / 2)
    assert upper.interval[0] < upper.point < upper.interval[1]


def test_gradients_that_point_apart_are_said_to() -> None:
    u, t = normal(30, 6, 4), normal(30, 9, 4, seed=1)
    w = normal(30, 4, 1, seed=2)
    with pytest.raises(UserError, match="does not help"):
        bracket(gradient_moments(u, t, u @ w, -t @ w), split_moments(u, t))


def test_the_bootstrap_interval_covers_what_it_should() -> None:
    truth = limit_moments(normal(20_000, 6, 4)).rate
    hits = 0
    for seed in range(60):
        low, high = interval_of(limit_moments(normal(80, 6, 4, seed=100 + seed)), draws=300)
        hits += low <= truth <= high
    assert 0.83 <= hits / 60 <= 1.0  # 95 % nominal; five standard errors of 60 trials below


# ---- the paper's numbers and theorems ----


def test_the_paper_s_setting_gives_its_value_and_the_grid_minimiser_agrees() -> None:
    """U(−5, 5), d = 20, K = 50, optima N(0, 3I): 0.0357, within 2 % of the minimiser at N = 2,000."""
    features = uniform(-5, 5, 2000, 50, 20)
    optima = math.sqrt(3) * normal(2000, 20, seed=1)
    estimate = limit_moments(features).rate
    assert estimate == pytest.approx(0.0357, abs=printed(4))
    sums = task_sums(features, optima)
    rate = best_rate(sums, bounds(features).high)
    assert abs(estimate / rate - 1) < 0.02
    grid = torch.linspace(0.02, 0.05, 301, dtype=torch.float64).tolist()
    values = risk_curve(sums, grid)
    assert grid[values.index(min(values))] == pytest.approx(rate, abs=2 * (grid[1] - grid[0]))


def test_the_estimate_comes_closer_with_more_tasks() -> None:
    """Figure 8: |α*(N) − α*_lim| shrinks with N."""
    features = uniform(-5, 5, 4096, 50, 20)
    optima = math.sqrt(3) * normal(4096, 20, seed=1)
    limit = limit_moments(features).rate
    errors = []
    for n in (4, 64, 1024):
        trials = [task_sums(features[i * n : (i + 1) * n], optima[i * n : (i + 1) * n]) for i in range(4)]
        errors.append(sum(abs(best_rate(s, 0.06) - limit) for s in trials) / 4)
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def random_setting(seed: int) -> tuple[Tensor, torch.Generator]:
    """Features of a random kind, size and scale."""
    made = torch.Generator().manual_seed(seed)
    n, k, d = (int(torch.randint(2, high, (1,), generator=made)) for high in (30, 15, 12))
    kind = int(torch.randint(5, (1,), generator=made))
    scale = float(10 ** (2 * torch.rand(1, generator=made) - 1))
    x = torch.randn(n, k, 1 if kind == 4 else d, generator=made, dtype=torch.float64)
    if kind == 1:
        x = torch.rand(n, k, d, generator=made, dtype=torch.float64) - 0.3
    elif kind == 2:
        x = x.exp()
    elif kind == 3:
        x = x / (x.abs() + 0.05)
    elif kind == 4:
        x = polynomial_basis(x, d)
    return scale * x, made


def test_the_safe_bounds_hold_in_a_thousand_settings() -> None:
    for seed in range(1000):
        features, _ = random_setting(seed)
        rate, limits = limit_moments(features).rate, bounds(features)
        assert limits.low * (1 - CHAINED) <= rate <= limits.high * (1 + CHAINED), seed


def test_corollary_1_s_lower_bound_fails_for_polynomials_of_a_gaussian() -> None:
    """Its upper bound is a theorem; the lower one is broken by heavy tails."""
    heavy = polynomial_basis(normal(4000, 20, 1), 8)
    assert limit_moments(heavy).rate < bounds(heavy).corollary_low
    light = uniform(-5, 5, 200, 50, 20)
    limits = bounds(light)
    assert limits.corollary_low < limit_moments(light).rate < limits.corollary_high
    broken = sum(
        limit_moments(f).rate < bounds(f).corollary_low for f in (random_setting(s)[0] for s in range(200))
    )
    assert broken > 0


def orthogonal_features(
    n: int, k: int, d: int, scale: float, draw: Callable[..., Tensor], made: torch.Generator
) -> Tensor:
    """Orthogonal columns of random lengths: the theorem assumes diagonal covariances."""
    base = torch.linalg.qr(torch.randn(n, k, d, generator=made, dtype=torch.float64))[0]
    lengths = scale * (0.5 + draw(n, 1, d, generator=made, dtype=torch.float64).abs())
    return base * lengths * math.sqrt(k)


def test_theorem_2_holds_on_average_in_a_hundred_settings() -> None:
    """E F_t(w_m(α)) ≤ E F_t(w_r): expectation over optima in closed form, over features by 40 draws."""
    for seed in range(100):
        made = torch.Generator().manual_seed(seed)
        d, n = (int(torch.randint(2, high, (1,), generator=made)) for high in (6, 12))
        k = d + 3 + int(torch.randint(0, 10, (1,), generator=made))
        t = int(torch.randint(0, 20, (1,), generator=made))
        scale = float(0.3 + 3 * torch.rand(1, generator=made))
        draw = (torch.rand, torch.randn)[seed % 2]
        features = partial(orthogonal_features, k=k, d=d, scale=scale, draw=draw, made=made)
        fresh = features(2000)
        values = fresh.square().sum(1)
        moments = [values.pow(p).mean(0) for p in (1, 2, 3)]
        constant = float((moments[2] * moments[0] - moments[1].square()).min())
        largest = theorem2_range(float(values.min()), float(values.max()), constant, k)
        assert largest > 0
        eta = 0.4 * k / float(values.max())
        shrink = torch.diag((1 - 2 * eta / k * values).pow(2 * t).mean(0))
        gaps = []
        for _ in range(40):
            train = features(n)
            gaps.append(expected_distance(train, 0.0, shrink) - expected_distance(train, largest, shrink))
        assert sum(gaps) > 0, seed


def test_the_merged_heuristic_is_far_below_the_limit_at_d_20() -> None:
    features = uniform(-5, 5, 500, 50, 20)
    assert limit_moments(features).rate / merged_rate(features) == pytest.approx(11.9, rel=0.02)


def test_h15_scales_with_the_number_of_tasks_and_is_not_h14() -> None:
    features = normal(20, 5, 40)
    assert variance_rate(features[:10]) / variance_rate(features) == pytest.approx(2.0, rel=0.1)
    # i.i.d. entries, NK ≪ d: H.14 tends to NK/(2dσ²)
    wide = normal(4, 5, 4000)
    assert stacked_rate(wide) == pytest.approx(20 / (2 * 4000), rel=0.05)


# ---- closed forms ----


@pytest.mark.parametrize("split", [True, False])
def test_solutions_and_risk_equal_the_stacked_least_squares(split: bool) -> None:
    x, a = normal(7, 6, 4), normal(7, 4, seed=1)
    t = normal(7, 5, 4, seed=2) if split else None
    whole = task_sums(x, a, t)
    parts = add_sums(
        [task_sums(x[i : i + 3], a[i : i + 3], None if t is None else t[i : i + 3]) for i in (0, 3, 6)]
    )
    for rate in (0.0, 0.05, 0.3):
        w = maml_solution(whole, rate)
        assert_close(w, slow.maml_solution(x, a, rate, t), (CHAINED, MULTIPLIED))
        assert_close(maml_solution(parts, rate), w, (CHAINED, MULTIPLIED))
        total = 0.0
        for i in range(7):
            judged = x[i] if t is None else t[i]
            moved = slow.adapt(x[i], a[i], w, rate, 1)
            total += float((judged @ (moved - a[i])).square().mean()) / 7
        assert risk(whole, w, rate) == pytest.approx(total, rel=CHAINED)
    assert_close(erm_solution(whole), maml_solution(whole, 0.0))
    assert trajectory(whole, [0.0, 0.1]).shape == (2, 4)


def test_labelled_sums_are_realisable_ones_and_plain_steps_on_any_labels() -> None:
    x, t, a = normal(7, 6, 4), normal(7, 5, 4, seed=2), normal(7, 4, seed=1)
    y, yt = torch.einsum("nkd,nd->nk", x, a), torch.einsum("nkd,nd->nk", t, a)
    for actual, expected in zip(labelled_sums(x, y, t, yt)[:3], task_sums(x, a, t)[:3], strict=True):
        assert_close(actual, expected)
    y, yt = y + normal(7, 6, seed=3), yt + normal(7, 5, seed=4)
    sums, w, rate = labelled_sums(x, y, t, yt), normal(4, seed=5), 0.2
    total = 0.0
    for i in range(7):
        step = 2 * rate / 6 * x[i].T @ (x[i] @ w - y[i])
        total += float((t[i] @ (w - step) - yt[i]).square().mean()) / 7
    assert risk(sums, w, rate) == pytest.approx(total, rel=CHAINED)
    best = maml_solution(sums, rate)
    assert all(risk(sums, best, rate) < risk(sums, best + 0.01 * normal(4, seed=s), rate) for s in range(5))


def test_distances_after_adaptation_are_those_of_plain_gradient_steps() -> None:
    x, a, w = normal(5, 6, 4), normal(5, 4, seed=1), normal(4, seed=2)
    steps = [0, 1, 5]
    distances = adapted_distance(x, a, w, 0.05, steps)
    losses = adapted_loss(x, a, w, 0.05, steps)
    for t, distance, loss in zip(steps, distances, losses, strict=True):
        moved = torch.stack([slow.adapt(x[i], a[i], w, 0.05, t) for i in range(5)])
        assert distance == pytest.approx(float((moved - a).square().sum(1).mean()), rel=CHAINED)
        expected = torch.einsum("nkd,nd->nk", x, moved - a).square().sum(1).mean()
        assert loss == pytest.approx(float(expected), rel=CHAINED)


def test_the_expectation_over_optima_is_the_mean_over_draws() -> None:
    x, shrink = normal(6, 5, 3), torch.diag(torch.tensor([1.0, 0.5, 0.2], dtype=torch.float64))
    values = []
    for seed in range(3000):
        w = maml_solution(task_sums(x, normal(6, 3, seed=seed)), 0.1)
        values.append(float(w @ shrink @ w))
    sample = torch.tensor(values)
    error = float(sample.std()) / math.sqrt(len(values))
    assert abs(float(sample.mean()) - expected_distance(x, 0.1, shrink)) < 5 * error


# ---- basis functions, bad input ----


def test_basis_functions() -> None:
    x = uniform(-1, 1, 2, 3, 1)
    assert gaussian_basis(x, spread_centres(-1, 1, 4), 0.5).shape == (2, 3, 4)
    assert_close(polynomial_basis(x, 3)[..., 2], x[..., 0] ** 2)
    assert_close(polynomial_basis(x, 4, scaled=True)[..., 3], x[..., 0] ** 3 / 6)
    wide = random_matrix(normal(1, 20_000, 3), 2, torch.Generator().manual_seed(0))
    assert float(wide.square().mean()) == pytest.approx(1.0, rel=0.9)
    with pytest.raises(UserError, match="one coordinate"):
        polynomial_basis(normal(1, 2, 2), 3)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: limit_moments(normal(3, 4)), "tasks, samples"),
        (lambda: split_moments(normal(3, 4, 2), normal(3, 4, 5)), "equal tasks"),
        (lambda: limit_moments(normal(3, 4, 2), "cross-entropy"), "classes"),
        (lambda: gaussian_basis(normal(1, 2, 3), spread_centres(0, 1, 4), 1.0), "centres"),
    ],
)
def test_bad_input_is_answered_with_the_fix(call: object, match: str) -> None:
    with pytest.raises(UserError, match=match):
        call()  # type: ignore[operator]
