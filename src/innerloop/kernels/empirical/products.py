r"""The empirical tangent kernel from products with Jacobians, which are never held.

:math:`\Theta v = J(J^\top v)`: a vector-Jacobian product, then a Jacobian-vector product.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from innerloop.kernels.empirical.memory import block_size, saved_bytes
from innerloop.kernels.empirical.tangent import Output, Tangent


def ntk_times(t: Tangent, x1: Tensor, x2: Tensor, vectors: Tensor) -> Tensor:
    """Θ(x1, x2) times a vector over (samples, outputs), without Θ: ``(m, k) -> (n, k)``.

    >>> from innerloop.kernels.empirical.tangent import tangent
    >>> from innerloop import mlp
    >>> t = tangent(mlp(1, [], 1, bias=False), {"layer0.weight": torch.ones(1, 1)}, torch.ones(1, 1))
    >>> ntk_times(t, torch.tensor([[2.0]]), torch.tensor([[3.0]]), torch.ones(1, 1))
    tensor([[6.]])
    """
    back = vjp(lambda p: t.forward(p, x2), t.params)[1]
    (direction,) = back(vectors)
    return jvp(lambda p: t.forward(p, x1), (t.params,), (direction,))[1]


def products_ntk(t: Tangent, x1: Tensor, x2: Tensor | None, output: Output, memory: int) -> Tensor:
    """Θ column by column; columns are taken together as far as ``memory`` allows."""
    x2 = x1 if x2 is None else x2
    k = t.outputs
    n, m = len(x1), len(x2)
    like = next(iter(t.params.values()))
    unit = torch.eye(k, dtype=like.dtype, device=like.device)
    weights = torch.ones(1, k, dtype=like.dtype, device=like.device) if output == "sum" else unit
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
