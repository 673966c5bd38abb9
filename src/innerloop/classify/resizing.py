r"""Pillow's resizing as operations on tensors, to the same bits: it can stand in an exported graph.

Pillow resizes one axis after the other. Along an axis an output pixel is a sum of input pixels with weights
that are whole numbers over :math:`2^{22}`, rounded to a whole number again:

.. math:: y_o = \mathrm{clip}_{0}^{255} \lfloor (2^{21} + \textstyle\sum_i k_{oi}\, p_i) / 2^{22} \rfloor .

All of these numbers are far below :math:`2^{53}`, so float64 computes them without rounding, in any order.
The pictures' height and width may be symbols: weights are computed from them, in the graph.

Width comes before height, but since its version 13 Pillow begins with the height where that is reduced by
more than twice as many pixels. The version that is installed decides: a graph says what innerloop says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import PIL
import torch
from torch import Tensor
from torch.nn.functional import linear

from innerloop.core.preprocessing import Preprocessing, Resample

HEIGHT_FIRST = int(PIL.__version__.partition(".")[0]) >= 13
"""Whether this Pillow begins with the height of pictures that lose much of it."""
UNIT = 1 << 22
"""Pillow's weights are multiples of one over this."""
_WHITE = 255.0


class Filter(NamedTuple):
    """A filter of Pillow: how far it reaches, and its value at distances (not negative)."""

    reach: float
    value: Callable[[Tensor], Tensor]


def _bicubic(x: Tensor) -> Tensor:
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, torch.zeros_like(x)))


def _bilinear(x: Tensor) -> Tensor:
    return torch.where(x < 1.0, 1.0 - x, torch.zeros_like(x))


def _sinc(x: Tensor) -> Tensor:
    zero = x == 0.0
    angle = math.pi * torch.where(zero, torch.ones_like(x), x)
    return torch.where(zero, torch.ones_like(x), torch.sin(angle) / angle)


def _lanczos(x: Tensor) -> Tensor:
    return torch.where(x < 3.0, _sinc(x) * _sinc(x / 3.0), torch.zeros_like(x))


def _hamming(x: Tensor) -> Tensor:
    window = 0.54 + 0.46 * torch.sin(math.pi * (x + 0.5))  # a cosine
    return torch.where(x < 1.0, _sinc(x) * window, torch.zeros_like(x))


FILTERS: dict[Resample, Filter] = {
    "bicubic": Filter(2.0, _bicubic),
    "bilinear": Filter(1.0, _bilinear),
    "lanczos": Filter(3.0, _lanczos),
    "hamming": Filter(1.0, _hamming),
}
"""Those that are the same here; ``box`` has an open end on one side, and ``nearest`` is another algorithm."""


class Axis(NamedTuple):
    """What becomes of one axis.

    Numbers are float64 scalars, or plain ones where they are known beforehand.
    """

    start: Tensor | float
    length: Tensor
    low: Tensor | float
    span: Tensor
    size: Tensor | float
    kept: int


def can_resize(how: Preprocessing) -> bool:
    """Whether :func:`resized` does what Pillow does for this preprocessing.

    >>> can_resize(Preprocessing((8, 8))), can_resize(Preprocessing((8, 8), resample="nearest"))
    (True, False)
    """
    return how.resample in FILTERS


def resized(pictures: Tensor, how: Preprocessing) -> Tensor:
    """Pictures ``(n, H, W, C)`` of 8 bits, of any one size → ``(n, C, height, width)`` in 0…255, float64.

    The numbers are those of :func:`innerloop.data.pictures.prepare`.

    >>> resized(torch.full((1, 3, 5, 1), 7, dtype=torch.uint8), Preprocessing((2, 2))).flatten().tolist()
    [7.0, 7.0, 7.0, 7.0]
    """
    rows, columns = (torch.arange(pictures.shape[axis], device=pictures.device).double() for axis in (1, 2))
    high, wide = axes(rows[-1] + 1.0, columns[-1] + 1.0, how)
    kind = FILTERS[how.resample]
    across, down = weights(columns, wide, kind), weights(rows, high, kind)
    x = pictures.permute(0, 3, 1, 2).double()
    usual = _along(_along(x, across).mT, down).mT
    square = how.resize == "share" and how.size[0] == how.size[1]  # loses as much on both axes
    if square or not HEIGHT_FIRST:
        return usual
    lost = high.length - high.size
    turned = (lost > 0.0) & (lost > 2.0 * (wide.length - wide.size))
    return torch.where(turned, _along(_along(x.mT, down).mT, across), usual)


def _along(x: Tensor, kernel: Tensor) -> Tensor:
    """The last axis, summed with whole weights and rounded as Pillow rounds."""
    return torch.floor((linear(x, kernel) + UNIT / 2) / UNIT).clamp(0.0, _WHITE)


def axes(height: Tensor, width: Tensor, how: Preprocessing) -> tuple[Axis, Axis]:
    """What becomes of the two axes of pictures of that height and width, as ``how`` says."""
    tall, broad = how.size
    keep_tall, keep_broad = how.crop or how.size
    if how.resize == "share":
        side = torch.floor(how.share * torch.minimum(height, width)).clamp(min=1.0)
        return _cut(height, side, tall, keep_tall), _cut(width, side, broad, keep_broad)
    if how.resize == "short":
        short, least = float(min(how.size)), torch.minimum(height, width)
        one, other = (torch.floor(short * length / least).clamp(min=1.0) for length in (height, width))
        return _whole(height, one, keep_tall), _whole(width, other, keep_broad)
    if how.resize == "fill":
        return _fill(height, width, how)
    return _whole(height, float(tall), keep_tall), _whole(width, float(broad), keep_broad)


def _whole(length: Tensor, size: Tensor | float, kept: int) -> Axis:
    return Axis(0.0, length, 0.0, length, size, kept)


def _cut(length: Tensor, side: Tensor, size: int, kept: int) -> Axis:
    return Axis(torch.floor((length - side + 1.0) / 2.0), side, 0.0, side, float(size), kept)


def _fill(height: Tensor, width: Tensor, how: Preprocessing) -> tuple[Axis, Axis]:
    """As ``ImageOps.fit``: parts of a pixel are cut off of what is too long. Pillow's box is float32."""
    tall, broad = how.size
    keep_tall, keep_broad = how.crop or how.size
    wanted, given = broad / tall, width / height
    part_wide = torch.where(given > wanted, wanted * height, width)
    part_high = torch.where(given < wanted, width / wanted, height)
    return _part(height, part_high, tall, keep_tall), _part(width, part_wide, broad, keep_broad)


def _part(length: Tensor, part: Tensor, size: int, kept: int) -> Axis:
    low = (length - part) * 0.5
    begin, end = low.float(), (low + part).float()
    return Axis(0.0, length, begin.double(), (end - begin).double(), float(size), kept)


def weights(places: Tensor, axis: Axis, kind: Filter) -> Tensor:
    """Pillow's whole weights ``(kept, length of the axis)`` from every pixel to every one that is kept."""
    scale = axis.span / axis.size
    wide = scale.clamp(min=1.0)
    reach = kind.reach * wide
    row = torch.arange(axis.kept, device=places.device).double()
    row = row + _half(axis.size - axis.kept)
    centre = (axis.low + (row + 0.5) * scale)[:, None]
    first = torch.floor(centre - reach + 0.5).clamp(min=0.0)
    last = torch.minimum(torch.floor(centre + reach + 0.5), axis.length)
    place = (places - axis.start)[None, :]
    inside = (place >= first) & (place < last) & (row >= 0.0)[:, None] & (row < axis.size)[:, None]
    value = kind.value(((place - centre + 0.5) * (1.0 / wide)).abs())
    value = torch.where(inside, value, torch.zeros_like(value))
    total = value.sum(-1, keepdim=True)
    share = value / torch.where(total == 0.0, torch.ones_like(total), total) * UNIT
    return torch.sign(share) * torch.floor(share.abs() + 0.5)


def _half(pixels: Tensor | float) -> Tensor | float:
    """Rounded down, for pixels that are there and for those that are missing."""
    return torch.floor(pixels / 2.0) if isinstance(pixels, Tensor) else float(math.floor(pixels / 2.0))
