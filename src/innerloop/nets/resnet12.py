"""ResNet-12, the field's usual backbone (Lee et al. 2019, MetaOptNet; Tian et al. 2020, RFS)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.nets.noise as noise
import innerloop.nets.norms as norms
import innerloop.nets.ops.choice as ops
from innerloop.core.arguments import checked
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.initial import he_normal, uniform
from innerloop.nets.network import Network, Pass

WIDTHS = (64, 160, 320, 640)
THIN = (32, 64, 128, 256)
SLOPE = 0.1


def convolutions_and_norms(
    generator: torch.Generator, shapes: Mapping[str, tuple[int, ...]], norm: str
) -> tuple[Params, Buffers]:
    """Kernels of variance ``2 / fan_out`` (so that gradients keep their scale), each with its norm layer."""
    params: Params = {}
    buffers: Buffers = {}
    for name, shape in shapes.items():
        params[f"{name}.weight"] = he_normal(generator, shape, gain=2.0 * shape[1] / shape[0])
        scale, stats = norms.init_norm(f"{name}.norm", shape[0], norm, generator.device)
        params, buffers = {**params, **scale}, {**buffers, **stats}
    return params, buffers


def linear_head(generator: torch.Generator, outputs: int, inputs: int, scale: float, bias: bool) -> Params:
    """Kaiming-uniform with a = √5, as ``nn.Linear`` starts: U(±1/√inputs), times ``scale``."""
    params = {"head.weight": uniform(generator, (outputs, inputs), inputs) * scale}
    return {**params, "head.bias": uniform(generator, (outputs,), inputs)} if bias else params


@checked
def resnet12(
    channels: int,
    size: int,
    outputs: int,
    widths: Sequence[int] = WIDTHS,
    norm: str = "transductive",
    drop_rate: float = 0.1,
    dropblock: int | None = None,
    seed: int = 0,
    head_scale: float = 1.0,
    head_bias: bool = True,
    avg_pool: bool = True,
    ramp: int = noise.RAMP,
) -> Network:
    """ResNet-12: four residual blocks, each followed by 2×2 max-pooling, and global average pooling.

    A block is three 3×3 convolutions beside a 1×1 shortcut, all without bias and normalised, with leaky ReLU
    of slope 0.1. When noise is on (:mod:`innerloop.nets.noise`), blocks are followed by dropout, the last
    two by DropBlock instead.

    Args:
        channels: image channels.
        size: image side; 32 and 84 are usual, anything from 16 up works.
        outputs: output dimension.
        widths: channels of the blocks; ``(64, 160, 320, 640)`` has 12.4 million weights,
            ``(64, 128, 256, 512)`` 8.0 million, ``(32, 64, 128, 256)`` two million, for training on a CPU.
        norm: the norm policy.
        drop_rate: share of values dropped when noise is on.
        dropblock: side of DropBlock's blocks; 5 for pictures of side 64 and more and 2 below if omitted.
        seed: of the masks.
        head_scale: factor on the last layer's first weights (Bridge: √(classes / ways)).
        head_bias: whether the last layer has a bias.
        avg_pool: whether features are averaged over the last map; MetaOptNet leaves them all, 16,000 for
            pictures of side 84.
        ramp: passes over which DropBlock's rate rises from zero. Tasks of a meta-batch pass together here;
            where the original counts every task, give its number divided by the tasks of a step.

    >>> net = resnet12(3, 32, 64)
    >>> params, _ = net.init(torch.Generator().manual_seed(0))
    >>> sum(p.numel() for name, p in params.items() if name not in net.head_names)
    12424320
    """
    norms.check_policy(norm)
    noise.check_rate(drop_rate)
    noise.check_ramp(ramp)
    if size < 2 ** len(widths):
        raise UserError(
            f"pictures of side {size} vanish in {len(widths)} halvings: use at least {2 ** len(widths)}."
        )
    side = dropblock if dropblock is not None else (5 if size >= 64 else 2)
    inputs = widths[-1] if avg_pool else widths[-1] * (size // 2 ** len(widths)) ** 2
    keys = [noise.key(f"block{i}", seed) for i in range(len(widths))]

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """First parameters and buffers; the last layer is drawn last."""
        shapes = {
            f"block{i}.{name}": (n_out, n_out if name in ("conv1", "conv2") else n_in, side, side)
            for i, (n_in, n_out) in enumerate(itertools.pairwise([channels, *widths]))
            for name, side in (("conv0", 3), ("conv1", 3), ("conv2", 3), ("shortcut", 1))
        }
        params, buffers = convolutions_and_norms(generator, shapes, norm)
        return {**params, **linear_head(generator, outputs, inputs, head_scale, head_bias)}, buffers

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """The last maps, averaged or flattened, and the buffers after this pass."""
        changed: Buffers = noise.advance(buffers)
        x = ops.layout(x)
        for i in range(len(widths)):
            x, seen = _block(f"block{i}", norm, params, buffers, x, statistics)
            changed.update(seen)
            if i < len(widths) - 2:
                x = noise.dropout(x, buffers, drop_rate, keys[i])
            else:
                x = noise.dropblock(x, buffers, drop_rate, side, keys[i], ramp)
        return ops.pooled(x) if avg_pool else ops.flattened(x), {**buffers, **changed}

    names = ("head.weight", "head.bias") if head_bias else ("head.weight",)
    return Network(init, features, apply_linear_head, names, norm, noise=drop_rate > 0)


def apply_linear_head(params: Params, features: Tensor) -> Tensor:
    """What :func:`linear_head` drew, applied."""
    return F.linear(features, params["head.weight"], params.get("head.bias"))


def _block(name: str, norm: str, params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
    """One residual block with its pooling, and what its norm layers saw."""
    changed: Buffers = {}

    def layer(x: Tensor, which: str) -> Tensor:
        """Convolution and normalisation."""
        y = ops.conv2d(x, params[f"{name}.{which}.weight"])
        y, seen = norms.kernel_norm(f"{name}.{which}.norm", norm, params, buffers, y, statistics)
        changed.update(seen)
        return y

    y = ops.activate(layer(x, "conv0"), SLOPE)
    y = ops.activate(layer(y, "conv1"), SLOPE)
    y = ops.add(layer(y, "conv2"), layer(x, "shortcut"))
    return F.max_pool2d(ops.activate(y, SLOPE), 2), changed
