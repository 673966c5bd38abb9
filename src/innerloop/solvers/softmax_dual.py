r"""Penalised softmax regression in Gram space: the problem, its preconditioner and its certificate.

For ``n`` support samples with features :math:`X`, one-hot labels :math:`Y` and :math:`K = XX^\top`,

.. math::
    \min_{W,b}\; C\sum_i\Big[\log\sum_c e^{f_{ic}} - f_{i,y_i}\Big] + \tfrac12\|W\|^2,
    \qquad f_i = Wx_i + b .

The minimiser is :math:`W = AX` with dual coefficients :math:`A = C(Y - P)`, :math:`P = \mathrm{softmax}\,F`,
and (with an intercept) rows of :math:`A`, one per class, that sum to zero. So all work is on ``(classes,
samples)`` arrays: 640 features cost one Gram matrix at the start and one product at the end. The residual
:math:`R = C(Y-P) - A` is minus the gradient in these coordinates.

**Preconditioner.** At :math:`F = 0` the Hessian of the softmax is :math:`h(I - \mathbf 1\mathbf 1^\top/k)`
with :math:`h = 1/k` (Böhning 1992 bounds it everywhere by :math:`h = 1/2`), the same for all classes: one
inverse :math:`M = (K + \mathrm{diag}(1/Ch))^{-1}` of side ``n`` serves every class and step,
and the first step is Newton's. Each further step costs one product with ``M`` and one softmax.

**Certificate.** Any :math:`\hat P` that is a distribution per sample and sums to the class counts over
samples is dual feasible, and

.. math::
    \mathrm{gap} = C\sum_i \mathrm{KL}(\hat p_i\,\|\,p_i) + \tfrac12\|W - \hat W\|^2,
    \qquad \hat W = C(Y-\hat P)X

bounds how far the objective is above its minimum. Its terms are small squares, not a difference of large
numbers, so it keeps its digits in float32.

Every sample may have a :math:`C_i` of its own: then sums over samples, and so the class counts, are weighted.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.solvers.inverse import spd_inverse


class SoftmaxProblem(NamedTuple):
    """``B`` problems; ``gram`` is centred if there is an intercept, ``C`` is a number or ``(B, 1, n)``."""

    gram: Tensor
    hot: Tensor
    C: float | Tensor
    intercept: bool

    def at(self, which: Tensor) -> SoftmaxProblem:
        """A selection of the problems."""
        C = self.C[which] if isinstance(self.C, Tensor) else self.C
        return SoftmaxProblem(self.gram[which], self.hot[which], C, self.intercept)

    def total(self, values: Tensor) -> Tensor:
        """``Σ C_i v_ci`` per problem, ``(B,)``, of values ``(B, k, n)``."""
        if isinstance(self.C, Tensor):
            return (self.C * values).sum((-1, -2))
        return self.C * values.sum((-1, -2))

    @property
    def weight(self) -> float | Tensor:
        """What samples weigh against one another."""
        return self.C if isinstance(self.C, Tensor) else 1.0


class Certificate(NamedTuple):
    """Objective, proven distance above the minimum, and scores recomputed from the coefficients."""

    objective: Tensor
    gap: Tensor
    F: Tensor


class SoftmaxSolution(NamedTuple):
    """Where a solver ended, per problem."""

    A: Tensor
    F: Tensor
    objective: Tensor
    gap: Tensor
    converged: Tensor
    iterations: Tensor

    def write(self, which: Tensor, solution: SoftmaxSolution) -> None:
        """Replaces what is known of problems ``which``, in place."""
        everything = len(which) == len(self.A)
        for kept, new in zip(self, solution, strict=True):
            if everything:
                kept.copy_(new)  # faster than a scatter
            else:
                kept[which] = new.to(kept.dtype)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product per problem, kept broadcastable: ``(B, 1, 1)``."""
    return torch.linalg.vecdot(a.flatten(1), b.flatten(1))[:, None, None]


def preconditioner(gram: Tensor, weight: Tensor, intercept: bool) -> Tensor:
    """``(K + diag(1/weight))⁻¹``, projected so that an unpenalised intercept is solved for as well."""
    inverse = spd_inverse(gram + torch.diag_embed(weight.reciprocal()))
    if intercept:
        u = inverse.sum(-1, keepdim=True)
        inverse.sub_((u / u.sum(-2, keepdim=True)) @ u.mT)
    return inverse


def intercepts(problem: SoftmaxProblem, A: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
    """Scores without intercept, and the intercepts that stand in ``F`` (zero where there are none)."""
    plain = A @ problem.gram
    if not problem.intercept:
        return plain, plain.new_zeros(*plain.shape[:2], 1)
    return plain, (F - plain).mean(-1, keepdim=True)


def feasible(P: Tensor, hot: Tensor, weight: float | Tensor = 1.0) -> Tensor:
    """``P̂ − P`` for a near P̂ that sums to the class counts over samples."""
    # a shift u of the intercepts changes P by p_c (u_c − Σ p u) to first order, which leaves every sample a
    # distribution; the u that closes the difference solves a k × k system. Where that is too large a change,
    # surplus of a class is handed to the deficits of others instead
    weighted = weight * P
    has, wants = weighted.sum(-1, keepdim=True), (weight * hot).sum(-1, keepdim=True)
    system = torch.diag_embed(has.squeeze(-1)) - weighted @ P.mT
    # shifting all intercepts alike changes nothing: close that direction
    system = system + system.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] / P.shape[1]
    u = spd_inverse(system) @ (wants - has)
    relative = u - (P * u).sum(1, keepdim=True)
    small = (relative.abs() < 0.9).all(-1, keepdim=True).all(-2, keepdim=True)  # false for NaN
    if bool(small.all()):
        return P * relative
    deficit = (wants - has).clamp_min(0.0)
    share = deficit / deficit.sum(1, keepdim=True).clamp_min(torch.finfo(P.dtype).tiny)
    moved = P * (1 - (wants / has).clamp_max(1.0))
    return torch.where(small, P * relative, share * moved.sum(1, keepdim=True) - moved)


def certify(problem: SoftmaxProblem, A: Tensor, F: Tensor) -> Certificate:
    """Objective and duality gap of the classifier that ``A`` and the intercepts in ``F`` stand for."""
    C, hot = problem.C, problem.hot
    plain, bias = intercepts(problem, A, F)
    F = plain + bias
    log_p = torch.log_softmax(F, 1)
    P = log_p.exp()
    penalty = 0.5 * dot(A, plain).flatten()
    objective = penalty - problem.total(hot * log_p)
    change = feasible(P, hot, problem.weight) if problem.intercept else torch.zeros_like(P)
    relative = change / P.clamp_min(torch.finfo(P.dtype).tiny)
    # p·φ(t) with φ(t) = (1+t)·log(1+t) − t ≥ 0 sums to the Kullback–Leibler divergence
    divergence = (P + change) * torch.log1p(relative) - change
    off = A - C * (hot - P - change)
    square = 0.5 * dot(off, off @ problem.gram).flatten()
    gap = problem.total(divergence).clamp_min(0) + square.clamp_min(0)
    return Certificate(objective, gap, F)


def dual_value(problem: SoftmaxProblem, A: Tensor, x: Tensor) -> Tensor:
    """A lower bound on the minimum, C Σ H(p̂_i) − ½‖AX‖², from the coefficients: P̂ = Y − A/C."""
    # where features are long, certify squares what rounding left in the scores once more; this errs by the
    # square of what the coefficients are off. Entries below zero are mixed away with class shares, which are
    # feasible too
    P = problem.hot - A / problem.C
    P = P - (P.sum(1, keepdim=True) - 1) / P.shape[1]
    shares = (problem.weight * problem.hot).sum(-1, keepdim=True)
    shares = (shares / shares.sum(1, keepdim=True)).expand_as(P)
    if not problem.intercept:
        shares = torch.full_like(P, 1 / P.shape[1])
    lack = (-P).clamp_min(0) / (shares - P.clamp_max(0)).clamp_min(torch.finfo(P.dtype).tiny)
    t = lack.amax((1, 2), keepdim=True)
    P = ((1 - t) * P + t * shares).clamp_min(0)
    weights = problem.C * (problem.hot - P) @ x
    entropy = -problem.total(torch.xlogy(P, P))
    return torch.nan_to_num(entropy - 0.5 * weights.square().sum((1, 2)), nan=-torch.inf)
