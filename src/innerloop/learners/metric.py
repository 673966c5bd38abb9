"""Learners that compare features: prototypical and matching networks."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.types import Params
from innerloop.learners.base import Learner
from innerloop.learners.embedding import (
    check_positive_setting,
    class_means,
    embedding_learner,
    indicators,
    only_seen,
)
from innerloop.nets.network import Network


class Prototypes(NamedTuple):
    """Class means ``(ways, d)``, and how many pictures stand behind each."""

    means: Tensor
    counts: Tensor


@checked
def protonet(network: Network, ways: int) -> Learner:
    r"""Prototypical networks (Snell et al. 2017): logits :math:`-\|f(x) - c_k\|^2` to the class means.

    Args:
        network: supplies the features; its last layer is not used.
        ways: how many classes there can be; classes without a support sample are never predicted.
    """

    def fit(params: Params, z: Tensor, y: Tensor, training: bool) -> Prototypes:
        """The class means."""
        del params, training
        return Prototypes(*class_means(z, y, ways))

    def score(params: Params, head: Prototypes, z: Tensor) -> Tensor:
        """Minus the squared distances to the means, up to a term that all classes share."""
        del params
        # ‖z − c‖² = ‖z‖² − 2⟨z, c⟩ + ‖c‖²; the first term is the same for all classes
        return only_seen(2 * z @ head.means.T - head.means.square().sum(-1), head.counts)

    return embedding_learner("protonet", network, fit, score)


SCALE = 10.0


class Memory(NamedTuple):
    """Support features of length one ``(n, d)``, and which label each has ``(n, ways)``."""

    keys: Tensor
    labels: Tensor


@checked
def matching(network: Network, ways: int, scale: float = SCALE) -> Learner:
    r"""Matching networks (Vinyals et al. 2016), without the embedding of whole sets.

    .. math:: P(y = k\mid x) = \sum_i a_i(x)\,[y_i = k], \qquad
        a(x) = \operatorname{softmax}_i\big(s\,\cos(f(x), f(x_i))\big)

    Outputs are :math:`\log P`, so that cross-entropy is the paper's loss.

    Args:
        network: supplies the features; its last layer is not used.
        ways: how many classes there can be; classes without a support sample are never predicted.
        scale: :math:`s`. The paper has 1, under which no prediction can be sure: with five classes the
            largest probability is below 0.65.
    """
    check_positive_setting("scale", scale)

    def fit(params: Params, z: Tensor, y: Tensor, training: bool) -> Memory:
        """The support set's features at length one, with their labels."""
        del params, training
        return Memory(F.normalize(z, dim=-1), indicators(y, ways, z))

    def score(params: Params, head: Memory, z: Tensor) -> Tensor:
        """The logarithm of each class's share of the attention."""
        del params
        attention = scale * F.normalize(z, dim=-1) @ head.keys.T
        # log Σ_i a_i [y_i = k] as a difference of two log-sums, which does not underflow
        by_class = torch.where(head.labels.T.bool(), attention[:, None, :], -torch.inf)
        seen = head.labels.sum(0) > 0
        # a class without samples has no sum: its gradient would be nan, not zero
        safe = torch.where(seen[:, None], by_class, 0.0)
        logits = torch.where(seen, torch.logsumexp(safe, -1), -torch.inf)
        return logits - torch.logsumexp(attention, -1, keepdim=True)

    return embedding_learner("matching", network, fit, score)
