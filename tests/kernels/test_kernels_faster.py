"""What the layer-wise kernel does in its own way is what torch does: convolutions, poolings, sharing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import innerloop.kernels.empirical.layerwise as layerwise
from innerloop.choose.scores.conditions import kernel_names, metantk, metantk_condition
from innerloop.core.errors import UserError
from innerloop.core.types import TaskBatch
from innerloop.kernels.empirical import factors, handlers
from innerloop.kernels.empirical import fast_layers as pooling
from innerloop.kernels.empirical.factors import ConvolutionCall
from innerloop.kernels.empirical.fast_layers import convolve, thinned
from innerloop.kernels.empirical.kernel import empirical_ntk
from innerloop.nets.cells import all_choices, cell_network
from innerloop.nets.convolutional import conv4
from innerloop.nets.mlp import mlp
from innerloop.nets.network import apply, with_last_layer
from innerloop.testing.closeness import CHAINED, SINGLE_CHAINED, assert_close
from oracles.ntk_loop import ntk, reduced

DOUBLE = torch.float64


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


# (weight's shape, stride, padding, dilation, groups), side
CONVOLUTIONS = {
    "pointwise": (ConvolutionCall((6, 4, 1, 1), (1, 1), (0, 0), (1, 1), 1), (5, 7)),
    "pointwise, every second": (ConvolutionCall((6, 4, 1, 1), (2, 2), (0, 0), (1, 1), 1), (5, 8)),
    "padded pointwise": (ConvolutionCall((6, 4, 1, 1), (1, 1), (1, 1), (1, 1), 1), (5, 7)),
    "depthwise": (ConvolutionCall((4, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4), (5, 7)),
    "depthwise, not padded": (ConvolutionCall((4, 1, 3, 2), (1, 1), (0, 0), (1, 1), 4), (5, 7)),
    "depthwise, padded further": (ConvolutionCall((4, 1, 3, 3), (1, 1), (3, 3), (1, 1), 4), (5, 7)),
    "dilated": (ConvolutionCall((4, 1, 3, 3), (1, 1), (2, 2), (2, 2), 4), (6, 8)),
    "dilated, odd sides": (ConvolutionCall((4, 1, 3, 3), (1, 1), (2, 2), (2, 2), 4), (5, 7)),
    "dilated by three": (ConvolutionCall((4, 1, 3, 3), (1, 1), (3, 3), (3, 3), 4), (6, 9)),
    "dilated as strided": (ConvolutionCall((4, 1, 3, 3), (2, 2), (2, 2), (2, 2), 4), (6, 7)),
    "strided": (ConvolutionCall((4, 1, 3, 3), (2, 2), (1, 1), (1, 1), 4), (6, 7)),
    "two outputs a channel": (ConvolutionCall((8, 1, 3, 3), (1, 1), (2, 2), (2, 2), 4), (6, 6)),
    "wide": (ConvolutionCall((3, 4, 1, 5), (2, 2), (0, 2), (1, 1), 1), (6, 7)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_and_their_derivatives_are_torchs(name: str) -> None:
    call, sides = CONVOLUTIONS[name]
    x, weight, bias = drawn(3, 4, *sides), drawn(*call.shape, seed=1), drawn(call.shape[0], seed=2)
    mine, torchs = (x.clone().requires_grad_() for _ in range(2))
    fewer, left = thinned(mine, call)
    y = convolve(fewer, weight, bias, left)
    expected = F.conv2d(torchs, weight, bias, *call[1:])
    assert_close(y.detach(), expected.detach())
    d = drawn(*expected.shape, seed=3)
    assert_close(*(torch.autograd.grad(out, leaf, d)[0] for out, leaf in ((y, mine), (expected, torchs))))
    rows = []
    for sample, back in zip(x, d, strict=True):
        leaf = weight.clone().requires_grad_()
        rows.append(torch.autograd.grad(F.conv2d(sample[None], leaf, bias, *call[1:]), leaf, back[None])[0])
    ours = factors._conv_gradients(left, fewer.detach(), d)
    assert_close(ours, torch.stack(rows).flatten(1))


@pytest.mark.parametrize("strided", [False, True])
def test_products_of_onednn_are_torchs(strided: bool) -> None:
    x, weight, bias, d = drawn(200, 2, 96), drawn(2, 128, 96, seed=1)[0], drawn(128, seed=2), drawn(200, 128)
    x = x[:, 1] if strided else x[:, 1].contiguous()
    weight = weight.T.contiguous().T if strided else weight
    leaf = x.float().requires_grad_()
    assert factors.onednn_pays(leaf, weight.float())
    assert not factors.onednn_pays(x, weight)  # float64 stays with MKL
    assert not factors.onednn_pays(leaf[:2], weight.float())
    y = pooling.linear(leaf, weight.float(), bias.float())
    exact = SINGLE_CHAINED, 0.0
    assert_close(y.detach().double(), F.linear(x, weight, bias), exact)
    assert_close(torch.autograd.grad(y, leaf, d.float())[0].double(), d @ weight, exact)


@pytest.mark.parametrize(
    "windows", [pooling.Windows(3, 1, 1), pooling.Windows(3, 2, 1), pooling.Windows(2, 1, 0)]
)
@pytest.mark.parametrize("kind", ["max", "mean"])
def test_windows_are_torchs_with_equal_values_too(kind: str, windows: pooling.Windows) -> None:
    whole = torch.randint(0, 3, (2, 3, 7, 6), generator=torch.Generator().manual_seed(7)).to(DOUBLE)
    both = []
    for ours in (True, False):
        leaf = whole.clone().requires_grad_()
        if kind == "max":
            y = pooling.max_windows(leaf, windows) if ours else F.max_pool2d(leaf, *windows)
        elif ours:
            y = pooling.mean_windows(leaf, windows)
        else:
            y = F.avg_pool2d(leaf, *windows, count_include_pad=False)
        both.append((y.detach(), torch.autograd.grad(y, leaf, drawn(*y.shape))[0]))
    for mine, torchs in zip(*both, strict=True):
        assert_close(mine, torchs)


def test_poolings_of_other_kinds_are_left_to_torch() -> None:
    x = drawn(2, 3, 6, 6)
    assert pooling.windows_of(x, {"kernel_size": (3, 2), "stride": 1}) is None
    assert pooling.windows_of(x, {"kernel_size": 3, "ceil_mode": True}) is None
    assert pooling.windows_of(x, {"kernel_size": 3}) == pooling.Windows(3, 3, 0)
    assert pooling.averaged_windows(x, {"kernel_size": 3, "padding": 1}) is None  # counts the padding
    assert pooling.averaged_windows(x, {"kernel_size": 2, "divisor_override": 3}) is None


class Branches(nn.Module):
    """The same value is rectified, pooled and normalised by several branches; ``write`` spoils one."""

    def __init__(self, write: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(2, 4, 3, padding=1)])
        self.layers.extend(nn.Conv2d(4, 4, 1) for _ in range(2))
        self.norms = nn.ModuleList([nn.GroupNorm(2, 4) for _ in range(3)])
        self.out = nn.Linear(4, 2)
        self.write = write

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers[0](x)
        first, second = F.relu(y), F.relu(y)
        if self.write:
            first, second = F.avg_pool2d(y, 2), F.avg_pool2d(y, 2)
            second.add_(1.0)  # the other one does not change
        total = self.layers[1](first)
        total = total + self.layers[2](second)
        for norm in () if self.write else self.norms:
            total = total + norm(F.max_pool2d(y, 3, 1, 1)) + norm(F.avg_pool2d(y, 3, 1, 1, False, False))
        return self.out(total.mean((2, 3)))


def test_what_is_computed_twice_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module = Branches().double()
    module.norms[1].weight.data.mul_(2.0)
    params = {name: p.detach() for name, p in module.named_parameters()}
    counted: list[str] = []
    for name in ("max_windows", "mean_windows"):
        real = getattr(pooling, name)
        monkeypatch.setattr(pooling, name, lambda *a, n=name, r=real: (counted.append(n), r(*a))[1])
    x = drawn(3, 2, 4, 4)
    names = [name for name, p in params.items() if p.ndim > 1]
    shared_theta = empirical_ntk(module, None, x, names=names, method="layerwise")
    # two samples and one before (they are torch's own), a rehearsal, the pass itself
    assert (counted.count("max_windows"), counted.count("mean_windows")) == (2, 2)

    def of_weights(p: dict[str, Tensor], a: Tensor) -> Tensor:
        return torch.func.functional_call(module, {**params, **p}, (a,))

    theta = ntk(of_weights, {name: params[name] for name in names}, x, x)
    assert_close(shared_theta, reduced(theta, "sum"))
    whole = [empirical_ntk(module, None, x, method=method) for method in ("layerwise", "jacobian")]
    assert_close(*whole)


def test_writing_into_what_is_shared_is_noticed() -> None:
    torch.manual_seed(0)
    module = Branches(write=True).double()
    x = drawn(3, 2, 6, 6)
    with pytest.raises(UserError, match="computes twice"):
        empirical_ntk(module, None, x, method="layerwise")
    shared_theta = empirical_ntk(module, None, x)
    assert_close(shared_theta, empirical_ntk(module, None, x, method="jacobian"))


def supernet_problem(dtype: torch.dtype) -> tuple:
    network = cell_network(
        3, 8, 5, genotype=all_choices(), cells=2, channels=4, norm="group", final_norm=True
    )
    params, buffers = network.init(torch.Generator().manual_seed(0))
    pictures = drawn(2, 3, 5, 3, 8, 8).to(dtype)
    labels = torch.arange(5).expand(3, 5)
    tasks = TaskBatch(pictures[0], labels, pictures[1], labels, torch.arange(3))
    return network, {name: p.to(dtype) for name, p in params.items()}, buffers, tasks


@pytest.mark.slow
def test_the_supernets_score_in_both_precisions() -> None:
    network, params, buffers, tasks = supernet_problem(DOUBLE)
    assert network.layered
    exact = metantk(network, params, buffers, tasks)
    checked = metantk(network._replace(layered=False), params, buffers, tasks)
    assert_close(exact, checked)
    x = torch.cat([tasks.x_query.flatten(0, 1), tasks.x_support.flatten(0, 1)])
    options = {"buffers": buffers, "names": kernel_names(params)}
    slow = empirical_ntk(network, params, x[:4], method="jacobian", **options)
    assert_close(empirical_ntk(network, params, x[:4], method="layerwise", **options), slow, (CHAINED, 0.0))
    values = torch.linalg.eigvalsh(exact)
    told = metantk_condition(*supernet_problem(torch.float32)).value
    assert told == pytest.approx(float(values[-1] / values[0]), rel=1e-3)


def test_a_sample_that_exceeds_the_cache_is_passed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    network, params, buffers, tasks = supernet_problem(DOUBLE)
    x = tasks.x_query.flatten(0, 1)[:3]
    options = {"buffers": buffers, "names": kernel_names(params), "method": "layerwise"}
    whole = empirical_ntk(network, params, x, **options)
    passes: list[int] = []
    real = layerwise.record

    def record(t: object, samples: Tensor, *rest: object, **more: object) -> object:
        passes.append(len(samples))
        return real(t, samples, *rest, **more)

    monkeypatch.setattr(layerwise, "record", record)
    monkeypatch.setattr(layerwise, "PASS_BYTES", 1)
    assert_close(empirical_ntk(network, params, x, **options), whole)
    assert passes == [1, 1, 1]  # it was rehearsed before


def test_samples_of_layered_networks_do_not_mix() -> None:
    for norm in ("group", "none"):
        network = cell_network(3, 8, 2, cells=2, channels=4, norm=norm, final_norm=True)
        assert network.layered
        params, buffers = network.init(torch.Generator().manual_seed(0))
        params = {name: p.to(DOUBLE) for name, p in params.items()}
        x = drawn(3, 3, 8, 8)
        both, alone = (apply(network, params, buffers, part)[0] for part in (x, x[1:2]))
        assert_close(both[1:2], alone)
    assert not cell_network(3, 8, 2, cells=2, channels=4).layered
    assert not conv4(3, 16, 2).layered


LAYERED = {
    "mlp": (lambda: mlp(4, [16, 5], 3, "erf", "ntk", bias_var=0.1), (4,)),
    "conv4 group": (lambda: conv4(2, 16, 3, filters=4, norm="group"), (2, 16, 16)),
    "conv4 none": (lambda: conv4(2, 16, 3, filters=4, norm="none", pooling="stride"), (2, 16, 16)),
}


@pytest.mark.parametrize("name", LAYERED)
def test_layered_networks_keep_their_promise(name: str) -> None:
    make, shape = LAYERED[name]
    network = make()
    assert network.layered
    params, x = (
        {n: p.double() for n, p in network.init(torch.Generator().manual_seed(0))[0].items()},
        drawn(3, *shape),
    )
    both, alone = (apply(network, params, {}, part)[0] for part in (x, x[1:2]))
    assert_close(both[1:2], alone)
    checked = network._replace(layered=False)
    for output in ("sum", "trace", "full"):
        theta = empirical_ntk(network, params, x, method="layerwise", output=output)
        assert_close(theta, empirical_ntk(checked, params, x, method="layerwise", output=output))
        assert_close(
            theta, empirical_ntk(network, params, x, method="jacobian", output=output), (CHAINED, 0.0)
        )


def test_cosines_promise_nothing() -> None:
    """Their matrix is not used as it is, though its shape is that of a linear layer's."""
    plain, x = mlp(3, [5], 2, bias=False), drawn(4, 3)
    params = {n: p.double() for n, p in plain.init(torch.Generator().manual_seed(0))[0].items()}
    for network in (plain, with_last_layer(plain, "cosine")):
        theta = empirical_ntk(network, params, x)
        assert_close(theta, empirical_ntk(network, params, x, method="jacobian"), (CHAINED, 0.0))


@pytest.mark.parametrize("samples", [4, 20])  # fewer and more than what enters the widest layer
@pytest.mark.parametrize("others", [None, 3])
def test_the_mean_over_outputs_takes_one_forward_pass(samples: int, others: int | None) -> None:
    network, counted = mlp(4, [7, 6], 3), []
    params = {n: p.double() for n, p in network.init(torch.Generator().manual_seed(0))[0].items()}
    real = network.features
    watched = network._replace(features=lambda *args: (counted.append(len(args[2])), real(*args))[1])
    x, y = drawn(samples, 4), None if others is None else drawn(others, 4, seed=1)
    theta = empirical_ntk(watched, params, x, y, output="trace")
    assert counted[-1] == samples + (others or 0)
    assert counted[:-1] in ([], [2])  # a rehearsal, if the same layers were not met before
    pairs = empirical_ntk(network, params, x, y, output="full", method="jacobian")
    assert_close(theta, pairs.diagonal(dim1=2, dim2=3).mean(2), (CHAINED, 0.0))
    single = empirical_ntk(watched, params, x, y, output="trace", memory=5000)
    assert_close(single, theta)


def test_faster_functions_are_those_of_the_table() -> None:
    assert {F.max_pool2d, F.avg_pool2d, F.group_norm, F.relu} <= set(handlers.FASTER)


def test_a_layered_network_is_rehearsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network, params, buffers, tasks = supernet_problem(DOUBLE)
    x = tasks.x_query.flatten(0, 1)[:2]
    made: list[bool] = []
    real = layerwise.make_plan
    monkeypatch.setattr(layerwise, "_PLANS", {})
    monkeypatch.setattr(layerwise, "make_plan", lambda *args: (made.append(True), real(*args))[1])
    first = empirical_ntk(network, params, x, buffers=buffers, names=kernel_names(params))
    again = empirical_ntk(network, params, x, buffers=buffers, names=kernel_names(params))
    assert torch.equal(first, again)
    assert len(made) == 1
    empirical_ntk(network, params, x[..., :6], buffers=buffers, names=kernel_names(params))
    empirical_ntk(network, params, x, buffers=buffers, names=list(params))
    assert len(made) == 3
