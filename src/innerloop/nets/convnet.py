"""Plain convolutional networks of any depth, width, kernel and halving: Conv4 and its variants."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.nets.norms as norms
import innerloop.nets.ops.choice as ops
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.network import Network
from innerloop.nets.resnet12 import apply_linear_head, convolution_and_norm, linear_head

POOLINGS = ("max", "average", "stride")


def last_side(size: int, depth: int, pooling: str) -> int:
    """Side of the last feature map: pooling rounds down, strides round up.

    >>> last_side(28, 4, "max"), last_side(28, 4, "stride"), last_side(28, 5, "average")
    (1, 2, 0)
    """
    for _ in range(depth):
        size = (size + 1) // 2 if pooling == "stride" else size // 2
    return size


def convnet(
    pictures: int,
    size: int,
    outputs: int,
    /,
    depth: int = 4,
    width: int = 64,
    kernel: int = 3,
    pooling: str = "max",
    norm: str = "transductive",
) -> Network:
    """So many times (convolution, normalisation, ReLU, halving), flattened, and a linear readout.

    Args:
        pictures: channels of the pictures.
        size: their side.
        outputs: output dimension.
        depth: number of blocks.
        width: channels of every block.
        kernel: side of the convolutions' kernels, odd.
        pooling: halve by ``max`` or ``average`` pooling of 2×2, or by ``stride``.
        norm: the norm policy.

    >>> net = convnet(1, 28, 5, depth=3, width=8, kernel=5, pooling="average")
    >>> params, buffers = net.init(torch.Generator().manual_seed(0))
    >>> net.features(params, buffers, torch.zeros(2, 1, 28, 28), "batch")[0].shape
    torch.Size([2, 72])
    """
    norms.check_policy(norm)
    _check(size, depth, width, kernel, pooling)
    side = last_side(size, depth, pooling)

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """First parameters and buffers, block by block."""
        params: Params = {}
        buffers: Buffers = {}
        for i, (n_in, n_out) in enumerate(itertools.pairwise([pictures] + [width] * depth)):
            shape = (n_out, n_in, kernel, kernel)
            made, statistics = convolution_and_norm(generator, f"block{i}", shape, norm)
            params, buffers = {**params, **made}, {**buffers, **statistics}
        return {**params, **linear_head(generator, outputs, width * side * side, 1.0, True)}, buffers

    def features(
        params: Params, buffers: Buffers, x: Tensor, statistics: Statistics
    ) -> tuple[Tensor, Buffers]:
        """The last maps, flattened, and the buffers after this pass."""
        changed: Buffers = {}
        x = ops.layout(x)
        for i in range(depth):
            x = ops.conv2d(x, params[f"block{i}.weight"], 2 if pooling == "stride" else 1)
            x, seen = norms.kernel_norm(f"block{i}.norm", norm, params, buffers, x, statistics)
            changed.update(seen)
            x = ops.activate(x, 0.0)
            if pooling != "stride":
                x = F.max_pool2d(x, 2) if pooling == "max" else F.avg_pool2d(x, 2)
        return x.flatten(1), {**buffers, **changed}

    return Network(init, features, apply_linear_head, ("head.weight", "head.bias"), norm)


def _check(size: int, depth: int, width: int, kernel: int, pooling: str) -> None:
    for name, value in (("depth", depth), ("width", width), ("kernel", kernel)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"a convnet cannot have {name}={value}: give a whole number from 1 up.")
    if kernel % 2 == 0:
        raise UserError(f"kernels of side {kernel} would shift the picture: give an odd kernel.")
    if pooling not in POOLINGS:
        hint = did_you_mean(str(pooling), POOLINGS)
        raise UserError(f"unknown pooling '{pooling}'{hint}; there are {', '.join(POOLINGS)}.")
    if last_side(size, depth, pooling) < 1:
        raise UserError(
            f"pictures of side {size} vanish in {depth} halvings: use at least {2**depth}, or less depth."
        )
