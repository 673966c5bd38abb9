r"""Gradients through a solution, from its optimality conditions.

Let :math:`r(A, \theta) = 0` at the solution :math:`A^*(\theta)`. Then
:math:`dA^* = -J^{-1}\,\partial_\theta r\,d\theta` with :math:`J = \partial_A r`, which is
the derivative of one Newton step taken from :math:`A^*` held fixed,

.. math:: A(\theta) = A^* - J^{-1}\big(r(A^*, \theta) - r(A^*, \theta_0)\big) .

So the solver keeps no graph, however many steps it took, and a backward pass costs one solve with
:math:`J^\top`. First derivatives only: :math:`J` is a constant here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.solvers.newton import curvature, solve_hessian
from innerloop.solvers.softmax_dual import SoftmaxProblem


def implicit(
    solution: Tensor, residual: Callable[[Tensor], Tensor], solve: Callable[[Tensor], Tensor]
) -> Tensor:
    """The solution, as a differentiable function of what ``residual`` depends on.

    Args:
        solution: where the residual vanishes; taken as a constant.
        residual: ``A -> r(A, θ)``, differentiable in θ. Constant terms may be left out.
        solve: ``r -> J⁻¹ r``, linear, made of differentiable operations on constants.

    >>> import torch
    >>> theta = torch.tensor(4.0, requires_grad=True)
    >>> root = implicit(torch.tensor(2.0), lambda a: a * a - theta, lambda r: r / 4.0)  # a² = θ, J = 2a
    >>> root.backward()
    >>> theta.grad  # d√θ = 1/(2√θ)
    tensor(0.2500)
    """
    fixed = solution.detach()
    r = residual(fixed)
    return fixed - solve(r - r.detach())


def through_softmax(
    features: Tensor, hot: Tensor, A: Tensor, F: Tensor, C: float | Tensor, intercept: bool
) -> tuple[Tensor, Tensor]:
    """Weights and bias of solved softmax problems as functions of the features."""
    # the residual is A − C (Y − softmax(AK + b)); its Jacobian is factorised once, in float64
    x, hot = features.double(), hot.double()
    mean = x.mean(1, keepdim=True) if intercept else torch.zeros_like(x[:, :1])
    gram = (x - mean) @ (x - mean).mT
    plain = A.double() @ gram.detach()
    bias = (F.double() - plain).mean(-1, keepdim=True) if intercept else plain.new_zeros(*plain.shape[:2], 1)
    problem = SoftmaxProblem(gram.detach(), hot, C, intercept)
    hessian = curvature(problem, torch.softmax(plain + bias, 1))

    def residual(both: Tensor) -> Tensor:
        """How far coefficients and intercepts are from solving the optimality conditions."""
        return both[..., :-1] - C * (hot - torch.softmax(both[..., :-1] @ gram + both[..., -1:], 1))

    solved = implicit(
        torch.cat([A.double(), bias], -1), residual, lambda r: torch.cat(solve_hessian(hessian, r), -1)
    )
    coefficients = solved[..., :-1]
    # rows of A sum to zero, so centring changes nothing but digits; intercepts belong to the rounded weights
    weights = (coefficients @ (x - mean)).to(features.dtype)
    shift = solved[..., -1] - (weights.double() @ mean.mT).squeeze(-1)
    return weights, shift.to(features.dtype)
