"""2×2 max-pooling by slices on a CPU: faster than torch's, with the same values and derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _MaxPool(torch.autograd.Function):
    """Remembers of every window only which of the four values it took, in a byte."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
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
        (taken,) = ctx.saved_tensors
        high, wide = g.shape[-2:]
        row, column = (torch.arange(0, 2 * side, 2, device=g.device) for side in (high, wide))
        within = taken.short()
        place = (within & 1) + (within & 2) * wide + (row[:, None] * (2 * wide) + column)
        out = g.new_zeros(*g.shape[:-2], 4 * high * wide)
        return out.scatter_(-1, place.flatten(-2), g.flatten(-2)).view(*g.shape[:-2], 2 * high, 2 * wide)


def is_two_by_two(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether ``F.max_pool2d`` is called for what :func:`max_pool2d` can do."""
    given = {**dict(zip(_NAMES, args, strict=False)), **kwargs}
    x = given["input"]
    simple = all(given.get(name) in allowed for name, allowed in _SIMPLE.items())
    small = x.ndim == 4 and x.shape[-1] < 2**15  # places are counted in 16 bits
    return simple and given["kernel_size"] in (2, (2, 2)) and small and x.device.type == "cpu"


def max_pool2d(x: Tensor) -> Tensor:
    """The largest of every 2×2 window; an odd row or column at the end is left out.

    >>> max_pool2d(torch.arange(16.0).view(1, 1, 4, 4)).flatten().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """
    high, wide = (side - side % 2 for side in x.shape[2:])
    return _MaxPool.apply(x[:, :, :high, :wide])


_NAMES = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_SIMPLE: dict[str, tuple[Any, ...]] = {
    "stride": (None, 2, (2, 2)),
    "padding": (None, 0, (0, 0)),
    "dilation": (None, 1, (1, 1)),
    "ceil_mode": (None, False),
    "return_indices": (None, False),
}
