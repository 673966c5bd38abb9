"""Slips in the papers' formulas, each shown by a case where the printed form is wrong (theory, §2).

Slip 1 (Θ or Θ − K in Bridge's Lemma 1) and slip 4 (λτ cancels) are in ``test_kernel_predictions.py``, where
trained networks decide between them.
"""

from __future__ import annotations

import math

import pytest
import torch

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import Params
from innerloop.kernels.analytic.networks import mlp_kernel
from innerloop.kernels.empirical.exact import exact_metantk, jacobian_kernel
from innerloop.kernels.empirical.kernel import empirical_kernel
from innerloop.kernels.meta.descent import Descent, residual, response
from innerloop.kernels.meta.kernel import diagonal_blocks, from_blocks, maml_kernel, mtl_kernel, stack
from innerloop.learners import maml
from innerloop.learners.objectives.multitask import multitask, task_head
from innerloop.nets.mlp import mlp
from innerloop.nets.network import apply
from innerloop.testing.closeness import CHAINED, MULTIPLIED, assert_close
from innerloop.theory.convergence import linear_loss, loss_bound, rates
from innerloop.theory.kernels import depth_structure, inverse_gap, log_slope
from oracles import metakernels as slow

KERNEL = mlp_kernel(3)


def double(params: Params) -> Params:
    return {name: value.double() for name, value in params.items()}


def relative(a, b):
    return float((a - b).norm() / b.norm())


def unit_inputs(n, dim, norm, seed=0):
    x = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x * norm / x.norm(dim=-1, keepdim=True)


def test_slip_2_line_2_of_eq_57_needs_an_identity_that_is_false():
    train, test = slow.regression_tasks(1, 3, 4), slow.regression_tasks(1, 2, 5, seed=1)
    x, xs, xj = test.x_query[0], test.x_support[0], train.x_support[0]
    within, time = KERNEL(xs, xs).nngp, 0.8
    B = KERNEL(x, xs).nngp @ slow.slow_response(within, time)
    line_1 = (KERNEL(x, xj).ntk - KERNEL(x, xj).nngp) - B @ (KERNEL(xs, xj).ntk - KERNEL(xs, xj).nngp)
    decay = torch.linalg.matrix_exp(-time * within)
    common = KERNEL(x, xj).ntk - B @ KERNEL(xs, xj).ntk
    printed = common - KERNEL(x, xs).nngp @ decay @ KERNEL(xs, xj).nngp
    inverted = torch.linalg.inv(within) @ decay
    repaired = common - KERNEL(x, xs).nngp @ inverted @ KERNEL(xs, xj).nngp  # with the missing inverse
    assert relative(printed, line_1) > 0.01
    assert relative(repaired, line_1) > 0.01  # still assumes K(X,X_j) = K(X,X')K(X',X')⁻¹K(X',X_j)
    at_support = KERNEL(xs, xj).nngp - within @ torch.linalg.inv(within) @ KERNEL(xs, xj).nngp
    assert float(at_support.abs().max()) < CHAINED  # where it does hold: at the support samples themselves


def head_gram(width: int, heads: str, seed: int = 0):
    """The tangent kernel of a multi-head network over all tasks' samples, and its own Θ and K."""
    net = mlp(4, [width], 1, parametrisation="ntk")
    params = double(net.init(torch.Generator().manual_seed(seed))[0])
    tasks = slow.regression_tasks(3, 1, 3, outputs=1)
    objective = multitask(net, get_loss("half-sse"), 3, heads=heads)
    params = double(objective.init(params, torch.Generator().manual_seed(seed + 1)))
    xs = tasks.x_support

    def outputs(p: Params):
        own = [
            net.head(task_head(p, torch.tensor(i)), net.features(p, {}, x, "batch")[0])
            for i, x in enumerate(xs)
        ]
        return torch.cat(own).flatten()

    base = empirical_kernel(net, params)(stack(xs), stack(xs))
    return jacobian_kernel(outputs, params), base


def test_slip_3_shared_heads_give_the_papers_kernel_exactly():
    gram, base = head_gram(64, "shared")
    assert_close(gram, mtl_kernel(base.ntk, base.nngp, 3), (CHAINED, CHAINED))


def test_slip_3_independent_heads_share_less_and_less_with_width():
    """Eq. 62 needs one shared draw: otherwise off-diagonal blocks vanish like width^−½."""
    widths, shares = [128, 2048], []
    for width in widths:
        draws = []
        for seed in range(6):
            gram, base = head_gram(width, "independent", seed)
            off = gram - from_blocks(diagonal_blocks(gram, 3))
            body = base.ntk - base.nngp
            draws.append(float(off.norm() / (body - from_blocks(diagonal_blocks(body, 3))).norm()))
        shares.append(sum(draws) / len(draws))
    assert shares[1] < 0.1
    assert log_slope([float(w) for w in widths], shares) == pytest.approx(-0.5, abs=0.2)


def test_slip_5_the_rate_and_its_condition():
    phi = torch.diag(torch.tensor([0.5, 2.0, 4.0], dtype=torch.float64))
    start = torch.ones(3, 1, dtype=torch.float64)
    own, times = rates(phi), torch.arange(200, dtype=torch.float64)
    assert own.eta0 == pytest.approx(2 / 4.5)
    good = linear_loss(phi, start, own.eta0, times)
    assert (good <= loss_bound(times, own.eta0, 0.5, float(good[0]))).all()
    small = linear_loss(phi, start, own.eta0 / 100, times)
    assert (small <= loss_bound(times, own.eta0 / 100, 0.5, float(small[0]))).all()
    assert not (small <= loss_bound(times, own.eta0, 0.5, float(small[0]))).all()  # the rate must carry η
    above = linear_loss(phi, start, 1.2 * own.eta0, times)  # "η > η₀", as printed
    assert above[-1] > above[0]
    with pytest.raises(UserError, match="at most eta0"):
        loss_bound(times, 10.0, 0.5, 1.0)


def test_slip_5_each_kernel_has_its_own_eta0():
    """2/(σ_min(Φ_MTL) + σ_max(Φ_ANIL)), printed for both, may exceed what one of them bears."""
    wide, narrow = torch.diag(torch.tensor([1.0, 10.0])), torch.diag(torch.tensor([1.0, 2.0]))
    printed = 2 / (rates(wide).smallest + rates(narrow).largest)
    assert printed > 2 / rates(wide).largest  # gradient descent on the first kernel diverges
    assert min(rates(wide).eta0, rates(narrow).eta0) < 2 / rates(wide).largest


def test_slip_5_lemma_5_subtracts_the_blocks():
    xs = slow.regression_tasks(4, 1, 3).x_support
    base = KERNEL(stack(xs), stack(xs))
    own = from_blocks(diagonal_blocks(base.nngp, 4))
    phi = mtl_kernel(base.ntk, base.nngp, 4)
    assert_close(base.ntk - (base.nngp - own), phi)
    assert relative(base.ntk - (base.nngp + own), phi) > 0.1  # as printed


def test_slip_6_the_sign_in_eq_84():
    """For a linear model the adapted output is f − ΘT(f − Y'), eq. 58; eq. 84 has a plus."""
    net = mlp(4, [], 1, parametrisation="ntk", bias=False)
    params = double(net.init(torch.Generator().manual_seed(0))[0])
    task = slow.regression_tasks(1, 3, 2, outputs=1).task(0)
    learner = maml(net, get_loss("half-sse"), 0.1, 4)
    adapted = learner.predict(learner.adapt(params, {}, task.x_support, task.y_support), task.x_query)[0]
    kernel = empirical_kernel(net, params)
    first, at_support = apply(net, params, {}, task.x_query)[0], apply(net, params, {}, task.x_support)[0]
    T = response(kernel(task.x_support, task.x_support).ntk, Descent(0.4, 4))
    move = kernel(task.x_query, task.x_support).ntk @ T @ (at_support - task.y_support)
    assert_close(adapted, first - move, (CHAINED, MULTIPLIED))
    assert relative(first + move, adapted) > 0.1


def test_slip_6_eqs_61_and_62_need_squared_singular_values():
    jacobian = torch.randn(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left, values, _ = torch.linalg.svd(jacobian, full_matrices=False)
    decay = residual(jacobian @ jacobian.T, Descent(0.3))
    assert_close(left @ torch.diag(torch.exp(-0.3 * values**2)) @ left.T, decay)
    assert relative(left @ torch.diag(torch.exp(-0.3 * values)) @ left.T, decay) > 0.05


def test_slip_7_standard_parametrisation_loses_the_first_layer():
    """σ_w²/l times the standard kernel tends to Θ without its first layer's own term."""
    x, width = unit_inputs(6, 5, math.sqrt(5)), 4096
    net = mlp(5, [width], 1, parametrisation="standard", bias=False, weight_var=2.0)
    params = double(net.init(torch.Generator().manual_seed(0))[0])
    scaled = 2 / width * empirical_kernel(net, params)(x, x).ntk
    base = mlp_kernel(2)(x, x)  # Θ² = Σ² + σ_w²κ₀ Θ¹; the readout's own gradients make Σ²
    assert relative(scaled, base.nngp) < 0.1
    assert relative(scaled, base.ntk) > 0.3


# ---- the MetaNTK of eq. 106 and the exact one ----


def metantk_errors(width: int, seed: int) -> tuple[float, float]:
    """How far eq. 106 lies from the exact second-order kernel: from its own Θ, from the analytic one."""
    net = mlp(4, [width, width], 1, parametrisation="ntk")
    params = double(net.init(torch.Generator().manual_seed(seed))[0])
    tasks = slow.regression_tasks(2, 2, 3, outputs=1)
    learner = maml(net, get_loss("half-sse"), 0.02, 2)
    exact = exact_metantk(
        lambda p, t: learner.predict(learner.adapt(p, {}, t.x_support, t.y_support), t.x_query)[0],
        params,
        tasks,
    )
    x = torch.cat([stack(tasks.x_query), stack(tasks.x_support)])
    own, limit = empirical_kernel(net, params)(x, x).ntk, mlp_kernel(3)(x, x).ntk
    return tuple(relative(maml_kernel(ntk, 2, 2, Descent(0.04, 2)), exact) for ntk in (own, limit))


def test_eq_106_approaches_the_exact_kernel_with_width():
    widths = [32, 512]
    errors = [[metantk_errors(width, seed) for seed in range(6)] for width in widths]
    own, limit = ([sum(e[i] for e in draws) / len(draws) for draws in errors] for i in (0, 1))
    assert own[1] < 0.05
    assert own[1] < own[0] / 4  # towards 1/width; sixteen times the width
    assert log_slope([float(w) for w in widths], limit) == pytest.approx(-0.5, abs=0.25)


# ---- depth ----


def test_deep_relu_kernels_have_the_structure_of_lemma_4():
    """For Σ¹(x,x) = 1, that is ‖x‖² = d/2 under He's initialisation."""
    x = unit_inputs(8, 10, math.sqrt(5))
    deep, deeper = (depth_structure(k.ntk, k.nngp, d) for d in (256, 1024) for k in [mlp_kernel(d)(x, x)])
    assert deeper.ntk_off == pytest.approx(0.25, abs=0.01)
    assert deeper.nngp_gap == pytest.approx(9 * math.pi**2 / 2, rel=0.05)
    assert abs(deeper.ntk_bulk - 1) < abs(deep.ntk_bulk - 1) < 0.05
    assert deeper.ntk_excess > deep.ntk_excess + 0.3  # the remainder is not O(1): it grows like log L


def test_lemma_5_the_inverses_come_together_like_one_over_depth_squared():
    xs = unit_inputs(12, 10, math.sqrt(10)).view(4, 3, 10)
    gaps = []
    for depth in (16, 64, 256):
        base = mlp_kernel(depth)(stack(xs), stack(xs))
        gaps.append(inverse_gap(base.ntk, mtl_kernel(base.ntk, base.nngp, 4)))
    assert log_slope([16.0, 64.0, 256.0], gaps) == pytest.approx(-2, abs=0.25)
