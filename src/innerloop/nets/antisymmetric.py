"""Two copies of a network whose difference starts at zero."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from innerloop.core.trees import split_prefix
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.network import Network, Pass

PLUS, MINUS = "plus.", "minus."


def antisymmetric(network: Network) -> Network:
    r""":math:`(f_{\theta^+} - f_{\theta^-})/\sqrt2` with equal halves at the start (Zhang et al. 2020).

    Its outputs are exactly zero before training while its tangent kernel, and that of its last layer, are
    those of ``network``: what kernel predictions from :math:`f_0 = 0` assume, at any width. The network must
    have no buffers.

    >>> from innerloop import mlp
    >>> from innerloop.nets import apply
    >>> net = antisymmetric(mlp(2, [8], 1, parametrisation="ntk"))
    >>> params, _ = net.init(torch.Generator().manual_seed(0))
    >>> apply(net, params, {}, torch.ones(1, 2))[0]
    tensor([[0.]])
    """

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """The network's parameters twice, with equal values."""
        drawn, buffers = network.init(generator)
        plus = {PLUS + name: value for name, value in drawn.items()}
        return {**plus, **{MINUS + name: value.clone() for name, value in drawn.items()}}, buffers

    def part(params: Params, prefix: str) -> Params:
        """The parameters of one copy, under the network's own names."""
        own, _ = split_prefix(params, prefix)
        return {name[len(prefix) :]: value for name, value in own.items()}

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """The features of both copies, side by side."""
        both = [network.features(part(params, prefix), buffers, x, statistics)[0] for prefix in (PLUS, MINUS)]
        return torch.cat(both, 1), buffers

    def head(params: Params, features: Tensor) -> Tensor:
        """The scaled difference of the copies' outputs."""
        plus, minus = features.chunk(2, 1)
        return (
            network.head(part(params, PLUS), plus) - network.head(part(params, MINUS), minus)
        ) / math.sqrt(2)

    names = tuple(prefix + name for prefix in (PLUS, MINUS) for name in network.head_names)
    return Network(init, features, head, names, network.norm)
