"""Prototypical networks: classify by the nearest class mean in feature space."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.types import Params
from innerloop.learners.base import Learner
from innerloop.learners.embedding import class_means, embedding_learner, only_seen
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
