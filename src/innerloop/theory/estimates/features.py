"""Features of a model, in stacks over tasks: what adapts linearly, as the rate's estimators want it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.autodiff import plain_autograd
from innerloop.core.errors import UserError
from innerloop.core.trees import select
from innerloop.core.types import Batch, Buffers, Params, Task, TaskBatch
from innerloop.nets.network import Network
from innerloop.nets.norms import statistics_for


class Stacks(NamedTuple):
    """Features and targets of many tasks."""

    support: Tensor
    query: Tensor
    support_targets: Tensor
    query_targets: Tensor


def whole_batch(batch: Batch) -> TaskBatch:
    """The tasks stacked; of a mixture, those of the most frequent shape."""
    if isinstance(batch, TaskBatch):
        return batch
    return max((group for _, group in batch.groups()), key=lambda group: group.size)


def raw_stacks(batch: Batch) -> Stacks:
    """The inputs themselves, flattened."""
    whole = whole_batch(batch)
    return Stacks(whole.x_support.flatten(2), whole.x_query.flatten(2), whole.y_support, whole.y_query)


def head_stacks(network: Network, params: Params, buffers: Buffers, batch: Batch) -> Stacks:
    r"""What the last layer sees, normalised as ANIL would.

    :math:`f = \Phi w` holds exactly for its parameters. Each row is the derivative of an output by the
    weights (and the bias) that make it, so a bias adds a constant column and a scaled parametrisation
    scales its columns.

    >>> from innerloop import mlp
    >>> from innerloop.core import stack_tasks
    >>> net = mlp(1, [8], 2)
    >>> task = Task(torch.ones(3, 1), torch.ones(3, 2), torch.ones(4, 1), torch.ones(4, 2), torch.tensor(0))
    >>> head_stacks(net, *net.init(torch.Generator().manual_seed(0)), stack_tasks([task])).query.shape
    torch.Size([1, 4, 9])
    """
    whole = whole_batch(batch)
    supports, queries = [], []
    with torch.no_grad(), plain_autograd():
        for task in whole.tasks():
            z_s, z_q = task_features(network, params, buffers, task)
            supports.append(z_s)
            queries.append(z_q)
    weight, bias = head_scales(network, params, supports[0].shape[-1])

    def rows(features: list[Tensor]) -> Tensor:
        z = torch.stack(features) * weight
        return z if bias is None else torch.cat([z, z.new_full((*z.shape[:-1], 1), bias)], -1)

    return Stacks(rows(supports), rows(queries), whole.y_support, whole.y_query)


def task_features(network: Network, params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Tensor]:
    """Support and query features of one task, with the statistics that training would use."""
    support = statistics_for(network.norm, "support", training=True)
    z_s, buffers = network.features(params, buffers, task.x_support, support)
    query = statistics_for(network.norm, "query", training=True)
    z_q, _ = network.features(params, buffers, task.x_query, query)
    return z_s, z_q


def head_scales(network: Network, params: Params, dim: int) -> tuple[float, float | None]:
    """How the last layer scales its weights and its bias at use (1 in the standard parametrisation)."""
    own = {n: p.detach().clone().requires_grad_() for n, p in select(params, network.head_names).items()}
    matrices = [n for n, p in own.items() if p.ndim == 2]
    vectors = [n for n, p in own.items() if p.ndim == 1]
    problem = UserError(
        "the last layer is not of the form W z + b, which the estimate for head-only learners needs: "
        "set {the learner's lr} to a number.",
        names=("the learner's lr",),
    )
    if len(matrices) != 1 or len(vectors) > 1 or own[matrices[0]].shape[1] != dim:
        raise problem
    z = torch.linspace(-1.0, 1.0, dim, dtype=own[matrices[0]].dtype, device=own[matrices[0]].device)
    with torch.enable_grad(), plain_autograd():
        output = network.head(own, z.unsqueeze(0))[0, 0]
        grads = dict(zip(own, torch.autograd.grad(output, list(own.values())), strict=True))
    row = grads[matrices[0]][0]
    scale = float((row * z).sum() / (z * z).sum())
    bias = float(grads[vectors[0]][0]) if vectors else None
    value = (own[matrices[0]].detach()[0] @ z) * scale + (
        own[vectors[0]].detach()[0] * bias if vectors and bias else 0.0
    )
    tolerance = 1e-4 * float(output.detach().abs() + row.abs().max())
    if not torch.allclose(row, scale * z, atol=tolerance) or abs(float(value - output.detach())) > tolerance:
        raise problem
    return scale, bias
