"""Bridge's Theorem 3 for ANIL and multi-task learning: kernels, bounds and courses against slow twins."""

from __future__ import annotations

import torch

from innerloop.core.losses import get_loss
from innerloop.core.random import derive_seed
from innerloop.kernels import empirical_kernel, mlp_kernel, mtl_kernel
from innerloop.kernels.empirical.exact import jacobian_kernel
from innerloop.kernels.meta.descent import Descent
from innerloop.kernels.meta.kernel import anil_kernel_without_split, stack
from innerloop.learners import multitask
from innerloop.nets.mlp import mlp
from innerloop.tasks.families import bridge_quadratic
from innerloop.tasks.sampler import make_sampler
from innerloop.testing.closeness import CHAINED, assert_close
from innerloop.theory.convergence import common_rate, linear_distance, linear_loss, loss_bound, rates
from innerloop.training.wide import head_outputs, watch_method, without_split


def bridge_tasks(tasks):
    """Quadratic tasks of Bridge with standardised labels."""
    seed, settings = derive_seed(0, "bridge"), {"dim": 10, "scale": "sphere"}
    given = {"seed": seed, "split": "train", "dtype": torch.float64, "settings": settings}
    sampler = make_sampler(bridge_quadratic, shots=2, queries=2, **given)
    batch, mean, scale = sampler.episodes(range(tasks)), 1.45**3 * 10, 1.45**3 * 20**0.5
    return batch._replace(y_support=(batch.y_support - mean) / scale, y_query=(batch.y_query - mean) / scale)


def small(width=32, tasks=3):
    batch = bridge_tasks(tasks)
    net = mlp(10, [width] * 2, 1, parametrisation="ntk")
    params, _ = net.init(torch.Generator().manual_seed(0))
    return batch, net, {name: value.double() for name, value in params.items()}


def test_heads_on_one_draw_have_bridges_kernel_at_any_width() -> None:
    """Eq. 64 is an identity of empirical kernels if all heads are equal."""
    tasks, net, params = small()
    objective = multitask(net, get_loss("half-sse"), tasks.size, heads="shared")
    started = objective.init(params, torch.Generator().manual_seed(0))
    kernel = jacobian_kernel(head_outputs(net, tasks), started)
    x = stack(torch.cat([tasks.x_support, tasks.x_query], 1))
    base = empirical_kernel(net, params)(x, x)
    assert_close(kernel, mtl_kernel(base.ntk, base.nngp, tasks.size))


def test_head_outputs_are_those_that_the_objective_trains() -> None:
    tasks, net, params = small()
    objective = multitask(net, get_loss("half-sse"), tasks.size, heads="independent")
    started = objective.init(params, torch.Generator().manual_seed(0))
    y = torch.cat([tasks.y_support, tasks.y_query], 1).flatten()
    by_task = sum(objective.loss(started, {}, task)[0] for task in tasks.tasks())
    assert_close((head_outputs(net, tasks)(started) - y).square().sum() / 2, by_task)


def test_without_a_split_anils_kernel_is_bridges() -> None:
    """The exact Jacobian through the inner loop approaches E Θ E as width grows."""
    gaps = []
    for width in (32, 256):
        tasks, net, params = small(width)
        whole = without_split(tasks)
        assert torch.equal(whole.x_query, whole.x_support)
        kernel = watch_method("anil", net, params, whole, 1e-3, 1, inner=(0.02, 2)).first
        x = stack(whole.x_query)
        base = empirical_kernel(net, params)(x, x)
        expected = anil_kernel_without_split(base.ntk, base.nngp, tasks.size, Descent(0.04, 2))
        gaps.append(float((kernel - expected).norm() / expected.norm()))
    assert gaps[1] < gaps[0] / 3


def test_linear_courses_are_gradient_descent() -> None:
    """A linear model by explicit steps: its loss and how far its weights went."""
    draw = torch.Generator().manual_seed(0)
    features, y = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((6, 9), (6, 2)))
    kernel, w, eta = features @ features.T, torch.zeros(9, 2, dtype=torch.float64), 0.03
    times = torch.arange(8, dtype=torch.float64)
    losses, ways = linear_loss(kernel, -y, eta, times), linear_distance(kernel, -y, eta, times)
    for t in range(8):
        assert_close(losses[t], (features @ w - y).square().sum() / 2)
        assert_close(ways[t], w.norm())
        w = w - eta * features.T @ (features @ w - y)


def test_a_singular_kernel_moves_nothing_where_it_is_singular() -> None:
    kernel = torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))
    distance = linear_distance(kernel, torch.ones(2, 1, dtype=torch.float64), 1.0, torch.tensor([1.0]))
    assert_close(distance, torch.ones(1, dtype=torch.float64))


def test_the_printed_rate_lets_multitask_training_diverge() -> None:
    """Theorem 3 prints 2/(σ_min(MTL) + σ_max(ANIL)) twice: ANIL's kernel is damped, MTL's is not."""
    tasks = bridge_tasks(3)
    x = stack(torch.cat([tasks.x_support, tasks.x_query], 1))
    y = stack(torch.cat([tasks.y_support, tasks.y_query], 1))
    base = mlp_kernel(3)(x, x)
    mtl = mtl_kernel(base.ntk, base.nngp, tasks.size)
    damped = anil_kernel_without_split(base.ntk, base.nngp, tasks.size, Descent(0.05, 1))
    right = common_rate(damped, mtl)
    assert right == min(rates(damped).eta0, rates(mtl).eta0)
    printed = 2 / (rates(mtl).smallest + rates(damped).largest)
    times = torch.arange(31, dtype=torch.float64)
    kept, lost = (linear_loss(mtl, -y, 0.95 * eta, times) for eta in (right, printed))
    bound = loss_bound(times, 0.95 * right, rates(mtl).smallest, float(kept[0]))
    assert (kept <= bound * (1 + CHAINED)).all()
    assert lost[-1] > 100 * lost[0]
