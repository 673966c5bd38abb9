"""Meta kernels and their predictions the slow way: loops over pairs of tasks, Kronecker products."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from innerloop.core.types import TaskBatch
from innerloop.kernels.types import KernelFunction


def slow_response(gram: Tensor, time: float, steps: int | None = None) -> Tensor:
    """K⁻¹(I − e^{−sK}) with an inverse and a matrix exponential, or by running the steps."""
    eye = torch.eye(len(gram), dtype=gram.dtype)
    if math.isinf(time):
        return torch.linalg.inv(gram)
    if steps is None:
        return torch.linalg.inv(gram) @ (eye - torch.linalg.matrix_exp(-time * gram))
    coefficients = torch.zeros_like(gram)
    for _ in range(steps):
        coefficients = coefficients + time / steps * (eye - gram @ coefficients)
    return coefficients


def loop_split_kernel(
    kernel: KernelFunction, rows: TaskBatch, columns: TaskBatch, times: tuple[float, float], method: str
) -> Tensor:
    """Eq. 106 (maml) or 112 (anil), block by block; ``times`` of the rows' and the columns' inner loops."""
    inner = "ntk" if method == "maml" else "nngp"

    def hat(x: Tensor, support: Tensor, time: float) -> Tensor:
        within = getattr(kernel(support, support), inner)
        return getattr(kernel(x, support), inner) @ slow_response(within, time)

    out = []
    for a in rows.tasks():
        A = hat(a.x_query, a.x_support, times[0])
        row = []
        for b in columns.tasks():
            B = hat(b.x_query, b.x_support, times[1])
            theta = lambda u, v: kernel(u, v).ntk  # noqa: E731
            row.append(
                theta(a.x_query, b.x_query)
                - A @ theta(a.x_support, b.x_query)
                - theta(a.x_query, b.x_support) @ B.T
                + A @ theta(a.x_support, b.x_support) @ B.T
            )
        out.append(torch.cat(row, 1))
    return torch.cat(out)


def loop_without_split(kernel: KernelFunction, xs: Tensor, time: float) -> tuple[Tensor, Tensor]:
    """Bridge's Φ_ANIL (eq. 59) and Φ_MTL (shared heads), block by block; xs ``(tasks, n, d)``."""
    anil, mtl = [], []
    for i, a in enumerate(xs):
        decay_a = torch.linalg.matrix_exp(-time * kernel(a, a).nngp)
        anil_row, mtl_row = [], []
        for j, b in enumerate(xs):
            base = kernel(a, b) if i != j else kernel(a, a)
            decay_b = torch.linalg.matrix_exp(-time * kernel(b, b).nngp)
            anil_row.append(decay_a @ base.ntk @ decay_b)
            mtl_row.append(base.ntk - (base.nngp if i != j else 0))
        anil.append(torch.cat(anil_row, 1))
        mtl.append(torch.cat(mtl_row, 1))
    return torch.cat(anil), torch.cat(mtl)


def bridge_cross(
    kernel: KernelFunction, test: TaskBatch, xs: Tensor, time: float, test_time: float, head: str
) -> tuple[Tensor, Tensor]:
    """Φ'_ANIL and Φ'_MTL of eqs. 61 and 57 (line 1), test task by test task."""
    anil_rows, mtl_rows = [], []
    for task in test.tasks():
        within = kernel(task.x_support, task.x_support).nngp
        B = kernel(task.x_query, task.x_support).nngp @ slow_response(within, test_time)
        anil_row, mtl_row = [], []
        for x in xs:
            query, support = kernel(task.x_query, x), kernel(task.x_support, x)
            body = query.ntk - query.nngp - B @ (support.ntk - support.nngp)
            whole = query.ntk - B @ support.ntk
            decay = torch.linalg.matrix_exp(-time * kernel(x, x).nngp)
            anil_row.append((body if head == "initial" else whole) @ decay)
            mtl_row.append(body)
        anil_rows.append(torch.cat(anil_row, 1))
        mtl_rows.append(torch.cat(mtl_row, 1))
    return torch.cat(anil_rows), torch.cat(mtl_rows)


def adapted_labels(kernel: KernelFunction, tasks: TaskBatch, time: float, inner: str) -> Tensor:
    """G_s(X, X', Y') of every task, stacked."""
    out = []
    for task in tasks.tasks():
        within = getattr(kernel(task.x_support, task.x_support), inner)
        between = getattr(kernel(task.x_query, task.x_support), inner)
        out.append(between @ slow_response(within, time) @ task.y_support)
    return torch.cat(out)


def kronecker_regression(phi: Tensor, cross: Tensor, labels: Tensor, time: float) -> Tensor:
    """Φ' T_Φ^t y with every kernel ⊗ I_k, labels as one long vector."""
    k = labels.shape[1]
    eye = torch.eye(k, dtype=phi.dtype)
    big, big_cross = torch.kron(phi, eye), torch.kron(cross, eye)
    return (big_cross @ slow_response(big, time) @ labels.reshape(-1)).view(-1, k)


def regression_tasks(
    n_tasks: int, queries: int, supports: int, dim: int = 4, outputs: int = 2, seed: int = 0
) -> TaskBatch:
    """Tasks of random points and labels in float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(n_tasks, *shape, generator=generator, dtype=torch.float64)

    return TaskBatch(
        draw(supports, dim),
        draw(supports, outputs),
        draw(queries, dim),
        draw(queries, outputs),
        torch.arange(n_tasks),
    )
