"""How large a network is: parameters, layers and operations, which other scores must beat."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from innerloop.choose.scores.scoring import Score
from innerloop.core.autodiff import untransformed
from innerloop.core.trees import count
from innerloop.core.types import Buffers, Params
from innerloop.nets.network import Network, apply

_ATEN = torch.ops.aten


class Size(NamedTuple):
    """Counts of one network.

    Attributes:
        parameters: of the whole network.
        body: of these, the ones that are not the last layer's.
        multiply_adds: of convolutions and linear layers, for one picture (half of what are called FLOPs).
        layers: how many convolutions and linear layers there are.
        depth: how many of them the longest path from the picture to the outputs passes.
    """

    parameters: int
    body: int
    multiply_adds: int
    layers: int
    depth: int


def count_parameters(network: Network) -> int:
    """Parameters of the whole network.

    >>> from innerloop import mlp
    >>> count_parameters(mlp(2, [3], 1))
    13
    """
    return count(network.init(torch.Generator().manual_seed(0))[0])


def network_size(network: Network, shape: tuple[int, ...]) -> Size:
    """The size of a network on one sample of this shape; nothing is computed, shapes are followed.

    >>> from innerloop import mlp
    >>> network_size(mlp(2, [3], 1), (2,))
    Size(parameters=13, body=9, multiply_adds=9, layers=2, depth=2)
    """
    params, buffers = network.init(torch.Generator().manual_seed(0))
    total = count(params)
    head = sum(params[name].numel() for name in network.head_names)
    params = {name: value.to("meta") for name, value in params.items()}
    buffers = {name: value.to("meta") for name, value in buffers.items()}
    counted = count_layers(network, params, buffers, shape)
    return Size(total, total - head, counted.multiply_adds, counted.layers, counted.depth)


class Layers(NamedTuple):
    """Convolutions and matrix products of one input's pass."""

    layers: int
    multiply_adds: int
    depth: int


def count_layers(network: Network, params: Params, buffers: Buffers, shape: tuple[int, ...]) -> Layers:
    """Counts the layers of a pass, on the device of the parameters (on ``meta`` nothing is computed)."""
    like = next(iter(params.values()))
    x = torch.zeros(2, *shape, dtype=like.dtype, device=like.device)
    with torch.no_grad(), untransformed(), _Counter() as counter:
        outputs, _ = apply(network, params, buffers, x, "batch")
    return Layers(counter.layers, counter.multiply_adds // 2, counter.depth_of(outputs))


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
    """Counts layers as they are carried out, and how many lie on the longest path up to every tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = self.multiply_adds = 0
        # tensors are held beside their depths, so that their ids stay theirs
        self._depths: dict[int, tuple[Tensor, int]] = {}

    def depth_of(self, x: Tensor) -> int:
        """Layers on the longest path to ``x``."""
        return self._depths[id(x)][1] if id(x) in self._depths else 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Is given every operation."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        depth = max((self.depth_of(x) for x in _tensors((*args, *kwargs.values()))), default=0)
        counted = _COUNTED.get(func.overloadpacket)
        if counted is not None:
            self.layers += 1
            self.multiply_adds += counted(out, args)
            depth += 1
        self._depths |= {id(x): (x, depth) for x in _tensors((out,)) if depth > self.depth_of(x)}
        return out


def _tensors(values: tuple[Any, ...]) -> list[Tensor]:
    flat: list[Any] = []
    for value in values:
        flat += value if isinstance(value, (tuple, list)) else [value]
    return [value for value in flat if isinstance(value, Tensor)]


def parameters(network: Network, params: Params, buffers: Buffers, shape: tuple[int, ...]) -> Score:
    """How many numbers are trained, the last layer's included.

    Args:
        network: not used.
        params: what is counted.
        buffers: not used.
        shape: not used.
    """
    del network, buffers, shape
    return Score(float(count(params)))


def flops(network: Network, params: Params, buffers: Buffers, shape: tuple[int, ...]) -> Score:
    """Floating-point operations of one input's pass: two for every multiply-add of a layer.

    Convolutions and matrix products count; normalisation, ReLU and pooling do not.

    Args:
        network: what is scored.
        params: its parameters.
        buffers: its buffers.
        shape: of one input.
    """
    return Score(2.0 * count_layers(network, params, buffers, shape).multiply_adds)


def layers(network: Network, params: Params, buffers: Buffers, shape: tuple[int, ...]) -> Score:
    """Convolutions and matrix products in one pass, side by side or in a row.

    Args:
        network: what is scored.
        params: its parameters.
        buffers: its buffers.
        shape: of one input.
    """
    return Score(float(count_layers(network, params, buffers, shape).layers))
