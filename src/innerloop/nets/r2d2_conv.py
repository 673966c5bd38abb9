"""The network that R2D2 was published with (Bertinetto et al. 2019): 96, 192, 384 and 512 filters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.nets.noise as noise
import innerloop.nets.norms as norms
import innerloop.nets.ops.choice as ops
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.network import Network
from innerloop.nets.resnet12 import SLOPE, apply_linear_head, convolution_and_norm, linear_head

WIDTHS = (96, 192, 384, 512)
LEAST = 16
"""The smallest picture: three halvings leave a map of side 2, which the last pooling makes a single value."""


def r2d2_conv(
    channels: int,
    size: int,
    outputs: int,
    widths: Sequence[int] = WIDTHS,
    norm: str = "transductive",
    drop_rate: float = 0.1,
    seed: int = 0,
) -> Network:
    """Four blocks of 3×3 convolution, normalisation, 2×2 max-pooling and leaky ReLU of slope 0.1.

    The last pooling moves by one pixel and not by two. The features are those of the last two blocks, one
    after the other, the third block's pooled in the same way: 8,064 for pictures of side 32, 72,576 for 84.
    When noise is on (:mod:`innerloop.nets.noise`), dropout follows the last two blocks. All this is as in the
    authors' code, whose convolutions have biases besides; normalisation takes those out again.

    Args:
        channels: image channels.
        size: image side, 16 or more.
        outputs: output dimension of the last layer, which R2D2 itself does not use.
        widths: filters of the four blocks.
        norm: the norm policy.
        drop_rate: share of values dropped when noise is on (0.4 on CIFAR-FS, 0.1 on mini-ImageNet).
        seed: of the masks.

    >>> net = r2d2_conv(3, 32, 5)
    >>> params, buffers = net.init(torch.Generator().manual_seed(0))
    >>> net.features(params, buffers, torch.zeros(2, 3, 32, 32), "batch")[0].shape
    torch.Size([2, 8064])
    """
    norms.check_policy(norm)
    noise.check_rate(drop_rate)
    _check(size, widths)
    keys = [noise.key(f"block{i}", seed) for i in range(len(widths))]
    inputs = (widths[2] + widths[3]) * (size // 8 - 1) ** 2

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """First parameters and buffers, block by block."""
        params: Params = {}
        buffers: Buffers = {}
        for i, (n_in, n_out) in enumerate(itertools.pairwise([channels, *widths])):
            made, statistics = convolution_and_norm(generator, f"block{i}", (n_out, n_in, 3, 3), norm)
            params, buffers = {**params, **made}, {**buffers, **statistics}
        return {**params, **linear_head(generator, outputs, inputs, 1.0, True)}, buffers

    def features(
        params: Params, buffers: Buffers, x: Tensor, statistics: Statistics
    ) -> tuple[Tensor, Buffers]:
        """The maps of the last two blocks, flattened, and the buffers after this pass."""
        changed: Buffers = noise.advance(buffers)
        x, maps = ops.layout(x), []
        for i in range(4):
            x = ops.conv2d(x, params[f"block{i}.weight"])
            x, seen = norms.kernel_norm(f"block{i}.norm", norm, params, buffers, x, statistics)
            changed.update(seen)
            # pooled first, as the authors do: the same values, and a quarter of the work
            x = ops.activate(F.max_pool2d(x, 2, stride=1 if i == 3 else 2), SLOPE)
            if i >= 2:
                x = noise.dropout(x, buffers, drop_rate, keys[i])
                maps.append(x if i == 3 else F.max_pool2d(x, 2, stride=1))
        return torch.cat([ops.flattened(each) for each in maps], 1), {**buffers, **changed}

    return Network(init, features, apply_linear_head, ("head.weight", "head.bias"), norm, noise=drop_rate > 0)


def _check(size: int, widths: Sequence[int]) -> None:
    if len(widths) != 4 or any(not isinstance(width, int) or width < 1 for width in widths):
        raise UserError(
            f"r2d2-conv has four blocks, and widths={list(widths)} does not fit: give four positive whole "
            f"numbers, such as {list(WIDTHS)}."
        )
    if size < LEAST:
        raise UserError(f"pictures of side {size} vanish in r2d2-conv: use at least {LEAST}.")
