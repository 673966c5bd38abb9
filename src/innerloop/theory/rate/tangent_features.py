r"""Features in which a model adapts linearly, in stacks over tasks: of its last layer, and tangent ones.

Tangent features :math:`\Psi = \partial f/\partial\theta` of a network are not formed. What the rate needs of
them are two numbers per task. With a random vector :math:`v` of signs over the query outputs,

.. math::
   \operatorname{tr} S_uS_t = \|J_uJ_t^\top\|_F^2 = E\|J_uJ_t^\top v\|^2, \qquad
   \operatorname{tr} S_uS_tS_u = \|J_u^\top J_uJ_t^\top\|_F^2 = E\|J_u^\top J_uJ_t^\top v\|^2,

which takes two products with transposed Jacobians and one with a Jacobian for every probe, and works with
batch statistics too. Where samples do not see each other, both are sums over the tangent kernel's Gram
matrix, and exact (:func:`tangent_gram_moments`). The gradient form takes two gradients and one such product
per task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.autodiff import plain_autograd
from innerloop.core.errors import UserError
from innerloop.core.random import generator
from innerloop.core.trees import dot, select
from innerloop.core.types import Batch, Buffers, Loss, Params, Task, TaskBatch
from innerloop.kernels.empirical.kernel import empirical_ntk
from innerloop.nets.network import Network, apply
from innerloop.nets.norms import statistics_for
from innerloop.theory.rate.bracket import curvature
from innerloop.theory.rate.estimate import loss_constant
from innerloop.theory.rate.moments import Moments


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


def head_stacks(network: Network, params: Params, buffers: Buffers, batch: Batch) -> Stacks:
    """What the last layer sees, normalised as ANIL would: rows are derivatives by its parameters."""
    # f = Φw holds exactly: a bias adds a constant column, a scaled parametrisation scales its columns
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


Outputs = Callable[[Params], Tensor]


def task_outputs(network: Network, params: Params, buffers: Buffers, task: Task) -> tuple[Outputs, Outputs]:
    """Support and query outputs as functions of the moving parameters; statistics as in training."""
    support = statistics_for(network.norm, "support", training=True)
    query = statistics_for(network.norm, "query", training=True)
    with torch.no_grad():
        _, after = network.features(params, buffers, task.x_support, support)

    def on_support(moving: Params) -> Tensor:
        return apply(network, {**params, **moving}, buffers, task.x_support, support)[0]

    def on_query(moving: Params) -> Tensor:
        return apply(network, {**params, **moving}, after, task.x_query, query)[0]

    return on_support, on_query


def pull(outputs: Outputs, moving: Params, cotangent: Tensor | None = None) -> Params:
    r""":math:`J^\top u`; of a single output its gradient."""
    with torch.enable_grad():
        at = {n: p.detach().requires_grad_() for n, p in moving.items()}
        grads = torch.autograd.grad(outputs(at), list(at.values()), cotangent, materialize_grads=True)
    return dict(zip(at, grads, strict=True))


def push(outputs: Outputs, moving: Params, tangent: Params) -> Tensor:
    r""":math:`J v`, as the derivative of :math:`\langle J^\top u, v\rangle` by :math:`u`."""
    # two backward passes instead of forward mode, which the fused layers do not have
    with torch.enable_grad():
        at = {n: p.detach().requires_grad_() for n, p in moving.items()}
        f = outputs(at)
        u = torch.zeros_like(f, requires_grad=True)
        grads = torch.autograd.grad(f, list(at.values()), u, create_graph=True, materialize_grads=True)
        return torch.autograd.grad(
            dot(dict(zip(at, grads, strict=True)), tangent), u, materialize_grads=True
        )[0]


def tangent_trace_moments(
    network: Network,
    loss: Loss,
    params: Params,
    buffers: Buffers,
    batch: Batch,
    moving: Sequence[str],
    *,
    probes: int = 4,
    seed: int = 0,
    classes: int | None = None,
) -> Moments:
    """Moments of H.1 on the tangent features of the ``moving`` parameters, by random probes."""
    whole = whole_batch(batch)
    own, made = select(params, moving), generator(seed, "rate-probes")
    numerator, denominator = [], []
    with plain_autograd():
        for task in whole.tasks():
            on_support, on_query = task_outputs(network, params, buffers, task)
            with torch.no_grad():
                shape = on_query(own)
            above, below = shape.new_zeros(()), shape.new_zeros(())
            for _ in range(probes):
                v = torch.randint(2, shape.shape, generator=made).to(shape) * 2 - 1
                crossed = push(on_support, own, pull(on_query, own, v))
                back = pull(on_support, own, crossed)
                above, below = above + crossed.square().sum(), below + dot(back, back)
            numerator.append(above.double() / probes)
            denominator.append(below.double() / probes)
    constant = loss_constant(loss.name, whole.x_support.shape[1], classes)
    return Moments(torch.stack(numerator).detach(), torch.stack(denominator).detach(), constant)


def tangent_gram_moments(
    network: Network,
    loss: Loss,
    params: Params,
    buffers: Buffers,
    batch: Batch,
    moving: Sequence[str],
    classes: int | None = None,
) -> Moments:
    """The same moments exactly, from the tangent kernel of each task's samples and outputs."""
    # ‖Θ_ut‖²_F and ⟨Θ_uu Θ_ut, Θ_ut⟩, where samples do not see each other; costs the square of the outputs
    whole = whole_batch(batch)
    numerator, denominator = [], []
    for task in whole.tasks():
        x = torch.cat([task.x_support, task.x_query])
        theta = empirical_ntk(network, params, x, buffers=buffers, names=moving, output="full").double()
        k = len(task.x_support) * theta.shape[-1]
        flat = theta.permute(0, 2, 1, 3).flatten(2).flatten(0, 1)
        crossed = flat[:k, k:]
        numerator.append(crossed.square().sum())
        denominator.append(((flat[:k, :k] @ crossed) * crossed).sum())
    constant = loss_constant(loss.name, whole.x_support.shape[1], classes)
    return Moments(torch.stack(numerator), torch.stack(denominator), constant)


def tangent_gradient_moments(
    network: Network,
    loss: Loss,
    params: Params,
    buffers: Buffers,
    batch: Batch,
    moving: Sequence[str],
) -> Moments:
    """⟨g_u, g_t⟩ and g_uᵀ G_t g_u of every task: the gradient form for the ``moving`` parameters."""
    whole = whole_batch(batch)
    own = select(params, moving)
    numerator, denominator = [], []
    with plain_autograd():
        for task in whole.tasks():
            on_support, on_query = task_outputs(network, params, buffers, task)
            g_u = _loss_gradient(loss, on_support, own, task.y_support)
            g_t = _loss_gradient(loss, on_query, own, task.y_query)
            with torch.no_grad():
                at = on_query(own)
            moved = push(on_query, own, g_u)
            numerator.append(dot(g_u, g_t).double())
            denominator.append(curvature(at.unsqueeze(0), moved.unsqueeze(0), loss.name)[0].double())
    return Moments(torch.stack(numerator).detach(), torch.stack(denominator).detach(), 1.0)


def _loss_gradient(loss: Loss, outputs: Outputs, own: Params, targets: Tensor) -> Params:
    return pull(lambda p: loss.value(outputs(p), targets), own)


def gradient_size(
    network: Network, loss: Loss, params: Params, buffers: Buffers, batch: Batch, moving: Sequence[str]
) -> float:
    """The root mean square of a support gradient's entries: what Adam divides its first step by."""
    own = select(params, moving)
    sizes = []
    with plain_autograd():
        for task in whole_batch(batch).tasks():
            on_support, _ = task_outputs(network, params, buffers, task)
            g = _loss_gradient(loss, on_support, own, task.y_support)
            sizes.append(float(dot(g, g)) / sum(p.numel() for p in g.values()))
    return float(sum(sizes) / len(sizes)) ** 0.5
