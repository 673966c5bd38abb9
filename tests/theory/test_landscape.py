"""The landscape's closed forms against slow twins, the paper's own lines, simulation and descent."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import innerloop.theory.landscape.forms as known
from innerloop.core.errors import UserError
from innerloop.testing.closeness import LIMIT, ROUNDED, SINGLE_CHAINED, SOLVED_FINELY, SUMMED, assert_close
from innerloop.theory.landscape.finite import empirical_maml, empirical_nal
from innerloop.theory.landscape.forms import compare
from innerloop.theory.landscape.geography import (
    Geography,
    condition,
    effective_dimension,
    environment,
    geography,
    limiting_gain,
    two_tasks,
)
from oracles import landscape as slow

F64 = torch.float64


def draw(
    environments: int, tasks: int, d: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Covariances with eigenvalues between about 0.05 and 1, optima, unequal weights."""
    g = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(environments, tasks, d, d, generator=g, dtype=F64))[0]
    values = 0.05 + 0.95 * torch.rand(environments, tasks, 1, d, generator=g, dtype=F64)
    covariances = (basis * values) @ basis.mT
    optima = torch.randn(environments, tasks, d, generator=g, dtype=F64)
    return covariances, optima, 0.1 + torch.rand(environments, tasks, generator=g, dtype=F64)


# ---- the batched forms and their twins ----


@pytest.mark.parametrize(
    ("environments", "tasks", "d"), [(3, 2, 1), (40, 5, 7), (40, 2, 1), (2, 3, 60), (40, 2, 30)]
)
def test_many_environments_equal_one_by_one(environments: int, tasks: int, d: int) -> None:
    s, w, p = draw(environments, tasks, d)
    landscape = compare(s, w, lr=0.8, shots=9, inner_shots=4, weights=p)
    for e in range(environments):
        shares = (p[e] / p[e].sum()).numpy()
        expected = slow.proposition_1(s[e].numpy(), w[e].numpy(), shares, 0.8, 9, 4)
        for name in ("nal", "maml"):
            mine = getattr(landscape, name)
            best, risks = expected[name]
            assert_close(mine.solution[e], torch.from_numpy(best))
            assert_close(mine.task_risks[e], torch.tensor(risks, dtype=F64))
            assert float(mine.risk[e]) == pytest.approx(float(np.dot(shares, risks)), rel=SUMMED)
    assert_close(landscape.gain, landscape.nal.risk / landscape.maml.risk)


def test_the_single_functions_equal_the_batched_one() -> None:
    s, w, p = draw(6, 4, 5)
    landscape = compare(s, w, lr=0.7, shots=6, inner_shots=3, weights=p)
    assert_close(known.nal_solution(s, w, p), landscape.nal.solution)
    assert_close(known.maml_solution(s, w, 0.7, 3, p), landscape.maml.solution)
    assert_close(known.excess_risk(landscape.maml.solution, s, w, 0.7, 6, p), landscape.maml.risk)
    v = landscape.nal.solution[:, None] - w
    by_q = 0.5 * torch.einsum("eti,etij,etj->et", v, known.adapted_curvature(s, 0.7, 6), v)
    assert_close(landscape.nal.task_risks, by_q)


def test_chunks_and_leading_axes_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    s, w, p = draw(12, 3, 4)
    whole = compare(s, w, lr=0.5, shots=5, weights=p)
    monkeypatch.setattr("innerloop.theory.landscape.forms.NUMBERS", 1)
    monkeypatch.setattr("innerloop.theory.landscape.forms.MANY", 5)
    parts = compare(s.view(3, 4, 3, 4, 4), w.view(3, 4, 3, 4), lr=0.5, shots=5, weights=p.view(3, 4, 3))
    assert parts.maml.solution.shape == (3, 4, 4)
    assert_close(parts.gain.flatten(), whole.gain)


@pytest.mark.parametrize("count", [3, 36])  # the general way, and that for many
def test_a_rate_and_shots_for_every_environment(count: int) -> None:
    s, w, _ = draw(count, 2, 4)
    rates = torch.tensor([0.2, 0.5, 1.0], dtype=F64).repeat(count // 3)
    shots = torch.tensor([3.0, 10.0, math.inf], dtype=F64).repeat(count // 3)
    together = compare(s, w, lr=rates, shots=shots)
    for e in range(count):
        alone = compare(s[e], w[e], lr=float(rates[e]), shots=float(shots[e]))
        assert_close(together.maml.solution[e], alone.maml.solution)
        assert_close(together.maml.risk[e], alone.maml.risk)


def test_singular_environments_among_many_are_answered() -> None:
    """One step solves the easy task, and the second input is always zero: any second weight will do."""
    s = torch.diag_embed(torch.tensor([[0.5, 0.0], [1.0, 0.0]], dtype=F64)).expand(40, 2, 2, 2)
    w = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=F64).expand(40, 2, 2)
    landscape = compare(s, w, lr=1.0, shots=math.inf)
    assert_close(landscape.maml.solution[:, 0], torch.ones(40, dtype=F64), (SOLVED_FINELY, SOLVED_FINELY))
    assert float(landscape.maml.risk.max()) < ROUNDED


def test_single_precision_and_the_dtype_of_the_inputs() -> None:
    s, w, _ = draw(50, 2, 10)
    landscape = compare(s.float(), w.float(), lr=0.9, shots=20)
    assert landscape.maml.solution.dtype == torch.float32
    exact = compare(s, w, lr=0.9, shots=20).maml.solution
    assert_close(landscape.maml.solution.double(), exact, (1e-3, SINGLE_CHAINED))


def test_maml_is_never_worse_when_the_steps_are_alike_and_gains_nothing_from_equal_tasks() -> None:
    s, w, p = draw(500, 3, 6)
    assert float(compare(s, w, lr=0.9, shots=8, weights=p).gain.min()) >= 1 - 1e-12
    same = compare(s[:, :1].expand(-1, 3, -1, -1), w, lr=0.9, shots=8, weights=p)
    assert_close(same.gain, torch.ones_like(same.gain))


# ---- the paper's lines ----


@pytest.mark.parametrize("lr", [0.3, 1.0, 1.4])
def test_geography_is_corollary_1(lr: float) -> None:
    env = Geography(dim=7, rho_hard=0.2, rho_easy=1.1, R=1.7, r_hard=0.4, r_easy=0.9)
    places = geography(env, lr, shots=30)
    expected = slow.equations_10_and_11(7, 0.2, 1.1, 1.7, 0.4, 0.9, lr, 30)
    assert (float(places.nal.risk), float(places.maml.risk)) == pytest.approx(expected, rel=ROUNDED)


def test_geography_is_the_limit_of_many_tasks() -> None:
    """Two tasks at the centres, and the spread's own share of the risk added by hand."""
    env = Geography(dim=4, rho_hard=0.2, rho_easy=1.0, R=1.5, r_hard=0.3, r_easy=0.6, hard_share=0.3)
    places = geography(env, 0.9, shots=12, inner_shots=5)
    eye = torch.eye(4, dtype=F64)
    centres = torch.stack([1.5 * torch.ones(4, dtype=F64), torch.zeros(4, dtype=F64)])
    s = torch.stack([0.2 * eye, 1.0 * eye])
    two = compare(s, centres, lr=0.9, shots=12, inner_shots=5, weights=torch.tensor([0.3, 0.7], dtype=F64))
    spread = [
        0.5 * r * float(torch.trace(known.adapted_curvature(s[i : i + 1], 0.9, 12)[0]))
        for i, r in enumerate((0.3, 0.6))
    ]
    for mine, theirs in ((places.nal, two.nal), (places.maml, two.maml)):
        assert_close(mine.coordinate.expand(4), theirs.solution)
        assert float(mine.risk_hard) == pytest.approx(float(theirs.task_risks[0]) + spread[0], rel=ROUNDED)
        assert float(mine.risk_easy) == pytest.approx(float(theirs.task_risks[1]) + spread[1], rel=ROUNDED)


def test_two_tasks_have_the_factor_that_equation_9_lacks() -> None:
    eye, one = torch.eye(5, dtype=F64), torch.ones(5, dtype=F64)
    s, w = torch.stack([0.3 * eye, 1.2 * eye]), torch.stack([one, -0.5 * one])
    landscape = compare(s, w, lr=0.7, shots=11)
    nal, maml = two_tasks(float((w[0] - w[1]).norm()), 0.3, 1.2, 5, 0.7, 11)
    assert float(nal) == pytest.approx(float(landscape.nal.risk), rel=ROUNDED)
    assert float(maml) == pytest.approx(float(landscape.maml.risk), rel=ROUNDED)


def test_the_limiting_gain_needs_its_bracket() -> None:
    env = Geography(dim=10, rho_hard=0.5, rho_easy=1.0, R=2.0, r_hard=0.1, r_easy=0.5)
    gain = float(geography(env, 1.0, shots=1e9).gain)
    assert gain == pytest.approx(float(limiting_gain(env)), rel=LIMIT)
    assert abs(gain - (1 + 4 / 0.1)) > 20  # eq. 12 as printed
    assert float(condition(env, 1e9).ratio) > 1e6


def test_effective_dimension_of_a_power_law_is_its_sum() -> None:
    """Remark 1: eigenvalues 1, ½, ¼, … have tr Σ/‖Σ‖ = 2 − 2^(1−d) in any basis, whatever their scale."""
    d = 12
    basis = torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(0), dtype=F64))[0]
    values = 0.5 ** torch.arange(d, dtype=F64)
    for scale in (1.0, 0.03):
        assert_close(
            effective_dimension(scale * (basis * values) @ basis.mT),
            torch.tensor(2 - 2.0 ** (1 - d)).double(),
        )
    assert_close(effective_dimension(0.3 * torch.eye(d, dtype=F64)), torch.tensor(float(d)).double())


def test_the_noise_of_the_step_is_below_the_effective_dimension() -> None:
    """What d/m stands for, α² tr(Σ²)/m at α = 1/‖Σ‖, is at most tr Σ/(‖Σ‖ m), with equality for ρI only."""
    for seed in range(5):
        s, _, _ = draw(1, 3, 6, seed)
        largest = torch.linalg.eigvalsh(s[0])[:, -1]
        noise = s[0].square().sum((1, 2)) / largest**2
        assert bool((noise < effective_dimension(s[0])).all())
    side = condition(Geography(6, 0.2, 1.1, 1.0, 0.5, 0.1), shots=30)
    assert float(side.effective_per_shot) == float(side.dimension_per_shot) == 6 / 30


def test_table_3_has_its_samples_swapped() -> None:
    """With 25 inner samples no rate brings MAML above 0.44; with 500 it is the published 1.58."""
    env = Geography(dim=10, rho_hard=0.1, rho_easy=1.0, R=2.0, r_hard=1.0, r_easy=1.0)
    assert float(geography(env, 1.0, 500, 500).maml.coordinate) == pytest.approx(1.573, abs=1e-3)
    rates = torch.linspace(0.01, 3, 300, dtype=F64)
    assert float(geography(env, rates, 500, 25).maml.coordinate.max()) == pytest.approx(0.443, abs=2e-3)


# ---- simulation ----


def test_simulated_risk_of_twenty_environments() -> None:
    """Within three standard errors, those below 1 %: random environments, random initialisations."""
    dims = np.linspace(3, 50, 20).round().astype(int)
    for e, d in enumerate(dims):
        tasks, shots, lr, noise = 3, 5 + 3 * e, 0.8, 0.3
        s, w, p = draw(1, tasks, int(d), seed=100 + e)
        start = torch.randn(int(d), generator=torch.Generator().manual_seed(e), dtype=F64)
        shares = (p / p.sum(-1, keepdim=True))[0]
        parts = known.irreducible(s[0], lr, shots, noise, shares)
        expected = float(known.excess_risk(start, s[0], w[0], lr, shots, shares) + parts.step)
        mean, variance = 0.0, 0.0
        count = 4000 if d < 20 else 1200
        for i in range(tasks):
            values = slow.simulate_step(
                start.numpy(), s[0, i].numpy(), w[0, i].numpy(), lr, shots, noise, count, seed=10 * e + i
            )
            mean += float(shares[i]) * float(values.mean())
            variance += float(shares[i]) ** 2 * float(values.var(ddof=1)) / count
        error = math.sqrt(variance)
        assert error < 0.01 * expected, f"d={d}: the standard error is {error / expected:.2%}"
        assert abs(mean - expected) <= 3 * error, f"d={d}: {(mean - expected) / error:.1f} standard errors"


def test_the_irreducible_part_is_what_the_optimum_costs() -> None:
    s, w, _ = draw(1, 1, 6)
    best = w[0, 0]
    values = slow.simulate_step(best.numpy(), s[0, 0].numpy(), best.numpy(), 0.9, 7, 0.5, 40_000, 0)
    parts = known.irreducible(s[0], 0.9, 7, 0.5)
    error = values.std() / math.sqrt(len(values))
    assert abs(values.mean() - float(parts.step)) < 4 * error
    assert float(parts.noise) == 0.125
    assert float(known.excess_risk(best, s[0], w[0], 0.9, 7)) == 0


# ---- finite samples ----


def samples(n: int, shots: int, seed: int = 0, noise: float = 0.2) -> tuple[torch.Tensor, ...]:
    """Episodes of two tasks in turn: inputs, noise and optima of each."""
    s, w, _ = draw(1, 2, 3, seed=5)
    g = torch.Generator().manual_seed(seed)
    root = torch.linalg.cholesky(s[0])
    which = torch.arange(n) % 2
    x = torch.randn(n, shots, 3, generator=g, dtype=F64) @ root[which].mT
    z = noise * torch.randn(n, shots, generator=g, dtype=F64)
    return x, z, w[0][which]


def targets(x: torch.Tensor, z: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
    return (x @ best[..., None])[..., 0] + z


def test_empirical_maml_is_equation_43() -> None:
    x_in, z_in, best = samples(8, 6)
    x_out, z_out, _ = samples(8, 4, seed=1)
    solution = empirical_maml(x_in, targets(x_in, z_in, best), x_out, targets(x_out, z_out, best), lr=0.6)
    expected = slow.equation_43(*(a.numpy() for a in (x_in, z_in, x_out, z_out, best)), lr=0.6)
    assert_close(solution, torch.from_numpy(expected))


def test_empirical_solutions_have_no_gradient_left() -> None:
    """By autograd through an explicit inner step, which knows none of the formulas."""
    x_in, z_in, best = samples(8, 6)
    x_out, z_out, _ = samples(8, 4, seed=1)
    y_in, y_out = targets(x_in, z_in, best), targets(x_out, z_out, best)
    w = empirical_maml(x_in, y_in, x_out, y_out, lr=0.6).requires_grad_()
    total = torch.zeros((), dtype=F64)
    for a, ya, b, yb in zip(x_in, y_in, x_out, y_out, strict=True):
        inner = 0.5 * (a @ w - ya).square().mean()
        (gradient,) = torch.autograd.grad(inner, w, create_graph=True)
        total = total + (b @ (w - 0.6 * gradient) - yb).square().mean()
    assert float(torch.autograd.grad(total, w)[0].norm()) < SUMMED
    v = empirical_nal(x_in, y_in).requires_grad_()
    loss = ((x_in @ v) - y_in).square().mean()
    assert float(torch.autograd.grad(loss, v)[0].norm()) < ROUNDED


def test_empirical_solutions_tend_to_the_population_ones() -> None:
    s, w, _ = draw(1, 2, 3, seed=5)
    expected = {
        "nal": known.nal_solution(s[0], w[0]),
        "maml": known.maml_solution(s[0], w[0], 0.6, 6),
    }
    gaps: dict[str, list[float]] = {"nal": [], "maml": []}
    for n in (400, 40_000):
        x_in, z_in, best = samples(n, 6)
        x_out, z_out, _ = samples(n, 4, seed=1)
        y_in, y_out = targets(x_in, z_in, best), targets(x_out, z_out, best)
        gaps["nal"].append(float((empirical_nal(x_in, y_in) - expected["nal"]).norm()))
        gaps["maml"].append(float((empirical_maml(x_in, y_in, x_out, y_out, 0.6) - expected["maml"]).norm()))
    for name, (few, many) in gaps.items():
        assert many < few / 4, name  # ten times nearer, in expectation
        assert many < 0.02, name


def test_up_weighting_is_the_same_as_repeating() -> None:
    x, z, best = samples(4, 5)
    y = targets(x, z, best)
    doubled = empirical_nal(torch.cat([x, x[:1]]), torch.cat([y, y[:1]]))
    assert_close(empirical_nal(x, y, weights=torch.tensor([2.0, 1, 1, 1], dtype=F64)), doubled)


# ---- mistakes ----


def test_arrays_that_do_not_fit_are_refused() -> None:
    s, w, _ = draw(2, 3, 4)
    with pytest.raises(UserError, match="tasks, d, d"):
        compare(s, w[:, :2], lr=0.1, shots=3)
    with pytest.raises(UserError, match="none negative"):
        compare(s, w, lr=0.1, shots=3, weights=-torch.ones(3, dtype=F64))
    with pytest.raises(UserError, match="no start is better"):
        known.maml_solution(torch.eye(2, dtype=F64)[None], torch.ones(1, 2, dtype=F64), 1.0, math.inf)
    with pytest.raises(UserError, match="plain numbers"):
        environment(Geography(2, torch.ones(2), 1.0, 1.0, 1.0, 1.0), 3, torch.Generator())
