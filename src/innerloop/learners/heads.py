"""Learners whose head is a convex problem: R2D2, MetaOptNet, logistic regression."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.errors import UserError
from innerloop.core.types import Params
from innerloop.learners.base import OWN_PREFIX, Learner
from innerloop.learners.embedding import check_positive_setting, embedding_learner, indicators, only_seen
from innerloop.nets.network import Network
from innerloop.solvers.crammer_singer import crammer_singer
from innerloop.solvers.logistic import logistic
from innerloop.solvers.ridge import ridge_closed_form, ridge_reached
from innerloop.solvers.svm_dual import svm_heads

SCALE, SHIFT, PENALTY = (OWN_PREFIX + name for name in ("scale", "shift", "log_penalty"))


class RidgeHead(NamedTuple):
    """Rows ``(ways, d)``, intercepts ``(ways,)``, samples per class, and whether this is the minimum."""

    weights: Tensor
    bias: Tensor
    counts: Tensor
    converged: Tensor


@checked
def r2d2(network: Network, ways: int, penalty: float = 1.0, scale: float = 10.0) -> Learner:
    r"""R2D2 (Bertinetto et al. 2019): ridge regression with learned penalty, scale and shift.

    With ``n`` samples the penalty is :math:`n\lambda` (the released code divides features and labels by
    :math:`\sqrt n`), on the intercept too, which is one more feature of value 1. Learned are
    :math:`\log\lambda`, so that it stays positive, the scale α and the shift β. The shift is the same for
    all classes and so without effect under cross-entropy, in the paper as here.

    Args:
        network: supplies the features; its last layer is not used.
        ways: how many classes there can be; classes without a support sample are never predicted.
        penalty: where λ starts. The released code keeps 50.
        scale: where α starts. The released code starts at 0.0001, from where Adam takes a while.
    """
    check_positive_setting("penalty", penalty)
    check_positive_setting("scale", scale)

    def init(params: Params) -> Params:
        """Adds the learned scale, shift and penalty."""
        like = next(iter(params.values()))
        own = {SCALE: scale, SHIFT: 0.0, PENALTY: math.log(penalty)}
        return {**params, **{name: like.new_tensor(value) for name, value in own.items()}}

    def fit(params: Params, z: Tensor, y: Tensor, training: bool) -> RidgeHead:
        """Ridge regression on one-hot labels, under the learned penalty."""
        return _fitted(z, y, ways, len(z) * params[PENALTY].exp(), True, training)

    def score(params: Params, head: RidgeHead, z: Tensor) -> Tensor:
        """Scaled and shifted scores, minus infinity for classes without a sample."""
        plain = z @ head.weights.mT + head.bias
        return only_seen(params[SCALE] * plain + params[SHIFT], head.counts)

    return embedding_learner("r2d2", network, fit, score, init, solved=_solved)


@checked
def metaoptnet_ridge(network: Network, ways: int, penalty: float = 50.0, scale: float = 2.0) -> Learner:
    """MetaOptNet with ridge regression (Lee et al. 2019): a fixed penalty, no intercept, a learned scale.

    Args:
        network: supplies the features; its last layer is not used.
        ways: how many classes there can be; classes without a support sample are never predicted.
        penalty: λ; the released code has 50.
        scale: where the factor on the logits starts; the released code has 1, and doubles the solution.
    """
    check_positive_setting("penalty", penalty)
    check_positive_setting("scale", scale)

    def init(params: Params) -> Params:
        """Adds the learned factor on the logits."""
        return {**params, SCALE: next(iter(params.values())).new_tensor(scale)}

    def fit(params: Params, z: Tensor, y: Tensor, training: bool) -> RidgeHead:
        """Ridge regression on one-hot labels, without intercept."""
        del params
        return _fitted(z, y, ways, z.new_tensor(penalty), False, training)

    def score(params: Params, head: RidgeHead, z: Tensor) -> Tensor:
        """Scaled scores, minus infinity for classes without a sample."""
        return only_seen(params[SCALE] * (z @ head.weights.mT), head.counts)

    return embedding_learner("metaoptnet-ridge", network, fit, score, init, solved=_solved)


def _fitted(z: Tensor, y: Tensor, ways: int, penalty: Tensor, constant: bool, training: bool) -> RidgeHead:
    targets = indicators(y, ways, z)
    weights, bias = ridge_closed_form(z, targets, penalty, constant)
    if training:
        reached = torch.ones((), dtype=torch.bool, device=z.device)  # nobody asks
    else:
        reached = ridge_reached(z, targets, weights, bias, penalty, constant)
    return RidgeHead(weights, bias, targets.sum(0), reached)


def _solved(head: RidgeHead) -> Tensor:
    return head.converged


SCALE, SHIFT, PENALTY = (OWN_PREFIX + name for name in ("scale", "shift", "log_penalty"))
ENOUGH = 1e-6  # relative distance from the minimum at which a head counts as solved, as for frozen features

# in float64 as far as digits go: implicit gradients lose half of those that a gap leaves open
AIM = {torch.float32: 1e-8, torch.float64: 1e-14}


class HeadSolution(NamedTuple):
    """Rows ``(k, d)`` of the classes that have samples, the objective they reach, and the gap below it."""

    weights: Tensor
    objective: Tensor
    gap: Tensor


class ConvexHead(NamedTuple):
    """Rows ``(ways, d)``, which classes have samples, and how well the problem was solved."""

    weights: Tensor
    seen: Tensor
    gap: Tensor
    converged: Tensor


Solve = Callable[[Tensor, Tensor, int, bool], HeadSolution]
"""``(features (n, d), labels (n,), classes, training) -> solved``; every class has a sample."""


@checked
def metaoptnet_svm(
    network: Network, ways: int, C: float = 0.1, scale: float = 1.0, steps: int = 0
) -> Learner:
    """MetaOptNet (Lee et al. 2019): the support vector machine of Crammer and Singer, without intercept.

    Args:
        network: supplies the features; its last layer is not used.
        ways: how many classes there can be; classes without a support sample are never predicted.
        C: inverse penalty; the released code has 0.1.
        scale: where the learned factor on the logits starts.
        steps: in training, stop after this many interior-point steps, which are then differentiated one by
            one; 0 solves to the end and differentiates implicitly. Testing always solves to the end.
    """
    check_positive_setting("C", C)
    if steps < 0:
        raise UserError(
            f"{{the learner's own steps}}={steps}: give 3, or 0 to solve to the end.",
            names=("the learner's own steps",),
        )

    def solve(z: Tensor, y: Tensor, classes: int, training: bool) -> HeadSolution:
        """The machine's weights: in training by the learner's own steps, else solved to the end."""
        if not training:
            solution = crammer_singer(z[None], y[None], classes, C, intercept=False, threads=1)
            return HeadSolution(solution.weights[0], solution.objective[0], solution.gap[0])
        (weights,), dual = svm_heads([z], [y], classes, C, steps or None)
        return HeadSolution(weights, dual.objective[0], dual.gap[0])

    return _convex_learner("metaoptnet-svm", network, ways, solve, scale)


@checked
def logistic_head(network: Network, ways: int, C: float = 1.0, scale: float = 1.0) -> Learner:
    """Logistic regression, solved to the end and differentiated implicitly, without intercept.

    Args:
        network: supplies the features; its last layer is not used.
        ways: how many classes there can be; classes without a support sample are never predicted.
        C: inverse penalty.
        scale: where the learned factor on the logits starts.
    """
    check_positive_setting("C", C)

    def solve(z: Tensor, y: Tensor, classes: int, training: bool) -> HeadSolution:
        """The classifier's weights, solved to the end."""
        del training
        solution = logistic(z[None], y[None], classes, C, intercept=False, tol=AIM[z.dtype], threads=1)
        return HeadSolution(solution.weights[0], solution.objective[0], solution.gap[0])

    return _convex_learner("logistic-head", network, ways, solve, scale)


def _convex_learner(name: str, network: Network, ways: int, solve: Solve, scale: float) -> Learner:
    check_positive_setting("scale", scale)

    def init(params: Params) -> Params:
        """Adds the learned factor on the logits."""
        return {**params, SCALE: next(iter(params.values())).new_tensor(scale)}

    def fit(params: Params, z: Tensor, y: Tensor, training: bool) -> ConvexHead:
        """Solves for the classes that are there; rows of others stay zero."""
        del params
        seen, labels = torch.unique(y, return_inverse=True)
        solution = solve(z, labels, len(seen), training)
        weights, there = solution.weights, z.new_ones(ways)
        if len(seen) < ways:
            weights = z.new_zeros(ways, z.shape[1]).index_copy(0, seen, weights)
            there = z.new_zeros(ways).index_fill(0, seen, 1.0)
        gap = solution.gap / solution.objective
        return ConvexHead(weights, there, gap, gap <= ENOUGH)

    def score(params: Params, head: ConvexHead, z: Tensor) -> Tensor:
        """Scaled logits, minus infinity for classes without a sample."""
        return only_seen(params[SCALE] * (z @ head.weights.mT), head.seen)

    return embedding_learner(name, network, fit, score, init, solved=lambda head: head.converged)
