r"""Tasks divided among ranks: every rank takes some, and all end with the same numbers.

Each rank differentiates its own tasks to the end; what is finished is added up once per step.
(``DistributedDataParallel`` reduces inside the backward pass, which is wrong where there is a second one.)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Batch, Buffers, Params
from innerloop.training.execution.gradient_types import Gradient, MetaGradient
from innerloop.training.execution.rank_group import RankGroup, group_of

COMPARED_EVERY = 50
"""Steps between comparisons of all parameters, rank with rank."""

ROUND = 4
"""Items of a rank between exchanges, unless more are asked for: a slow rank falls behind by no more."""

A = TypeVar("A")


class AllRanksError(UserError):
    """A mistake that all ranks meet alike: they are still in step."""


def share_of(total: int, rank: int, size: int) -> tuple[int, int]:
    """The tasks ``start … stop − 1`` of a rank: neighbours, and nobody has two more than another."""
    least, more = divmod(total, size)
    start = rank * least + min(rank, more)
    return start, start + least + (rank < more)


class _LazyBatch(NamedTuple):
    size: int
    slice: Callable[[int, int], Batch]


def lazy_batch(size: int, draw: Callable[[int, int], Batch]) -> Batch:
    """A batch of which a rank draws its own tasks only: :func:`across_ranks` asks for size and slices."""
    return cast("Batch", _LazyBatch(size, draw))


def across_ranks(run: MetaGradient, ranks: int) -> MetaGradient:
    """The same meta-gradient with the tasks of a batch divided among ranks."""
    # ∇ 1/T Σ_t L_t = Σ_r T_r/T ∇ 1/T_r Σ_{t∈r} L_t, and so statistics; sums of losses have one term
    calls = 0

    def run_here(params: Params, buffers: Buffers, batch: Batch, weights: Tensor | None = None) -> Gradient:
        """The meta-gradient of the whole batch, to which this rank contributes its share of the tasks."""
        nonlocal calls
        group = group_of(ranks)
        start, stop = share_of(batch.size, group.rank, group.size)
        share, given = (stop - start) / batch.size, None if weights is None else weights[start:stop]
        gradient = run(params, buffers, batch.slice(start, stop), given) if share else None
        flat = _Flat(params, buffers, batch.size, group)
        if gradient is not None:
            flat.put(gradient, start, stop, share if given is None else 1.0, share)
        if calls % COMPARED_EVERY == 0:
            flat.sign(params, buffers)
        calls += 1
        group.add_up(flat.content)
        flat.compare(calls)
        return Gradient(flat.losses.clone(), *flat.trees())

    return run_here


class _Flat:
    """One buffer for gradients, statistics, the loss of every task and a signature of every rank."""

    def __init__(self, params: Params, buffers: Buffers, tasks: int, group: RankGroup) -> None:
        self.params, self.buffers, self.rank = params, buffers, group.rank
        like = [*params.values(), *buffers.values()]
        device, dtype = like[0].device, like[0].dtype
        for value in like[1:]:
            dtype = torch.promote_types(dtype, value.dtype)
        numbers = sum(value.numel() for value in like)
        self.home = device
        # gloo knows the processor, NCCL the graphics card; anything else passes through the processor
        device = device if device.type == "cuda" else torch.device("cpu")
        self.content = torch.zeros(numbers + tasks + 2 * group.size, dtype=dtype, device=device)
        self.losses = self.content[numbers : numbers + tasks]
        self.signatures = self.content[numbers + tasks :].view(group.size, 2)

    def put(self, gradient: Gradient, start: int, stop: int, share: float, mean_share: float) -> None:
        """A rank's own part of the sums."""
        parts = [gradient.grads[name].reshape(-1) * share for name in self.params]
        parts += [gradient.buffers[name].reshape(-1) * mean_share for name in self.buffers]
        mine = torch.cat([part.to(self.content) for part in parts])
        self.content[: len(mine)] = mine
        self.losses[start:stop] = gradient.losses.to(self.content)

    def sign(self, params: Params, buffers: Buffers) -> None:
        """Two numbers that stand for all bits of this rank's parameters; small enough for every float."""
        sum_of_bits = checksum([*params.values(), *buffers.values()])
        self.signatures[self.rank] = torch.tensor(divmod(sum_of_bits, 1 << 16)).to(self.content)

    def compare(self, call: int) -> None:
        """Refuses to go on with ranks whose parameters have parted."""
        if call % COMPARED_EVERY != 1:
            return
        other = (self.signatures != self.signatures[0]).any(1).nonzero().flatten().tolist()
        if other:
            raise AllRanksError(
                f"rank {other[0]} has other parameters than rank 0 after the same steps: start all ranks on "
                "processors of one kind, with the same versions of everything."
            )

    def trees(self) -> tuple[Params, Buffers]:
        """Gradients and statistics, of the types of the parameters and buffers, and where these are."""
        place, trees = 0, []
        for like in (self.params, self.buffers):
            tree = {}
            for name, value in like.items():
                part = self.content[place : place + value.numel()].view(value.shape)
                tree[name] = part.to(self.home, value.dtype)
                place += value.numel()
            trees.append(tree)
        return trees[0], trees[1]


def checksum(tensors: Iterable[Tensor]) -> int:
    """Stands for every bit of the tensors."""
    crc = 0
    for value in tensors:
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        crc = zlib.crc32(content, crc)
    return crc


def map_over_ranks(
    work: Callable[[list[A]], list[tuple[Tensor, ...]]], items: Sequence[A], ranks: int, together: int = ROUND
) -> list[tuple[Tensor, ...]]:
    """``work`` on a list of items, divided among ranks; every rank gets all results, in the items' order."""
    # an item is never divided: what depends on its size does not depend on the number of ranks
    if ranks == 1:
        return work(list(items))
    results: list[tuple[Tensor, ...]] = []
    for start in range(0, len(items), together * ranks):
        results += _one_round(work, items[start : start + together * ranks], group_of(ranks))
    return results


def _one_round(
    work: Callable[[list[A]], list[tuple[Tensor, ...]]], items: Sequence[A], group: RankGroup
) -> list[tuple[Tensor, ...]]:
    mine = range(group.rank, len(items), group.size)
    try:
        results = work([items[i] for i in mine])
        told = {f"{i}/{j}": v for i, leaves in zip(mine, results, strict=True) for j, v in enumerate(leaves)}
    except UserError as error:
        told = {"error": torch.tensor(list(str(error).encode()), dtype=torch.uint8)}
    parts = group.gather(told)
    for part in parts:
        if "error" in part:
            raise AllRanksError(bytes(part["error"].tolist()).decode())
    everything = {name: value for part in parts for name, value in part.items()}
    width = 1 + max(int(name.partition("/")[2]) for name in everything)
    return [tuple(everything[f"{i}/{j}"] for j in range(width)) for i in range(len(items))]
