r"""Learners whose head is a convex classifier without a closed form: MetaOptNet, logistic regression.

.. math:: W^* = \arg\min_W\; C\sum_i\ell(Wx_i, y_i) + \tfrac12\|W\|^2, \qquad \text{logits } = \gamma\,W^*x

with a learned scale γ. The outer gradient passes the solution implicitly. Classes without a sample are left
out of the problem, so they change nothing for the others, and are never predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.errors import UserError
from innerloop.core.types import Params
from innerloop.learners.base import OWN_PREFIX, Learner
from innerloop.learners.embedding import check_positive_setting, embedding_learner, only_seen
from innerloop.nets.network import Network
from innerloop.solvers.crammer_singer import crammer_singer
from innerloop.solvers.logistic import logistic
from innerloop.solvers.svm_dual import svm_heads

SCALE = OWN_PREFIX + "scale"
ENOUGH = 1e-6  # relative distance from the minimum at which a head counts as solved, as for frozen features

# in float64 as far as digits go: implicit gradients lose half of those that a gap leaves open
AIM = {torch.float32: 1e-8, torch.float64: 1e-14}


class Solved(NamedTuple):
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


Solve = Callable[[Tensor, Tensor, int, bool], Solved]
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

    def solve(z: Tensor, y: Tensor, classes: int, training: bool) -> Solved:
        """The machine's weights: in training by the learner's own steps, else solved to the end."""
        if not training:
            solution = crammer_singer(z[None], y[None], classes, C, intercept=False, threads=1)
            return Solved(solution.weights[0], solution.objective[0], solution.gap[0])
        (weights,), dual = svm_heads([z], [y], classes, C, steps or None)
        return Solved(weights, dual.objective[0], dual.gap[0])

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

    def solve(z: Tensor, y: Tensor, classes: int, training: bool) -> Solved:
        """The classifier's weights, solved to the end."""
        del training
        solution = logistic(z[None], y[None], classes, C, intercept=False, tol=AIM[z.dtype], threads=1)
        return Solved(solution.weights[0], solution.objective[0], solution.gap[0])

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
