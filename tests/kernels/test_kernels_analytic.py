"""Analytic kernels against independent values, Monte Carlo, finite differences and themselves in pieces."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.kernels import (
    KernelFunction,
    analytic_kernel,
    conv_kernel,
    empirical_kernel,
    mlp_kernel,
    residual_kernel,
)
from innerloop.kernels.analytic.activations import activation, relu
from innerloop.kernels.analytic.layers import conv, dense, flatten, global_average_pool
from innerloop.kernels.analytic.state import identical
from innerloop.nets import mlp
from innerloop.testing.closeness import TABULATED, TOLERANCE, assert_close, assert_mean
from support.places import TESTS

VALUES = json.loads((TESTS / "oracles" / "ntk_values.json").read_text())


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def kernel_of(case: dict[str, object]) -> KernelFunction:
    name, rest = str(case["id"]), (float(case["weight_var"]), float(case["bias_var"]))  # type: ignore[arg-type]
    if name.startswith("fc"):
        return mlp_kernel(int(case["depth"]), name.split("_")[1], *rest)  # type: ignore[call-overload]
    if name.startswith("res"):
        norm = "none" if "ln" not in name else "branch" if "nofinal" in name else "all"
        return residual_kernel(3, "relu", *rest, norm=norm)
    return conv_kernel(3, name.split("_")[1], "relu", *rest)


def inputs_of(case: dict[str, object]) -> tuple[Tensor, Tensor]:
    pair = VALUES["inputs"][case["inputs"]]
    x1, x2 = tensor(pair[0]), tensor(pair[1])
    return (x1.permute(0, 3, 1, 2), x2.permute(0, 3, 1, 2)) if x1.ndim == 4 else (x1, x2)


@pytest.mark.parametrize("case", VALUES["cases"], ids=lambda case: case["id"])
def test_equals_independent_values(case: dict[str, object]) -> None:
    """neural-tangents between different inputs; 50 digits (convolutions: 30) of inputs with themselves."""
    kernel, (x1, x2) = kernel_of(case), inputs_of(case)
    for kernels, names in ((kernel(x1, x2), ("nngp", "ntk")), (kernel(x1, x1), ("nngp_11", "ntk_11"))):
        for value, name in zip(kernels, names, strict=True):
            expected = tensor(case[name])
            assert float(((value - expected) / expected).abs().max()) < TABULATED, name


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "erf", "linear"])
def test_one_hidden_layer_is_the_mean_of_random_networks(name: str) -> None:
    """With one hidden layer, the mean over networks is the limit at any width: no bias, only noise."""
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    net = mlp(4, [64], 1, name, "ntk", weight_var=1.7, bias_var=0.3)
    exact = mlp_kernel(2, name, 1.7, 0.3)(x, x)
    draws = []
    for seed in range(60):
        params, _ = net.init(torch.Generator().manual_seed(seed))
        draws.append(empirical_kernel(net, {n: p.double() for n, p in params.items()})(x, x))
    for kind in range(2):
        sample = torch.stack([draw[kind] for draw in draws])
        for i in range(3):
            for j in range(i + 1):
                assert_mean(sample[:, i, j], float(exact[kind][i, j]))


@pytest.mark.parametrize("readout", ["gap", "flatten"])
@pytest.mark.parametrize("stride", [1, 2])
def test_one_convolution_is_the_mean_of_random_networks(readout: str, stride: int) -> None:
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(2, 3, 5, 4, generator=draw, dtype=torch.float64)
    width, weight_var, bias_var = 512, 1.6, 0.2
    exact = conv_kernel(2, readout, "relu", weight_var, bias_var, stride=stride)(x, x)
    sample = []
    for _ in range(150):
        w = torch.randn(width, 3, 3, 3, generator=draw, dtype=torch.float64)
        b = torch.randn(width, generator=draw, dtype=torch.float64)
        h = F.conv2d(x, w * math.sqrt(weight_var / 27), b * math.sqrt(bias_var), stride, padding=1).relu()
        h = h.mean((2, 3)) if readout == "gap" else h.flatten(1)
        sample.append(weight_var * h @ h.T / h.shape[1] + bias_var)
    drawn = torch.stack(sample)
    for i in range(2):
        for j in range(2):
            assert_mean(drawn[:, i, j], float(exact.nngp[i, j]))


@pytest.mark.parametrize("name", ["relu", "erf", "linear"])
def test_depth_approaches_the_limit_with_width(name: str) -> None:
    """Two widths, a factor of 16 apart: the squared distance from the limit falls at least fourfold."""
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    exact = mlp_kernel(4, name, bias_var=0.1)(x, x).ntk
    gaps = []
    for width in (32, 512):
        net, gap = mlp(6, [width] * 3, 1, name, "ntk", bias_var=0.1), 0.0
        for seed in range(8):
            params = {n: p.double() for n, p in net.init(torch.Generator().manual_seed(seed))[0].items()}
            gap += float((empirical_kernel(net, params)(x, x).ntk - exact).square().mean())
        gaps.append(gap)
    assert gaps[1] < gaps[0] / 4


def test_gradients_by_finite_differences() -> None:
    draw = torch.Generator().manual_seed(4)
    x, y = (torch.randn(n, 3, generator=draw, dtype=torch.float64) for n in (3, 2))
    pictures = torch.randn(2, 1, 3, 3, generator=draw, dtype=torch.float64)
    for kernel in (mlp_kernel(3), mlp_kernel(3, "erf", bias_var=0.1), residual_kernel(1, norm="all")):
        assert torch.autograd.gradcheck(lambda a, k=kernel: tuple(k(a, y)), x.clone().requires_grad_())
        # inputs that move together stay at angle zero, so the diagonal has a derivative too
        assert torch.autograd.gradcheck(lambda a, k=kernel: tuple(k(a, a)), x.clone().requires_grad_())
    for readout in ("gap", "flatten"):
        kernel = conv_kernel(3, readout)
        assert torch.autograd.gradcheck(lambda a, k=kernel: tuple(k(a, a)), pictures.clone().requires_grad_())


def test_gradients_are_finite_where_the_slope_is_not() -> None:
    x = torch.eye(3, dtype=torch.float64)
    for second in (x.clone(), -x, torch.zeros_like(x)):
        a = x.clone().requires_grad_()
        kernels = mlp_kernel(4)(a, second)
        (kernels.ntk.sum() + kernels.nngp.sum()).backward()
        assert a.grad is not None
        assert bool(a.grad.isfinite().all())
    blank = torch.zeros(2, 1, 4, 4, requires_grad=True)
    conv_kernel(3, "gap")(blank, blank).ntk.sum().backward()
    assert blank.grad is not None
    assert bool(blank.grad.isfinite().all())


def test_second_derivatives() -> None:
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for kind in range(2):
        both = lambda a, kind=kind: mlp_kernel(3)(a, x + 0.5)[kind]  # noqa: E731
        assert torch.autograd.gradgradcheck(both, x.clone().requires_grad_())


@pytest.mark.parametrize("kernel", [mlp_kernel, conv_kernel], ids=["mlp", "conv"])
def test_blocks_give_the_same(kernel: object) -> None:
    x = torch.randn(7, 2, 3, 3, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    seen: list[tuple[int, int]] = []
    whole = kernel(3)  # type: ignore[operator]
    pieces = kernel(3, block=3, progress=lambda done, total: seen.append((done, total)))  # type: ignore[operator]
    for a, b in zip(pieces(x, x), whole(x, x), strict=True):
        assert_close(a, b)
        assert torch.equal(a[:3, 3:], a[3:, :3].T)  # computed once
    assert seen == [(i, 6) for i in range(1, 7)]
    for a, b in zip(pieces(x, x[:4] + 1), whole(x, x[:4] + 1), strict=True):
        assert_close(a, b)
    assert seen[6:] == [(i, 6) for i in range(1, 7)]


def test_pictures_choose_small_blocks() -> None:
    seen = []
    x = torch.randn(3, 1, 32, 32, generator=torch.Generator().manual_seed(7))
    conv_kernel(2, "gap", progress=lambda done, total: seen.append(total))(x, x)
    assert seen[0] > 1


def test_batches_of_tasks_by_vmap() -> None:
    x = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    kernel = mlp_kernel(3, bias_var=0.1)
    mapped = torch.vmap(lambda a: tuple(kernel(a, a)))(x)
    for i in range(3):
        for a, b in zip(mapped, kernel(x[i], x[i]), strict=True):
            assert_close(a[i], b)


def test_float32() -> None:
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(9))
    for kernel in (mlp_kernel(5), residual_kernel(2, norm="all"), mlp_kernel(3, "erf")):
        for a, b in zip(kernel(x, x), kernel(x.double(), x.double()), strict=True):
            assert a.dtype == torch.float32
            assert_close(a.double(), b, TOLERANCE[torch.float32])


def test_equal_inputs_are_found_and_only_those() -> None:
    """Small integers have most bits zero, which a weak hash would not tell apart."""
    x = torch.cartesian_prod(*[torch.arange(4.0)] * 4)
    assert torch.equal(identical(x, x), torch.eye(256, dtype=torch.bool))
    assert torch.equal(identical(x.double(), x.flip(0).double()), torch.eye(256, dtype=torch.bool).flip(0))
    assert bool(identical(torch.tensor([[0.0]]), torch.tensor([[-0.0]]))) is True


def test_the_diagonal_is_exact_for_copies_in_many_dimensions() -> None:
    """Rounding alone would leave an error of 1e-8; copies in another tensor are recognised."""
    x = torch.randn(4, 3000, generator=torch.Generator().manual_seed(10), dtype=torch.float64)
    kernels = mlp_kernel(6)(x, x.clone())
    own = x.square().mean(1)
    assert_close(kernels.nngp.diagonal(), 2 * own)
    assert_close(kernels.ntk.diagonal(), 12 * own)


def test_composition_is_what_the_factories_make() -> None:
    x = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(11), dtype=torch.float64)
    mine = analytic_kernel(conv(1.5, 0.1, size=2, padding=0), relu(), flatten(), dense(), relu(), dense())(
        x, x
    )
    assert mine.ntk.shape == (3, 3)
    both = analytic_kernel(conv(), activation("relu"), global_average_pool(), dense())(x, x)
    assert_close(both.ntk, conv_kernel(2, "gap")(x, x).ntk)
    # flattening gives the same whether all pairs of pixels are carried or equal places only
    whole = analytic_kernel(conv(), relu(), flatten(), dense())
    carried = analytic_kernel(conv(), relu(), flatten()._replace(pixels="full"), dense())
    assert_close(whole(x, x).ntk, carried(x, x).ntk)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mlp_kernel(0), "depth=0"),
        (lambda: mlp_kernel(2, "tanh"), "no closed form"),
        (lambda: conv_kernel(3, "max"), "unknown readout"),
        (lambda: residual_kernel(1, norm="batch"), "unknown norm"),
        (lambda: mlp_kernel(2, block=0), "at least one row"),
        (lambda: mlp_kernel(2)(torch.ones(2, 3), torch.ones(2, 4)), "3 and 4 features"),
        (lambda: conv_kernel(2)(torch.ones(2, 3), torch.ones(2, 3)), "give pictures"),
        (lambda: mlp_kernel(2)(torch.ones(2, 3).int(), torch.ones(2, 3).int()), "float32 or float64"),
        (lambda: analytic_kernel(conv())(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 3, 3)), "still has pixels"),
        (
            lambda: analytic_kernel(conv(), global_average_pool(), dense(), relu(), dense())(
                torch.ones(1, 1, 3, 3), torch.ones(1, 1, 3, 3)
            ),
            "put the activation before",
        ),
    ],
)
def test_mistakes_get_a_sentence(call: object, says: str) -> None:
    with pytest.raises(UserError, match=says):
        call()  # type: ignore[operator]
