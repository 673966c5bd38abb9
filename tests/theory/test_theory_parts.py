"""Small parts of estimates, each with an answer that can be told without them."""

import pytest
import torch

from innerloop import mlp
from innerloop.core import stack_tasks
from innerloop.core.types import Task
from innerloop.theory.kernels import log_slope
from innerloop.theory.landscape.features import has_constant, is_linear, principal
from innerloop.theory.landscape.finite import draw_moments
from innerloop.theory.landscape.geography import step_curvature
from innerloop.theory.rate.bracket import pooled_head, residuals
from innerloop.theory.rate.forms import minimise
from innerloop.theory.rate.moments import bootstrap, power_traces
from innerloop.theory.rate.tangent_features import head_stacks


def test_features() -> None:
    assert (is_linear(mlp(3, [], 1)), is_linear(mlp(3, [8], 1))) == (True, False)
    assert (has_constant(mlp(3, [], 1)), has_constant(mlp(3, [], 1, bias=False))) == (True, False)
    z, kept = principal(torch.tensor([[[3.0, 0.0], [0.0, 1.0]]]), 1)
    assert (z.abs().flatten().tolist(), kept) == ([3.0, 0.0], pytest.approx(0.9))
    task = Task(torch.ones(3, 1), torch.ones(3, 2), torch.ones(4, 1), torch.ones(4, 2), torch.tensor(0))
    net = mlp(1, [8], 2)
    stacks = head_stacks(net, *net.init(torch.Generator().manual_seed(0)), stack_tasks([task]))
    assert stacks.query.shape == (1, 4, 9)


def test_landscape() -> None:
    assert step_curvature(0.1, lr=1.0, samples=500, dim=10).item() == pytest.approx(0.081 + 11 / 500 * 1e-3)
    rho = torch.ones(20000, dtype=torch.float64)
    moments = draw_moments(rho, 2, 5, 1.0, torch.Generator().manual_seed(0))
    assert [round(abs(float(x)), 1) for x in moments.gram.mean(0).flatten()] == [1.0, 0.0, 0.0, 1.0]
    assert log_slope([1.0, 2.0, 4.0], [8.0, 4.0, 2.0]) == pytest.approx(-1.0)


def test_rates() -> None:
    slope = residuals(torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.int64), "cross-entropy")
    assert slope.flatten().tolist() == [-0.5, 0.5]
    x = torch.tensor([[[1.0], [2.0]], [[1.0], [2.0]]], dtype=torch.float64)
    y = torch.tensor([[[1.0], [2.0]], [[3.0], [6.0]]], dtype=torch.float64)
    assert round(float(pooled_head(x, y)), 4) == 2
    assert round(minimise(lambda x: (x - 0.3) ** 2, 0.0, 1.0), 5) == 0.3
    square, cube = power_traces(2 * torch.eye(3).expand(2, 3, 3))  # S = 4 I
    assert (square.tolist(), cube.tolist()) == ([48.0, 48.0], [192.0, 192.0])
    values = torch.arange(100, dtype=torch.float64)
    low, high = bootstrap(lambda w: (w @ values) / w.sum(1), 100)
    assert low < 49.5 < high < low + 12 * 1.96
