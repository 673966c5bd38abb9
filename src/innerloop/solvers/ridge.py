r"""Ridge regression, many at once, in closed form and differentiable: scikit-learn's ``Ridge``, batched.

.. math:: \min_{W,b}\;\sum_i\|Wx_i + b - y_i\|^2 + \lambda\|W\|^2

The primal form solves :math:`(X^\top X + \lambda I)W^\top = X^\top Y`, the dual one
:math:`W^\top = X^\top(XX^\top + \lambda I)^{-1}Y`; they are equal, and the smaller system is
taken. An unpenalised intercept is the same problem on centred data. Float32 features are solved in float64
where their lengths, against :math:`\lambda`, leave float32 too few digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from innerloop.core.autodiff import is_plain
from innerloop.core.errors import UserError
from innerloop.solvers.problems import check_finite, check_positive, rounded
from innerloop.solvers.products import LARGE, gram_matrix, pulled_back, symmetric_product

# Σ‖x‖²/λ beyond which rounding may cost more than 1e-8 of the minimum: then float64, and a measurement
STIFF = {torch.float32: 1e3, torch.float64: 1e11}
ENOUGH = 1e-6


class RidgeResult(NamedTuple):
    """``weights`` (B, k, d) and ``bias`` (B, k): predictions are ``x @ weightsᵀ + bias``.

    ``converged`` (B,) says whether these weights, rounded as they are, reach the minimum to a relative 1e-6.
    A closed form has no steps, but long features that are nearly interpolated leave nothing for rounding.
    """

    weights: Tensor
    bias: Tensor
    converged: Tensor


def ridge(
    features: Tensor,
    targets: Tensor,
    penalty: float | Tensor,
    intercept: bool = False,
    form: Literal["auto", "primal", "dual"] = "auto",
) -> RidgeResult:
    """Fits one regression per problem; differentiable in features, targets and penalty.

    Args:
        features: ``(B, n, d)``.
        targets: ``(B, n, k)``.
        penalty: λ, scikit-learn's ``alpha``; a tensor (scalar) may be learned.
        intercept: whether to fit one (unpenalised).
        form: which system to solve; the smaller one if ``auto``.

    >>> x, y = torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[1.0], [2.0]]])
    >>> ridge(x, y, penalty=5.0).weights  # Σxy / (Σx² + λ)
    tensor([[[0.5000]]])
    """
    if features.ndim != 3 or targets.ndim != 3 or features.shape[:2] != targets.shape[:2]:
        raise UserError(
            f"features of shape {tuple(features.shape)} with targets of shape {tuple(targets.shape)}: "
            "give (problems, samples, dimensions) and (problems, samples, outputs)."
        )
    check_positive("penalty", float(penalty.detach() if isinstance(penalty, Tensor) else penalty))
    dual = form == "dual" or (form == "auto" and features.shape[1] <= features.shape[2])
    x, x_mean, y, y_mean = _centred(features, targets, intercept)
    gram = x @ x.mT if dual else x.mT @ x
    check_finite(features.detach(), gram.detach())
    long = _too_long(features.detach(), penalty)
    if long:
        x, x_mean, y, y_mean = _centred(features.double(), targets.double(), intercept)
        gram = x @ x.mT if dual else x.mT @ x
    weights = _solve(gram, penalty, y).mT @ x if dual else _solve(gram, penalty, x.mT @ y).mT
    bias = (y_mean - x_mean @ weights.mT).squeeze(1) if intercept else weights.new_zeros(weights.shape[:2])
    if not long:
        return RidgeResult(weights, bias, torch.ones(len(x), dtype=torch.bool, device=x.device))
    centre = x_mean if intercept else torch.zeros_like(x_mean)
    short, bias = rounded(weights, bias, centre, features.dtype)
    with torch.no_grad():
        level = (y_mean - x_mean @ short.double().mT - bias.double()[:, None]) if intercept else 0.0
        converged = _reached(x, y, weights, short.double(), level, penalty)
    return RidgeResult(short, bias, converged)


def _reached(
    x: Tensor, y: Tensor, exact: Tensor, weights: Tensor, level: Tensor | float, penalty: float | Tensor
) -> Tensor:
    """Whether rounded weights, off by ``level`` at the mean, are as good as the solution, if it is one."""
    # its gradient judges that: with a curvature of at least 2λ it is at most ‖∇‖²/4λ above the minimum

    def value(w: Tensor, off: Tensor | float) -> Tensor:
        """The objective of weights whose scores are off by a constant."""
        return (y + off - x @ w.mT).square().sum((1, 2)) + penalty * w.square().sum((1, 2))

    best, reached = value(exact, 0.0), value(weights, level)
    slope = penalty * exact - (y - x @ exact.mT).mT @ x
    gap = slope.square().sum((1, 2)) / penalty
    return (reached - best + gap) <= ENOUGH * best


def _too_long(features: Tensor, penalty: float | Tensor) -> bool:
    """Whether rounding may count in any of the problems; offsets count, they cost digits as well."""
    longest = float(torch.linalg.vector_norm(features, dim=(1, 2)).square().max())
    return not longest <= STIFF[features.dtype] * float(
        penalty.detach() if isinstance(penalty, Tensor) else penalty
    )


def _centred(features: Tensor, targets: Tensor, intercept: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features and targets with their means, taken away if there is an intercept."""
    x_mean, y_mean = features.mean(1, keepdim=True), targets.mean(1, keepdim=True)
    if not intercept:
        return features, x_mean, targets, y_mean
    return features - x_mean, x_mean, targets - y_mean, y_mean


def _solve(gram: Tensor, penalty: float | Tensor, right: Tensor) -> Tensor:
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor, failed = torch.linalg.cholesky_ex(gram + penalty * eye)
    if bool(failed.any()):
        which = int(failed.nonzero()[0])
        raise UserError(
            f"ridge regression: the features of problem {which} are so long that penalty={float(penalty):g} "
            "is lost beside them in rounding: divide them by their length, or raise the penalty."
        )
    return torch.cholesky_solve(right, factor)


def ridge_closed_form(
    x: Tensor, y: Tensor, penalty: float | Tensor, constant: bool = False
) -> tuple[Tensor, Tensor]:
    """Weights ``(…, k, d)`` and intercepts ``(…, k)`` of :func:`ridge`, for learners: runs under ``vmap``."""
    # nothing is checked; solved in float64, of a matrix in the features' precision; nan where not finite
    n, d = x.shape[-2:]
    if n <= d:
        one_for_all = not isinstance(penalty, Tensor) or penalty.ndim == 0
        if one_for_all and is_plain() and x.requires_grad and torch.is_grad_enabled():
            return _in_one_piece(x, y, penalty, constant)
        return _through_gram(x, y, penalty, constant)
    if constant:
        x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
    weights = _ridged(gram_matrix(x.mT).double(), penalty, (x.mT @ y).double()).mT.to(x.dtype)
    if constant:
        return weights[..., :-1], weights[..., -1]
    return weights, torch.zeros_like(weights[..., 0])


def _through_gram(x: Tensor, y: Tensor, penalty: float | Tensor, constant: bool) -> tuple[Tensor, Tensor]:
    gram = gram_matrix(x).double() + float(constant)
    coefficients = _ridged(gram, penalty, y.double()).to(x.dtype)
    bias = coefficients.sum(-2) * float(constant)
    return coefficients.mT @ x, bias


def _in_one_piece(x: Tensor, y: Tensor, penalty: float | Tensor, constant: bool) -> tuple[Tensor, Tensor]:
    """The same as one operation, with a cheaper derivative."""
    one = penalty if isinstance(penalty, Tensor) else x.new_tensor(penalty)
    batch, y = x.shape[:-2], y.expand(*x.shape[:-1], y.shape[-1])
    flat = [t.reshape(-1, *t.shape[-2:]) for t in (x, y)]
    weights, bias = _RidgeDual.apply(*flat, one, constant)
    return weights.view(*batch, *weights.shape[1:]), bias.view(*batch, -1)


def _ridged(gram: Tensor, penalty: float | Tensor, right: Tensor) -> Tensor:
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    # not by Cholesky: its derivative costs more than the solution, that of a solution one more solution
    solution, failed = torch.linalg.solve_ex(gram + penalty * eye, right)
    return torch.where((failed == 0)[..., None, None], solution, torch.nan)


def ridge_reached(
    x: Tensor, y: Tensor, weights: Tensor, bias: Tensor, penalty: float | Tensor, constant: bool
) -> Tensor:
    """Whether weights and intercepts, rounded as they are, reach the minimum to a relative 1e-6."""
    # a function with curvature 2λ at least is above its minimum by at most ‖∇‖²/4λ
    x, y, weights, bias = (each.detach().double() for each in (x, y, weights, bias))
    penalty = penalty.detach() if isinstance(penalty, Tensor) else penalty
    off = x @ weights.mT + bias[..., None, :] - y
    value = off.square().sum((-1, -2)) + penalty * (weights.square().sum((-1, -2)) + bias.square().sum(-1))
    slope = (off.mT @ x + penalty * weights).square().sum((-1, -2))
    if constant:
        slope = slope + (off.sum(-2) + penalty * bias).square().sum(-1)
    return slope / penalty <= ENOUGH * value


class _RidgeDual(torch.autograd.Function):
    """Weights ``(B, k, d)`` and intercepts ``(B, k)``; what cannot be solved is nan."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, penalty: Tensor, constant: bool) -> tuple[Tensor, Tensor]:
        """Weights and intercepts, solved in sample space a part of the problems at a time."""
        parts = zip(x.split(_size(x)), y.split(_size(x)), strict=True)
        solutions = [_solved(some, targets, penalty, constant) for some, targets in parts]
        weights, A, factor = (_joined(field) for field in zip(*solutions, strict=True))
        ctx.save_for_backward(x, y, penalty, weights, A, factor)
        ctx.constant = constant
        return weights, A.sum(-1).to(x.dtype) * float(constant)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients in features, targets and penalty, from the factors that the forward pass has kept."""
        x, y, penalty, weights, A, factor = ctx.saved_tensors
        if torch.is_grad_enabled():  # a derivative of this one is wanted
            return *_graph(ctx, x, y, penalty, grads), None
        shift = (grads[1] * float(ctx.constant))[..., None]
        slope = torch.empty_like(x)
        parts = (t.split(_size(x)) for t in (x, A, factor, weights, grads[0], shift, slope))
        U = _joined([_pulled(*part) for part in zip(*parts, strict=True)])
        return slope, U.mT.to(y.dtype), -(U * A).sum().to(penalty.dtype), None


def _size(x: Tensor) -> int:
    """How many tasks at a time: one where features fill the cache, so that they are read from there."""
    return 1 if x[0].numel() >= LARGE else max(len(x), 1)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _solved(x: Tensor, y: Tensor, penalty: Tensor, constant: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, coefficients ``(B, k, n)`` and the factor of their system, both in float64."""
    system = symmetric_product(x).double()
    if constant:
        system += 1.0
    system.diagonal(dim1=-2, dim2=-1).add_(penalty.double())
    factor, failed = torch.linalg.cholesky_ex(system)
    A = torch.cholesky_solve(y.double(), factor).mT
    if bool(failed.any()):
        A = torch.where((failed == 0)[:, None, None], A, torch.nan)
    return A.to(x.dtype) @ x, A, factor


def _pulled(
    x: Tensor, A: Tensor, factor: Tensor, weights: Tensor, grad: Tensor, shift: Tensor, out: Tensor
) -> Tensor:
    """``U`` (B, k, n); the gradient in the features is written to ``out``."""
    right = (x @ grad.mT + shift.mT).double()
    U = torch.cholesky_solve(right, factor).mT
    pulled_back(x, A.to(x.dtype), U.to(x.dtype), weights, grad, out)
    return U


def _graph(ctx: Any, x: Tensor, y: Tensor, penalty: Tensor, grads: tuple[Tensor, ...]) -> list[Tensor | None]:
    """Gradients that can be differentiated again, by the plain way."""
    inputs = (x, y, penalty)
    wanted = [t for t, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed]
    gradients = iter(
        torch.autograd.grad(
            _through_gram(x, y, penalty, ctx.constant), wanted, grads, create_graph=True, allow_unused=True
        )
    )
    return [next(gradients) if needed else None for needed in ctx.needs_input_grad[:3]]
