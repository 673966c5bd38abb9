"""Where data and parameters meet: linear layers, convolutions, normalisation, sums and products.

Each handler does what the function would have done, and sees to it that the backward pass emits the layer's
factor. None says that this call is not understood; its parameters are then left to Jacobians. Functions
without parameters are computed faster: what several edges of a supernet compute of one tensor, once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.kernels.empirical.fast_layers as fast_layers
from innerloop.kernels.empirical.factors import ConvolutionCall
from innerloop.kernels.empirical.recorder import MUL, Handler, LayerRecorder, Tag

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def bound(names: tuple[str, ...], args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """The arguments of a call by name."""
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _plain(tag: Tag | None) -> bool:
    """No parameter at all, or a plain multiple of one."""
    return tag is None or not isinstance(tag.scale, Tensor)


def _holding(x: Tensor) -> list[Tensor]:
    """A place that can be emptied: hooks live as long as the graph, and inputs are large."""
    return [x]


def _linear(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor | None:  # noqa: ARG001
    """``F.linear``."""
    given = bound(("input", "weight", "bias"), args, kwargs)
    call = given["input"], given["weight"], given.get("bias")
    return _affine(r, fast_layers.linear, call, {}, *call)


def _matmul(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor | None:
    """``x @ w``: a linear layer whose weight lies the other way round."""
    if len(args) != 2 or kwargs or not r.is_data(args[0]) or args[1].ndim != 2:
        return None
    return _affine(r, func, args, kwargs, args[0], args[1], None)


def _affine(
    r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs, x: Any, weight: Any, bias: Any
) -> Tensor | None:
    w, b = r.tag(weight), r.tag(bias)
    if not r.is_data(x) or r.is_data(weight) or r.is_data(bias) or not (_plain(w) and _plain(b)):
        return None
    if x.ndim < 2 or x.shape[0] != r.samples:
        return None
    number, held = r.use(w, b), _holding(x)
    return r.watch(func(*args, **kwargs), lambda g: r.emit_layer(number, w, b, None, r.take(held), g))


def _convolution(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor | None:  # noqa: ARG001
    """``F.conv1d``, ``F.conv2d`` and ``F.conv3d``, with any stride, padding, dilation and groups."""
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    given = bound(names, args, kwargs)
    x, weight, bias = given["input"], given["weight"], given.get("bias")
    w, b = r.tag(weight), r.tag(bias)
    if not r.is_data(x) or r.is_data(weight) or r.is_data(bias) or not (_plain(w) and _plain(b)):
        return None
    axes = weight.ndim - 2
    if x.ndim != weight.ndim or x.shape[0] != r.samples or isinstance(given.get("padding"), str):
        return None

    def per_axis(value: Any) -> tuple[int, ...]:
        """A number for every axis of the pictures."""
        values = (value,) if isinstance(value, int) else tuple(value)
        return values * axes if len(values) == 1 else values

    call = ConvolutionCall(
        tuple(weight.shape),
        per_axis(given.get("stride", 1)),
        per_axis(given.get("padding", 0)),
        per_axis(given.get("dilation", 1)),
        given.get("groups", 1),
    )
    x, call = fast_layers.thinned(x, call)
    number, held = r.use(w, b), _holding(x)
    out = fast_layers.convolve(x, weight, bias, call)
    return r.watch(out, lambda g: r.emit_layer(number, w, b, call, r.take(held), g))


def _group_norm(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor | None:  # noqa: ARG001
    """``F.group_norm`` of all samples as groups of one: its backward pass then gives gradients by sample."""
    given = bound(("input", "num_groups", "weight", "bias", "eps"), args, kwargs)
    x, weight, bias = given["input"], given.get("weight"), given.get("bias")
    if not _per_sample(r, x, weight, bias):
        return None
    tags = (r.tag(weight), r.tag(bias))
    number, (n, channels) = r.use(*tags), x.shape[:2]

    def own(value: Tensor | None, which: int) -> Tensor | None:
        """A scale or shift with an entry for every sample, whose gradient is emitted."""
        tag = tags[which]

        def then(g: Tensor) -> None:
            """Emits the gradients of the scale or shift."""
            if tag is not None and r.counts(tag):
                r.emit_vector(number + which, tag, g.view(n, channels))

        return None if value is None else r.watch(value.detach().repeat(n), then)

    places = x.numel() // max(1, n * channels)
    side_by_side = x.contiguous().view(1, n * channels, places)
    out, _, _ = torch.native_group_norm(
        side_by_side,
        own(weight, 0),
        own(bias, 1),
        1,
        n * channels,
        places,
        n * given["num_groups"],
        given.get("eps", 1e-5),
    )
    return out.view(x.shape)


def _per_sample(r: LayerRecorder, x: Any, weight: Any, bias: Any) -> bool:
    """Whether a normalisation has the samples' data as its input, and plain tensors as scale and shift."""
    return r.is_data(x) and not (r.is_data(weight) or r.is_data(bias)) and x.shape[0] == r.samples


def _layer_norm(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor | None:
    """``F.layer_norm``: the normalised values are computed again when they are needed."""
    given = bound(("input", "normalized_shape", "weight", "bias", "eps"), args, kwargs)
    x, weight, bias = given["input"], given.get("weight"), given.get("bias")
    shape, eps = given["normalized_shape"], given.get("eps", 1e-5)
    if not _per_sample(r, x, weight, bias) or x.ndim == len(shape):
        return None
    w, b = r.tag(weight), r.tag(bias)
    number, held = r.use(w, b), _holding(x.detach())
    over = list(range(1, x.ndim - len(shape)))

    def total(g: Tensor) -> Tensor:
        """The sum over all but samples and normalised axes."""
        return g.sum(over) if over else g

    def then(g: Tensor) -> None:
        """Emits the gradients of scale and shift."""
        values = r.take(held)
        if w is not None and r.counts(w):
            r.emit_vector(number, w, total(g * F.layer_norm(values, shape, eps=eps)))
        if b is not None and r.counts(b):
            r.emit_vector(number + 1, b, total(g))

    return r.watch(func(*args, **kwargs), then)


def _entrywise(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor | None:
    """``x * w``, ``x + b`` or ``b + x * w``, with parameters that are the same for every sample."""
    both = func is torch.addcmul
    if len(args) != (3 if both else 2) or kwargs:
        return None
    x, w = args[-2:] if r.is_data(args[-2]) else (args[-1], args[-2])
    if not r.is_data(x) or x.shape[0] != r.samples:
        return None
    # every term is a parameter, and the data that it is multiplied by, if any
    terms = [(w, x if both or func in MUL else None), *([(args[0], None)] if both else [])]
    known = [(value, r.tag(value), factor) for value, factor in terms]
    out = func(*args, **kwargs)
    if out.shape[0] != r.samples or out.ndim != x.ndim:
        return None
    for value, tag, _ in known:
        if tag is not None and value.ndim == out.ndim and value.shape[0] != 1:
            return None
    mine = [(value.shape, tag, factor) for value, tag, factor in known if tag is not None]
    number = r.use(*(tag for _, tag, _ in mine))
    held = [None if factor is None else factor.detach() for _, _, factor in mine]

    def then(g: Tensor) -> None:
        """Emits the gradients of the terms' parameters."""
        for i, (shape, tag, _) in enumerate(mine):
            factor = held[i]
            held[i] = factor if r.again else None
            if r.counts(tag):
                r.emit_vector(number + i, tag, _reduced(g if factor is None else g * factor, shape))

    return r.watch(out, then)


def _reduced(g: Tensor, shape: torch.Size) -> Tensor:
    """Summed over the axes along which a tensor of this shape was repeated, but for the samples'."""
    missing = g.ndim - len(shape)
    over = [a for a in range(1, g.ndim) if a < missing or (shape[a - missing] == 1 and g.shape[a] != 1)]
    return g.sum(over) if over else g


_ADD = (torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__)
HANDLERS: dict[Any, Handler] = {
    F.linear: _linear,
    F.conv1d: _convolution,
    F.conv2d: _convolution,
    F.conv3d: _convolution,
    F.group_norm: _group_norm,
    F.layer_norm: _layer_norm,
    **dict.fromkeys(
        (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.mm, torch.Tensor.mm), _matmul
    ),
    **dict.fromkeys((*MUL, *_ADD, torch.addcmul), _entrywise),
}
"""Functions that may meet parameters, each with what stands in for it."""


def _relu(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor:
    """Rectifies a tensor once, and notes what was rectified, for a pooling that follows."""
    given = bound(("input", "inplace"), args, kwargs)
    if given.get("inplace", False):
        return func(*args, **kwargs)
    x = given["input"]
    # it is shared while a layer holds it; who pools it next may let it go
    out = r.shared_results.once(func, x, (), lambda: func(*args, **kwargs), keep=False)
    r.rectified = (out, x, _versions(out, x))
    return out


def _max_pool2d(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor:
    """2×2 windows by slices. The largest of rectified values is the largest, rectified: fewer of them."""
    given = bound(fast_layers.NAMES, args, kwargs)
    x = given.pop("input")
    if not fast_layers.is_two_by_two(args, kwargs):
        windows = fast_layers.windows_of(x, given)
        if windows is None:
            return func(*args, **kwargs)
        return _pooled(r, func, x, windows, lambda: fast_layers.max_windows(x, windows))
    rectified, r.rectified = r.rectified, None
    if rectified is None or rectified[0] is not x or _versions(*rectified[:2]) != rectified[2]:
        return fast_layers.max_pool2d(x)
    return F.relu(fast_layers.max_pool2d(rectified[1]))


def _avg_pool2d(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor:
    """Averages over windows that leave the padding out."""
    given = bound(fast_layers.AVERAGE_NAMES, args, kwargs)
    x = given.pop("input")
    windows = fast_layers.averaged_windows(x, given)
    if windows is None:
        return func(*args, **kwargs)
    return _pooled(r, func, x, windows, lambda: fast_layers.mean_windows(x, windows))


def _pooled(r: LayerRecorder, func: Any, x: Tensor, windows: fast_layers.Windows, make: Any) -> Tensor:
    out = r.shared_results.once(func, x, tuple(windows), make)
    r.shared_results.pooled[id(out)] = out
    return out


def _shared_norm(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor:
    """``F.group_norm`` without parameters that count: of pooled maps, which several edges have, once."""
    given = bound(("input", "num_groups", "weight", "bias", "eps"), args, kwargs)
    x = given.pop("input")
    if id(x) not in r.shared_results.pooled or any(r.tag(value) is not None for value in given.values()):
        return func(*args, **kwargs)
    rest = tuple(given.get(name) for name in ("num_groups", "weight", "bias", "eps"))
    return r.shared_results.once(func, x, rest, lambda: func(*args, **kwargs))


def _versions(*tensors: Tensor) -> tuple[int, ...]:
    """They count what was written into a tensor in place."""
    return tuple(tensor._version for tensor in tensors)


FASTER: dict[Any, Handler] = {
    F.max_pool2d: _max_pool2d,
    F.avg_pool2d: _avg_pool2d,
    F.group_norm: _shared_norm,
    **dict.fromkeys((F.relu, torch.relu, torch.Tensor.relu), _relu),
}
"""Functions without parameters for which there is a faster equal."""
