"""Small parts of kernels, each with an answer that can be told without them."""

import math

import torch

from innerloop import mlp
from innerloop.kernels.analytic.state import identical, initial_state
from innerloop.kernels.empirical.exact import jacobian
from innerloop.kernels.empirical.factors import ConvolutionCall
from innerloop.kernels.empirical.fast_layers import Windows, max_pool2d, max_windows, mean_windows, thinned
from innerloop.kernels.empirical.jacobian import ntk_times
from innerloop.kernels.empirical.tangent import block_size, contract, tangent
from innerloop.kernels.meta import kernel as meta
from innerloop.kernels.meta.descent import Descent, moved, residual, respond, response, weights
from innerloop.kernels.meta.predict import MeanError, mean_error


def test_states() -> None:
    x = torch.tensor([[1.0, 2.0], [0.0, 2.0]])
    assert initial_state(x, x, "none").nngp.tolist() == [[2.5, 2.0], [2.0, 2.0]]
    assert identical(x, x.flip(0)).tolist() == [[False, True], [True, False]]


def test_windows() -> None:
    x = torch.arange(16.0).view(1, 1, 4, 4)
    few, call = thinned(x, ConvolutionCall((1, 1, 1, 1), (2, 2), (0, 0), (1, 1), 1))
    assert (few.flatten().tolist(), call.stride) == ([0.0, 2.0, 8.0, 10.0], (1, 1))
    assert max_pool2d(x).flatten().tolist() == [5.0, 7.0, 13.0, 15.0]
    four = torch.arange(4.0).view(1, 1, 2, 2)
    assert max_windows(four, Windows(3, 1, 1)).flatten().tolist() == [3.0] * 4
    assert mean_windows(four, Windows(3, 1, 1)).flatten().tolist() == [1.5] * 4


def test_jacobians() -> None:
    assert jacobian(lambda p: p["w"] ** 2, {"w": torch.tensor([1.0, 2.0])}).tolist() == [
        [2.0, 0.0],
        [0.0, 4.0],
    ]
    a = torch.tensor([[[1.0], [2.0]]])
    assert contract(a, a, "trace").tolist() == [[2.5]]
    assert contract(a, a, "full")[0, 0].tolist() == [[1.0, 2.0], [2.0, 4.0]]
    t = tangent(mlp(1, [], 1, bias=False), {"layer0.weight": torch.ones(1, 1)}, torch.ones(1, 1))
    times = ntk_times(t, torch.tensor([[2.0]]), torch.tensor([[3.0]]), torch.ones(1, 1))
    assert times.tolist() == [[6.0]]
    assert (block_size(100, 1000, 50), block_size(1, 1000, 50)) == (10, 50)


def test_descent() -> None:
    assert moved(torch.tensor([0.0, 1.0]), Descent(1.0, steps=2)).tolist() == [0.0, 0.75]  # 1 − ½²
    assert weights(torch.tensor([0.0, 2.0]), Descent(3.0))[0] == 3
    assert weights(torch.tensor([0.0, 2.0]), Descent()).tolist() == [0.0, 0.5]
    assert response(torch.diag(torch.tensor([1.0, 4.0])), Descent()).tolist() == [[1.0, 0.0], [0.0, 0.25]]
    assert respond(2 * torch.eye(2), torch.ones(2, 1), Descent()).flatten().tolist() == [0.5, 0.5]
    assert torch.allclose(residual(torch.eye(1), Descent(1.0)), torch.tensor(math.exp(-1.0)))


def test_blocks() -> None:
    assert meta.stack(torch.zeros(3, 2, 5)).shape == (6, 5)
    second = meta.diagonal_blocks(torch.arange(16.0).view(4, 4), 2)[1]
    assert second.tolist() == [[10.0, 11.0], [14.0, 15.0]]
    assert meta.from_blocks(torch.ones(2, 1, 1)).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    times = meta.times_rows(torch.tensor([[[2.0]], [[3.0]]]), torch.ones(2, 2))
    assert times.tolist() == [[2.0, 2.0], [3.0, 3.0]]
    left = meta.project_rows(torch.tensor([[[0.5]]]), torch.tensor([[3.0], [2.0]]))
    assert left.tolist() == [[2.0]]  # 3 − ½·2


def test_mean_over_draws() -> None:
    assert mean_error([torch.tensor([1.0, 3.0]), torch.tensor([4.0, 4.0])]) == MeanError(3.0, 1.0)
