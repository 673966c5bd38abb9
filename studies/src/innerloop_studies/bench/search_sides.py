"""What ``bench search`` runs, by us and as released: a kernel, a network's regions, a part of a round."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import partial
from itertools import count, islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.choose.architectures.draws import CROP_BATCH, Draw
from innerloop.choose.architectures.measure import Bench, Job, Seeds
from innerloop.choose.architectures.space import cell_space
from innerloop.choose.scores.conditions import (
    PUBLISHED,
    SCORE_MEMORY,
    condition_number,
    fresh_head,
    kernel_names,
)
from innerloop.choose.scores.patterns import linear_regions
from innerloop.core.types import Params, TaskBatch
from innerloop.kernels.empirical.kernel import empirical_ntk
from innerloop.kernels.meta.kernel import maml_kernel, stack
from innerloop.nets.cells.genotype import Choices, all_choices, remaining, without
from innerloop.nets.cells.operators import reduction_places
from innerloop.nets.cells.operators import stack as stacked
from innerloop_studies.bench.messages import Spec
from innerloop_studies.bench.search_modules import CellModule, released_kernel, released_regions

WAYS, TASKS = 5, 3
SMALL = {"channels": 2, "cells": 2, "side": 8, "crops": 40, "candidates": 1}
"""Sizes at which a side is run first, so that what it loads counts as a library."""


def noise_draw(repeat: int, side: int, crops: int) -> Draw:
    """Pictures of smooth noise, 30 of them in three tasks, and crops of one channel."""
    draw = torch.Generator().manual_seed(repeat)
    x = F.avg_pool2d(torch.randn(2 * TASKS * WAYS, 3, side + 4, side + 4, generator=draw), 5, 1)
    x = (x / x.std()).view(2, TASKS, WAYS, 3, side, side)
    y = torch.arange(WAYS).expand(TASKS, WAYS)
    small = F.avg_pool2d(torch.randn(crops, 1, 5, 5, generator=draw), 3, 1)
    return Draw(TaskBatch(x[0], y, x[1], y, torch.arange(TASKS)), small / small.std(), repeat)


class NoiseDraws:
    """:func:`noise_draw` of fixed sizes, as a search takes it."""

    def __init__(self, side: int, crops: int) -> None:
        self.side, self.crops = side, crops

    def __call__(self, repeat: int) -> Draw:
        """The data of a repeat."""
        return noise_draw(repeat, self.side, self.crops)


def build(spec: Spec) -> Callable[[], Tensor]:
    """The side that is asked for by ``part``, ``side`` and ``sizes``."""
    torch.set_num_threads(spec["threads"])
    return _PARTS[spec["part"]](spec["side"] == "ours", spec["sizes"])


def space_of(sizes: dict[str, int]) -> Any:
    """Cells for pictures of three channels."""
    return cell_space(3, sizes["side"], WAYS, cells=sizes["cells"], channels=sizes["channels"])


def kernel(ours: bool, sizes: dict[str, int]) -> Callable[[], Tensor]:
    """The 30 × 30 tangent kernel of the supernet, all its weights."""
    draw = noise_draw(0, sizes["side"], 1)
    x = torch.cat([stack(draw.tasks.x_query), stack(draw.tasks.x_support)])
    if not ours:
        whole = _module(all_choices(), sizes, 1)
        return lambda: whole(x)
    network = space_of(sizes).build(all_choices(), "group")
    params, buffers = _weights(network, 1)
    names = kernel_names(params)
    return lambda: empirical_ntk(
        network, params, x, buffers=buffers, names=names, output="sum", memory=SCORE_MEMORY
    )


def regions(ours: bool, sizes: dict[str, int], precision: torch.dtype = torch.half) -> Callable[[], Tensor]:
    """Regions of the thin supernet on 3,000 crops; pairs are multiplied in this precision."""
    batches = noise_draw(0, sizes["side"], sizes["crops"]).crops.split(CROP_BATCH)
    if not ours:
        module = _thin_module(all_choices(), sizes, 2)
        return lambda: torch.tensor([released_regions(module, batches, precision)])
    thin = space_of(sizes).thin(all_choices())
    params, buffers = thin.init(torch.Generator().manual_seed(2))
    return lambda: torch.tensor([linear_regions(thin, params, buffers, batches).value])


def candidates(sizes: dict[str, int]) -> list[Choices]:
    """The first of a round: every one lacks one operator, from the first edge of the normal cell on."""
    whole = all_choices()
    places = list(remaining(whole))
    every = max(1, len(places) // sizes["candidates"])
    return [without(whole, *place) for place in islice(places, 0, None, every)][: sizes["candidates"]]


def part_of_round(ours: bool, sizes: dict[str, int]) -> Callable[[], Tensor]:
    """MetaNTK's condition number and the regions of some candidates of the first round, and of none removed.

    Ours measures the network without a removal once, in one process per core. As released, it is measured
    beside every candidate, one network after the other, each on all cores.
    """
    few = candidates(sizes)
    if ours:
        return _our_round(few, sizes)
    pairs = [_both(all_choices(), sizes), *(_both(each, sizes) for each in few)]
    draw = noise_draw(0, sizes["side"], sizes["crops"])

    def released() -> Tensor:
        """The scores of all candidates, one network after the other."""
        scores = []
        for one in pairs[1:]:
            whole = _released_scores(*pairs[0], draw)
            scores.append(_released_scores(*one, draw))
        return torch.tensor([whole, *scores]).log()

    return released


def _our_round(few: list[Choices], sizes: dict[str, int]) -> Callable[[], Tensor]:
    bench = Bench(space_of(sizes), NoiseDraws(sizes["side"], sizes["crops"]))
    atexit.register(bench.__exit__)
    turns = count()

    def ours() -> Tensor:
        """The scores of all candidates, on all cores."""
        # finished measurements are known by their job: another unread setting makes it a new one
        turn = {"metantk": {"memory": SCORE_MEMORY + next(turns)}}
        jobs = [
            Job(each, ("metantk", "regions"), 0, Seeds(1, 3, (2,)), settings=turn)
            for each in (all_choices(), *few)
        ]
        measured = bench.run(jobs)
        return torch.tensor([[each.values["metantk"], each.values["regions"]] for each in measured]).log()

    return ours


def _both(choices: Choices, sizes: dict[str, int]) -> tuple[Callable[[Tensor], Tensor], Any]:
    return _module(choices, sizes, 1), _thin_module(choices, sizes, 2)


def _released_scores(theta: Callable[[Tensor], Tensor], thin: Any, draw: Draw) -> list[float]:
    tasks = draw.tasks
    x = torch.cat([stack(tasks.x_query), stack(tasks.x_support)])
    phi = maml_kernel(theta(x).double(), TASKS, WAYS, PUBLISHED)
    return [condition_number(phi).value, released_regions(thin, draw.crops.split(CROP_BATCH))]


def _weights(network: Any, seed: int) -> tuple[Params, Any]:
    params, buffers = network.init(torch.Generator().manual_seed(seed))
    return fresh_head(network, params, torch.Generator().manual_seed(3), WAYS), buffers


def _module(choices: Choices, sizes: dict[str, int], seed: int) -> Callable[[Tensor], Tensor]:
    params, _ = _weights(space_of(sizes).build(choices, "group"), seed)
    cells = sizes["cells"]
    plan = stacked(choices, 3, cells, sizes["channels"], reduction_places(cells))
    return released_kernel(CellModule(plan, params))


def _thin_module(choices: Choices, sizes: dict[str, int], seed: int) -> CellModule:
    params, _ = space_of(sizes).thin(choices).init(torch.Generator().manual_seed(seed))
    return CellModule(stacked(choices, 1, 2, 1, (1,), with_stem=False), params, group=False)


_PARTS: dict[str, Callable[[bool, dict[str, int]], Callable[[], Tensor]]] = {
    "kernel": kernel,
    "regions": regions,
    "regions, float32": partial(regions, precision=torch.float32),
    "round": part_of_round,
}
