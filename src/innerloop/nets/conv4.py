"""Conv4, the field's small backbone (Vinyals et al. 2016, Finn et al. 2017)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.nets.norms as norms
from innerloop.core.arguments import checked
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.initial import he_normal
from innerloop.nets.network import Network

BLOCKS = 4


def feature_side(size: int, pooling: str) -> int:
    """Side of the last feature map: pooling rounds down, strides round up.

    >>> feature_side(28, "max"), feature_side(28, "stride"), feature_side(84, "max")
    (1, 2, 5)
    """
    for _ in range(BLOCKS):
        size = size // 2 if pooling == "max" else (size + 1) // 2
    return size


@checked
def conv4(
    channels: int,
    size: int,
    outputs: int,
    filters: int = 64,
    pooling: str = "max",
    norm: str = "transductive",
    bias: bool = True,
) -> Network:
    """Conv4: four times (3×3 convolution, normalisation, ReLU, halving), flattened, and a linear readout.

    Args:
        channels: image channels (1 or 3).
        size: image side; 28, 32 and 84 are usual, anything from 16 up works.
        outputs: output dimension, ways for classification.
        filters: channels of every block (32 or 64 are usual).
        pooling: ``max`` halves by 2×2 max-pooling, ``stride`` by strided convolution (Omniglot in MAML).
        norm: the norm policy.
        bias: whether convolutions have biases (they are without effect under batch normalisation).

    >>> net = conv4(1, 28, 5, filters=8, pooling="stride")
    >>> params, buffers = net.init(torch.Generator().manual_seed(0))
    >>> net.features(params, buffers, torch.zeros(2, 1, 28, 28), "batch")[0].shape
    torch.Size([2, 32])
    """
    norms.check_policy(norm)
    if pooling not in ("max", "stride"):
        raise UserError(f"unknown pooling '{pooling}'; there are max and stride.")
    side = feature_side(size, pooling)
    if side < 1:
        raise UserError(f"images of side {size} vanish in four halvings: use at least 16.")
    stride = 2 if pooling == "stride" else 1

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """First parameters and buffers, block by block."""
        params: Params = {}
        buffers: Buffers = {}
        for i in range(BLOCKS):
            n_in = channels if i == 0 else filters
            params[f"conv{i}.weight"] = he_normal(generator, (filters, n_in, 3, 3))
            if bias:
                params[f"conv{i}.bias"] = torch.zeros(filters, device=generator.device)
            scale, stats = norms.init_norm(f"norm{i}", filters, norm)
            params |= {k: v.to(generator.device) for k, v in scale.items()}
            buffers |= {k: v.to(generator.device) for k, v in stats.items()}
        params["head.weight"] = he_normal(generator, (outputs, filters * side * side), gain=1.0)
        params["head.bias"] = torch.zeros(outputs, device=generator.device)
        return params, buffers

    def features(
        params: Params, buffers: Buffers, x: Tensor, statistics: Statistics
    ) -> tuple[Tensor, Buffers]:
        """The last maps, flattened, and the buffers after this pass."""
        changed: Buffers = {}
        for i in range(BLOCKS):
            x, seen = norms.conv_norm_relu(i, norm, params, buffers, x, statistics, stride)
            changed |= seen
            if pooling == "max":
                x = F.max_pool2d(x, 2)
        return x.flatten(1), {**buffers, **changed}

    def head(params: Params, features: Tensor) -> Tensor:
        """Outputs from features."""
        return F.linear(features, params["head.weight"], params["head.bias"])

    return Network(init, features, head, ("head.weight", "head.bias"), norm)
