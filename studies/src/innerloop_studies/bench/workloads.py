"""What is computed: parameters, tasks and settings, the same for all sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from innerloop.core.losses import get_loss
from innerloop.core.types import Loss, Params, TaskBatch
from innerloop.nets.convolutional import conv4
from innerloop.nets.mlp import mlp
from innerloop.nets.network import Network
from innerloop.tasks.families import get_family
from innerloop.tasks.sampler import make_sampler
from innerloop_studies.bench.messages import Spec


class Workload(NamedTuple):
    """One meta-gradient to take."""

    kind: str
    network: Network
    params: Params
    batch: TaskBatch
    loss: Loss
    lr: float
    steps: int


def sine(steps: int, dtype: torch.dtype, tasks: int = 25, hidden: int = 40) -> Workload:
    """Finn's sinusoids, 10 support and 10 query points, MLP 1-40-40-1."""
    network = mlp(1, [hidden, hidden], 1)
    sampler = make_sampler(get_family("sine"), seed=0, shots=10, queries=10, dtype=dtype)
    batch = sampler.batch(0, tasks)
    assert isinstance(batch, TaskBatch)
    return Workload("mlp", network, _initial(network, dtype), batch, get_loss("mse"), 0.01, steps)


def conv(
    steps: int, dtype: torch.dtype, tasks: int = 4, ways: int = 5, queries: int = 15, filters: int = 64
) -> Workload:
    """Omniglot's shapes (28×28, 5-way 1-shot 15-query) filled with noise, Conv4 with strides of two."""
    network = conv4(1, 28, ways, filters=filters, pooling="stride")
    batch = _noise(tasks, ways, 1, queries, (1, 28, 28), dtype)
    return Workload("conv", network, _initial(network, dtype), batch, get_loss("cross-entropy"), 0.01, steps)


def pooled(
    steps: int,
    dtype: torch.dtype,
    tasks: int = 4,
    ways: int = 5,
    shots: int = 5,
    queries: int = 15,
    filters: int = 32,
    size: int = 84,
) -> Workload:
    """The field's canonical case: miniImageNet's shapes, 5-way 5-shot 15-query, Conv4-32 with max pooling."""
    network = conv4(3, size, ways, filters=filters, pooling="max")
    batch = _noise(tasks, ways, shots, queries, (3, size, size), dtype)
    params = _initial(network, dtype)
    return Workload("pooled", network, params, batch, get_loss("cross-entropy"), 0.01, steps)


def _noise(
    tasks: int, ways: int, shots: int, queries: int, shape: tuple[int, int, int], dtype: torch.dtype
) -> TaskBatch:
    generator = torch.Generator().manual_seed(1)

    def pictures(n: int) -> torch.Tensor:
        """``n`` pictures of noise for every task."""
        return torch.randn(tasks, n, *shape, generator=generator).to(dtype)

    labels = torch.arange(ways)
    return TaskBatch(
        pictures(ways * shots),
        labels.repeat(shots).repeat(tasks, 1),
        pictures(ways * queries),
        labels.repeat(queries).repeat(tasks, 1),
        torch.arange(tasks),
    )


def _initial(network: Network, dtype: torch.dtype) -> Params:
    params, _ = network.init(torch.Generator().manual_seed(0))
    return {name: value.to(dtype) for name, value in params.items()}


def make(spec: Spec) -> Workload:
    """The workload that a worker was asked for; ``sizes`` makes it smaller for tests."""
    dtype = getattr(torch, spec.get("dtype", "float32"))
    factories: dict[str, Callable[..., Workload]] = {"sine": sine, "conv": conv, "pooled": pooled}
    return factories[spec["workload"]](spec["steps"], dtype, **spec.get("sizes", {}))
