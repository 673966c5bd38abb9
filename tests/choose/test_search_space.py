"""Spaces of architectures: every candidate once, networks that recipes train, sizes."""

from __future__ import annotations

import collections
import math

import pytest
import torch

from innerloop.choose import (
    Space,
    candidates,
    cell_space,
    conv_space,
    count_parameters,
    get_space,
    network_size,
    random_candidate,
    random_of_size,
    size_of,
)
from innerloop.choose.scores.sizes import count_layers
from innerloop.core.errors import UserError
from innerloop.nets import apply, backbone, conv4
from innerloop.nets.cells import PUBLISHED, all_choices, cell_network, to_table
from innerloop.nets.cells.genotype import check_genotype
from innerloop.nets.factory import build_backbone
from innerloop.report.plots.cells import cell_picture_data, cell_picture_figure
from innerloop.testing.closeness import SINGLE_SUMMED


def test_every_cell_candidate_is_a_genotype_and_has_one_number() -> None:
    space = cell_space(1, 8, 2, cells=1, channels=2)
    numbers = [0, 1, 2, 6, 7, 48, 49, 18 * 7**6 - 1, 18 * 7**6, space.total // 2, space.total - 1]
    made = [check_genotype(space.candidate(number)) for number in numbers]
    assert len(set(made)) == len(numbers)
    first = {space.candidate(number).normal for number in range(7 * 7 * 3)}
    assert len(first) == 7 * 7 * 3  # node 2 has one pair of inputs and 49 of operators, node 3 three pairs
    known = {(edge.operator, edge.source) for g in made for cell in g for node in cell for edge in node}
    assert ("conv_3x3", 0) in known


def test_random_cells_are_drawn_evenly_and_by_the_seed() -> None:
    space = cell_space(1, 8, 2)
    drawn = [random_candidate(space, seed) for seed in range(700)]
    assert drawn[3] == random_candidate(space, 3) != random_candidate(space, 3, "other")
    operators = collections.Counter(e.operator for g in drawn for cell in g for node in cell for e in node)
    mean = 700 * 12 / 7
    assert len(operators) == 7
    assert all(abs(count - mean) < 5 * math.sqrt(mean * 6 / 7) for count in operators.values())
    pairs = collections.Counter(tuple(e.source for e in g.normal[2]) for g in drawn)
    assert len(pairs) == 6
    assert all(abs(count - 700 / 6) < 5 * math.sqrt(700 * 5 / 36) for count in pairs.values())


def test_random_cells_of_a_size_have_it() -> None:
    space = cell_space(3, 32, 5, cells=1, channels=4)
    wanted = size_of(space, random_candidate(space, 0)).parameters
    cells = [random_of_size(space, seed, wanted, tolerance=0.25) for seed in range(3)]
    assert len(set(cells)) == 3
    assert all(abs(size_of(space, g).parameters - wanted) <= 0.25 * wanted for g in cells)
    assert cells[1] == random_of_size(space, 1, wanted, tolerance=0.25)
    with pytest.raises(UserError, match="ask for a size in between or raise tolerance"):
        random_of_size(space, 0, 10, tries=3)


@pytest.mark.parametrize("space", [cell_space(1, 12, 3, cells=2, channels=4), conv_space(1, 12, 3)])
def test_a_recipes_table_builds_the_same_network(space: Space[object]) -> None:
    candidate = random_candidate(space, 1)
    for norm in ("transductive", "group"):
        table = space.settings(candidate, norm)
        other = build_backbone(table["kind"], (1, 12, 3), table["norm"], None, table["settings"])
        mine = space.build(candidate, norm)
        params, buffers = mine.init(torch.Generator().manual_seed(0))
        theirs, _ = other.init(torch.Generator().manual_seed(0))
        x = torch.randn(3, 1, 12, 12, generator=torch.Generator().manual_seed(1))
        assert torch.equal(apply(mine, params, buffers, x)[0], apply(other, theirs, buffers, x)[0])
        assert space.describe(candidate)


def test_the_space_of_convnets_can_be_gone_through() -> None:
    space = conv_space(1, 16, 2, widths=(4,))
    everything = list(candidates(space))
    assert len(set(everything)) == space.total == len(everything)
    # in five halvings pictures of side 16 are left by strides only
    assert {v.pooling for v in everything if v.depth == 5} == {"stride"}
    sizes = {size_of(space, v) for v in everything[::7]}
    assert len(sizes) > 3
    with pytest.raises(UserError, match="vanish in 2 halvings"):
        conv_space(1, 2, 2, poolings=("max",))
    with pytest.raises(UserError, match="did you mean 'cells'"):
        get_space("cell", 3, 32, 5)


def test_sizes_of_conv4_by_hand() -> None:
    network = conv4(3, 32, 5, filters=8)
    size = network_size(network, (3, 32, 32))
    kernels = [3 * 8 * 9, 8 * 8 * 9, 8 * 8 * 9, 8 * 8 * 9]
    head = 8 * 2 * 2 * 5
    assert (
        size.multiply_adds == sum(k * side**2 for k, side in zip(kernels, (32, 16, 8, 4), strict=True)) + head
    )
    assert size.parameters == sum(kernels) + 4 * 3 * 8 + head + 5 == count_parameters(network)
    assert size.body == size.parameters - head - 5
    assert size.layers == size.depth == 5


def test_multiply_adds_of_cells_agree_with_torchs_counter() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    for genotype in (PUBLISHED["metanas-omniglot"], all_choices()):
        network = cell_network(3, 16, 5, genotype=genotype, cells=3, channels=4, norm="transductive")
        params, buffers = network.init(torch.Generator().manual_seed(0))
        with FlopCounterMode(display=False) as counter:
            apply(network, params, buffers, torch.zeros(1, 3, 16, 16))
        size = network_size(network, (3, 16, 16))
        assert 2 * size.multiply_adds == counter.get_total_flops()
        assert count_layers(network, params, buffers, (3, 16, 16)) == (
            size.layers,
            size.multiply_adds,
            size.depth,
        )


def test_depth_is_the_longest_path() -> None:
    # stem, pointwise, then depthwise and pointwise of node 2, of node 3 and of node 4, and the last layer
    chain = {
        "normal": [
            ["conv_3x3(0)", "skip_connect(1)"],
            ["conv_3x3(2)", "skip_connect(0)"],
            ["dil_conv_3x3(3)", "max_pool_3x3(2)"],
        ]
    }
    network = cell_network(
        3, 8, 5, genotype={**chain, "reduce": chain["normal"]}, cells=1, channels=4, reductions=()
    )
    assert network_size(network, (3, 8, 8)).depth == 1 + 1 + 6 + 1
    assert network_size(network, (3, 8, 8)).layers == 1 + 2 + 6 + 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"depth": 9}, "vanish in 9 halvings"),
        ({"kernel": 4}, "odd kernel"),
        ({"width": 0}, "width=0"),
        ({"pooling": "mean"}, "unknown pooling"),
        ({"channels": 3}, "convnet has no setting 'channels'"),
    ],
)
def test_convnets_that_cannot_be(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        build_backbone("convnet", (3, 32, 5), "group", None, settings)


def test_a_convnet_of_four_blocks_is_conv4_without_biases() -> None:
    small = convnet_and_conv4()
    assert torch.allclose(*small, atol=SINGLE_SUMMED)


def convnet_and_conv4() -> tuple[torch.Tensor, torch.Tensor]:
    mine = backbone("convnet", 3, 16, 5, depth=4, width=4)
    theirs = conv4(3, 16, 5, filters=4, bias=False)
    params, _ = mine.init(torch.Generator().manual_seed(0))
    names = {f"block{i}.weight": f"conv{i}.weight" for i in range(4)}
    names |= {f"block{i}.norm.{w}": f"norm{i}.{w}" for i in range(4) for w in ("weight", "bias")}
    x = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    renamed = {names.get(name, name): value for name, value in params.items()}
    return apply(mine, params, {}, x)[0], apply(theirs, renamed, {}, x)[0]


def test_pictures_of_cells_show_every_edge() -> None:
    data = cell_picture_data(PUBLISHED["metanas"]._asdict())
    assert [picture["title"] for picture in data] == ["normal cell", "reduction cell"]
    arrows = [(a["source"], a["target"], a["words"]) for a in data[0]["arrows"] if a["words"]]
    table = to_table(PUBLISHED["metanas"])["normal"]
    assert sorted(f"{words}({source}) into {node}" for source, node, words in arrows) == sorted(
        f"{edge} into {node}" for node, edges in enumerate(table, start=2) for edge in edges
    )
    figure = cell_picture_figure(data)
    drawn = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert drawn.count("sep_conv_3x3") == 3
    assert len(figure.axes) == 2
