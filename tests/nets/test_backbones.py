"""ResNet-12 and wide ResNets, backbones by name, and bfloat16."""

import sys
import types

import pytest
import torch
from torch import nn

from innerloop.core.autodiff import plain_autograd
from innerloop.core.errors import UserError
from innerloop.core.importing import Trusted
from innerloop.core.losses import get_loss
from innerloop.core.trees import count
from innerloop.learners import anil, episodic, erm, maml, reptile
from innerloop.learners.objectives import mixed_precision
from innerloop.nets import NORM_POLICIES, apply, backbone, conv4, norms, resnet12, wide_resnet
from innerloop.nets.ops import choice as ops
from innerloop.testing import check_network
from innerloop.testing.closeness import (
    CHAINED,
    DEEP,
    MULTIPLIED,
    SUMMED,
    assert_close,
    assert_mean,
    assert_trees_close,
)
from innerloop.training import Plan, meta_gradient
from oracles import problems, resnet12_module

ENTROPY = get_loss("cross-entropy")
TINY = (2, 3, 4, 5)
DOUBLE = torch.float64


def pictures(n=6, channels=1, side=16, seed=0, dtype=DOUBLE):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, channels, side, side, generator=draw, dtype=dtype)


@pytest.fixture
def winograd_everywhere(monkeypatch):
    """The tests' networks are too small for it to pay."""
    monkeypatch.setattr(ops, "WINOGRAD_CHANNELS", 1)
    monkeypatch.setattr(ops, "WINOGRAD_TILES", 1)
    used = []
    inner = ops.conv3x3
    monkeypatch.setattr(ops, "conv3x3", lambda x, w: used.append(1) or inner(x, w))
    return used


# ---- ResNet-12 against an independent module ----


@pytest.mark.parametrize("plain", [False, True])
def test_resnet12_is_the_module(plain, winograd_everywhere):
    net = resnet12(3, 16, 4, widths=TINY, norm="running")
    params, buffers = problems.drawn(net)
    buffers = {name: b + 0.1 for name, b in buffers.items()}
    x, y = pictures(channels=3), torch.arange(6) % 4
    twin = resnet12_module.with_weights(resnet12_module.ResNet12(3, TINY, 4), {**params, **buffers})
    expected_stored = twin.eval()(x)
    expected = resnet12_module.named(twin, resnet12_module.eager_step(twin.train(), x, y))
    leaves = {name: p.requires_grad_() for name, p in params.items()}

    def ours():
        stored, _ = apply(net, leaves, buffers, x, "stored")
        outputs, after = apply(net, leaves, buffers, x, "batch")
        grads = torch.autograd.grad(ENTROPY.value(outputs, y), list(leaves.values()))
        return stored, dict(zip(leaves, grads, strict=True)), after

    if plain:
        with plain_autograd():
            stored, grads, after = ours()
        assert winograd_everywhere
    else:
        stored, grads, after = ours()
        assert not winograd_everywhere
    assert_close(stored.detach(), expected_stored.detach())
    assert_trees_close(grads, expected, (CHAINED, MULTIPLIED))
    assert_trees_close(after, resnet12_module.statistics(twin))


@pytest.mark.parametrize(
    ("net", "published"),
    [
        (resnet12(3, 84, 64), 12.4e6),
        (resnet12(3, 84, 64, widths=(64, 128, 256, 512)), 8.0e6),
        (wide_resnet(3, 32, 10), 36.5e6),
    ],
    ids=["resnet12", "resnet12 to 512", "wrn-28-10"],
)
def test_sizes_are_the_published_ones(net, published):
    """Without the classifier: 12.4 M and 8 M for the literature's two ResNet-12s, 36.5 M for WRN-28-10."""
    params, _ = net.init(torch.Generator().manual_seed(0))
    body = count({name: p for name, p in params.items() if name not in net.head_names})
    assert abs(body - published) < 0.05e6


def test_first_weights():
    net = resnet12(3, 32, 64, widths=(64, 96, 128, 256), head_scale=3.58)
    params, _ = net.init(torch.Generator().manual_seed(0))
    assert_mean(params["block3.conv0.weight"].square(), 2 / (9 * 256))  # fan out, not fan in
    weight = params["head.weight"]
    assert 0.99 < float(weight.abs().max()) / (3.58 / 16) <= 1
    assert_mean(weight.square(), (3.58 / 16) ** 2 / 3)
    assert "head.bias" not in resnet12(3, 32, 5, widths=TINY, head_bias=False).init(torch.Generator())[0]


def test_shapes_and_mistakes():
    for size in (32, 84):
        net = resnet12(3, size, 5, widths=TINY)
        params, buffers = net.init(torch.Generator().manual_seed(0))
        assert net.features(params, buffers, torch.zeros(2, 3, size, size), "batch")[0].shape == (2, 5)
    with pytest.raises(UserError, match="at least 16"):
        resnet12(3, 15, 5)
    with pytest.raises(UserError, match="depths are 10, 16"):
        wide_resnet(3, 32, 5, depth=12)
    with pytest.raises(UserError, match="norm policy"):
        wide_resnet(3, 32, 5, norm="batch")


# ---- every norm policy, every mode ----

MAKERS = {
    "resnet12": lambda norm: resnet12(1, 16, 3, widths=TINY, norm=norm),
    "wide": lambda norm: wide_resnet(1, 16, 3, depth=10, widen=1, norm=norm),
}


@pytest.mark.parametrize("norm", NORM_POLICIES)
@pytest.mark.parametrize("name", MAKERS)
def test_networks_conform(name, norm):
    check_network(MAKERS[name](norm), pictures(dtype=torch.float32))


@pytest.mark.parametrize("norm", NORM_POLICIES)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("method", ["erm", "maml"])
@pytest.mark.one_in(3)
def test_loop_threads_and_vmap_agree(method, name, norm, winograd_everywhere):
    """Loop and threads go by the fused kernels and Winograd, vmap by primitives; MAML to second order."""
    net, batch = MAKERS[name](norm), problems.images()
    params, buffers = problems.drawn(net)
    objective = erm(net, ENTROPY) if method == "erm" else episodic(maml(net, ENTROPY, 0.01, 1), ENTROPY)
    expected = meta_gradient(objective.loss, Plan("vmap"))(params, buffers, batch)
    assert not winograd_everywhere
    for plan in (Plan("loop"), Plan("threads", 2)):
        got = meta_gradient(objective.loss, plan)(params, buffers, batch)
        assert_close(got.losses, expected.losses, (CHAINED, MULTIPLIED))
        assert_trees_close(got.grads, expected.grads, (DEEP, SUMMED))
        assert_trees_close(got.buffers, expected.buffers, (CHAINED, MULTIPLIED))
    assert winograd_everywhere


@pytest.mark.parametrize("policy", NORM_POLICIES)
@pytest.mark.parametrize("shape", [(5, 4, 3, 2), (1, 4, 1, 1), (6, 4, 1, 1)])
@pytest.mark.parametrize("statistics", ["batch", "stored"])
def test_fused_norms_are_ours_to_second_order(policy, shape, statistics):
    draw = torch.Generator().manual_seed(0)
    params, buffers = norms.init_norm("n", 4, policy)
    params = {k: torch.rand(4, generator=draw, dtype=DOUBLE).requires_grad_() for k in params}
    buffers = {k: torch.rand(4, generator=draw, dtype=DOUBLE) for k in buffers}
    x, g = (torch.randn(shape, generator=draw, dtype=DOUBLE) for _ in range(2))
    x.requires_grad_()

    def values(norm):
        y, changed = norm("n", policy, params, buffers, x, statistics)
        leaves = [x, *params.values()]
        first = torch.autograd.grad((y * g).tanh().sum(), leaves, create_graph=True, materialize_grads=True)
        second = torch.autograd.grad(sum(f.square().sum() for f in first), leaves, materialize_grads=True)
        names = [f"{order} {i}" for order in ("first", "second") for i in range(len(leaves))]
        return {"y": y, **changed, **dict(zip(names, [*first, *second], strict=True))}

    expected = values(norms.norm)
    with plain_autograd():
        got = values(norms.kernel_norm)
    assert_trees_close(got, expected, (CHAINED, MULTIPLIED))


def test_pictures_are_kept_channels_last_only_under_plain_autograd():
    x = pictures(channels=2)
    with plain_autograd():
        assert ops.layout(x).is_contiguous(memory_format=torch.channels_last)
    assert ops.layout(x) is x


# ---- by name ----


@pytest.mark.parametrize(("name", "features"), [("conv4", 64), ("resnet12", 640), ("resnet12-thin", 256)])
def test_backbones_by_name(name, features):
    net = backbone(name, 3, 32, 7, norm="group")
    params, _ = net.init(torch.Generator().manual_seed(0))
    assert params["head.weight"].shape == (7, features * (4 if name == "conv4" else 1))
    assert net.norm == "group"


def test_wrn_by_name_is_wrn_28_10():
    with torch.device("meta"):
        net = backbone("wrn-28-10", 3, 32, 5)
    params, _ = net.init(torch.Generator().manual_seed(0))
    assert params["group2.block3.conv1.weight"].shape == (640, 640, 3, 3)


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("resnet", {}, "did you mean 'resnet12'"),
        ("resnet12", {"width": (1, 2)}, "did you mean 'widths'"),
        ("wrn-28-10", {"depth": 16}, "no setting 'depth'"),
        ("resnet12", {"head": "fc"}, "knows its last layer"),
        (Trusted("nowhere.at_all:net"), {}, "no module 'nowhere.at_all'"),
        (Trusted("torch.nn:Nothing"), {}, "has no 'Nothing'"),
        (Trusted("builtins:dict"), {}, "gave a dict"),
    ],
)
def test_mistakes_in_names(name, settings, says):
    with pytest.raises(UserError, match=says):
        backbone(name, 3, 32, 5, **settings)


def small_module(width=4, outputs=3):
    body = nn.Sequential(nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(body, nn.Flatten(), nn.Linear(width, outputs))


def test_own_modules_by_path(monkeypatch):
    mine = types.ModuleType("mine")
    mine.small = small_module
    monkeypatch.setitem(sys.modules, "mine", mine)
    net = backbone(Trusted("mine:small"), 1, 16, 3, norm="running", width=6)
    assert net.init(torch.Generator().manual_seed(0))[0]["2.weight"].shape == (3, 6)
    check_network(net, pictures(dtype=torch.float32))


class FakeTimm(types.ModuleType):
    """As much of timm's surface as we call. The real library was not run."""

    def __init__(self):
        super().__init__("timm")
        self.asked = []

    def create_model(self, name, pretrained=False, in_chans=3, num_classes=1000, **options):
        self.asked.append((name, pretrained, in_chans, num_classes, options))
        if name == "acts":
            return nn.Sequential(nn.Conv2d(in_chans, 4, 3), type("BatchNormAct2d", (nn.BatchNorm2d,), {})(4))
        if name != "tiny":
            raise RuntimeError(f"Unknown model ({name})")
        return small_module(outputs=num_classes)


def test_timm_models_by_name(monkeypatch):
    fake = FakeTimm()
    monkeypatch.setitem(sys.modules, "timm", fake)
    net = backbone("timm:tiny", 1, 16, 5, norm="group", drop_rate=0.1)
    assert fake.asked[0] == ("tiny", False, 1, 5, {"drop_rate": 0.1})
    check_network(net, pictures(dtype=torch.float32))
    assert net.head_names == ("2.weight", "2.bias")
    with pytest.raises(UserError, match="could not make 'huge'"):
        backbone("timm:huge", 1, 16, 5)
    with pytest.raises(UserError, match="layer '1' is a BatchNormAct2d"):
        backbone("timm:acts", 1, 16, 5)


def test_without_timm_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"pip install 'innerloop\[timm\]'"):
        backbone("timm:resnet18", 3, 32, 5)


# ---- bfloat16 ----


@pytest.mark.bfloat16
@pytest.mark.parametrize("norm", NORM_POLICIES)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("mode", ["loop", "vmap"])
def test_bfloat16_rounds_products_and_nothing_else(mode, name, norm):
    net, batch = MAKERS[name](norm), problems.images().to(dtype=torch.float32)
    params, buffers = problems.drawn(net, dtype=torch.float32)
    full = erm(net, ENTROPY)
    expected = meta_gradient(full.loss, Plan(mode))(params, buffers, batch)
    gradient = meta_gradient(mixed_precision.in_bfloat16(full).loss, Plan(mode))(params, buffers, batch)
    assert gradient.losses.dtype == torch.float32
    assert {g.dtype for g in gradient.grads.values()} == {torch.float32}
    assert {b.dtype for b in gradient.buffers.values()} <= {torch.float32}
    off = float((gradient.losses - expected.losses).norm() / expected.losses.norm())
    assert 1e-6 < off < 0.05  # eight bits of mantissa: really reduced, and no more than that


@pytest.mark.bfloat16
def test_bfloat16_products_see_channels_last_pictures():
    seen = []

    def loss(params, buffers, task):
        seen.append((task.x_support.is_contiguous(memory_format=torch.channels_last), task.y_support.dtype))
        seen.append((params["w"] @ params["w"]).dtype)
        return params["w"].sum(), buffers

    objective = mixed_precision.in_bfloat16(erm(MAKERS["wide"]("none"), ENTROPY)._replace(loss=loss))
    batch = problems.classification(shape=(2, 4, 4)).to(dtype=torch.float32)
    with plain_autograd():
        objective.loss({"w": torch.ones(2, 2)}, {}, batch.task(0))
    assert seen == [(True, torch.int64), torch.bfloat16]


@pytest.mark.bfloat16
@pytest.mark.parametrize(("ratio", "chosen"), [(2.0, "bfloat16"), (1.05, "float32"), (0.1, "float32")])
def test_precision_is_chosen_by_measurement(monkeypatch, ratio, chosen):
    monkeypatch.setattr(mixed_precision, "_ratio", lambda run: ratio)
    mixed_precision.bfloat16_pays.cache_clear()
    choice = mixed_precision.at_precision(erm(conv4(1, 16, 3), ENTROPY), "auto")
    mixed_precision.bfloat16_pays.cache_clear()
    assert choice.precision == chosen
    assert f"{ratio:.2g} times" in choice.reason
    assert choice.objective.name == ("erm in bfloat16" if chosen == "bfloat16" else "erm")


@pytest.mark.bfloat16
def test_precision_as_asked():
    objective = erm(conv4(1, 16, 3), ENTROPY)
    assert mixed_precision.at_precision(objective, "float32").objective is objective
    assert mixed_precision.at_precision(objective, "bfloat16").precision == "bfloat16"
    with pytest.raises(UserError, match="there are auto, float32 and bfloat16"):
        mixed_precision.at_precision(objective, "half")
    gradient_free = reptile(anil(conv4(1, 16, 3), ENTROPY, 0.1, 1), ENTROPY)
    assert mixed_precision.at_precision(gradient_free, "auto").precision == "float32"
    with pytest.raises(UserError, match="no loss"):
        mixed_precision.in_bfloat16(gradient_free)


@pytest.mark.bfloat16
def test_measurement_of_bfloat16_is_a_measurement():
    verdict = mixed_precision.bfloat16_pays()
    assert verdict.ratio > 0
    assert verdict.pays == (verdict.ratio >= mixed_precision.WORTH_IT)
