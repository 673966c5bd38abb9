"""Wide residual networks (Zagoruyko and Komodakis 2016); WRN-28-10 is few-shot learning's large backbone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

import innerloop.nets.noise as noise
import innerloop.nets.norms as norms
import innerloop.nets.ops.choice as ops
from innerloop.core.arguments import checked
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.initial import he_normal
from innerloop.nets.network import Network, Pass
from innerloop.nets.resnet12 import apply_linear_head, linear_head


class Block(NamedTuple):
    """One residual block: normalise, activate and convolve twice, beside a shortcut."""

    name: str
    inputs: int
    outputs: int
    stride: int


def blocks_of(depth: int, widen: int) -> list[Block]:
    """Three groups of ``(depth − 4) / 6`` blocks with 16, 32 and 64 times ``widen`` channels."""
    if depth < 10 or depth % 6 != 4:
        raise UserError(f"a wide ResNet of depth {depth} does not exist: depths are 10, 16, 22, 28, 34, …")
    blocks: list[Block] = []
    before = 16
    for group in range(3):
        for i in range((depth - 4) // 6):
            stride, after = 2 if group > 0 and i == 0 else 1, 16 * widen * 2**group
            blocks.append(Block(f"group{group}.block{i}", before, after, stride))
            before = after
    return blocks


@checked
def wide_resnet(
    channels: int,
    size: int,
    outputs: int,
    depth: int = 28,
    widen: int = 10,
    norm: str = "transductive",
    drop_rate: float = 0.0,
    seed: int = 0,
    head_scale: float = 1.0,
    head_bias: bool = True,
) -> Network:
    """WRN-depth-widen: pre-activation residual blocks in three groups, and global average pooling.

    Args:
        channels: image channels.
        size: image side, at least 4.
        outputs: output dimension.
        depth: number of convolutions, ``6 n + 4``.
        widen: factor on the 16, 32 and 64 channels of the groups.
        norm: the norm policy.
        drop_rate: share of values dropped between a block's two convolutions when noise is on (0.3 in the
            paper's runs with dropout).
        seed: of the masks.
        head_scale: factor on the last layer's first weights.
        head_bias: whether the last layer has a bias.

    >>> net = wide_resnet(3, 8, 5, depth=10, widen=1)
    >>> params, buffers = net.init(torch.Generator().manual_seed(0))
    >>> net.features(params, buffers, torch.zeros(2, 3, 8, 8), "batch")[0].shape
    torch.Size([2, 64])
    """
    norms.check_policy(norm)
    noise.check_rate(drop_rate)
    blocks = blocks_of(depth, widen)
    if size < 4:
        raise UserError(f"pictures of side {size} vanish in two halvings: use at least 4.")
    keys = {block.name: noise.key(block.name, seed) for block in blocks}

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """First parameters and buffers; the last layer is drawn last."""
        params, buffers = _draw(generator, channels, blocks, norm)
        return {
            **params,
            **linear_head(generator, outputs, blocks[-1].outputs, head_scale, head_bias),
        }, buffers

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """The mean of the last maps, and the buffers after this pass."""
        changed: Buffers = noise.advance(buffers)
        x = ops.conv2d(ops.layout(x), params["conv0.weight"])
        for block in blocks:
            drop = partial(noise.dropout, buffers=buffers, rate=drop_rate, key=keys[block.name])
            x, seen = _block(block, norm, params, buffers, x, statistics, drop)
            changed.update(seen)
        x, seen = _activated("norm", norm, params, buffers, x, statistics)
        return ops.pooled(x), {**buffers, **changed, **seen}

    names = ("head.weight", "head.bias") if head_bias else ("head.weight",)
    return Network(init, features, apply_linear_head, names, norm, noise=drop_rate > 0)


def _activated(
    name: str, norm: str, params: Params, buffers: Buffers, x: Tensor, statistics: Statistics
) -> Pass:
    """Normalised, then ReLU; and what the norm layer saw."""
    y, seen = norms.kernel_norm(name, norm, params, buffers, x, statistics)
    # without normalisation y is x itself, which the shortcut still needs
    return ops.activate(y, 0.0, fresh=y is not x), seen


def _block(
    block: Block,
    norm: str,
    params: Params,
    buffers: Buffers,
    x: Tensor,
    statistics: Statistics,
    drop: Callable[[Tensor], Tensor],
) -> Pass:
    """One residual block, and what its norm layers saw."""
    name = block.name
    y, first = _activated(f"{name}.norm0", norm, params, buffers, x, statistics)
    shortcut = params.get(f"{name}.shortcut.weight")
    x = x if shortcut is None else ops.conv2d(y, shortcut, block.stride)
    y = ops.conv2d(y, params[f"{name}.conv0.weight"], block.stride)
    y, second = _activated(f"{name}.norm1", norm, params, buffers, y, statistics)
    return ops.add(ops.conv2d(drop(y), params[f"{name}.conv1.weight"]), x), {**first, **second}


def _draw(
    generator: torch.Generator, channels: int, blocks: list[Block], norm: str
) -> tuple[Params, Buffers]:
    """Kernels of variance 2 / fan-in, and norm layers."""
    params = {"conv0.weight": he_normal(generator, (16, channels, 3, 3))}
    buffers: Buffers = {}
    layers = [(f"{b.name}.norm0", b.inputs) for b in blocks]
    layers += [(f"{b.name}.norm1", b.outputs) for b in blocks]
    for name, width in [*layers, ("norm", blocks[-1].outputs)]:
        scale, stats = norms.init_norm(name, width, norm, generator.device)
        params, buffers = {**params, **scale}, {**buffers, **stats}
    for b in blocks:
        params[f"{b.name}.conv0.weight"] = he_normal(generator, (b.outputs, b.inputs, 3, 3))
        params[f"{b.name}.conv1.weight"] = he_normal(generator, (b.outputs, b.outputs, 3, 3))
        if b.inputs != b.outputs:
            params[f"{b.name}.shortcut.weight"] = he_normal(generator, (b.outputs, b.inputs, 1, 1))
    return params, buffers
