"""Any torch module as a pure function: same outputs, explicit buffers, safe in threads."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from innerloop.core.errors import UserError
from innerloop.nets import NORM_POLICIES, Network, apply, from_module, load_weights, with_noise
from innerloop.nets.noise import STEP
from innerloop.nets.weights import load_statistics
from innerloop.testing.closeness import assert_close, assert_trees_equal

Tree = dict[str, Tensor]
BFLOAT16 = pytest.param(torch.bfloat16, marks=pytest.mark.bfloat16)


class Block(nn.Module):
    """A residual block with batch normalisation."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out)
        self.conv2, self.norm2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out)
        self.short = nn.Sequential(nn.Conv2d(n_in, n_out, 1, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.max_pool2d(F.relu(self.norm2(self.conv2(y)) + self.short(x)), 2)


class SmallResNet(nn.Module):
    """Two blocks, an average and a readout that is not the last in line."""

    def __init__(self) -> None:
        super().__init__()
        self.readout = nn.Linear(6, 3)
        self.blocks = nn.Sequential(Block(1, 4), Block(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.blocks(x).mean((2, 3)))


def resnet(seed: int = 0) -> SmallResNet:
    """Weights that do not depend on anything else, normalisation layers with a history."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = SmallResNet().double()
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.uniform_(layer.weight, 0.5, 1.5)
                nn.init.normal_(layer.bias)
        module.train()(torch.randn(8, 1, 8, 8, dtype=torch.float64) + 1)
    return module.eval()


X = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def start(network: Network, seed: int = 0) -> tuple[Tree, Tree]:
    return network.init(torch.Generator().manual_seed(seed))


# ---- the same outputs ----


def test_running_statistics_give_the_module_in_evaluation_mode() -> None:
    module = resnet()
    network = from_module(module, head="readout", norm="running")
    outputs, _ = apply(network, *start(network), X, "stored")
    assert_close(outputs, module(X).detach())


@pytest.mark.parametrize("norm", ["transductive", "support", "running"])
def test_batch_statistics_give_the_module_in_training_mode(norm: str) -> None:
    module = resnet()
    network = from_module(module, head="readout", norm=norm)
    outputs, _ = apply(network, *start(network), X, "batch")
    assert_close(outputs, module.train()(X).detach())


@pytest.mark.parametrize(
    "settings", [{"eps": 0.1}, {"affine": False}, {"track_running_stats": False}], ids=str
)
def test_settings_of_batch_norm_layers_are_kept(settings: dict[str, float]) -> None:
    module = nn.Sequential(nn.BatchNorm1d(3, **settings), nn.Linear(3, 1)).double()  # type: ignore[arg-type]
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    network = from_module(module, norm="transductive")
    params, buffers = start(network)
    outputs, _ = apply(network, params, buffers, x, "batch")
    assert_close(outputs, module.train()(x).detach())
    assert ("0.weight" in params) == settings.get("affine", True)


def test_a_module_without_batch_norm_is_itself() -> None:
    module = nn.Sequential(
        nn.Linear(2, 4), nn.Tanh(), nn.LayerNorm(4), nn.Dropout(0.9), nn.Linear(4, 1)
    ).double()
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for norm in NORM_POLICIES:
        network = from_module(module, norm=norm)
        outputs, buffers = apply(network, *start(network), x)
        assert torch.equal(outputs, module.eval()(x).detach())  # dropout is off
        assert buffers == {}


class Dropping(nn.Module):
    """A dropout layer that is used twice and has two names, and one that drops whole channels."""

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(1, 6, 3, padding=1), nn.Linear(6, 3)
        self.drop = nn.Dropout(rate)
        self.again, self.channels = self.drop, nn.Dropout2d(rate)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(torch.ones_like(x)) * 0 + self.conv(x)
        return self.last(self.again(self.channels(x).mean((2, 3))))


def test_dropout_layers_are_on_exactly_if_noise_is() -> None:
    module = Dropping().double()
    network = from_module(module)
    params, buffers = start(network)
    assert network.noise
    quiet, after = network.features(params, buffers, X, "batch")
    assert torch.equal(network.head(params, quiet), module.eval()(X).detach())
    assert after == {}
    noisy, after = network.features(params, with_noise(buffers), X, "batch")
    assert float(after[STEP]) == 1
    assert torch.equal(noisy, network.features(params, with_noise(buffers), X, "batch")[0])
    assert not torch.equal(noisy, network.features(params, after, X, "batch")[0])
    # what is left is twice as large, of channels and again of features
    assert_close(noisy[noisy != 0], 4 * quiet[noisy != 0])
    assert 0.5 < float((noisy == 0).double().mean()) < 0.95
    assert not from_module(Dropping(0.0)).noise
    assert not from_module(resnet()).noise


def test_a_dropout_layer_that_is_called_again_draws_anew() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.last = nn.Dropout(0.5), nn.Linear(400, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.drop(x) * self.drop(x))

    network = from_module(Twice())
    params, buffers = start(network)
    z, _ = network.features(params, with_noise(buffers), torch.ones(2, 400), "batch")
    assert 0.15 < float((z != 0).double().mean()) < 0.35  # a quarter, not a half


def test_noise_that_cannot_be_switched_on_is_said() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(F.dropout(x, 0.5, self.training))

    network = from_module(Functional())
    with pytest.warns(UserWarning, match="not switched on for training"):
        network.features(*start(network), torch.zeros(3, 4), "batch")
    quiet = from_module(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet.features(*start(quiet), torch.zeros(3, 4), "batch")


def test_features_and_head_make_the_output() -> None:
    network = from_module(resnet(), head="readout")
    params, buffers = start(network)
    z, _ = network.features(params, buffers, X, "batch")
    assert z.shape == (5, 6)
    assert network.head_names == ("readout.weight", "readout.bias")
    assert_close(network.head(params, z), apply(network, params, buffers, X)[0])
    only_head = {name: params[name] for name in network.head_names}
    assert torch.equal(network.head(only_head, z), network.head(params, z))


def test_the_last_linear_layer_is_the_usual_head() -> None:
    module = nn.Sequential(nn.Linear(2, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 3)))
    assert from_module(module).head_names == ("1.1.weight", "1.1.bias")


def test_wrong_heads_are_refused() -> None:
    with pytest.raises(UserError, match="no layer 'redout'; its layers are readout, blocks"):
        from_module(resnet(), head="redout")
    with pytest.raises(UserError, match=r"no nn\.Linear"):
        from_module(nn.Conv2d(1, 1, 3))


# ---- purity ----


@pytest.mark.parametrize("norm", NORM_POLICIES)
def test_nothing_that_is_given_changes(norm: str) -> None:
    module = resnet()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    network = from_module(module, head="readout", norm=norm)
    params, buffers = start(network)
    copies = ({n: t.clone() for n, t in tree.items()} for tree in (params, buffers))
    for statistics in ("batch", "stored"):
        _, after = apply(network, params, buffers, X, statistics)  # type: ignore[arg-type]
        assert set(after) == set(buffers)
    for tree, copy in zip((params, buffers), copies, strict=True):
        assert_trees_equal(tree, copy)
    assert_trees_equal(module.state_dict(), before)


def test_batch_norms_are_replaced_wherever_they_are() -> None:
    network = from_module(resnet(), head="readout", norm="support")
    params, buffers = start(network)
    places = [f"blocks.{i}.{p}" for i in (0, 1) for p in ("norm1", "norm2", "short.1")]
    assert set(buffers) == {f"{place}.{name}" for place in places for name in ("mean", "var")}
    assert {f"{place}.{name}" for place in places for name in ("weight", "bias")} < set(params)
    assert set(start(from_module(resnet(), head="readout", norm="none"))[0]) == {
        name for name in params if not name.startswith(tuple(places))
    }
    for statistics, same in (("batch", False), ("stored", True)):
        _, after = apply(network, params, buffers, X, statistics)  # type: ignore[arg-type]
        assert all(torch.equal(after[n], buffers[n]) == same for n in buffers)


def test_buffers_given_are_the_ones_used() -> None:
    network = from_module(resnet(), head="readout", norm="running")
    params, buffers = start(network)
    one, _ = apply(network, params, buffers, X, "stored")
    other, _ = apply(network, params, {n: b + 0.5 for n, b in buffers.items()}, X, "stored")
    again, _ = apply(network, params, buffers, X, "stored")
    assert not torch.allclose(one, other)
    assert torch.equal(one, again)


def test_threads_do_not_disturb_each_other() -> None:
    network = from_module(resnet(), head="readout", norm="support")
    params, buffers = start(network)
    sets = [{n: p * (1 + i) for n, p in params.items()} for i in range(2)]
    ways = ("batch", "stored")
    expected = [apply(network, sets[i], buffers, X, ways[i]) for i in range(2)]  # type: ignore[arg-type]
    wrong: list[int] = []
    meeting = threading.Barrier(2)

    def work(i: int) -> None:
        meeting.wait()
        for _ in range(100):
            outputs, after = apply(network, sets[i], buffers, X, ways[i])  # type: ignore[arg-type]
            if not torch.equal(outputs, expected[i][0]):
                wrong.append(i)
            if any(not torch.equal(after[n], b) for n, b in expected[i][1].items()):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---- first parameters ----


def test_a_module_starts_from_its_weights_and_a_factory_from_the_generator() -> None:
    module = resnet()
    network = from_module(module, head="readout")
    params, _ = start(network)
    assert_trees_equal(params, dict(module.named_parameters()))
    params["readout.weight"].zero_()
    assert module.readout.weight.any()  # a copy was given
    made = from_module(SmallResNet, head="readout")
    state = torch.random.get_rng_state()
    assert_trees_equal(start(made, 3)[0], start(made, 3)[0])
    assert not torch.equal(start(made, 3)[0]["readout.weight"], start(made, 4)[0]["readout.weight"])
    assert torch.equal(torch.random.get_rng_state(), state)  # the global generator is left alone


def test_all_mismatches_of_weights_are_reported_at_once() -> None:
    params = {"a": torch.zeros(2), "b": torch.zeros(3), "c": torch.zeros(1)}
    given = {"a": torch.ones(2), "b": torch.ones(4), "d": torch.ones(1), "e": torch.ones(1)}
    with pytest.raises(UserError) as error:
        load_weights(params, given, "old.safetensors")
    text = str(error.value)
    assert "4 mismatches" in text
    assert "c: missing in old.safetensors" in text
    assert "b: old.safetensors has shape (4,), the model (3,)" in text
    assert all(f"{name}: in old.safetensors but not in the model" in text for name in "de")
    assert "\n  a:" not in text


def test_loaded_weights_take_the_models_precision_and_are_copies() -> None:
    given = {"a": torch.ones(2)}
    loaded = load_weights({"a": torch.zeros(2, dtype=torch.float64)}, given)
    assert loaded["a"].dtype == torch.float64
    same = load_weights({"a": torch.zeros(2)}, given)
    same["a"].zero_()
    assert given["a"].all()


# ---- dtype and device ----


@pytest.mark.parametrize("norm", NORM_POLICIES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, BFLOAT16])
def test_modules_follow_the_dtype_of_their_inputs(dtype: torch.dtype, norm: str) -> None:
    network = from_module(resnet(), head="readout", norm=norm)
    params, buffers = ({n: t.to(dtype) for n, t in tree.items()} for tree in start(network))
    outputs, after = apply(network, params, buffers, X.to(dtype))
    assert outputs.dtype == dtype
    assert all(b.dtype == dtype for b in after.values())


@pytest.mark.parametrize("norm", NORM_POLICIES)
def test_modules_keep_their_own_dtype_at_the_start(norm: str) -> None:
    params, buffers = start(from_module(resnet(), head="readout", norm=norm))
    assert {t.dtype for t in (*params.values(), *buffers.values())} == {torch.float64}


@pytest.mark.parametrize("norm", NORM_POLICIES)
def test_modules_follow_the_device_of_their_inputs(norm: str) -> None:
    network = from_module(resnet(), head="readout", norm=norm)
    params, buffers = ({n: t.to("meta") for n, t in tree.items()} for tree in start(network))
    outputs, after = apply(network, params, buffers, X.to("meta"))
    assert outputs.device.type == "meta"
    assert all(b.device.type == "meta" for b in after.values())


def test_modules_can_be_vmapped_over_parameters() -> None:
    network = from_module(resnet(), head="readout", norm="transductive")
    params, buffers = start(network)
    stacked = {n: torch.stack([p, 2 * p]) for n, p in params.items()}
    together = torch.func.vmap(lambda p: apply(network, p, buffers, X)[0])(stacked)
    for i in (0, 1):
        alone, _ = apply(network, {n: p[i] for n, p in stacked.items()}, buffers, X)
        assert_close(together[i], alone)


@pytest.mark.parametrize("norm", NORM_POLICIES)
def test_any_state_dict_is_a_start(norm):
    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)).double()

    trained = make()
    x = torch.randn(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 1
    for _ in range(3):
        trained(x)  # moves the running statistics
    net = from_module(make, norm=norm)
    params, buffers = net.init(torch.Generator().manual_seed(2))
    given = dict(trained.state_dict())
    if norm == "none":  # this policy has no scale and shift either: they are weights, and refused as such
        given = {name: value for name, value in given.items() if name not in ("1.weight", "1.bias")}
    left, loaded = load_statistics(params, buffers, given)
    params = load_weights(params, left)
    assert set(loaded) == set(buffers)
    if norm == "running":
        outputs, _ = apply(net, params, loaded, x, "stored")
        torch.testing.assert_close(outputs, trained.eval()(x))
    with pytest.raises(UserError, match=r"1\.running_mean: .* has shape \(9,\), the model \(4,\)"):
        load_statistics(params, {"1.mean": torch.zeros(4)}, {"1.running_mean": torch.zeros(9)})
