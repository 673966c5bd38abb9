"""What a network computes twice from the same tensor is computed once.

In a supernet every operator of an edge rectifies the same value, and the edges that leave a node pool and
normalise the same maps. The derivative then comes back once as well, summed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError

CONSTANT = 2**14
"""Entries of a constant (a scale, a shift) up to which constants are compared entry by entry."""


class NotUnderstoodError(UserError):
    """The network does something that the layer-wise way cannot follow."""


class _Made(NamedTuple):
    """A result, and what it was made of: as it was then."""

    source: weakref.ref[Tensor]
    out: Callable[[], Tensor | None]
    versions: tuple[int, int]


class Shared:
    """Results by function, input and arguments, for as long as inputs live and nobody writes into them."""

    def __init__(self) -> None:
        self.made: dict[Hashable, _Made] = {}
        self.pooled: dict[int, Tensor] = {}
        self.given: dict[int, Tensor] = {}

    def once(
        self, func: Any, x: Tensor, rest: tuple[Any, ...], make: Callable[[], Tensor], keep: bool = True
    ) -> Tensor:
        """What ``make`` gives, or gave before for the same arguments."""
        key = _key((func, id(x), *rest))
        if key is None:
            return make()
        known = self.made.get(key)
        out = None if known is None or known.source() is not x else known.out()
        if known is not None and out is not None and known.versions == (x._version, out._version):
            self.given[id(out)] = out
            return out
        out = make()
        held: Callable[[], Tensor | None] = partial(_same, out) if keep else weakref.ref(out)
        self.made[key] = _Made(weakref.ref(x), held, (x._version, out._version))
        return out

    def refuse_writing(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A tensor that was given out twice must not be written into: the other holder would see it."""
        if self.given and args and id(args[0]) in self.given and _writes(func, args, kwargs):
            name = getattr(func, "__name__", "a function")
            raise NotUnderstoodError(
                f"method='layerwise' cannot follow {name}, which writes into a tensor that the network "
                "computes twice: use method='jacobian'."
            )

    def forget(self) -> None:
        """Lets go of everything, before the backward pass frees what it has used."""
        self.made.clear()
        self.pooled.clear()
        self.given.clear()


def _same(out: Tensor) -> Tensor:
    return out


def _key(values: tuple[Any, ...]) -> Hashable | None:
    """Equal for equal arguments; None if they cannot be compared cheaply."""
    named: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            if value.numel() > CONSTANT or value.requires_grad or value.device.type != "cpu":
                return None
            named.append((value.dtype, value.shape, value.detach().numpy().tobytes()))
        else:
            named.append(tuple(value) if isinstance(value, list) else value)
    return tuple(named)


def _writes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    name = getattr(func, "__name__", "")
    in_place = (name.endswith("_") and not name.endswith("__")) or name in _WRITING
    asked = kwargs.get("inplace", False) or (func in _INPLACE and len(args) > 1 and args[-1] is True)
    return bool(in_place or asked)


_WRITING = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"}
_INPLACE = {
    torch.nn.functional.relu,
    torch.nn.functional.leaky_relu,
    torch.nn.functional.elu,
    torch.nn.functional.hardtanh,
    torch.nn.functional.threshold,
}
"""Functions that write into their input if their last argument says so."""
