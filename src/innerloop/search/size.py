"""How large a network is, without running it: what every search must control for."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from innerloop.core.trees import count
from innerloop.nets.network import Network

_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
_PRODUCTS = (torch.matmul, torch.mm, Tensor.matmul, Tensor.__matmul__, Tensor.mm)


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

    >>> from innerloop.nets.mlp import mlp
    >>> count_parameters(mlp(2, [3], 1))
    13
    """
    return count(network.init(torch.Generator().manual_seed(0))[0])


def network_size(network: Network, shape: tuple[int, ...]) -> Size:
    """The size of a network on one sample of this shape; nothing is computed, shapes are followed.

    >>> from innerloop.nets.mlp import mlp
    >>> network_size(mlp(2, [3], 1), (2,))
    Size(parameters=13, body=9, multiply_adds=9, layers=2, depth=2)
    """
    params, buffers = network.init(torch.Generator().manual_seed(0))
    total = count(params)
    head = sum(params[name].numel() for name in network.head_names)
    params = {name: value.to("meta") for name, value in params.items()}
    buffers = {name: value.to("meta") for name, value in buffers.items()}
    counter = _Counter()
    # two samples, because batch statistics of a single value are not defined
    x = torch.empty((2, *shape), device="meta")
    with torch.no_grad(), counter:
        features, _ = network.features(params, buffers, x, "batch")
        outputs = network.head(params, features)
    return Size(total, total - head, counter.multiply_adds // 2, counter.layers, counter.depth_of(outputs))


class _Counter(TorchFunctionMode):
    """Counts layers as they are called, and how many lie on the longest path up to every tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.multiply_adds = 0
        self.layers = 0
        # tensors are held beside their depths, so that their ids stay theirs
        self._depths: dict[int, tuple[Tensor, int]] = {}

    def depth_of(self, x: Tensor) -> int:
        """Layers on the longest path to ``x``."""
        return self._depths[id(x)][1] if id(x) in self._depths else 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every call of a torch function comes by here."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        depth = max((self.depth_of(x) for x in _tensors((*args, *kwargs.values()))), default=0)
        made = _tensors((out,))
        weights = _weights(func, args, kwargs)
        if weights and made:
            self.multiply_adds += made[0].numel() * weights
            self.layers += 1
            depth += 1
        self._depths |= {id(x): (x, depth) for x in made if depth > self.depth_of(x)}
        return out


def _weights(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Products that make one output of a layer; 0 for any other function."""
    weight = kwargs.get("weight", args[1] if len(args) > 1 else None)
    if not isinstance(weight, Tensor):
        return 0
    if func in _CONVOLUTIONS:
        return weight[0].numel()
    if func is F.linear:
        return weight.shape[-1]
    return weight.shape[0] if func in _PRODUCTS and weight.ndim == 2 else 0


def _tensors(values: tuple[Any, ...]) -> list[Tensor]:
    flat: list[Any] = []
    for value in values:
        flat += value if isinstance(value, (tuple, list)) else [value]
    return [value for value in flat if isinstance(value, Tensor)]
