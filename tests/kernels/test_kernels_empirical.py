"""The empirical tangent kernel: every way against a loop of plain gradients, and against every other way."""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from innerloop.core.errors import UserError
from innerloop.kernels import empirical_kernel, empirical_nngp, empirical_ntk
from innerloop.kernels.empirical import factors
from innerloop.kernels.empirical import fast_layers as pooling
from innerloop.kernels.empirical.jacobian import ntk_times
from innerloop.kernels.empirical.layerwise import make_plan
from innerloop.kernels.empirical.tangent import tangent
from innerloop.nets import Network, conv4, from_module, mlp, resnet12
from innerloop.nets.network import apply
from innerloop.testing.closeness import CHAINED, MULTIPLIED, ROUNDED, SINGLE_CHAINED, assert_close
from oracles.ntk_loop import NOT_LAYERS, Branching, ntk, reduced
from oracles.problems import drawn

METHODS = ("jacobian", "products", "layerwise", "auto")
OUTPUTS = ("sum", "trace", "full")


def branching() -> nn.Module:
    torch.manual_seed(0)
    module = Branching().double().eval()
    module.batch_norm.running_mean += 0.3
    module.batch_norm.running_var *= 1.7
    return module


NETS: dict[str, tuple[Callable[[], Network], tuple[int, ...]]] = {
    "mlp": (lambda: mlp(4, [7, 6], 3, "erf", "ntk", bias_var=0.2), (4,)),
    "conv4 group": (lambda: conv4(2, 16, 2, filters=4, norm="group"), (2, 16, 16)),
    "conv4 running": (lambda: conv4(2, 16, 2, filters=4, norm="running", pooling="stride"), (2, 16, 16)),
    "resnet12 group": (lambda: resnet12(2, 16, 2, widths=(4, 4, 6, 6), norm="group"), (2, 16, 16)),
    "branching": (lambda: from_module(branching(), norm="running"), (2, 8, 8)),
}


def problem(
    name: str, n: int = 4, m: int = 3
) -> tuple[Network, dict[str, Tensor], dict[str, Tensor], Tensor, Tensor]:
    make, shape = NETS[name]
    network = make()
    params, buffers = drawn(network)
    draw = torch.Generator().manual_seed(3)
    x1, x2 = (torch.randn(k, *shape, generator=draw, dtype=torch.float64) for k in (n, m))
    return network, params, buffers, x1, x2


@pytest.mark.parametrize("name", NETS)
@pytest.mark.one_in(2)
def test_every_way_is_the_loop_of_gradients(name: str) -> None:
    network, params, buffers, x1, x2 = problem(name)

    def f(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return apply(network, p, buffers, x, "stored")[0]

    own, cross = ntk(f, params, x1, x1), ntk(f, params, x1, x2)
    for output in OUTPUTS:
        for method in METHODS:
            theta = empirical_ntk(network, params, x1, buffers=buffers, method=method, output=output)
            assert_close(theta, reduced(own, output), (MULTIPLIED, 0.0))
            theta = empirical_ntk(network, params, x1, x2, buffers=buffers, method=method, output=output)
            assert_close(theta, reduced(cross, output), (MULTIPLIED, 0.0))


@pytest.mark.parametrize("name", ["mlp", "conv4 group", "branching"])
@pytest.mark.parametrize(
    "output",
    ["trace", pytest.param("sum", marks=pytest.mark.slow), pytest.param("full", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("method", METHODS[:3])
@pytest.mark.one_in(3)
def test_little_memory_gives_the_same(
    name: str, output: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the least memory that does, two doublings: pieces of several sizes."""
    network, params, buffers, x1, x2 = problem(name, 5, 3)
    options = {"buffers": buffers, "method": method, "output": output}
    whole = [empirical_ntk(network, params, x1, second, **options) for second in (None, x2)]
    monkeypatch.setattr(factors, "WORK_BYTES", 1)
    memory = 2**8
    with pytest.raises(UserError, match="raise memory"):
        empirical_ntk(network, params, x1, memory=memory, **options)
    while True:
        memory *= 2
        try:
            for second in (None, x2):
                empirical_ntk(network, params, x1, second, memory=memory, **options)
            break
        except UserError:
            assert memory < 2**24
    for k in range(3):
        for second, expected in zip((None, x2), whole, strict=True):
            theta = empirical_ntk(network, params, x1, second, memory=memory * 2**k, **options)
            assert_close(theta, expected, (MULTIPLIED, 0.0))


def test_places_and_gradients_contract_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    network, params, buffers, x1, x2 = problem("conv4 group")
    kernels = []
    for choice in (True, False):
        monkeypatch.setattr(factors, "places_pay", lambda a, b, choice=choice: choice)
        kernels.append(
            empirical_ntk(network, params, x1, x2, buffers=buffers, method="layerwise", output="full")
        )
    assert_close(kernels[0], kernels[1], (MULTIPLIED, 0.0))


def test_the_cheaper_contraction_is_taken() -> None:
    """Many pixels and few channels: gradients. Few pixels and many channels: pairs of places."""

    def factor(side: int, channels: int) -> factors.Factor:
        x = torch.zeros(10, channels, side, side)
        conv = factors.ConvolutionCall((channels, channels, 3, 3), (1, 1), (1, 1), (1, 1), 1)
        return factors.Factor(x, x[None], conv, 1.0)

    early, late = factor(32, 48), factor(2, 640)
    assert not factors.places_pay(early, early)
    assert factors.places_pay(late, late)


def test_what_is_no_layer_is_left_to_jacobians() -> None:
    network, params, buffers, x1, _ = problem("branching")
    t = tangent(network, params, x1, buffers)
    assert make_plan(t, x1, torch.eye(3, dtype=torch.float64)).left == NOT_LAYERS
    for name in ("mlp", "conv4 group", "conv4 running", "resnet12 group"):
        network, params, buffers, x1, _ = problem(name)
        t = tangent(network, params, x1, buffers)
        assert not make_plan(t, x1, torch.eye(t.outputs, dtype=torch.float64)).left, name


def test_parts_of_the_parameters_add_up() -> None:
    network, params, buffers, x1, x2 = problem("conv4 group")
    body = [name for name in params if name not in network.head_names]
    for method in METHODS:
        whole = empirical_ntk(network, params, x1, x2, buffers=buffers, method=method)
        parts = [
            empirical_ntk(network, params, x1, x2, buffers=buffers, method=method, names=names)
            for names in (body, network.head_names)
        ]
        assert_close(parts[0] + parts[1], whole, (MULTIPLIED, 0.0))


def test_nngp_is_the_gram_of_the_features() -> None:
    network, params, buffers, x1, x2 = problem("conv4 group")
    h1, h2 = (network.features(params, buffers, x, "stored")[0] for x in (x1, x2))
    assert_close(empirical_nngp(network, params, x1, x2, buffers=buffers), h1 @ h2.T + 1, (MULTIPLIED, 0.0))
    network, params, _, x1, _ = problem("mlp")  # NTK parametrisation: divided by the width, and σ_b² = 0.2
    h = network.features(params, {}, x1, "stored")[0]
    expected = h @ h.T / 6 + 0.2
    assert_close(empirical_nngp(network, params, x1), expected, (MULTIPLIED, 0.0))
    assert_close(empirical_kernel(network, params)(x1, x1).nngp, expected, (MULTIPLIED, 0.0))


def test_products_with_vectors() -> None:
    network, params, buffers, x1, x2 = problem("mlp")
    v = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    theta = empirical_ntk(network, params, x1, x2, output="full")
    product = ntk_times(tangent(network, params, x1, buffers), x1, x2, v)
    assert_close(product, torch.einsum("ijab,jb->ia", theta, v), (MULTIPLIED, 0.0))


def test_batch_statistics_are_refused_or_taken_as_one_batch() -> None:
    network = conv4(1, 16, 2, filters=3, norm="transductive")
    params, buffers = drawn(network)
    x = torch.randn(3, 1, 16, 16, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for method in ("auto", "products", "layerwise"):
        with pytest.raises(UserError, match="method='jacobian'"):
            empirical_ntk(network, params, x, method=method)
    leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
    outputs = apply(network, leaves, buffers, x, "batch")[0]
    rows = []
    for value in outputs.flatten():
        grads = torch.autograd.grad(value, list(leaves.values()), retain_graph=True)
        rows.append(torch.cat([g.flatten() for g in grads]))
    J = torch.stack(rows).view(3, 2, -1)
    theta = empirical_ntk(network, params, x, method="jacobian", output="full")
    assert_close(theta, torch.einsum("iap,jbp->ijab", J, J), (CHAINED, ROUNDED))
    running = conv4(1, 16, 2, filters=3, norm="running")
    params, buffers = drawn(running)
    with pytest.raises(UserError, match="batch statistics"):
        empirical_ntk(running, params, x, buffers=buffers, statistics="batch")
    assert empirical_ntk(running, params, x, buffers=buffers).shape == (3, 3)


class Transposed(nn.Module):
    """Tokens first, samples second: a layer's first axis is not the samples'."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.inner(x.transpose(0, 1))).transpose(0, 1).mean(1))


def test_a_misunderstanding_is_noticed() -> None:
    """Two tokens look like the two samples of the first look; four do not, and are left to Jacobians."""
    torch.manual_seed(1)
    module = Transposed().double()
    x = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    for count in (1, 3, 4, 5):
        theta = empirical_ntk(module, None, x[:count], method="layerwise")
        assert_close(theta, empirical_ntk(module, None, x[:count], method="jacobian"), (MULTIPLIED, 0.0))
    x = x[:, :2]
    for count in (2, 3):
        with pytest.raises(UserError, match="does not understand"):
            empirical_ntk(module, None, x[:count], method="layerwise")
        theta = empirical_ntk(module, None, x[:count])
        assert_close(theta, empirical_ntk(module, None, x[:count], method="jacobian"), (MULTIPLIED, 0.0))


def test_modules_are_taken_as_they_are() -> None:
    module = branching()
    x = torch.randn(3, 2, 8, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    before = {name: p.clone() for name, p in module.state_dict().items()}
    params = dict(module.named_parameters())
    theta = ntk(lambda p, a: torch.func.functional_call(module, p, (a,)), params, x, x)
    assert_close(empirical_ntk(module, None, x), reduced(theta, "sum"), (MULTIPLIED, 0.0))
    assert all(torch.equal(before[name], p) for name, p in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())


def test_other_ranks_of_convolutions() -> None:
    torch.manual_seed(2)
    one = nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(15, 2)).double()
    three = nn.Sequential(nn.Conv3d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 2)).double()
    for module, shape in ((one, (2, 5)), (three, (1, 3, 3, 3))):
        x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
        kernels = [empirical_ntk(module, None, x, method=m, output="full") for m in METHODS[:3]]
        assert_close(kernels[2], kernels[0], (MULTIPLIED, 0.0))
        assert_close(kernels[1], kernels[0], (MULTIPLIED, 0.0))


def test_float32_follows_its_inputs() -> None:
    network, params, buffers, x1, x2 = problem("resnet12 group")
    exact = empirical_ntk(network, params, x1, x2, buffers=buffers)
    single = {name: p.float() for name, p in params.items()}
    for method in METHODS:
        theta = empirical_ntk(network, single, x1.float(), x2.float(), buffers=buffers, method=method)
        assert theta.dtype == torch.float32
        assert_close(theta.double(), exact, (SINGLE_CHAINED, 0.0))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "layer-wise"}, "did you mean 'layerwise'"),
        ({"output": "all"}, "there are sum, trace, full"),
        ({"names": ["layer0.wieght"]}, "did you mean 'layer0.weight'"),
        ({"memory": 10}, "raise memory"),
    ],
)
def test_mistakes_get_a_sentence(options: dict[str, object], says: str) -> None:
    network, params, _, x1, _ = problem("mlp")
    with pytest.raises(UserError, match=says):
        empirical_ntk(network, params, x1, **options)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no parameters of its own"):
        empirical_ntk(network, None, x1)


MEASURE = """
import sys, torch
from pathlib import Path
from innerloop.kernels import empirical_ntk
from innerloop.nets import conv4
torch.set_num_threads(1)
def peak_mb():
    line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM:"))
    return float(line.split()[1]) / 1024
net = conv4(3, 32, 5, filters=32, norm="group")
params, _ = net.init(torch.Generator().manual_seed(0))
x = torch.randn(96, 3, 32, 32, generator=torch.Generator().manual_seed(1))
empirical_ntk(net, params, x[:2], method=sys.argv[1])
before = peak_mb()
empirical_ntk(net, params, x, method=sys.argv[1], memory=int(sys.argv[2]))
print(peak_mb() - before)
"""


@pytest.mark.slow  # a process of its own for each
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("method", ["jacobian", "layerwise"])
def test_memory_is_respected(method: str) -> None:
    """Peak memory of a process of its own; a fifth more for what allocators do."""

    def grown(memory: int) -> float:
        command = [sys.executable, "-P", "-c", MEASURE, method, str(memory)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    allowed = 40
    assert grown(allowed * 2**20) < 1.2 * allowed


@pytest.mark.parametrize("output", ["sum", "trace"])
@pytest.mark.parametrize("method", ["jacobian", "products", "layerwise"])
def test_nothing_is_held_afterwards(method: str, output: str) -> None:
    network, params, buffers, x, _ = problem("mlp")
    seen: list[weakref.ref[Tensor]] = []

    def features(p: dict[str, Tensor], b: dict[str, Tensor], a: Tensor, s: Any) -> Any:
        made, changed = network.features(p, b, a, s)
        kept = torch.relu(made)
        seen.append(weakref.ref(kept))
        return kept, changed

    watched = network._replace(features=features)
    empirical_ntk(watched, params, x, buffers=buffers, method=method, output=output)  # type: ignore[arg-type]
    assert seen
    assert all(ref() is None for ref in seen)


@pytest.mark.slow
def test_a_resnet_12_of_full_width() -> None:
    network = resnet12(3, 32, 5, norm="group")
    params, buffers = drawn(network)
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    kernels = [
        empirical_ntk(network, params, x, buffers=buffers, method=method)
        for method in ("jacobian", "layerwise")
    ]
    assert_close(kernels[1], kernels[0], (MULTIPLIED, 0.0))


def test_pooling_is_torchs_with_equal_values_too() -> None:
    draw = torch.Generator().manual_seed(7)
    x = torch.randint(0, 3, (2, 3, 7, 6), generator=draw).double()
    both = []
    for pool in (F.max_pool2d, lambda a, _: pooling.max_pool2d(a)):
        leaf = x.clone().requires_grad_()
        y = pool(leaf, 2)
        weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
        both.append((y.detach(), torch.autograd.grad((y * weights).sum(), leaf)[0]))
    for ours, torchs in zip(both[1], both[0], strict=True):
        assert torch.equal(ours, torchs)


class Pooled(nn.Module):
    """A ReLU that is pooled and used elsewhere, one whose input is written to before it is pooled, odd sides,
    a pooling of three, and group normalisations without scale, without shift, fixed and of vectors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.scale = nn.Parameter(torch.rand(4) + 0.5)
        self.shift = nn.Parameter(torch.rand(4))
        self.vector = nn.GroupNorm(2, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(F.group_norm(self.one(x), 2, self.scale))
        z = F.max_pool2d(y, 2).permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        before = F.group_norm(self.two(z), 4)
        after = torch.relu(before)
        with torch.no_grad():
            before.mul_(-1.0)  # the graph does not need it, and the pooling must not look at it
        w = (
            F.max_pool2d(after, kernel_size=2)
            + F.max_pool2d(F.group_norm(y, 1, self.scale.detach(), self.shift), 3)[..., :2, :2]
        )
        return self.out(self.vector(w.mean((2, 3)) + y.mean((2, 3))))


@pytest.mark.parametrize("output", OUTPUTS)
def test_what_is_done_faster_is_the_same(output: str) -> None:
    torch.manual_seed(6)
    module = Pooled().double()
    x = torch.randn(3, 2, 9, 11, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    params = dict(module.named_parameters())
    theta = ntk(lambda p, a: torch.func.functional_call(module, p, (a,)), params, x, x)
    layerwise = empirical_ntk(module, None, x, method="layerwise", output=output)
    assert_close(layerwise, reduced(theta, output), (MULTIPLIED, 0.0))
