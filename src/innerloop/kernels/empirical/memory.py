"""How much memory a kernel will take, told before it is taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.kernels.empirical.tangent import Tangent


@contextmanager
def count_saved(seen: dict[int, int], t: Tangent) -> Iterator[None]:
    """Notes what autograd would keep for the backward pass, in bytes by place, parameters excepted.

    It keeps nothing in fact, so no backward pass may follow: a tensor that a hook hands back is held for ever
    by the function that made it, if no backward pass lets it go.
    """
    own = {p.untyped_storage().data_ptr() for p in t.params.values()}

    alive = []  # else the next tensor could take a freed one's place, and would not be counted

    def pack(tensor: Tensor) -> None:
        """Counts a tensor that autograd would keep."""
        alive.append(tensor.detach())
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()

    def unpack(_: None) -> Tensor:
        """Refuses a backward pass."""
        raise RuntimeError("nothing was kept for a backward pass")

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


def saved_bytes(t: Tangent, x: Tensor) -> int:
    """Bytes that one sample's forward pass keeps for its backward pass: one is passed and counted."""
    seen: dict[int, int] = {}
    params = {name: p.detach().requires_grad_() for name, p in t.params.items()}
    with torch.enable_grad(), count_saved(seen, t):
        outputs = t.forward(params, x[:1])
    del outputs
    return sum(seen.values())


def block_size(per_sample: int, memory: int, most: int) -> int:
    """How many samples fit.

    >>> block_size(100, 1000, 50), block_size(1, 1000, 50)
    (10, 50)
    """
    if per_sample > memory:
        raise UserError(
            f"one sample needs about {max(per_sample >> 20, 1)} MB, more than memory={memory} bytes: "
            "raise memory."
        )
    return max(1, min(most, memory // max(per_sample, 1)))
