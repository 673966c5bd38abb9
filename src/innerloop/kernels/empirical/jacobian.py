"""The empirical tangent kernel from Jacobians: obvious, and the only way if batch statistics mix samples."""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from innerloop.core.errors import UserError
from innerloop.core.types import Params
from innerloop.kernels.empirical.tangent import Output, Tangent, block_size, contract, saved_bytes


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
    pairs = ((a, right[name]) for name, a in left.items())
    flat = ([t.reshape(*t.shape[:2], -1) for t in pair] for pair in pairs)  # a parameter may have no axis
    return functools.reduce(Tensor.add_, (contract(a, b, output) for a, b in flat))


def ntk_times(t: Tangent, x1: Tensor, x2: Tensor, vectors: Tensor) -> Tensor:
    """Θ(x1, x2) times a vector over (samples, outputs), without Θ: ``(m, k) -> (n, k)``."""
    back = vjp(lambda p: t.forward(p, x2), t.params)[1]
    (direction,) = back(vectors)
    return jvp(lambda p: t.forward(p, x1), (t.params,), (direction,))[1]


def products_ntk(t: Tangent, x1: Tensor, x2: Tensor | None, output: Output, memory: int) -> Tensor:
    """Θ column by column; columns are taken together as far as ``memory`` allows."""
    x2 = x1 if x2 is None else x2
    k = t.outputs
    n, m = len(x1), len(x2)
    weights = _cotangents(t, x1, output == "sum")
    size = sum(p.numel() * p.element_size() for p in t.params.values())
    saved = saved_bytes(t, x1) if n else 0
    # a column: its direction (twice, while it is made), and the rows' activations with their tangents
    rows = block_size(2 * saved + 2 * size, memory, n)
    chunk = block_size(2 * size + 2 * rows * saved, memory, m * len(weights))

    def column(sample: Tensor, weight: Tensor) -> Tensor:
        """One sample's column of Θ, for one weighting of its outputs."""
        back = vjp(lambda p: t.forward(p, sample[None])[0], t.params)[1]
        (direction,) = back(weight)
        parts = [jvp(lambda p, a=a: t.forward(p, a), (t.params,), (direction,))[1] for a in x1.split(rows)]
        return torch.cat(parts)

    samples, which = torch.arange(m).repeat_interleave(len(weights)), torch.arange(len(weights)).repeat(m)
    columns = torch.cat(
        [
            vmap(column)(x2[samples[i : i + chunk]], weights[which[i : i + chunk]])
            for i in range(0, len(samples), chunk)
        ]
    )
    theta = columns.view(m, len(weights), n, k).permute(2, 0, 3, 1)  # (n, m, outputs, rows)
    if output == "sum":
        return theta.sum((2, 3))
    return theta.diagonal(dim1=2, dim2=3).mean(2) if output == "trace" else theta
