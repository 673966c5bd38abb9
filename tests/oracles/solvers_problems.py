"""Small classification problems like those that a network's last features make."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Problems(NamedTuple):
    """Support and query features with labels, ``B`` problems of equal shape."""

    x: Tensor
    y: Tensor
    x_query: Tensor
    y_query: Tensor
    ways: int


def relu_features(
    count: int,
    ways: int = 5,
    shots: int = 5,
    queries: int = 15,
    d: int = 640,
    spread: float = 0.3,
    normalise: bool = False,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Problems:
    """Non-negative features around class means that overlap; unit length if asked for."""
    generator = torch.Generator().manual_seed(seed)
    means = spread * torch.randn(count, ways, 1, d, generator=generator)
    x = torch.relu(means + torch.randn(count, ways, shots + queries, d, generator=generator))
    if normalise:
        x = torch.nn.functional.normalize(x, dim=-1)
    x = x.to(dtype)

    def labels(n: int) -> Tensor:
        return torch.arange(ways).repeat_interleave(n).expand(count, -1).contiguous()

    return Problems(
        x[:, :, :shots].reshape(count, -1, d),
        labels(shots),
        x[:, :, shots:].reshape(count, -1, d),
        labels(queries),
        ways,
    )


def unequal_counts(count: int, ways: int = 4, n: int = 15, d: int = 30, seed: int = 0) -> Problems:
    """Every class at least once, the rest at random: class counts differ within and between problems."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, ways, (count, n), generator=generator)
    y[:, :ways] = torch.arange(ways)
    means = torch.randn(count, ways, d, generator=generator, dtype=torch.float64)

    def around(labels: Tensor) -> Tensor:
        centre = means.gather(1, labels[..., None].expand(-1, -1, d))
        return centre + 2 * torch.randn(centre.shape, generator=generator, dtype=torch.float64)

    queries = torch.arange(ways).repeat(5).expand(count, -1).contiguous()
    return Problems(around(y), y, around(queries), queries, ways)
