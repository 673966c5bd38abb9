"""Small random problems: batches of tasks, and networks with parameters of any dtype."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.core.types import TaskBatch
from innerloop.nets import Network

Tree = dict[str, Tensor]


def regression(
    tasks: int = 3, shots: int = 4, queries: int = 5, inputs: int = 2, outputs: int = 1, seed: int = 0
) -> TaskBatch:
    """Random inputs and targets, in float64; task ids count from 0."""
    draw = torch.Generator().manual_seed(seed)

    def normal(n: int, width: int) -> Tensor:
        return torch.randn(tasks, n, width, generator=draw, dtype=torch.float64)

    return TaskBatch(
        normal(shots, inputs),
        normal(shots, outputs),
        normal(queries, inputs),
        normal(queries, outputs),
        torch.arange(tasks),
    )


def classification(
    tasks: int = 3,
    ways: int = 3,
    shots: int = 2,
    queries: int = 2,
    shape: tuple[int, ...] = (4,),
    seed: int = 0,
) -> TaskBatch:
    """Random inputs of any shape, labels in order; the ids are the classes behind the labels, out of 7."""
    draw = torch.Generator().manual_seed(seed)

    def normal(n: int) -> Tensor:
        return torch.randn(tasks, ways * n, *shape, generator=draw, dtype=torch.float64)

    def labels(n: int) -> Tensor:
        return torch.arange(ways).repeat_interleave(n).expand(tasks, -1).clone()

    classes = torch.stack([torch.randperm(7, generator=draw)[:ways] for _ in range(tasks)])
    return TaskBatch(normal(shots), labels(shots), normal(queries), labels(queries), classes)


def images(tasks: int = 2, ways: int = 3, seed: int = 0) -> TaskBatch:
    """Classification of 16×16 pictures with one channel."""
    return classification(tasks, ways, shots=1, queries=2, shape=(1, 16, 16), seed=seed)


def drawn(network: Network, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tree, Tree]:
    """First parameters in ``dtype``, none of them exactly at its starting value (biases are not zero)."""
    params, buffers = network.init(torch.Generator().manual_seed(seed))
    shake = torch.Generator().manual_seed(seed + 1)
    params = {
        name: (p.double() + 0.1 * torch.randn(p.shape, generator=shake, dtype=torch.float64)).to(dtype)
        for name, p in params.items()
    }
    return params, {name: b.to(dtype) for name, b in buffers.items()}


def shaken(params: Tree, seed: int = 5) -> Tree:
    """Every entry times its own factor between 0.5 and 1.5 (so rates stay positive)."""
    draw = torch.Generator().manual_seed(seed)
    return {n: p * (0.5 + torch.rand(p.shape, generator=draw, dtype=p.dtype)) for n, p in params.items()}
