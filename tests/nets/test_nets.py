"""MLP and Conv4: shapes, first parameters, parametrisations, dtype and device."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import TaskBatch
from innerloop.learners import (
    adam,
    anil,
    boil,
    episodic,
    erm,
    maml,
    maml_lslr,
    meta_sgd,
    momentum,
    multitask,
    reptile,
)
from innerloop.nets import NORM_POLICIES, Network, apply, conv4, from_module, mlp
from innerloop.nets.mlp import ACTIVATIONS
from innerloop.testing.closeness import SINGLE, assert_close, assert_mean, assert_trees_equal
from innerloop.training import Plan, meta_gradient
from oracles import problems
from oracles.forward import conv4_forward

Tree = dict[str, Tensor]
BFLOAT16 = pytest.param(torch.bfloat16, marks=pytest.mark.bfloat16)


def start(network: Network, seed: int = 0) -> Tree:
    return network.init(torch.Generator().manual_seed(seed))[0]


def variance(sample: Tensor, expected: float) -> None:
    """The variance of independent zero-mean normals, with the mean of their squares tested."""
    assert_mean(sample.square(), expected)


# ---- fully connected ----


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_mlp_is_what_it_says(activation: str, bias: bool) -> None:
    functions = {
        "relu": F.relu,
        "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
        "tanh": torch.tanh,
        "erf": torch.erf,
        "sigmoid": torch.sigmoid,
        "softplus": F.softplus,
        "linear": lambda x: x,
    }
    network = mlp(3, [7, 5], 2, activation=activation, bias=bias)
    params, _ = problems.drawn(network)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = x
    for i in range(3):
        expected = expected @ params[f"layer{i}.weight"].T
        expected = expected + params[f"layer{i}.bias"] if bias else expected
        expected = functions[activation](expected) if i < 2 else expected
    assert_close(apply(network, params, {}, x)[0], expected)
    assert ("layer0.bias" in params) == bias
    assert network.head_names == (("layer2.weight", "layer2.bias") if bias else ("layer2.weight",))


def test_mlp_flattens_pictures() -> None:
    network = mlp(16, [5], 2)
    assert apply(network, start(network), {}, torch.zeros(3, 1, 4, 4))[0].shape == (3, 2)


def test_he_initialisation() -> None:
    params = start(mlp(200, [300, 400], 500))
    variance(params["layer0.weight"], 2 / 200)
    variance(params["layer1.weight"], 2 / 300)
    variance(params["layer2.weight"], 1 / 400)  # nothing rectifies the outputs
    assert not any(params[f"layer{i}.bias"].any() for i in range(3))
    variance(start(mlp(200, [300], 1, activation="tanh"))["layer0.weight"], 1 / 200)
    wide = start(mlp(200, [300], 200, weight_var=1.5, bias_var=0.25))
    variance(wide["layer0.weight"], 1.5 / 200)
    variance(wide["layer1.weight"], 1.5 / 300)
    variance(wide["layer0.bias"], 0.25)


def test_ntk_parametrisation() -> None:
    network = mlp(3, [4], 2, parametrisation="ntk", weight_var=1.7, bias_var=0.3)
    params, _ = problems.drawn(network)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hidden = F.relu(
        math.sqrt(1.7 / 3) * x @ params["layer0.weight"].T + math.sqrt(0.3) * params["layer0.bias"]
    )
    expected = math.sqrt(1.7 / 4) * hidden @ params["layer1.weight"].T
    expected = expected + math.sqrt(0.3) * params["layer1.bias"]
    assert_close(apply(network, params, {}, x)[0], expected)
    wide = start(mlp(200, [300], 200, parametrisation="ntk", bias_var=0.1))
    for value in wide.values():
        variance(value, 1.0)


def test_parametrisations_start_as_the_same_function_of_the_same_draws() -> None:
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    outputs = []
    for kind in ("standard", "ntk"):
        network = mlp(6, [50, 40], 3, parametrisation=kind, weight_var=2.0, bias=False)
        params = {n: p.double() for n, p in start(network).items()}
        outputs.append(apply(network, params, {}, x)[0])
    assert_close(outputs[0], outputs[1], (SINGLE, SINGLE))  # the draws are float32


def test_wide_networks_keep_the_size_of_their_inputs() -> None:
    x = torch.randn(400, 50, generator=torch.Generator().manual_seed(0))
    for network in (mlp(50, [1000] * 4, 1), mlp(50, [1000] * 4, 1, parametrisation="ntk")):
        z, _ = network.features(start(network), {}, x, "batch")
        assert 0.8 < float(z.square().mean() / x.square().mean()) < 1.25


def test_words_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'relu'"):
        mlp(1, [2], 1, activation="rellu")
    with pytest.raises(UserError, match="standard and ntk"):
        mlp(1, [2], 1, parametrisation="mup")
    with pytest.raises(UserError, match="max and stride"):
        conv4(1, 28, 5, pooling="average")
    with pytest.raises(UserError, match="at least 16"):
        conv4(1, 15, 5)


# ---- conv4 ----


@pytest.mark.parametrize("pooling", ["max", "stride"])
@pytest.mark.parametrize("norm", ["none", "group", "transductive"])
def test_conv4_is_what_it_says(norm: str, pooling: str, image_batch: TaskBatch) -> None:
    network = conv4(1, 16, 3, filters=4, pooling=pooling, norm=norm)
    params, buffers = problems.drawn(network)
    x = image_batch.task(0).x_query
    assert_close(apply(network, params, buffers, x)[0], conv4_forward(pooling, norm)(params, x)[0])


@pytest.mark.parametrize(
    ("size", "channels", "pooling", "side"),
    [(28, 1, "max", 1), (28, 1, "stride", 2), (32, 3, "max", 2), (32, 3, "stride", 2), (84, 3, "max", 5)],
)
def test_conv4_fits_usual_pictures(size: int, channels: int, pooling: str, side: int) -> None:
    network = conv4(channels, size, 5, filters=6, pooling=pooling)
    params = start(network)
    x = torch.zeros(2, channels, size, size)
    z, _ = network.features(params, {}, x, "batch")
    assert z.shape == (2, 6 * side * side)
    assert network.head(params, z).shape == (2, 5)


def test_conv4_without_biases() -> None:
    params = start(conv4(1, 16, 3, filters=4, bias=False))
    assert not any(name.startswith("conv") and name.endswith("bias") for name in params)


def test_conv4_initialisation() -> None:
    params = start(conv4(3, 32, 200, filters=32))
    variance(params["conv0.weight"], 2 / 27)
    variance(params["conv3.weight"], 2 / 288)
    variance(params["head.weight"], 1 / 128)
    assert bool((params["norm2.weight"] == 1).all())
    assert not params["norm2.bias"].any()


@pytest.mark.parametrize("make", [lambda: mlp(3, [4], 2), lambda: conv4(1, 16, 3, filters=4, norm="running")])
def test_first_parameters_come_from_the_generator_alone(make: object) -> None:
    network: Network = make()  # type: ignore[operator]
    state = torch.random.get_rng_state()
    one, two, other = (network.init(torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert_trees_equal({**one[0], **one[1]}, {**two[0], **two[1]})
    assert any(not torch.equal(other[0][n], p) for n, p in one[0].items())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(p.dtype == torch.float32 for p in one[0].values())


# ---- dtype and device: everything follows its inputs ----

LEARNERS = {
    "maml": lambda *a: maml(*a),
    "fomaml": lambda *a: maml(*a, first_order=True),
    "momentum": lambda *a: maml(*a, rule=momentum()),
    "adam": lambda *a: maml(*a, rule=adam()),
    "anil": anil,
    "boil": boil,
    "meta-sgd": meta_sgd,
    "lslr": maml_lslr,
}


def placed(tree: Tree, **place: object) -> Tree:
    return {n: t.to(**place) for n, t in tree.items()}  # type: ignore[call-overload]


def check_place(
    network: Network, batch: TaskBatch, plan: Plan, names: tuple[str, ...] = tuple(LEARNERS), **place: object
) -> None:
    """Learners and objectives give results of the dtype and on the device of what they are given."""
    learners = [LEARNERS[name] for name in names]
    params, buffers = (placed(tree, **place) for tree in problems.drawn(network))
    batch = batch.to(**place)  # type: ignore[arg-type]
    loss = get_loss("cross-entropy" if not batch.y_query.is_floating_point() else "mse")
    example = next(iter(params.values()))
    objectives = [episodic(make(network, loss, 0.1, 2), loss) for make in learners]
    inits = [make(network, loss, 0.1, 2).init for make in learners]
    objectives += [erm(network, loss), reptile(maml(network, loss, 0.1, 1), loss)]
    inits += [dict, dict]
    if example.device.type != "meta" or loss.name != "mse":  # a task's number is read to find its head
        many = multitask(network, loss, 7)
        objectives.append(many)
        inits.append(lambda p: many.init(p, torch.Generator().manual_seed(0)))
    for objective, init in zip(objectives, inits, strict=True):
        own = init(params)
        gradient = meta_gradient(objective.loss, plan, direction=objective.direction)(own, buffers, batch)
        for tensor in (*own.values(), gradient.losses, *gradient.grads.values(), *gradient.buffers.values()):
            assert tensor.dtype == example.dtype, objective.name
            assert tensor.device == example.device, objective.name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, BFLOAT16])
@pytest.mark.parametrize("mode", ["vmap", "loop"])
def test_mlps_follow_the_dtype(mode: str, dtype: torch.dtype, regression_batch: TaskBatch) -> None:
    check_place(mlp(2, [4], 1), regression_batch, Plan(mode), dtype=dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize("norm", NORM_POLICIES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.one_in(3)
def test_conv4_follows_the_dtype(dtype: torch.dtype, norm: str, image_batch: TaskBatch) -> None:
    check_place(conv4(1, 16, 3, filters=2, norm=norm), image_batch, Plan("loop"), dtype=dtype)


@pytest.mark.parametrize("norm", ["support", "running"])
def test_conv4_follows_the_device(norm: str, image_batch: TaskBatch) -> None:
    network = conv4(1, 16, 3, filters=2, norm=norm)
    check_place(network, image_batch.slice(0, 1), Plan("loop"), ("fomaml", "anil"), device="meta")


def test_mlps_follow_the_device(regression_batch: TaskBatch) -> None:
    check_place(mlp(2, [4], 1), regression_batch, Plan("loop"), device="meta")
    labelled = problems.classification(2)
    check_place(mlp(4, [4], 3), labelled, Plan("loop"), ("maml",), device="meta")


def test_first_parameters_are_the_same_on_every_processor() -> None:
    """torch's float32 normals are not: they differ with and without AVX2."""
    code = (
        "import torch; from innerloop.nets import mlp;"
        "p, _ = mlp(20, [30], 1).init(torch.Generator().manual_seed(0));"
        "print(float(p['layer0.weight'].double().square().sum()).hex())"
    )
    home = str(Path(innerloop.__file__).parents[1])
    digests = set()
    for capability in ("default", "avx2"):
        env = {**os.environ, "ATEN_CPU_CAPABILITY": capability, "PYTHONPATH": home}
        out = subprocess.run(
            [sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True
        )
        digests.add(out.stdout)
    assert len(digests) == 1


def test_sizes_of_networks_are_checked() -> None:
    assert list(mlp(1, 40, 1).init(torch.Generator())[0]) == list(mlp(1, [40], 1).init(torch.Generator())[0])
    for wrong in ("40", [40.5], [0], None):
        with pytest.raises(UserError, match="must be widths of hidden layers"):
            mlp(1, wrong, 1)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="outputs='5' must be a whole number"):
        conv4(1, 28, "5")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="takes a torch module"):
        from_module("resnet")  # type: ignore[arg-type]
