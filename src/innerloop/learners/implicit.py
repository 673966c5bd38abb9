r"""Differentiating the solution of a proximal problem with respect to the parameters it was sought around."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

import innerloop.core.autodiff as autodiff
from innerloop.core.trees import add_scaled
from innerloop.core.types import Buffers, Params
from innerloop.learners.inner import InnerLoss
from innerloop.solvers.krylov import LinearSolution, conjugate_gradients


def implicit_gradient(
    inner: InnerLoss, at: Params, cotangent: Params, penalty: float, cg_steps: int, damping: float
) -> LinearSolution:
    r""":math:`(I + H/\lambda)^{-1} v`, with :math:`H` the Hessian of ``inner`` at the solution ``at``."""
    curvature = autodiff.hessian_product(inner, at)

    def product(v: Params) -> Params:
        """The product with the matrix ``I + H/λ``."""
        return add_scaled(v, curvature(v), 1 / penalty)

    return conjugate_gradients(product, cotangent, cg_steps, damping)


class Pull(Protocol):
    """``(at, v, buffers, x, y, training) -> solution``: the solution's Jacobian, transposed, times ``v``."""

    def __call__(
        self, at: Params, v: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool
    ) -> LinearSolution:
        """Solves the linear system of the implicit function theorem."""
        ...


def implicitly(
    pull: Pull, start: Params, moved: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool
) -> Params:
    """``moved`` in value, with the derivative with respect to ``start`` that ``pull`` computes.

    The backward pass solves the linear system. First derivatives only.
    """
    # tensors go in by themselves: under vmap they are not those that the closure of a learner would hold
    fixed = [*moved.values(), *buffers.values(), x, y]
    layout = (pull, tuple(start), tuple(buffers), training)
    solution: tuple[Tensor, ...] = _Implicit.apply(layout, *start.values(), *fixed)
    return dict(zip(start, solution, strict=True))


class _Implicit(torch.autograd.Function):
    """The solution forwards; backwards, the linear system."""

    generate_vmap_rule = True

    @staticmethod
    def forward(layout: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The solution as it is."""
        count = len(layout[1])
        return tuple(value.clone() for value in tensors[count : 2 * count])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keeps the solution and what its conditions depend on."""
        del output
        ctx.layout = inputs[0]
        ctx.save_for_backward(*inputs[1 + len(inputs[0][1]) :])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        """Solves the linear system for the gradient."""
        pull, names, statistics, training = ctx.layout
        saved, count = list(ctx.saved_tensors), len(names)
        x, y = saved[-2:]
        at = dict(zip(names, saved[:count], strict=True))
        buffers = dict(zip(statistics, saved[count:-2], strict=True))
        gradient = pull(at, dict(zip(names, cotangents, strict=True)), buffers, x, y, training)
        return None, *(gradient.x[name] for name in names), *(None for _ in saved)
