"""What a network is here: a small tuple of pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from innerloop.core.types import Buffers, Params, Statistics

Pass: TypeAlias = tuple[Tensor, Buffers]  # what a part of a network gives: values, and the buffers after it


class Network(NamedTuple):
    """A body, a last layer, and how to draw their first parameters.

    Attributes:
        init: ``generator -> (params, buffers)``, float32 on the generator's device.
        features: ``(params, buffers, x, statistics) -> (features, buffers)``; the buffers given back
            hold what the normalisation layers saw, the ones given in are left alone.
        head: ``(params, features) -> outputs``; reads only ``head_names``.
        head_names: the parameters of the last layer, for ANIL, BOIL and per-task heads.
        norm: the norm policy (see :mod:`innerloop.nets.norms`), part of every reported number.
        layered: a promise of its maker, which tests hold it to: every parameter stands in one linear layer,
            convolution or norm layer, and is used there once; the last one is W z + b; and samples never mix.
            Kernels then need not look whether they understand the network, which takes as long as some
            samples.
        noise: whether it has dropout or the like, which training switches on (:mod:`innerloop.nets.noise`).
        native: whether its features can be computed by native code (:mod:`innerloop.nets.ops.engine`).
    """

    init: Callable[[torch.Generator], tuple[Params, Buffers]]
    features: Callable[[Params, Buffers, Tensor, Statistics], tuple[Tensor, Buffers]]
    head: Callable[[Params, Tensor], Tensor]
    head_names: tuple[str, ...]
    norm: str = "none"
    layered: bool = False
    noise: bool = False
    native: bool = False


def apply(
    network: Network, params: Params, buffers: Buffers, x: Tensor, statistics: Statistics = "batch"
) -> tuple[Tensor, Buffers]:
    """The network's outputs, and its buffers after this pass.

    Args:
        network: the network.
        params: its parameters.
        buffers: its buffers.
        x: inputs, samples first.
        statistics: whose statistics normalise: the ``batch``'s own, or those ``stored`` in the buffers.

    >>> from innerloop import mlp
    >>> net = mlp(1, [8], 2)
    >>> params, buffers = net.init(torch.Generator().manual_seed(0))
    >>> apply(net, params, buffers, torch.zeros(3, 1))[0].shape
    torch.Size([3, 2])
    """
    features, buffers = network.features(params, buffers, x, statistics)
    return network.head(params, features), buffers
