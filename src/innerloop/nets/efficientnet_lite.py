"""EfficientNet-Lite (Tan and Le 2019; Liu 2020): inverted bottlenecks with ReLU6, no squeeze-and-excitation.

Padding is that of the TensorFlow code that trained the published weights: a map of side n under stride s
becomes ⌈n / s⌉, and where an odd number of rows is missing, the larger half is put at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial, reduce
from importlib import import_module
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.nets.norms as norms
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.initial import he_normal
from innerloop.nets.network import Network, Pass
from innerloop.nets.resnet12 import apply_linear_head, linear_head

STEM, TOP = 32, 1280  # channels of the first and the last convolution, the same in all versions
EPS = 1e-3  # added to variances, as in the code that trained the weights
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Blocks, kernel, stride of the first block, expansion and channels of every stage, before scaling."""


class Version(NamedTuple):
    """How wide, how deep, and for pictures of which side."""

    width: float
    depth: float
    side: int


VERSIONS = (
    Version(1.0, 1.0, 224),
    Version(1.0, 1.1, 240),
    Version(1.1, 1.2, 260),
    Version(1.2, 1.4, 280),
    Version(1.4, 1.8, 300),
)
NAMES = tuple(f"efficientnet-lite{number}" for number in range(len(VERSIONS)))


class InvertedBottleneck(NamedTuple):
    """An inverted bottleneck: widened by 1×1, convolved channel by channel, narrowed by 1×1."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int
    expansion: int

    @property
    def inner(self) -> int:
        """Channels between."""
        return self.inputs * self.expansion

    @property
    def residual(self) -> bool:
        """Whether its input is added to its output."""
        return self.stride == 1 and self.inputs == self.outputs


class ConvLayer(NamedTuple):
    """One convolution and what comes with it."""

    name: str
    shape: tuple[int, int, int, int]
    stride: int = 1
    groups: int = 1
    active: bool = True


def scaled(channels: int, width: float) -> int:
    """Channels times ``width``, rounded to a multiple of eight, by no more than a tenth downwards."""
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * wanted else rounded


def blocks_of(version: int) -> list[InvertedBottleneck]:
    """All blocks; the first and the last stage are never deepened."""
    width, depth, _ = VERSIONS[version]
    blocks: list[InvertedBottleneck] = []
    before = STEM
    for stage, (repeats, kernel, stride, expansion, channels) in enumerate(STAGES):
        after = scaled(channels, width)
        times = repeats if stage in (0, len(STAGES) - 1) else math.ceil(depth * repeats)
        for i in range(times):
            name = f"block{len(blocks)}"
            blocks.append(InvertedBottleneck(name, before, after, kernel, stride if i == 0 else 1, expansion))
            before = after
    return blocks


def layers_of(block: InvertedBottleneck) -> Iterator[ConvLayer]:
    """The convolutions of a block."""
    name, inner = block.name, block.inner
    if block.expansion != 1:
        yield ConvLayer(f"{name}.expand", (inner, block.inputs, 1, 1))
    yield ConvLayer(f"{name}.depthwise", (inner, 1, block.kernel, block.kernel), block.stride, inner)
    yield ConvLayer(f"{name}.project", (block.outputs, inner, 1, 1), active=False)


def stem_and_top(channels: int, blocks: list[InvertedBottleneck]) -> tuple[ConvLayer, ConvLayer]:
    """The convolutions before and after the blocks."""
    stem = ConvLayer("stem", (STEM, channels, 3, 3), stride=2)
    return stem, ConvLayer("top", (TOP, blocks[-1].outputs, 1, 1))


def efficientnet_lite(
    channels: int, size: int, outputs: int, version: int = 0, norm: str = "transductive"
) -> Network:
    """EfficientNet-Lite0 … Lite4: 4.7, 5.4, 6.1, 8.2 and 13.0 million weights, 1,280 features.

    The published weights want pictures of side 224, 240, 260, 280 and 300, standardised as
    :data:`innerloop.nets.pretrained.PRETRAINED` says, under the norm policy ``running``.

    Args:
        channels: image channels; 3 for the published weights.
        size: image side, 32 or more.
        outputs: output dimension; 1,000 for the published last layer.
        version: 0 to 4.
        norm: the norm policy.

    >>> net = efficientnet_lite(3, 64, 1000, norm="running")
    >>> params, buffers = net.init(torch.Generator().manual_seed(0))
    >>> sum(p.numel() for p in params.values())
    4652008
    >>> net.features(params, buffers, torch.zeros(2, 3, 64, 64), "stored")[0].shape
    torch.Size([2, 1280])
    """
    norms.check_policy(norm)
    if size < 32:
        raise UserError(f"pictures of side {size} vanish in five halvings: use at least 32.")
    blocks = blocks_of(version)
    stem, top = stem_and_top(channels, blocks)
    layers = {block.name: list(layers_of(block)) for block in blocks}

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """First parameters and buffers, layer by layer."""
        params: Params = {}
        buffers: Buffers = {}
        for layer in (stem, *(one for some in layers.values() for one in some), top):
            made, stats = norms.init_norm(f"{layer.name}.norm", layer.shape[0], norm, generator.device)
            params |= {f"{layer.name}.weight": _kernel(generator, layer), **made}
            buffers |= stats
        return {**params, **linear_head(generator, outputs, TOP, 1.0, True)}, buffers

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """The mean of the last maps, and the buffers after this pass."""
        changed: Buffers = {}

        def through(x: Tensor, layer: ConvLayer) -> Tensor:
            """One layer: convolution, normalisation, and ReLU6 where it has one."""
            y = same_conv2d(x, params[f"{layer.name}.weight"], layer.stride, layer.groups)
            y, seen = norms.norm(f"{layer.name}.norm", norm, params, buffers, y, statistics, EPS)
            changed.update(seen)
            return y.clamp(0, 6) if layer.active else y

        x = through(x, stem)
        for block in blocks:
            y = x
            for layer in layers[block.name]:
                y = through(y, layer)
            x = x + y if block.residual else y
        return through(x, top).mean((2, 3)), {**buffers, **changed}

    return Network(init, features, apply_linear_head, ("head.weight", "head.bias"), norm)


def _kernel(generator: torch.Generator, layer: ConvLayer) -> Tensor:
    """Variance two over the outputs that an input reaches, as the authors draw it."""
    return he_normal(generator, layer.shape, gain=2.0 * layer.shape[1] * layer.groups / layer.shape[0])


def same_conv2d(x: Tensor, weight: Tensor, stride: int, groups: int) -> Tensor:
    """Convolution of maps of side n to maps of side ⌈n / stride⌉, padded as TensorFlow does."""
    kernel = weight.shape[-1]
    if stride == 1:
        return F.conv2d(x, weight, padding=kernel // 2, groups=groups)
    pads: list[int] = []
    for side in (x.shape[-1], x.shape[-2]):
        missing = max(0, (-(-side // stride) - 1) * stride + kernel - side)
        pads += [missing // 2, missing - missing // 2]
    return F.conv2d(F.pad(x, pads), weight, stride=stride, groups=groups)


Features = Callable[[Tensor], Tensor]
"""Pictures ``(n, C, H, W)`` as the network was trained on → features ``(n, d)``."""


class FoldedLayer(NamedTuple):
    """A convolution with its norm layer in it."""

    weight: Tensor
    bias: Tensor
    stride: int
    padding: int
    groups: int
    active: bool
    packed: Tensor | None  # the weight as oneDNN lays it out, to compute convolution and ReLU6 in one pass

    def __call__(self, x: Tensor) -> Tensor:
        """The convolution, ReLU6 written over its result."""
        if self.packed is not None and not torch.is_grad_enabled() and not torch.compiler.is_compiling():
            then = ("hardtanh", [0.0, 6.0], "") if self.active else ("none", [], "")
            how = ([self.padding] * 2, [self.stride] * 2, [1, 1], self.groups)
            fused: Tensor = torch.ops.mkldnn._convolution_pointwise(x, self.packed, self.bias, *how, *then)
            return fused
        y = F.conv2d(x, self.weight, self.bias, self.stride, self.padding, 1, self.groups)
        return F.hardtanh_(y, 0.0, 6.0) if self.active else y


def fold(layer: ConvLayer, params: Params, buffers: Buffers, fused: bool = False) -> FoldedLayer:
    """One layer, turned by 180°; computed in float64, kept in the type of its weights."""
    name = layer.name
    weight, scale, shift = (params[f"{name}.{leaf}"] for leaf in ("weight", "norm.weight", "norm.bias"))
    mean, var = buffers[f"{name}.norm.mean"], buffers[f"{name}.norm.var"]
    gain = scale.double() * (var.double() + EPS).rsqrt()
    kernel = (weight.double() * gain[:, None, None, None]).flip((2, 3)).to(weight.dtype)
    bias = (shift.double() - mean.double() * gain).to(weight.dtype)
    kernel, padding, packed = kernel.contiguous(memory_format=torch.channels_last), layer.shape[-1] // 2, None
    if fused:
        how = ([padding] * 2, [layer.stride] * 2, [1, 1], layer.groups)
        packed = torch.ops.mkldnn._reorder_convolution_weight(kernel, *how)
    return FoldedLayer(kernel, bias, layer.stride, padding, layer.groups, layer.active, packed)


def folded_efficientnet_lite(version: int, params: Params, buffers: Buffers) -> Features:
    """The features of an EfficientNet-Lite with these stored statistics."""
    if "stem.norm.mean" not in buffers:
        raise UserError("only stored statistics can be folded: use the norm policy 'running'.")
    blocks = blocks_of(version)
    stem, top = stem_and_top(params["stem.weight"].shape[1], blocks)
    # a fused ReLU6 makes numbers of NaN: weights that are damaged must be seen in the features
    fused = torch.backends.mkldnn.is_available() and all(
        value.device.type == "cpu" and value.dtype == torch.float32 and bool(value.isfinite().all())
        for value in (*params.values(), *buffers.values())
    )
    folded = partial(fold, params=params, buffers=buffers, fused=fused)
    first, last = folded(stem), folded(top)
    inner = [(block.residual, [folded(layer) for layer in layers_of(block)]) for block in blocks]

    def features(x: Tensor) -> Tensor:
        """Features ``(n, 1280)`` of standardised pictures."""
        x = first(x.flip((2, 3)).contiguous(memory_format=torch.channels_last))
        for residual, layers in inner:
            y = x
            for layer in layers:
                y = layer(y)
            x = y.add_(x) if residual else y
        return last(x).mean((2, 3))

    return features


def onnx_efficientnet_lite(version: int, params: Params, buffers: Buffers) -> bytes:
    """The same as a file of ONNX: ``pictures`` (n, C, H, W) of any size → ``features`` (n, 1280)."""
    onnx = import_module("onnx")
    make, single = onnx.helper, onnx.TensorProto.FLOAT
    limits = {"zero": np.float32(0), "six": np.float32(6)}
    nodes, tensors = [], [onnx.numpy_helper.from_array(v, name) for name, v in limits.items()]
    blocks = blocks_of(version)
    stem, top = stem_and_top(params["stem.weight"].shape[1], blocks)

    def through(x: str, layer: ConvLayer) -> str:
        """One layer more; its padding is TensorFlow's, so that nothing need be turned."""
        folded, name = fold(layer, params, buffers), layer.name
        for leaf, value in (("weight", folded.weight.flip((2, 3))), ("bias", folded.bias)):
            tensors.append(onnx.numpy_helper.from_array(value.contiguous().numpy(), f"{name}.{leaf}"))
        inputs, how = [x, f"{name}.weight", f"{name}.bias"], {"strides": [layer.stride] * 2}
        nodes.append(make.make_node("Conv", inputs, [name], auto_pad="SAME_UPPER", group=layer.groups, **how))
        if not layer.active:
            return name
        nodes.append(make.make_node("Clip", [name, *limits], [f"{name}.relu6"]))
        return f"{name}.relu6"

    x = through("pictures", stem)
    for block in blocks:
        y = reduce(through, layers_of(block), x)
        if block.residual:
            nodes.append(make.make_node("Add", [x, y], [block.name]))
        x = block.name if block.residual else y
    nodes.append(make.make_node("GlobalAveragePool", [through(x, top)], ["means"]))
    nodes.append(make.make_node("Flatten", ["means"], ["features"]))
    shapes = {"pictures": ["n", stem.shape[1], "height", "width"], "features": ["n", TOP]}
    ends = [[make.make_tensor_value_info(name, single, shape)] for name, shape in shapes.items()]
    graph = make.make_graph(nodes, f"efficientnet-lite{version}", *ends, tensors)
    opsets = [make.make_opsetid("", 17)]  # of 2022, like the version of the format: whoever is here reads it
    written: bytes = make.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return written
