"""Fine-tuning: a new last layer at the class means, then a few steps of Adam on everything."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.losses import get_loss
from innerloop.core.types import Buffers, Params
from innerloop.learners.base import Adapted, Learner
from innerloop.learners.embedding import class_means
from innerloop.learners.gradient import maml
from innerloop.learners.updates import adam
from innerloop.nets.network import Network
from innerloop.nets.norms import statistics_for

WEIGHT, BIAS = "finetune.weight", "finetune.bias"


def with_new_head(network: Network, normalise: bool) -> Network:
    """The network with another linear layer in place of its last one, on features of length one if asked."""
    # its parameters are not drawn: :func:`fine_tune` computes them from the support set

    def head(params: Params, z: Tensor) -> Tensor:
        """Outputs of the new layer."""
        return F.linear(F.normalize(z, dim=-1) if normalise else z, params[WEIGHT], params[BIAS])

    return network._replace(head=head, head_names=(WEIGHT, BIAS))


@checked
def fine_tune(
    network: Network, ways: int, lr: float = 1e-3, steps: int = 10, normalise: bool = True
) -> Learner:
    r"""Gradient fine-tuning of the whole network (Bridge's released code: Adam at 1e-3, ten steps).

    The new last layer starts as the nearest-centroid rule, whose logits are
    :math:`\mu_k\cdot z - \tfrac12\|\mu_k\|^2`; then all parameters descend the cross-entropy of the support
    set. With ``steps=0`` it is nearest centroid.

    Args:
        network: its last layer is not used.
        ways: number of classes; each needs an example.
        lr: Adam's rate.
        steps: Adam's steps.
        normalise: whether the new layer sees features of length one.
    """
    renewed = with_new_head(network, normalise)
    descend = maml(renewed, get_loss("cross-entropy"), lr, steps, first_order=True, rule=adam())

    def adapt(params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> Adapted:
        """Puts the new layer at the class means, then descends on all parameters."""
        statistics = statistics_for(network.norm, "support", training)
        z, _ = network.features(params, buffers, x, statistics)
        means, _ = class_means(F.normalize(z, dim=-1) if normalise else z, y, ways)
        body = {name: value for name, value in params.items() if name not in network.head_names}
        start = {**body, WEIGHT: means, BIAS: -0.5 * means.square().sum(-1)}
        adapted: Adapted = descend.adapt(start, buffers, x, y, training)
        return adapted

    return Learner("finetune", adapt, descend.predict)
