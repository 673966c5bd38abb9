r"""How a last layer reads its features: as they are, at length one, or by their angle.

With features :math:`z = f_\theta(x)` and a row :math:`w_k` per class:

==============  =================================================  =====================================
name            output of class k                                  used by
==============  =================================================  =====================================
``linear``      :math:`w_k^\top z + b_k`                           most networks
``normalised``  :math:`w_k^\top z/\|z\| + b_k`                     Bridge's multi-task training
``cosine``      :math:`s\,w_k^\top z/(\|w_k\|\,\|z\|)`, no bias    Baseline++ (Chen et al. 2019)
==============  =================================================  =====================================

Only the last layer changes: the features that heads at test are fitted to stay as the body gives them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import Buffers, Params
from innerloop.nets.network import Network

LAST_LAYERS = ("linear", "normalised", "cosine")
SCALE = 10.0  # factor on cosines: without one, no class of many could be predicted with certainty


def with_last_layer(network: Network, kind: str = "linear", scale: float = SCALE) -> Network:
    """The network whose last layer reads its features as ``kind`` says.

    Args:
        network: body and last layer ``W z + b``.
        kind: ``linear`` (the network as it is), ``normalised`` or ``cosine``.
        scale: of ``cosine``: the factor :math:`s` on the cosines.

    Raises:
        UserError: there is no such kind, or the last layer has no single matrix to take angles to.

    >>> from innerloop import mlp
    >>> net = with_last_layer(mlp(1, [], 1), "cosine", scale=3.0)
    >>> float(net.head({"layer0.weight": torch.tensor([[2.0, 0.0]])}, torch.tensor([[0.5, 0.0]])))
    3.0
    """
    if kind == "linear":
        return network
    if kind == "normalised":
        return network._replace(head=lambda params, z: network.head(params, F.normalize(z, dim=-1)))
    if kind == "cosine":
        return _cosine(network, scale)
    raise UserError(
        f"unknown last layer '{kind}'{did_you_mean(kind, LAST_LAYERS)}; there are {', '.join(LAST_LAYERS)}."
    )


def _cosine(network: Network, scale: float) -> Network:
    """Cosines in place of products; the bias, if the network has one, is neither drawn nor trained."""
    biases = {name for name in network.head_names if name.endswith("bias")}
    kept = tuple(name for name in network.head_names if name not in biases)
    if len(kept) != 1:
        raise UserError(
            f"a cosine last layer needs one matrix of weights, and this network's has {', '.join(kept)}: "
            "leave {last_layer} at linear.",
            names=("last_layer",),
        )

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """The network's first parameters without the biases of the last layer."""
        params, buffers = network.init(generator)
        return {name: value for name, value in params.items() if name not in biases}, buffers

    def head(params: Params, z: Tensor) -> Tensor:
        """Scaled cosines of the features with the rows of the weights."""
        return scale * F.linear(F.normalize(z, dim=-1), F.normalize(params[kept[0]], dim=-1))

    return network._replace(init=init, head=head, head_names=kept)
