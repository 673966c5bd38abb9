"""Watches a network run and tells on which side of every kink each sample lies.

Networks here are plain functions of tensors, so a ReLU is seen where torch carries it out, whatever it was
called: ``F.relu``, an ``nn.ReLU`` in place, a PReLU from primitives. Fused blocks are not used while one
watches, because their rows are pixels and not samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from innerloop.core.autodiff import untransformed
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.network import Network, apply

Take: TypeAlias = Callable[[Tensor], None]
"""Is given a layer's sides, ``(samples, units)`` of booleans: true where the unit is on."""


def _at_zero(*_: Any, **__: Any) -> tuple[float, ...]:
    return (0.0,)


def _leaky(x: Tensor, slope: float = 0.01) -> tuple[float, ...]:  # noqa: ARG001
    return (0.0,) if slope != 1 else ()


def _threshold(x: Tensor, at: float, value: float) -> tuple[float, ...]:  # noqa: ARG001
    return (float(at),)


def _both_ends(x: Tensor, low: float = -1.0, high: float = 1.0) -> tuple[float, ...]:  # noqa: ARG001
    return (float(low), float(high))


def _clamp(x: Tensor, min: Any = None, max: Any = None) -> tuple[float, ...]:  # noqa: ARG001
    # a ReLU spelt out; other bounds guard against division by zero and the like
    return (0.0,) if isinstance(min, (int, float)) and min == 0 else ()


def _compared(x: Tensor, other: float) -> tuple[float, ...]:
    return (0.0,) if x.is_floating_point() and other == 0 else ()


_ATEN = torch.ops.aten
KINKS: dict[Any, Callable[..., tuple[float, ...]]] = {
    **dict.fromkeys((_ATEN.relu, _ATEN.relu_, _ATEN._prelu_kernel), _at_zero),
    **dict.fromkeys((_ATEN.leaky_relu, _ATEN.leaky_relu_), _leaky),
    **dict.fromkeys((_ATEN.threshold, _ATEN.threshold_), _threshold),
    **dict.fromkeys((_ATEN.hardtanh, _ATEN.hardtanh_), _both_ends),
    **dict.fromkeys((_ATEN.clamp, _ATEN.clamp_, _ATEN.clamp_min, _ATEN.clamp_min_), _clamp),
    _ATEN.gt: _compared,
}
"""Operations that are linear in pieces, entry by entry, and where the pieces meet."""


class _Watch(TorchDispatchMode):
    """Hands the sides of every kink to ``take``, in the order of the pass."""

    def __init__(self, samples: int, take: Take) -> None:
        super().__init__()
        self.samples, self.take, self.count = samples, take, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and seeing to that costs as much at every operation as the operation."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Is given every operation; its input is looked at before it can be written over."""
        kwargs = kwargs or {}
        kinks = KINKS.get(func.overloadpacket)
        if kinks is not None:
            for at in kinks(*args, **kwargs):
                self._note(args[0] > at)
        return func(*args, **kwargs)

    def _note(self, sides: Tensor) -> None:
        if sides.ndim < 2 or len(sides) != self.samples:
            raise UserError(
                f"a ReLU of this network sees {tuple(sides.shape)}, whose first axis is not the "
                f"{self.samples} samples: patterns need one row per sample at every ReLU."
            )
        self.count += 1
        self.take(sides.flatten(1))


def watch_kinks(
    network: Network, params: Params, buffers: Buffers, x: Tensor, take: Take, statistics: Statistics
) -> None:
    """One forward pass of ``x``; ``take`` is given every layer's sides.

    >>> from innerloop import mlp
    >>> net, seen = mlp(1, [2], 1), []
    >>> params = {"layer0.weight": torch.tensor([[1.0], [-1.0]]), "layer0.bias": torch.zeros(2),
    ...           "layer1.weight": torch.ones(1, 2), "layer1.bias": torch.zeros(1)}
    >>> watch_kinks(net, params, {}, torch.tensor([[3.0]]), seen.append, "batch")
    >>> seen
    [tensor([[ True, False]])]
    """
    with torch.no_grad(), untransformed(), _Watch(len(x), take) as watch:
        apply(network, params, buffers, x, statistics)
    if not watch.count:
        raise UserError(
            "this network has no ReLU (nor another unit that is linear in pieces), so its linear regions are "
            "not defined: use a ReLU network, or another score."
        )
