r"""Learners whose head is ridge regression on one-hot labels: R2D2 and MetaOptNet with ridge.

.. math:: W = \arg\min_W \sum_i\|Wx_i - y_i\|^2 + \lambda\|W\|^2, \qquad \text{logits } = \alpha Wx + \beta

in closed form and in the smaller of feature and sample space, so the outer gradient passes through a linear
solve. Nothing depends on how many classes or samples there are: a class without a sample has zero targets,
and leaves the rows of the others alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.types import Params
from innerloop.learners.base import OWN_PREFIX, Learner
from innerloop.learners.embedding import check_positive_setting, embedding_learner, indicators, only_seen
from innerloop.nets.network import Network
from innerloop.solvers.ridge import ridge_closed_form, ridge_reached

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
