"""Prototypical networks: classify by the nearest class mean in feature space."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.types import Buffers, Params
from innerloop.learners.base import Learner
from innerloop.nets.network import Network
from innerloop.nets.norms import statistics_for


class Prototypes(NamedTuple):
    """Class means ``(ways, d)``, how many pictures stand behind each, and the body that made them."""

    means: Tensor
    counts: Tensor
    params: Params
    buffers: Buffers


def class_means(z: Tensor, y: Tensor, ways: int) -> tuple[Tensor, Tensor]:
    """Means of the features of each label, and their counts; no loop, so that it runs under ``vmap``.

    >>> class_means(torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([0, 0, 1]), 2)[0].tolist()
    [[2.0], [7.0]]
    """
    member = (y[:, None] == torch.arange(ways, device=y.device)).to(z.dtype)
    counts = member.sum(0)
    return (member.T @ z) / counts.clamp(min=1)[:, None], counts


def protonet(network: Network, ways: int) -> Learner:
    r"""Prototypical networks (Snell et al. 2017): logits :math:`-\|f(x) - c_k\|^2` to the class means.

    Args:
        network: supplies the features; its last layer is not used.
        ways: how many classes there can be; classes without a support sample are never predicted.
    """

    def adapt(params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> Prototypes:
        statistics = statistics_for(network.norm, "support", training)
        z, buffers = network.features(params, buffers, x, statistics)
        return Prototypes(*class_means(z, y, ways), params, buffers)

    def predict(adapted: Prototypes, x: Tensor, training: bool = False) -> tuple[Tensor, Buffers]:
        statistics = statistics_for(network.norm, "query", training)
        z, buffers = network.features(adapted.params, adapted.buffers, x, statistics)
        means = adapted.means
        # ‖z − c‖² = ‖z‖² − 2⟨z, c⟩ + ‖c‖²; the first term is the same for all classes
        logits = 2 * z @ means.T - means.square().sum(-1)
        return torch.where(adapted.counts > 0, logits, -torch.inf), buffers

    return Learner("protonet", adapt, predict)
