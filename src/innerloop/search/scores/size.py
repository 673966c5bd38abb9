"""How large a network is, counted on the operations of one pass: the baselines that any score must beat."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from innerloop.core.autodiff import untransformed
from innerloop.core.trees import count
from innerloop.core.types import Buffers, Params
from innerloop.nets.network import Network, apply
from innerloop.search.scores.tell import Score

_ATEN = torch.ops.aten


class Products(NamedTuple):
    """What one input's pass multiplies.

    Attributes:
        layers: convolutions and matrix products.
        multiply_adds: of all of them.
    """

    layers: int
    multiply_adds: int


def _convolution(out: Tensor, args: tuple[Any, ...]) -> int:
    transposed = bool(args[6])
    weight: Tensor = args[1]
    entries = args[0] if transposed else out  # each entry takes part in one patch for every filter
    return entries.numel() * math.prod(weight.shape[1:])


def _matrix(out: Tensor, args: tuple[Any, ...]) -> int:
    return out.numel() * args[-2].shape[-1]


_COUNTED = {
    _ATEN.convolution: _convolution,
    **dict.fromkeys((_ATEN.mm, _ATEN.addmm, _ATEN.bmm, _ATEN.baddbmm, _ATEN.mv, _ATEN.addmv), _matrix),
}


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.layers = self.multiply_adds = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every operation comes by here."""
        out = func(*args, **(kwargs or {}))
        counted = _COUNTED.get(func.overloadpacket)
        if counted is not None:
            self.layers += 1
            self.multiply_adds += counted(out, args)
        return out


def count_products(network: Network, params: Params, buffers: Buffers, shape: tuple[int, ...]) -> Products:
    """Layers and multiply-adds of one input's pass.

    Args:
        network: any; two inputs are passed, because batch normalisation of one may fail, and half is counted.
        params: its parameters.
        buffers: its buffers.
        shape: of one input.

    >>> from innerloop.nets.mlp import mlp
    >>> net = mlp(3, [4], 2)
    >>> count_products(net, *net.init(torch.Generator().manual_seed(0)), (3,))
    Products(layers=2, multiply_adds=20)
    """
    like = next(iter(params.values()))
    x = torch.zeros(2, *shape, dtype=like.dtype, device=like.device)
    with torch.no_grad(), untransformed(), _Counter() as counter:
        apply(network, params, buffers, x, "batch")
    return Products(counter.layers, counter.multiply_adds // 2)


def parameters(network: Network, params: Params, buffers: Buffers, shape: tuple[int, ...]) -> Score:
    """How many numbers are trained, the last layer's included."""
    del network, buffers, shape
    return Score(float(count(params)))


def flops(network: Network, params: Params, buffers: Buffers, shape: tuple[int, ...]) -> Score:
    """Floating-point operations of one input's pass: two for every multiply-add of a layer.

    Convolutions and matrix products count; normalisation, ReLU and pooling do not.
    """
    return Score(2.0 * count_products(network, params, buffers, shape).multiply_adds)


def layers(network: Network, params: Params, buffers: Buffers, shape: tuple[int, ...]) -> Score:
    """Convolutions and matrix products in one pass, side by side or in a row."""
    return Score(float(count_products(network, params, buffers, shape).layers))
