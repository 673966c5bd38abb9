"""Small parts of networks, each with an answer that can be told without them."""

import pytest
import torch
from torch import nn

from innerloop.nets import noise, norms
from innerloop.nets.adoption import split_at
from innerloop.nets.cells.genotype import read_choices
from innerloop.nets.cells.operators import Conv, kernels, program, reduction_places, stack
from innerloop.nets.convolutional import last_side
from innerloop.nets.efficientnet_lite import blocks_of, same_conv2d, scaled
from innerloop.nets.factory import backbone_hint
from innerloop.nets.hugging_face import is_hugging_face, kind_of
from innerloop.nets.initial import uniform
from innerloop.nets.module import whole_module
from innerloop.nets.ops import choice, reference
from innerloop.nets.pretrained import is_installed, our_name, our_names, seen_before
from innerloop.nets.wide_resnet import blocks_of as wide_blocks_of


def test_a_module_is_split_before_its_last_layer() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2), nn.LogSoftmax(1))
    assert split_at(module, "2").names == ("2", "3")
    whole = whole_module(nn.Sequential(nn.Linear(2, 1), nn.Tanh()), "running")
    assert whole.head_names == ()
    assert sorted(whole.init(torch.Generator())[0]) == ["0.bias", "0.weight"]


def test_programs_of_cells() -> None:
    assert program("skip_connect", stride=1) == ()
    wide = [step.name for step in program("conv_1x5_5x1", stride=2) if isinstance(step, Conv)]
    assert wide == ["wide", "tall"]
    shapes = kernels(program("dil_conv_3x3", 1), "edge", 4, 4)
    assert shapes == {"edge.depthwise.weight": (4, 1, 3, 3), "edge.pointwise.weight": (4, 4, 1, 1)}
    assert (reduction_places(5), reduction_places(8)) == ((1, 3), (2, 5))
    assert stack(read_choices("metanas"), 3, 5, 48, (1, 3)).n_out == 576


@pytest.mark.parametrize(
    ("size", "depth", "pooling", "side"),
    [(28, 4, "max", 1), (28, 4, "stride", 2), (28, 5, "average", 0), (84, 4, "max", 5)],
)
def test_side_of_the_last_map(size: int, depth: int, pooling: str, side: int) -> None:
    assert last_side(size, depth, pooling) == side


def test_sizes_of_backbones() -> None:
    assert (scaled(16, 1.0), scaled(16, 1.2), scaled(40, 1.1)) == (16, 24, 48)
    assert [len(blocks_of(version)) for version in range(5)] == [16, 21, 21, 24, 30]
    assert [b.name for b in wide_blocks_of(10, 1)] == ["group0.block0", "group1.block0", "group2.block0"]
    assert (wide_blocks_of(28, 10)[-1].outputs, len(wide_blocks_of(28, 10))) == (640, 12)
    summed = same_conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3), stride=2, groups=1)
    assert summed[0, 0].tolist() == [[9.0, 6.0], [6.0, 4.0]]


def test_names_of_others() -> None:
    assert backbone_hint("resnet50") == " (did you mean 'timm:resnet50'?)"
    assert backbone_hint("resnet12thin") == " (did you mean 'resnet12-thin'?)"
    assert (is_hugging_face("hf:facebook/dinov2-small"), is_hugging_face("hfx:net")) == (True, False)
    assert (kind_of({"feature_extractor_type": "CLIPFeatureExtractor"}), kind_of({})) == ("CLIP", "")
    assert not is_installed("conv4")
    published = ("_conv_stem.weight", "_blocks.0._bn2.weight", "_fc.bias")
    assert [our_name(n) for n in published] == ["stem.weight", "block0.project.norm.weight", "head.bias"]
    given = {"_blocks.3._bn1.running_mean": torch.zeros(1), "_bn0.num_batches_tracked": torch.zeros(1)}
    assert list(our_names(given)) == ["block3.depthwise.norm.mean"]
    pairs = [("ImageNet-1k", "cub"), ("unknown", "cub"), ("unknown", "omniglot")]
    assert [seen_before(*pair) for pair in pairs] == ["yes", "perhaps", "no"]


def test_first_weights_and_noise() -> None:
    assert uniform(torch.Generator().manual_seed(0), (3, 4), 4).abs().max() <= 0.5
    x, buffers = torch.ones(1000, 1, 1, 1), noise.with_noise({}, step=10)
    dropped = noise.drop_path(x, buffers, 0.5, noise.key("edge"), ramp=10)
    assert dropped.unique().tolist() == [0.0, 2.0]


def test_policies() -> None:
    assert norms.kind_of("support") == "inductive"
    sources = [norms.statistics_for(policy, "query", training=True) for policy in ("support", "running")]
    assert sources == ["stored", "batch"]
    assert [norms.groups_for(channels) for channels in (64, 48, 6)] == [16, 16, 6]


def test_layers() -> None:
    one, zero = torch.ones(2), torch.zeros(2)
    normalised = reference.normalise(torch.tensor([[3.0, 5.0]]), one, 4 * one, one, zero, 0.0)
    assert normalised.tolist() == [[1.0, 2.0]]
    y, mean, var = reference.batch_norm(torch.tensor([[1.0], [3.0]]), one[:1], zero[:1], 0.0)
    assert (y.flatten().tolist(), mean.item(), var.item()) == ([-1.0, 1.0], 2.0, 1.0)
    grouped = reference.group_norm(
        torch.tensor([[1.0, 3.0, 10.0, 30.0]]), 2, torch.ones(4), torch.zeros(4), 0.0
    )
    assert grouped.tolist() == [[-1.0, 1.0, -1.0, 1.0]]


def test_where_winograd_pays() -> None:
    x, weight = torch.zeros(64, 160, 16, 16), torch.zeros(160, 160, 3, 3)
    given = [(x, weight), (x[:1], weight), (x, weight[..., :1, :1])]
    assert [choice.winograd_pays(*pair) for pair in given] == [True, False, False]
