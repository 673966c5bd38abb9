"""Memory that a process shares with its workers, and tensors placed in it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Any

import torch
from torch import Tensor

ALIGNED = 64  # bytes: what torch's own allocator gives, and what vector instructions ask for


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Where a tensor lies in an arena. No tuple, because trees of tensors are taken apart down to it."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.dtype.itemsize * _span(self.shape, self.stride)


def _span(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """How many numbers lie between the first and the last of a tensor, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))


def layout_of(tensor: Tensor, start: int) -> TensorLayout:
    """Where a tensor goes, from ``start`` on: with its own strides, and its own place modulo 64 bytes."""
    # linear algebra sums in another order for another layout: else copies differ in their last bits
    offset = -(-start // ALIGNED) * ALIGNED + tensor.data_ptr() % ALIGNED
    return TensorLayout(offset, tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def layouts_of(tree: Mapping[str, Tensor], start: int) -> tuple[dict[str, TensorLayout], int]:
    """Places for a dict of tensors from ``start`` on, and where they end."""
    places: dict[str, TensorLayout] = {}
    for name, tensor in tree.items():
        places[name] = layout_of(tensor, start)
        start = places[name].end
    return places, start


class Arena:
    """A block of shared memory, for the process that makes it and for those that it starts afterwards."""

    # without a name in the file system: nothing is left behind, however the processes end

    def __init__(self, context: BaseContext, size: int) -> None:
        self.size = size
        self._block: Any = context.RawArray(ctypes.c_byte, size + ALIGNED)

    def at(self, place: TensorLayout) -> Tensor:
        """The tensor at a place: a view of the shared memory."""
        count = _span(place.shape, place.stride)
        if not count:
            return torch.empty(place.shape, dtype=place.dtype)
        # blocks begin at the same place of a page in every process, wherever the page is
        first = -ctypes.addressof(self._block) % ALIGNED
        flat = torch.frombuffer(self._block, dtype=place.dtype, count=count, offset=first + place.offset)
        return flat.as_strided(place.shape, place.stride)

    def put(self, tensor: Tensor, place: TensorLayout) -> None:
        """Copies a tensor to its place, with all that lies between its numbers."""
        count = _span(place.shape, place.stride)
        if count:
            whole = tensor.detach().as_strided((count,), (1,))
            self.at(TensorLayout(place.offset, (count,), (1,), place.dtype)).copy_(whole)
