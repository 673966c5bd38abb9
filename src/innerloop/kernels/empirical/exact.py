r"""Kernels of finite networks by definition: the Gram of a Jacobian. Exact, slow, second order where need be.

These are what the closed forms of :mod:`innerloop.kernels.meta.kernel` are checked against.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.core.types import Batch, Params, Task

MetaOutput = Callable[[Params, Task], Tensor]
"""``(params, task) -> (n, k)``: query outputs after adapting to the support set, differentiable."""


def jacobian(outputs: Callable[[Params], Tensor], params: Params, chunk: int | None = None) -> Tensor:
    """Derivatives of all entries of ``outputs(params)`` (rows) by all parameters (columns)."""
    by_name = torch.func.jacrev(outputs, chunk_size=chunk)(params)
    rows = outputs(params).numel()
    return torch.cat([by_name[name].reshape(rows, -1) for name in params], 1)


def jacobian_kernel(outputs: Callable[[Params], Tensor], params: Params, chunk: int | None = None) -> Tensor:
    """The Gram of :func:`jacobian`: the tangent kernel of any function, with many heads or inner loops."""
    rows = jacobian(outputs, params, chunk)
    return rows @ rows.mT


def meta_jacobian(meta_output: MetaOutput, params: Params, tasks: Batch, chunk: int | None = None) -> Tensor:
    r""":math:`J(\theta) = \nabla_\theta F_\theta(\mathcal X,\mathcal X',\mathcal Y')`."""

    def one(task: Task) -> Tensor:
        """The rows of one task."""
        return jacobian(lambda p: meta_output(p, task), params, chunk)

    return torch.cat([one(task) for task in tasks.tasks()])


def exact_metantk(
    meta_output: MetaOutput,
    params: Params,
    tasks: Batch,
    others: Batch | None = None,
    chunk: int | None = None,
) -> Tensor:
    r"""The MetaNTK of a finite network, second derivatives included (MetaNTK, eq. 4).

    .. math:: \hat\Phi_\theta(\cdot,\star) = \nabla_\theta F_\theta(\cdot)\,\nabla_\theta F_\theta(\star)^\top

    in the NTK parametrisation; in the standard one the paper divides by the width, and the limit is another
    kernel (without the first layer's term). With one inner step of rate λ it differs from
    :func:`~innerloop.kernels.maml_kernel` of the same network's Θ by the second derivatives, which
    vanish as width grows.

    Args:
        meta_output: see :func:`meta_jacobian`.
        params: θ.
        tasks: rows.
        others: columns; ``tasks`` if omitted.
        chunk: rows of the Jacobian at a time.
    """
    rows = meta_jacobian(meta_output, params, tasks, chunk)
    columns = rows if others is None else meta_jacobian(meta_output, params, others, chunk)
    return rows @ columns.mT
