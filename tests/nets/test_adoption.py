"""An adopted module is the module, or is refused with the layer to name: nothing in between."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from innerloop.core.errors import UserError
from innerloop.kernels import empirical_kernel, empirical_nngp, empirical_ntk
from innerloop.kernels.empirical.kernel import METHODS
from innerloop.nets import Network, apply, from_module
from innerloop.testing.closeness import CHAINED, assert_close
from oracles.ntk_loop import ntk, reduced


def seeded(*layers: nn.Module) -> nn.Sequential:
    """With weights that are always the same, of both signs and not small."""
    module = nn.Sequential(*layers).double()
    generator = torch.Generator().manual_seed(0)
    for p in module.parameters():
        p.data.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return module.eval()


class Own(nn.Module):
    """Two linear layers, and whatever ``after`` does to the second one's outputs."""

    def __init__(self, after: Callable[[Tensor], Tensor] = lambda y: y) -> None:
        super().__init__()
        self.first, self.last, self.after = nn.Linear(4, 6), nn.Linear(6, 3), after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.last(torch.tanh(self.first(x))))


class Squeezed(nn.Module):
    """Squeeze and excitation: a linear layer that is registered last and called in between."""

    def __init__(self) -> None:
        super().__init__()
        self.readout, self.first, self.gate = nn.Linear(6, 3), nn.Linear(4, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.tanh(self.first(x))
        return self.readout(z * self.gate(z).sigmoid())


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
PICTURES = torch.randn(5, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def conv_net(*between: nn.Module) -> nn.Sequential:
    return seeded(nn.Conv2d(2, 4, 3), *between, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3))


def activated(activation: nn.Module) -> nn.Sequential:
    """One activation in two places."""
    return seeded(nn.Linear(4, 6), activation, nn.Linear(6, 3), activation)


SUPPORTED: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "log-softmax": (
        lambda: seeded(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3), nn.LogSoftmax(1)),
        X,
    ),
    "two-after": (
        lambda: seeded(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4), nn.ReLU(inplace=True), nn.GLU()),
        X,
    ),
    "nested": (
        lambda: seeded(
            nn.Linear(4, 6), nn.Sequential(nn.ReLU(), nn.Linear(6, 3), nn.Tanh()), nn.LogSoftmax(1)
        ),
        X,
    ),
    "one-activation": (lambda: activated(nn.Tanh()), X),
    "empty": (lambda: seeded(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), X[:0]),
    "tokens": (lambda: seeded(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3)), torch.arange(8).view(4, 2)),
    "one-layer": (lambda: seeded(nn.Linear(4, 3)), X),
    "nothing-but-it": (lambda: seeded(nn.Linear(4, 3))[0], X),
    "prelu": (lambda: seeded(nn.Linear(4, 6), nn.PReLU(), nn.Linear(6, 3)), X),
    "prelu-per-channel": (lambda: conv_net(nn.PReLU(4)), PICTURES),
    "prelu-of-pictures": (lambda: conv_net(nn.PReLU(), nn.BatchNorm2d(4)), PICTURES),
    "mean-of-places": (
        lambda: seeded(nn.Unflatten(1, (2, 2)), nn.Linear(2, 6), nn.Tanh(), OverPlaces()),
        X,
    ),
}


class Again(nn.Module):
    """The same layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.only(torch.tanh(self.only(x)))


class OverPlaces(nn.Module):
    """A linear layer at every place, then the mean: the same as the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).mean(1)


def called(network: Network, x: Tensor) -> Tensor:
    params, buffers = network.init(torch.Generator().manual_seed(0))
    return apply(network, params, buffers, x, "stored")[0]


@pytest.mark.parametrize("name", list(SUPPORTED))
def test_a_network_from_a_module_is_the_module(name: str) -> None:
    make, x = SUPPORTED[name]
    module = make()
    network = from_module(module, norm="running")
    assert_close(called(network, x), module(x).detach())
    params, buffers = network.init(torch.Generator())
    z, _ = network.features(params, buffers, x, "stored")
    only = {n: params[n] for n in network.head_names}
    assert only
    assert_close(network.head(only, z), module(x).detach())


WHOLE = {
    **{name: case for name, case in SUPPORTED.items() if name not in ("empty", "tokens")},
    "twice": (lambda: seeded(Again())[0], X),
    "own-softmax": (lambda: seeded(Own(lambda y: y.log_softmax(-1)))[0], X),
    "weights-after": (lambda: seeded(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3), nn.PReLU()), X),
    "no-linear": (
        lambda: seeded(nn.Conv2d(2, 3, 3), nn.PReLU(3), nn.Conv2d(3, 2, 4), nn.Flatten()),
        PICTURES,
    ),
    "layer-norm-after": (lambda: seeded(nn.Linear(4, 3), nn.LayerNorm(3)), X),
    "gate": (lambda: seeded(Squeezed())[0], X),
}


@pytest.mark.parametrize("output", ["sum", "trace", "full"])
@pytest.mark.parametrize("name", list(WHOLE))
def test_the_tangent_kernel_of_a_module_is_that_of_its_own_outputs(name: str, output: str) -> None:
    make, x = WHOLE[name]
    module = make()
    params: dict[str, Tensor] = dict(module.named_parameters())
    theta = ntk(lambda p, a: torch.func.functional_call(module, p, (a,)), params, x, x)
    for method in METHODS:
        kernel = empirical_ntk(module, None, x, method=method, output=output)  # type: ignore[arg-type]
        assert_close(kernel, reduced(theta, output), (CHAINED, 0.0))
        between = empirical_ntk(module, None, x[:2], x[1:], method=method, output=output)  # type: ignore[arg-type]
        assert_close(between, reduced(theta, output)[:2, 1:], (CHAINED, 0.0))


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "own-softmax": (lambda: Own(lambda y: y.log_softmax(-1)), "'last'.*does something to them afterwards"),
    "in-place": (lambda: Own(lambda y: y.relu_()), "'last'.*does something to them afterwards"),
    "only-large-outputs": (lambda: Own(lambda y: y.clamp(-50, 50)), "does something to them afterwards"),
    "only-negative-outputs": (
        lambda: Own(lambda y: (y + 99).relu() - 99),
        "does something to them afterwards",
    ),
    "another-shape": (lambda: Own(lambda y: y[:, 0]), "does something to them afterwards"),
    "several": (lambda: Own(lambda y: (y, y)), "gives a tuple, not one tensor"),  # type: ignore[arg-type,return-value]
    "weights-after": (lambda: nn.Sequential(nn.Linear(4, 3), nn.PReLU()), "those of '1': give head='1'"),
    "norm-after": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
        "does something to them afterwards",
    ),
    "gate": (Squeezed, "those of 'readout': give head='readout'"),
    "twice": (Again, "not those of its layer 'only'"),
    "misfit": (lambda: nn.Sequential(nn.Linear(5, 3)), r"does not run on inputs of shape \(5, 4\)"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_other_functions_are_refused_with_the_layer_to_name(name: str) -> None:
    make, says = REFUSED[name]
    module = seeded(make())[0]
    network = from_module(module, norm="running")
    params, buffers = network.init(torch.Generator())
    for _ in range(2):  # every time, not only at first
        with pytest.raises(UserError, match=says) as refused:
            network.features(params, buffers, X, "batch")
        assert str(refused.value).count("\n") == 0
    with pytest.raises(UserError, match=says):
        from_module(module, norm="running", example=X)


def test_a_last_layer_cannot_carry_buffers() -> None:
    with pytest.raises(UserError, match=r"'1' has buffers \(mean, var\): name another layer with head="):
        from_module(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), head="1", norm="running")


def test_the_layer_that_is_named_is_the_right_one() -> None:
    module = seeded(Squeezed())[0]
    network = from_module(module, head="readout", example=X)
    assert_close(called(network, X), module(X).detach())
    after = seeded(nn.Linear(4, 3), nn.PReLU())
    assert_close(called(from_module(after, head="1"), X), after(X).detach())


def test_kernels_that_need_the_last_layer_refuse_as_well() -> None:
    module = seeded(Own(lambda y: y.log_softmax(-1)))[0]
    with pytest.raises(UserError, match="does something to them afterwards"):
        empirical_nngp(module, None, X)
    with pytest.raises(UserError, match="does something to them afterwards"):
        empirical_kernel(module, None)(X, X)
    linear = seeded(Own())[0]
    z = torch.tanh(linear.first(X)).detach()  # type: ignore[operator]
    assert_close(empirical_nngp(linear, None, X), z @ z.mT + 1, (CHAINED, 0.0))


def test_the_comparison_is_made_within_transforms_and_tracers_too() -> None:
    def one(network: Network, p: dict[str, Tensor], x: Tensor) -> Tensor:
        return apply(network, p, {}, x[None])[0].sum()

    def ways(network: Network) -> list[Callable[[], object]]:
        p = network.init(torch.Generator())[0]
        return [
            lambda: torch.func.vmap(lambda x: one(network, p, x))(X),
            lambda: torch.func.grad(lambda p: one(network, p, X[0]))(p),
            lambda: torch.func.vmap(lambda x: torch.func.grad(lambda p: one(network, p, x))(p))(X),
            lambda: make_fx(torch.func.vmap(lambda x: one(network, p, x)))(X),
        ]

    count = len(ways(from_module(Own().double())))
    for i in range(count):
        ways(from_module(seeded(Own())[0]))[i]()
        with pytest.raises(UserError, match="afterwards"):
            ways(from_module(seeded(Own(torch.relu))[0]))[i]()


def test_the_comparison_is_made_once_and_touches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from innerloop.nets import adoption

    module = seeded(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    passes: list[str] = []
    looked = adoption._last_layers

    def counted(probe: nn.Module, head: str, x: Tensor) -> list[nn.Module]:
        passes.append(threading.current_thread().name)
        return looked(probe, head, x)

    monkeypatch.setattr(adoption, "_last_layers", counted)
    network = from_module(module, norm="support")
    params, buffers = network.init(torch.Generator())
    state = torch.random.get_rng_state()
    for _ in range(3):
        apply(network, params, buffers, X)
    assert len(passes) == 1
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(module.state_dict()[name], value) for name, value in before.items())
    assert all(torch.equal(network.init(torch.Generator())[1][n], b) for n, b in buffers.items())


def test_random_layers_do_not_disturb_the_comparison() -> None:
    class Noisy(Own):
        def forward(self, x: Tensor) -> Tensor:
            return self.last(F.dropout(torch.tanh(self.first(x)), 0.5)).clone()

    network = from_module(seeded(Noisy())[0])
    params, buffers = network.init(torch.Generator())
    z, _ = network.features(params, buffers, X, "batch")
    assert z.shape[0] == len(X)


def test_inputs_of_a_special_kind_are_given_as_an_example() -> None:
    class Picky(Own):
        def forward(self, x: Tensor) -> Tensor:
            if float(x.max()) < 10:
                raise ValueError("too small")
            return super().forward(x)

    module = seeded(Picky())[0]
    network = from_module(module)
    params, buffers = network.init(torch.Generator())
    with pytest.raises(UserError, match=r"too small.*as example"):
        network.features(params, buffers, X + 20, "batch")
    network = from_module(module, example=X + 20)
    assert_close(called(network, X + 20), module(X + 20).detach())


def test_prelu_trains_in_every_mode() -> None:
    """Its derivatives under vmap, to the second order, against those without it."""
    module = seeded(nn.Linear(4, 6), nn.PReLU(6), nn.Linear(6, 1))
    network = from_module(module)
    params, _ = network.init(torch.Generator())

    def loss(p: dict[str, Tensor], x: Tensor) -> Tensor:
        inner = torch.func.grad(lambda q: apply(network, q, {}, x[None])[0].square().sum())(p)
        return sum((g.square().sum() for g in inner.values()), torch.zeros(()))

    together = torch.func.vmap(lambda x: torch.func.grad(lambda p: loss(p, x))(params))(X)
    p = dict(module.named_parameters())
    for i, x in enumerate(X):
        inner = torch.autograd.grad(module(x[None]).square().sum(), list(p.values()), create_graph=True)
        outer = torch.autograd.grad(sum(g.square().sum() for g in inner), list(p.values()))  # type: ignore[arg-type]
        for name, expected in zip(p, outer, strict=True):
            assert_close(together[name][i], expected, (CHAINED, 0.0))
