"""The empirical tangent kernel from Jacobians: obvious, and the only way if batch statistics mix samples."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vjp, vmap

from innerloop.core.errors import UserError
from innerloop.core.types import Params
from innerloop.kernels.empirical.memory import block_size, saved_bytes
from innerloop.kernels.empirical.tangent import Output, Tangent, contract


def jacobian(t: Tangent, x: Tensor, summed: bool, chunk: int | None = None) -> Params:
    """Derivatives of every sample's outputs, ``(samples, outputs, *parameter)``; one row if ``summed``."""
    if t.mixes:
        return _whole_batch(t, x, summed)
    weights = _cotangents(t, x, summed)

    def one(sample: Tensor) -> Params:
        """The rows of one sample."""
        back = vjp(lambda p: t.forward(p, sample[None])[0], t.params)[1]
        return vmap(lambda w: back(w)[0])(weights)

    return vmap(one, chunk_size=chunk)(x)


def _cotangents(t: Tangent, x: Tensor, summed: bool) -> Tensor:
    like = next(iter(t.params.values()), x)
    if summed:
        return torch.ones(1, t.outputs, dtype=like.dtype, device=like.device)
    return torch.eye(t.outputs, dtype=like.dtype, device=like.device)


def _whole_batch(t: Tangent, x: Tensor, summed: bool) -> Params:
    """As above for outputs that depend on the whole batch: one backward pass through all of it per row."""
    outputs, back = vjp(lambda p: t.forward(p, x), t.params)  # type: ignore[misc]
    rows = _cotangents(t, x, summed)
    gradients = []
    for i in range(len(x)):
        for row in rows:
            cotangent = torch.zeros_like(outputs)
            cotangent[i] = row
            gradients.append(back(cotangent)[0])
    return {
        name: torch.stack([g[name] for g in gradients]).view(len(x), len(rows), *p.shape)
        for name, p in t.params.items()
    }


def jacobian_ntk(t: Tangent, x1: Tensor, x2: Tensor | None, output: Output, memory: int) -> Tensor:
    """Θ from Jacobians, which are held for as many samples as ``memory`` allows."""
    summed = output == "sum"
    rows = 1 if summed else t.outputs
    per_sample = rows * sum(p.numel() * p.element_size() for p in t.params.values())
    # two blocks of Jacobians, and one more while the second is made; a pass holds activations
    # and their derivatives
    need = 3 * per_sample + 3 * rows * (saved_bytes(t, x1) if len(x1) else 0)
    block = block_size(need, memory, max(len(x1), 0 if x2 is None else len(x2)))
    if t.mixes and block < max(len(x1), 0 if x2 is None else len(x2)):
        raise UserError(
            f"batch statistics need the Jacobians of all samples at once, about {need * len(x1) >> 20} MB: "
            "raise memory or give fewer samples."
        )
    columns = list((x1 if x2 is None else x2).split(block))
    rows_of: list[Tensor] = []
    for i, part in enumerate(x1.split(block)):
        left = jacobian(t, part, summed)
        row = []
        for j, other in enumerate(columns):
            right = left if x2 is None and i == j else jacobian(t, other, summed)
            row.append(_gram(left, right, output))
            del right
        rows_of.append(torch.cat(row, 1))
    return torch.cat(rows_of)


def _gram(left: Params, right: Params, output: Output) -> Tensor:
    total: Tensor | None = None
    for name, a in left.items():
        part = contract(a.reshape(*a.shape[:2], -1), right[name].reshape(*right[name].shape[:2], -1), output)
        total = part if total is None else total.add_(part)
    assert total is not None
    return total
