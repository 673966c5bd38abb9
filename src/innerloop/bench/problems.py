"""The problems that all sides solve: fixed parameters, fixed tasks."""

from __future__ import annotations

from typing import NamedTuple

import torch

from innerloop.core.types import Params, TaskBatch
from innerloop.nets.conv4 import conv4
from innerloop.nets.mlp import mlp
from innerloop.nets.network import Network
from innerloop.tasks.sampler import make_sampler
from innerloop.tasks.sine import sine

SINE_LR, CONV_LR = 0.01, 0.1


class Problem(NamedTuple):
    """A network with its parameters, a meta-batch, and the inner loop to differentiate through."""

    network: Network
    params: Params
    batch: TaskBatch
    lr: float
    steps: int


def sine_problem(steps: int, tasks: int = 25) -> Problem:
    """MLP 1-40-40-1, 10 support and 10 query points per task, mean squared error."""
    network = mlp(1, [40, 40], 1)
    params, _ = network.init(torch.Generator().manual_seed(0))
    sampler = make_sampler(sine, seed=0, shots=10, queries=10)
    batch = sampler.batch(0, tasks)
    assert isinstance(batch, TaskBatch)
    return Problem(network, params, batch, SINE_LR, steps)


def conv_problem(steps: int, tasks: int = 4, filters: int = 64) -> Problem:
    """Conv4 with strides at 28×28, 5-way 1-shot with 15 queries, batch normalisation, cross-entropy.

    Pictures are noise: speed does not depend on what they show, and nothing need be downloaded.
    """
    network = conv4(1, 28, 5, filters, "stride", "transductive")
    generator = torch.Generator().manual_seed(0)
    params, _ = network.init(generator)
    x = [torch.randn(tasks, n, 1, 28, 28, generator=generator) for n in (5, 75)]
    y = [torch.arange(5).repeat_interleave(n).repeat(tasks, 1) for n in (1, 15)]
    batch = TaskBatch(x[0], y[0], x[1], y[1], torch.arange(tasks))
    return Problem(network, params, batch, CONV_LR, steps)
