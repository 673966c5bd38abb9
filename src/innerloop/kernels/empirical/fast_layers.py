"""Convolutions and poolings on a CPU that are faster than torch's, with the same values and derivatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.kernels.empirical.factors import ConvolutionCall, onednn_pays, times_transposed


class _Linear(torch.autograd.Function):
    """A linear layer as a product of oneDNN; derivatives by its input only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``x Wᵀ + b``."""
        ctx.save_for_backward(weight)
        return times_transposed(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        """The derivative by the input."""
        return times_transposed(g, ctx.saved_tensors[0].mT), None, None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The layer of ``x``, through which derivatives by ``x`` flow, and by nothing else."""
    by_onednn = x.ndim == 2 and onednn_pays(x, weight)
    return _Linear.apply(x, weight, bias) if by_onednn else F.linear(x, weight, bias)


class _Depthwise(torch.autograd.Function):
    """Stride one, as many groups as channels: the derivative is taken with the mirrored kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, padding: Any, dilation: Any) -> Tensor:
        """A depthwise convolution of stride 1."""
        ctx.save_for_backward(weight)
        ctx.padding, ctx.dilation = padding, dilation
        return F.conv2d(x, weight, None, 1, padding, dilation, x.shape[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        """The derivative by the input: the same convolution with mirrored kernels."""
        (weight,) = ctx.saved_tensors
        reach = zip(weight.shape[2:], ctx.dilation, ctx.padding, strict=True)
        padding = [d * (k - 1) - p for k, d, p in reach]
        mirrored = weight.flip(2, 3)
        return F.conv2d(g, mirrored, None, 1, padding, ctx.dilation, g.shape[1]), None, None, None


def thinned(x: Tensor, call: ConvolutionCall) -> tuple[Tensor, ConvolutionCall]:
    """The same convolution of fewer places, where only every second one is read (or third, …)."""
    step, kernel = call.stride, call.shape[2:]
    axes = zip(kernel, step, call.dilation, call.padding, strict=True)
    skips = all((k == 1 and p == 0) or (s == d and p % s == 0) for k, s, d, p in axes)
    if not skips or all(s == 1 for s in step):
        return x, call
    ones = (1,) * len(step)
    padding = tuple(p // s for p, s in zip(call.padding, step, strict=True))
    every = [slice(None), slice(None), *(slice(None, None, s) for s in step)]
    return x[tuple(every)], call._replace(stride=ones, padding=padding, dilation=ones)


def is_pointwise(call: ConvolutionCall) -> bool:
    """Whether it is one matrix for all places."""
    flat = all(k == 1 for k in call.shape[2:]) and all(s == 1 for s in call.stride)
    return flat and call.groups == 1 and not any(call.padding)


def _is_mirrored(x: Tensor, call: ConvolutionCall) -> bool:
    """Whether :class:`_Depthwise` is for this convolution."""
    depthwise = x.ndim == 4 and call.groups == x.shape[1] == call.shape[0]
    reach = zip(call.shape[2:], call.dilation, call.padding, strict=True)
    return depthwise and set(call.stride) == {1} and all(d * (k - 1) >= p for k, d, p in reach)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, call: ConvolutionCall) -> Tensor:
    """The convolution of ``x``, through which derivatives by ``x`` flow, and by nothing else."""
    if x.device.type == "cpu" and is_pointwise(call) and x.ndim == 4:
        matrix = weight.reshape(1, *call.shape[:2]).expand(len(x), -1, -1)
        y = torch.bmm(matrix, x.flatten(2)).view(len(x), call.shape[0], *x.shape[2:])
    elif x.device.type == "cpu" and _is_mirrored(x, call):
        y = _Depthwise.apply(x, weight, call.padding, call.dilation)
    else:
        run = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[x.ndim]
        return run(x, weight, bias, call.stride, call.padding, call.dilation, call.groups)
    return y if bias is None else y + bias.view(1, -1, 1, 1)


class _MaxPool(torch.autograd.Function):
    """Remembers of every window only which of the four values it took, in a byte."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The largest of every 2×2 window; which one it was is kept in a byte."""
        # columns first, and only what is larger wins: of equal values the first counts, as in torch
        left, right = x[..., ::2], x[..., 1::2]
        pairs, is_right = torch.maximum(left, right), right > left
        above, below = pairs[..., ::2, :], pairs[..., 1::2, :]
        is_below, up, down = below > above, is_right[..., ::2, :], is_right[..., 1::2, :]
        # a choice between two truths, which torch.where makes nine times as slowly
        column = up ^ (is_below & (up ^ down))
        ctx.save_for_backward(column.view(torch.uint8) + 2 * is_below.view(torch.uint8))
        return torch.maximum(above, below)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        """Gives every derivative to the place that was the largest."""
        (taken,) = ctx.saved_tensors
        high, wide = g.shape[-2:]
        row, column = (torch.arange(0, 2 * side, 2, device=g.device) for side in (high, wide))
        within = taken.short()
        place = (within & 1) + (within & 2) * wide + (row[:, None] * (2 * wide) + column)
        out = g.new_zeros(*g.shape[:-2], 4 * high * wide)
        return out.scatter_(-1, place.flatten(-2), g.flatten(-2)).view(*g.shape[:-2], 2 * high, 2 * wide)


def is_two_by_two(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether ``F.max_pool2d`` is called for what :func:`max_pool2d` can do."""
    given = {**dict(zip(NAMES, args, strict=False)), **kwargs}
    x = given["input"]
    simple = all(given.get(name) in allowed for name, allowed in _SIMPLE.items())
    small = x.ndim == 4 and x.shape[-1] < 2**15  # places are counted in 16 bits
    return simple and given["kernel_size"] in (2, (2, 2)) and small and x.device.type == "cpu"


def max_pool2d(x: Tensor) -> Tensor:
    """The largest of every 2×2 window; an odd row or column at the end is left out."""
    high, wide = (side - side % 2 for side in x.shape[2:])
    return _MaxPool.apply(x[:, :, :high, :wide])


NAMES = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_SIMPLE: dict[str, tuple[Any, ...]] = {
    "stride": (None, 2, (2, 2)),
    "padding": (None, 0, (0, 0)),
    "dilation": (None, 1, (1, 1)),
    "ceil_mode": (None, False),
    "return_indices": (None, False),
}


AVERAGE_NAMES = (
    *("input", "kernel_size", "stride", "padding", "ceil_mode"),
    *("count_include_pad", "divisor_override"),
)


class Windows(NamedTuple):
    """Square windows, the same both ways."""

    side: int
    stride: int
    padding: int


def windows_of(x: Tensor, given: dict[str, Any]) -> Windows | None:
    """The windows that are asked for; None if they are not square, or it is not a CPU that is asked."""
    numbers = []
    for name, default in (("kernel_size", None), ("stride", given.get("kernel_size")), ("padding", 0)):
        value = given.get(name)
        value = default if value is None or value == [] else value
        if isinstance(value, (tuple, list)):
            value = value[0] if len(set(value)) == 1 else None
        if not isinstance(value, int):
            return None
        numbers.append(value)
    plain = given.get("dilation", 1) in (1, (1, 1)) and not given.get("ceil_mode")
    if not plain or given.get("return_indices") or x.ndim != 4 or x.device.type != "cpu":
        return None
    return Windows(*numbers)


def averaged_windows(x: Tensor, given: dict[str, Any]) -> Windows | None:
    """Likewise for averages, which are to leave the padding out."""
    windows = windows_of(x, given)
    padded = windows is not None and windows.padding > 0 and given.get("count_include_pad", True)
    return None if padded or given.get("divisor_override") is not None else windows


class _MaxWindows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, windows: Windows) -> Tensor:
        """The largest of every window, computed channels last, where torch is faster."""
        ctx.windows, ctx.shape = windows, x.shape
        last = x.contiguous(memory_format=torch.channels_last)
        values, places = torch.ops.aten.max_pool2d_with_indices(last, *_pairs(windows))
        ctx.save_for_backward(places.contiguous())
        return values.contiguous()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        """Gives every derivative to the place that was the largest."""
        (places,) = ctx.saved_tensors
        like = g.new_empty(ctx.shape)  # only its shape is read
        back = torch.ops.aten.max_pool2d_with_indices_backward
        pairs = _pairs(ctx.windows)
        return back(g.contiguous(), like, *pairs, [1, 1], False, places), None


def _pairs(windows: Windows) -> tuple[list[int], list[int], list[int]]:
    return [windows.side] * 2, [windows.stride] * 2, [windows.padding] * 2


def max_windows(x: Tensor, windows: Windows) -> Tensor:
    """The largest value of every window."""
    return _MaxWindows.apply(x, windows)


class _MeanWindows(torch.autograd.Function):
    """Sums by a depthwise convolution with ones, over the number of places in each window."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, windows: Windows) -> Tensor:
        """The mean of every window, over the pixels that are inside the picture."""
        ctx.windows, ctx.shape = windows, x.shape
        return _window_sums(x, windows).mul_(_per_place(x.shape, windows, x))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        """Spreads every derivative over its window."""
        w, shape = ctx.windows, ctx.shape
        g = g * _per_place(shape, w, g)
        if w.stride == 1 and w.side == 2 * w.padding + 1:
            return _window_sums(g, w), None
        like = g.new_empty(shape)  # only its shape is read
        ones, pairs = g.new_ones(shape[1], 1, w.side, w.side), _pairs(w)
        back = torch.ops.aten.convolution_backward
        wanted = [True, False, False]
        gradients = back(g, like, ones, None, *pairs[1:], [1, 1], False, [0, 0], shape[1], wanted)
        return gradients[0], None


def _window_sums(x: Tensor, w: Windows) -> Tensor:
    channels = x.shape[1]
    return F.conv2d(x, x.new_ones(channels, 1, w.side, w.side), None, w.stride, w.padding, 1, channels)


def _per_place(shape: torch.Size, w: Windows, like: Tensor) -> Tensor:
    """One over the number of places of every window."""
    return _window_sums(like.new_ones(1, 1, *shape[2:]), w).reciprocal_()


def mean_windows(x: Tensor, windows: Windows) -> Tensor:
    """The average of every window, without the padding."""
    return _MeanWindows.apply(x, windows)
