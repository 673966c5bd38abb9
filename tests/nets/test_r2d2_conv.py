"""R2D2's own network against torch's modules, a hand calculation, and the rules for networks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from innerloop.core.autodiff import plain_autograd
from innerloop.core.errors import UserError
from innerloop.core.trees import count
from innerloop.nets import NORM_POLICIES, apply, backbone, with_noise
from innerloop.nets.convolutional import r2d2_conv
from innerloop.testing import check_network
from innerloop.testing.closeness import assert_close
from oracles import problems

TINY = (2, 3, 4, 5)


def test_weights_and_features_by_hand() -> None:
    net = backbone("r2d2-conv", 3, 32, 5)
    params, _ = net.init(torch.Generator().manual_seed(0))
    kernels = 9 * (3 * 96 + 96 * 192 + 192 * 384 + 384 * 512)  # 2,601,504
    norms = 2 * (96 + 192 + 384 + 512)
    head = 5 * 8064 + 5
    assert count(params) == kernels + norms + head == 2_603_872 + 40_325


# halved three times and pooled by one pixel: 28 → 14 → 7 → 3 → 2; the dimensions that the paper gives
@pytest.mark.parametrize(("side", "features"), [(28, 3584), (32, 8064), (84, 72576), (16, 896)])
def test_features_have_the_published_dimension(side: int, features: int) -> None:
    params, _ = r2d2_conv(1, side, 5).init(torch.Generator().manual_seed(0))
    assert params["head.weight"].shape == (5, features)


class Twin(nn.Module):
    """By torch's modules, in the order of the paper: normalise, activate, pool."""

    def __init__(self) -> None:
        super().__init__()
        pairs = zip((1, *TINY[:3]), TINY, strict=True)
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in TINY)

    def forward(self, x: Tensor) -> Tensor:
        maps = []
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = nn.functional.leaky_relu(norm(conv(x)), 0.1)
            x = nn.functional.max_pool2d(x, 2, stride=1 if i == 3 else 2)
            maps.append(x)
        third = nn.functional.max_pool2d(maps[2], 2, stride=1)
        return torch.cat([third.flatten(1), maps[3].flatten(1)], 1)


@pytest.mark.parametrize("plain", [False, True])
def test_it_is_the_module(plain: bool) -> None:
    net = r2d2_conv(1, 20, 3, widths=TINY, norm="running")
    params, buffers = problems.drawn(net)
    twin = Twin().double()
    with torch.no_grad():
        for i in range(4):
            twin.convs[i].weight.copy_(params[f"block{i}.weight"])
            twin.norms[i].weight.copy_(params[f"block{i}.norm.weight"])
            twin.norms[i].bias.copy_(params[f"block{i}.norm.bias"])
    x = torch.randn(6, 1, 20, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = twin(x)

    def ours() -> tuple[Tensor, dict[str, Tensor]]:
        return net.features(params, buffers, x, "batch")

    if plain:
        with plain_autograd():
            outputs, after = ours()
    else:
        outputs, after = ours()
    assert_close(outputs, expected.detach())
    assert_close(after["block3.norm.mean"], twin.norms[3].running_mean)
    stored, _ = net.features(params, after, x, "stored")
    assert_close(stored, twin.eval()(x).detach())


@pytest.mark.parametrize("norm", NORM_POLICIES)
def test_it_keeps_the_rules(norm: str) -> None:
    check_network(r2d2_conv(1, 16, 3, widths=TINY, norm=norm), torch.zeros(4, 1, 16, 16))


def test_dropout_follows_the_last_two_blocks() -> None:
    net = r2d2_conv(1, 32, 3, widths=TINY, norm="none", drop_rate=0.5)
    params, buffers = problems.drawn(net)
    x = torch.ones(4, 1, 32, 32, dtype=torch.float64)
    quiet, _ = net.features(params, buffers, x, "batch")
    noisy, after = net.features(params, with_noise(buffers), x, "batch")
    assert after["noise.step"] == 1
    last = slice(4 * 9, None)  # features of the fourth block
    dropped = (noisy[:, last] == 0) & (quiet[:, last] != 0)
    assert 0.3 < float(dropped.double().mean()) < 0.7
    assert not torch.equal(noisy[:, : 4 * 9], quiet[:, : 4 * 9])
    assert torch.equal(apply(net, params, buffers, x)[0], net.head(params, quiet))


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(UserError, match="use at least 16"):
        r2d2_conv(3, 15, 5)
    with pytest.raises(UserError, match=r"four positive whole numbers, such as \[96, 192, 384, 512\]"):
        backbone("r2d2-conv", 3, 32, 5, widths=[8, 8])
    with pytest.raises(UserError, match="drop rate of 1"):
        r2d2_conv(3, 32, 5, drop_rate=1.0)
