"""Features of pictures, each computed once however many episodes show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.core.autodiff import plain_autograd
from innerloop.core.random import derive_seed
from innerloop.core.threads import map_in_threads
from innerloop.core.types import Buffers, Params
from innerloop.data.augment import augment, lee2019
from innerloop.data.source import ImageSource
from innerloop.nets.network import Network
from innerloop.tasks.loading import image_loader, standardiser
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.ranks import map_over_ranks

Rows = NDArray[np.int64]
CACHEABLE = ("running", "group", "none")
"""Norm policies under which a picture's features do not depend on its neighbours."""


class Pictures(NamedTuple):
    """Rows of a source → what the network sees."""

    plain: Callable[[Rows], Tensor]
    copies: Callable[[Rows, int], Tensor]


def pictures_of(
    source: ImageSource,
    *,
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Pictures:
    """Pictures standardised as in training, and their copies under the published augmentation."""
    # copy c is a pure function of seed, picture and c: episodes that share a picture share its copies
    load, scale = image_loader(source, dtype, device), standardiser(mean, std, dtype, device)
    strength, base = lee2019(source.images.shape[1]), derive_seed(seed, "copies")

    def copies(rows: Rows, count: int) -> Tensor:
        """``count`` augmented copies of every row."""
        flat = rows.reshape(-1)
        numbers = (flat[:, None] * 4096 + np.arange(count)).reshape(-1)
        x = augment(load(np.repeat(flat, count)), numbers.tolist(), base, strength)
        return scale(x).view(*rows.shape, count, *x.shape[1:])

    return Pictures(lambda rows: scale(load(rows)), copies)


class FeatureCache(NamedTuple):
    """Features of some rows of a source, found again by row."""

    rows: Rows
    values: Tensor

    def at(self, rows: Rows) -> Tensor:
        """Features ``(…, d)`` of rows ``(…)`` (or ``(…, copies, d)`` if copies were cached)."""
        places = self.places(rows)
        features = self.values.index_select(0, places.flatten())  # copies whole rows, which indexing does not
        return features.view(*rows.shape, *self.values.shape[1:])

    def places(self, rows: Rows) -> Tensor:
        """Where rows ``(…)`` are among the values."""
        return torch.from_numpy(np.searchsorted(self.rows, rows)).to(self.values.device)

    def finite(self) -> Tensor:
        """Whether all features of a row are finite, ``(rows,)``."""
        return finite_problems(self.values)


def finite_problems(z: Tensor) -> Tensor:
    """Whether all of ``z[i]`` is finite: by the smallest and the largest, in one pass and without a copy."""
    low, high = torch.aminmax(z.flatten(1), dim=1)
    return low.isfinite() & high.isfinite()


def cached_features(
    network: Network,
    params: Params,
    buffers: Buffers,
    load: Callable[[Rows], Tensor],
    rows: Rows,
    plan: Plan | None = None,
    batch: int = 128,
) -> FeatureCache:
    """Features of every different row, in batches, without a graph."""
    plan, different = plan or Plan(), np.unique(rows)

    def one(part: Rows) -> Tensor:
        """The features of one batch."""
        x = load(part)
        with plain_autograd():
            z, _ = network.features(params, buffers, x.reshape(-1, *x.shape[-3:]), "stored")
        return z.view(*x.shape[:-3], -1)

    def some(parts: list[Rows]) -> list[tuple[Tensor, ...]]:
        """The features of several batches, in parallel where there are workers."""
        several = plan.mode in ("threads", "processes")
        features = map_in_threads(one, parts, plan.threads) if several else list(map(one, parts))
        return [(z,) for z in features]

    parts = np.split(different, range(batch, len(different), batch))
    device = next(iter(params.values())).device
    with torch.no_grad():
        features = [z.to(device) for (z,) in map_over_ranks(some, parts, plan.ranks, 4 * plan.threads)]
    return FeatureCache(different, torch.cat(features))
