r"""Landscape's small models (§4, C.2): neurons under a fixed second layer, logistic regression."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.initial import he_normal
from innerloop.nets.mlp import ACTIVATIONS
from innerloop.nets.network import Network, Pass


def neurons(inputs: int, count: int, activation: str = "softplus") -> Network:
    r"""A two-layer network whose second layer is fixed: :math:`h_W(x)=\sum_k\sigma(\langle w^k,x\rangle)`.

    Args:
        inputs: ``d``.
        count: how many neurons (``M`` in the paper).
        activation: ``relu``, ``softplus``, ``sigmoid``, ``tanh``, …

    >>> net = neurons(2, 3, "relu")
    >>> params = {"neurons.weight": torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])}
    >>> z, _ = net.features(params, {}, torch.tensor([[2.0, 3.0]]), "batch")
    >>> net.head(params, z)
    tensor([[5.]])
    """
    if activation not in ACTIVATIONS:
        raise UserError(f"unknown activation '{activation}'{did_you_mean(activation, ACTIVATIONS)}.")
    act = ACTIVATIONS[activation]

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """The neurons' weights; there are no buffers."""
        return {"neurons.weight": he_normal(generator, (count, inputs), 1.0)}, {}

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """What every neuron gives, and the buffers as they were."""
        del statistics  # no normalisation layers
        return act(F.linear(x.flatten(1), params["neurons.weight"])), buffers

    def head(params: Params, features: Tensor) -> Tensor:
        """The sum of the neurons."""
        del params  # the second layer is all ones and is not trained
        return features.sum(-1, keepdim=True)

    return Network(init, features, head, (), "none")


def logistic_model(inputs: int) -> Network:
    r"""Logistic regression without intercept: classes with logits 0 and :math:`\langle w,x\rangle`.

    Under ``cross-entropy`` with labels 0 and 1 that is :math:`\log(1+e^{-(2y-1)\langle w,x\rangle})`.

    >>> net = logistic_model(2)
    >>> net.head({"layer0.weight": torch.tensor([[1.0, 2.0]])}, torch.tensor([[3.0, 1.0]]))
    tensor([[0., 5.]])
    """

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """The weights; there are no buffers."""
        return {"layer0.weight": he_normal(generator, (1, inputs), 1.0)}, {}

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """The inputs themselves, and the buffers as they were."""
        del params, statistics
        return x.flatten(1), buffers

    def head(params: Params, features: Tensor) -> Tensor:
        """The logits of the two classes."""
        logit = F.linear(features, params["layer0.weight"])
        return torch.cat([torch.zeros_like(logit), logit], -1)

    return Network(init, features, head, ("layer0.weight",), "none")
