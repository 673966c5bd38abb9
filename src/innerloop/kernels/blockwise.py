"""Large kernels piece by piece."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.kernels.types import KernelFunction, Kernels, Progress


def blockwise(
    kernel: KernelFunction,
    block: int | Callable[[Tensor], int],
    progress: Progress | None = None,
) -> KernelFunction:
    """``kernel`` in square blocks of at most ``block`` inputs; a symmetric one is computed once and mirrored.

    Args:
        kernel: what to compute.
        block: most rows and columns at a time, or a function of the inputs that says so.
        progress: told ``(blocks done, blocks in all)``.

    >>> x = torch.arange(5.0)[:, None]
    >>> product = blockwise(lambda a, b: Kernels(a @ b.T, a @ b.T), 2)
    >>> bool((product(x, x).ntk == x @ x.T).all())
    True
    """
    if isinstance(block, int) and block < 1:
        raise UserError(f"block={block}: a block has at least one row.")

    def apply(x1: Tensor, x2: Tensor) -> Kernels:
        """The kernel of all inputs, put together from blocks."""
        size = block if isinstance(block, int) else block(x1)
        rows = x1.split(size)
        if len(rows) == 1 and len(x2) <= size:
            return kernel(x1, x2)
        columns = rows if x1 is x2 else x2.split(size)
        mirrored = x1 is x2
        total = len(rows) * (len(rows) + 1) // 2 if mirrored else len(rows) * len(columns)
        parts: dict[tuple[int, int], Kernels] = {}
        for i, a in enumerate(rows):
            for j, b in enumerate(columns):
                if mirrored and j < i:
                    parts[i, j] = Kernels(*(t.mT for t in parts[j, i]))
                    continue
                parts[i, j] = kernel(a, b)
                if progress is not None:
                    done = sum(1 for r, c in parts if not mirrored or r <= c)
                    progress(done, total)
        table = [[parts[i, j] for j in range(len(columns))] for i in range(len(rows))]
        return Kernels(*(torch.cat([torch.cat([k[f] for k in row], 1) for row in table]) for f in range(2)))

    return apply
