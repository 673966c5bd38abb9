"""A convolution and its two adjoints, as products of matrices with one row per pixel (CPU).

Few pixels (a support set): patches are laid out as a matrix, and every product is one sgemm. Patches are
gathered, and summed back into pictures, by ``embedding_bag``: it is torch's fastest routine for adding rows,
about seven times as fast as nine shifted additions. Many pixels: oneDNN on channels-last pictures, which
needs neither reordering nor the memory for patches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_convolution_backward = torch.ops.aten.convolution_backward.default

PATCH_LIMIT = 1 << 20
"""Largest patch matrix, in elements; a larger one leaves the cache and costs memory, so oneDNN takes over."""

ROW_LIMIT = 8
"""Below this many channels ``embedding_bag`` has nothing to vectorise over: a strided copy is faster."""


class Geometry(NamedTuple):
    """Sizes of one convolution: samples, channels, image, filters, kernel, stride, padding."""

    n: int
    c: int
    h: int
    w: int
    o: int
    k: int
    stride: int
    padding: int

    @property
    def out(self) -> tuple[int, int]:
        """Height and width of the result."""
        reach = 2 * self.padding - self.k
        return (self.h + reach) // self.stride + 1, (self.w + reach) // self.stride + 1

    @property
    def patch_size(self) -> int:
        """Elements of the matrix with one row per output pixel and one column per tap and channel."""
        high, wide = self.out
        return self.n * high * wide * self.k * self.k * self.c


class Convolution(NamedTuple):
    """A convolution as three products of matrices; ``rows`` are (pixels, filters)."""

    patches: Callable[[Tensor], Tensor]
    rows: Callable[[Tensor, Tensor], Tensor]
    to_weight: Callable[[Tensor, Tensor], Tensor]
    to_input: Callable[[Tensor, Tensor], Tensor]


@functools.lru_cache(maxsize=256)
def convolution(g: Geometry) -> Convolution:
    """The products for these sizes; they are found once and kept."""
    return _by_patches(g) if g.patch_size <= PATCH_LIMIT else _by_onednn(g)


def _by_patches(g: Geometry) -> Convolution:
    high, wide = g.out
    taps = g.k * g.k * g.c
    shape = (g.n, g.c, g.h, g.w)
    gather, spread = _pixel_maps(g)

    def patches(x: Tensor) -> Tensor:
        """What every output pixel sees, a row each."""
        x = x.permute(0, 2, 3, 1)
        if g.c >= ROW_LIMIT:
            return _sum_rows(x.reshape(-1, g.c), gather).view(-1, taps)
        x = F.pad(x, (0, 0, *[g.padding] * 4)).contiguous()
        a, b, c, d = x.stride()
        windows = (a, b * g.stride, c * g.stride, b, c, d)
        return x.as_strided((g.n, high, wide, g.k, g.k, g.c), windows).reshape(-1, taps)

    def rows(p: Tensor, weight: Tensor) -> Tensor:
        """The convolution of patches, a row for every output pixel."""
        return torch.mm(p, _flat(weight).t())

    def to_weight(p: Tensor, r: Tensor) -> Tensor:
        """The adjoint in the kernels, of rows ``r``."""
        # sgemm wants the long side of a thin result first
        flat = torch.mm(p.t(), r).t().contiguous() if taps < g.o else torch.mm(r.t(), p)
        return flat.view(g.o, g.k, g.k, g.c).permute(0, 3, 1, 2)

    def to_input(r: Tensor, weight: Tensor) -> Tensor:
        """The adjoint in the input, of rows ``r``."""
        return as_pictures(_sum_rows(torch.mm(r, _flat(weight)).view(-1, g.c), spread), shape)

    return Convolution(patches, rows, to_weight, to_input)


def _by_onednn(g: Geometry) -> Convolution:
    shape = (g.n, g.o, *g.out)
    how = (None, [g.stride] * 2, [g.padding] * 2, [1, 1], False, [0, 0], 1)

    def patches(x: Tensor) -> Tensor:
        """The input itself, channels last: oneDNN makes no patches."""
        return x.contiguous(memory_format=torch.channels_last)

    def rows(x: Tensor, weight: Tensor) -> Tensor:
        """The convolution, a row for every output pixel."""
        return as_rows(F.conv2d(x, weight, None, g.stride, g.padding))

    def to_weight(x: Tensor, r: Tensor) -> Tensor:
        """The adjoint in the kernels, of rows ``r``."""
        weight = r.new_empty(1).expand(g.o, g.c, g.k, g.k)  # only its shape is read
        return _convolution_backward(as_pictures(r, shape), x, weight, *how, [False, True, False])[1]

    def to_input(r: Tensor, weight: Tensor) -> Tensor:
        """The adjoint in the input, of rows ``r``."""
        x = torch.empty((g.n, g.c, g.h, g.w), dtype=r.dtype, memory_format=torch.channels_last)  # likewise
        return _convolution_backward(as_pictures(r, shape), x, weight, *how, [True, False, False])[0]

    return Convolution(patches, rows, to_weight, to_input)


def as_rows(x: Tensor) -> Tensor:
    """Pictures as (pixels, channels): a view if they are channels-last."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def as_pictures(rows: Tensor, shape: Sequence[int]) -> Tensor:
    """The inverse: (pixels, channels) as channels-last pictures of that shape."""
    n, c, h, w = shape
    return rows.view(n, h, w, c).permute(0, 3, 1, 2)


def _flat(weight: Tensor) -> Tensor:
    return weight.permute(0, 2, 3, 1).reshape(weight.shape[0], -1)


def _pixel_maps(g: Geometry) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Which pixel every patch entry is (padding: none), and which patch entries every pixel is."""
    pixels = np.full((g.n, g.h + 2 * g.padding, g.w + 2 * g.padding), -1, dtype=np.int32)
    inside = slice(g.padding, g.padding + g.h), slice(g.padding, g.padding + g.w)
    pixels[:, inside[0], inside[1]] = np.arange(g.n * g.h * g.w, dtype=np.int32).reshape(g.n, g.h, g.w)
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (g.k, g.k), axis=(1, 2))
    source = windows[:, :: g.stride, :: g.stride].reshape(-1)
    real = source >= 0
    counts = np.bincount(source[real], minlength=g.n * g.h * g.w)
    entries = np.argsort(source, kind="stable")[np.count_nonzero(~real) :]
    return _bags(source[real], real), _bags(entries, counts)


def _bags(members: np.ndarray[Any, Any], counts: np.ndarray[Any, Any]) -> tuple[Tensor, Tensor]:
    counts = counts.astype(np.int32)
    starts = np.cumsum(counts, dtype=np.int32) - counts
    return torch.from_numpy(members.astype(np.int32)), torch.from_numpy(starts)


def _sum_rows(rows: Tensor, bags: tuple[Tensor, Tensor]) -> Tensor:
    return torch.embedding_bag(rows, *bags, False, 0)[0]
