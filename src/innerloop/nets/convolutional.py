"""Convolutional backbones: Conv4, its variants, and R2D2's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.nets.noise as noise
import innerloop.nets.norms as norms
import innerloop.nets.ops.choice as ops
import innerloop.nets.ops.descent as native
import innerloop.nets.ops.engine as engine
from innerloop.core.arguments import checked
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.initial import he_normal
from innerloop.nets.network import Descent, Network, Pass
from innerloop.nets.resnet12 import SLOPE, apply_linear_head, convolutions_and_norms, linear_head

POOLINGS = ("max", "average", "stride")


def last_side(size: int, depth: int, pooling: str) -> int:
    """Side of the last feature map: pooling rounds down, strides round up."""
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
        pairs = itertools.pairwise([pictures] + [width] * depth)
        shapes = {f"block{i}": (n_out, n_in, kernel, kernel) for i, (n_in, n_out) in enumerate(pairs)}
        params, buffers = convolutions_and_norms(generator, shapes, norm)
        return {**params, **linear_head(generator, outputs, width * side * side, 1.0, True)}, buffers

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
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


BLOCKS = 4


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
    side = last_side(size, BLOCKS, pooling)
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
            scale, stats = norms.init_norm(f"norm{i}", filters, norm, generator.device)
            params, buffers = {**params, **scale}, {**buffers, **stats}
        params["head.weight"] = he_normal(generator, (outputs, filters * side * side), gain=1.0)
        params["head.bias"] = torch.zeros(outputs, device=generator.device)
        return params, buffers

    def layers(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """The features block by block."""
        changed: Buffers = {}
        for i in range(BLOCKS):
            x, seen = norms.conv_norm_relu(i, norm, params, buffers, x, statistics, stride)
            changed |= seen
            if pooling == "max":
                x = F.max_pool2d(x, 2)
        return x.flatten(1), {**buffers, **changed}

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """The last maps, flattened, and the buffers after this pass."""
        if not ops.native_suits(x, params["conv0.weight"]):
            return layers(params, buffers, x, statistics)
        blocks, kept = _native_blocks(params, x, statistics, norm, pooling)

        def slow(x: Tensor, *tensors: Tensor | None) -> tuple[Tensor, ...]:
            """The same by torch's layers, with the means and variances of the policy ``support``."""
            given = {n: t for n, t in zip([*kept, *BLOCK_NAMES], tensors, strict=True) if t is not None}
            out, after = layers(given, {**buffers, **given}, x, statistics)
            return out, *(after[name] for name in STATISTICS if norm == "support")

        given, weights = [buffers[name] for name in kept], [params.get(name) for name in BLOCK_NAMES]
        out, seen = engine.features(blocks, slow, x, given, weights)
        changed: Buffers = {}
        for i, (mean, var) in enumerate(zip(seen[::2], seen[1::2], strict=True)):
            count = len(x) * blocks.pixels(i + 1)[0]
            changed |= norms.after_batch(f"norm{i}", norm, buffers, mean, var, count)
        return out, {**buffers, **changed}

    def descend(
        params: Params, buffers: Buffers, x: Tensor, y: Tensor, statistics: Statistics, descent: Descent
    ) -> Params | None:
        """Inner steps in native code."""
        if not ops.native_suits(x, params["conv0.weight"]):
            return None
        weight, bias = (params.get(name) for name in HEAD_NAMES)
        blocks, kept = _native_blocks(params, x, statistics, norm, pooling)
        if not native.suits(descent, weight, bias, blocks.outputs, x, y):
            return None
        given = [buffers[name] for name in kept]
        return native.descend(blocks, descent, x, y, given, params, [*BLOCK_NAMES, *HEAD_NAMES])

    layered = norm in ("group", "none")
    return Network(init, features, apply_linear_head, HEAD_NAMES, norm, layered, descend=descend)


HEAD_NAMES = ("head.weight", "head.bias")
BLOCK_NAMES = [
    f"{layer}{i}.{n}" for i in range(BLOCKS) for layer in ("conv", "norm") for n in ("weight", "bias")
]
STATISTICS = [f"norm{i}.{name}" for i in range(BLOCKS) for name in ("mean", "var")]


def _native_blocks(
    params: Params, x: Tensor, statistics: Statistics, norm: str, pooling: str
) -> tuple[engine.Blocks, list[str]]:
    """Conv4 as native code takes it, and the buffers that it normalises by."""
    stored = statistics == "stored" and norm in ("support", "running")
    source = norm if norm in ("none", "group") else "given" if stored else "batch"
    filters = params["conv0.weight"].shape[0]
    stride, groups = 2 if pooling == "stride" else 1, norms.groups_for(filters)
    _, channels, height, width = x.shape
    shape = (BLOCKS, channels, height, width, filters, 3, stride)
    blocks = engine.Blocks(*shape, pooling == "max", source, groups, norms.EPS)
    return blocks, STATISTICS if stored else []


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
    _check_r2d2(size, widths)
    keys = [noise.key(f"block{i}", seed) for i in range(len(widths))]
    inputs = (widths[2] + widths[3]) * (size // 8 - 1) ** 2

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """First parameters and buffers, block by block."""
        pairs = itertools.pairwise([channels, *widths])
        shapes = {f"block{i}": (n_out, n_in, 3, 3) for i, (n_in, n_out) in enumerate(pairs)}
        params, buffers = convolutions_and_norms(generator, shapes, norm)
        return {**params, **linear_head(generator, outputs, inputs, 1.0, True)}, buffers

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
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


def _check_r2d2(size: int, widths: Sequence[int]) -> None:
    if len(widths) != 4 or any(not isinstance(width, int) or width < 1 for width in widths):
        raise UserError(
            f"r2d2-conv has four blocks, and widths={list(widths)} does not fit: give four positive whole "
            f"numbers, such as {list(WIDTHS)}."
        )
    if size < LEAST:
        raise UserError(f"pictures of side {size} vanish in r2d2-conv: use at least {LEAST}.")
