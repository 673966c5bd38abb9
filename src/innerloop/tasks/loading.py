"""Pictures of episodes: gathered from their rows, converted, augmented and standardised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.data.source import ImageSource

Transform: TypeAlias = Callable[[Tensor, Sequence[int]], Tensor]
"""``(pictures (E, n, C, H, W), episode numbers) -> pictures``: augmentation, pure in the numbers."""


class PictureLoader(NamedTuple):
    """How rows become what a network sees."""

    load: Callable[[NDArray[np.int64]], Tensor]
    scale: Callable[[Tensor], Tensor]
    transform: Transform | None

    def of_episodes(
        self, support: NDArray[np.int64], query: NDArray[np.int64], index: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        """Support and query pictures of some episodes, each ``(E, n, C, H, W)``."""
        # support and query are gathered together: one pass over the bytes, one conversion
        pictures = self.load(np.concatenate([support, query], 1))
        xs, xq = pictures[:, : support.shape[1]], pictures[:, support.shape[1] :]
        if self.transform is not None:
            xs, xq = self.transform(xs, (2 * index).tolist()), self.transform(xq, (2 * index + 1).tolist())
        return self.scale(xs), self.scale(xq)

    def of_one(self, rows: NDArray[np.int64], support: int, i: int) -> tuple[Tensor, Tensor]:
        """The same for one episode, each ``(n, C, H, W)``."""
        x = self.load(rows)
        xs, xq = x[:support], x[support:]
        if self.transform is not None:
            xs, xq = self.transform(xs[None], [2 * i])[0], self.transform(xq[None], [2 * i + 1])[0]
        return self.scale(xs), self.scale(xq)


def image_loader(
    source: ImageSource, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Callable[[NDArray[np.int64]], Tensor]:
    """Rows of any shape ``(…)`` → pictures ``(…, C, H, W)`` in 0…1: one gather of bytes, one conversion."""
    # numpy converts bytes to numbers in half of torch's time, and makes the same numbers
    _, height, width, channels = source.images.shape
    flat = np.asarray(source.images).reshape(len(source.images), -1)
    exact = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    scale = np.divide(1.0, 255.0, dtype=np.float64 if exact is torch.float64 else np.float32)
    elsewhere = torch.device(device).type != "cpu" or exact is not dtype

    def load(rows: NDArray[np.int64]) -> Tensor:
        """The pictures of some rows."""
        picked = flat.take(rows.reshape(-1), axis=0)
        if channels > 1:
            picked = np.ascontiguousarray(np.moveaxis(picked.reshape(-1, height, width, channels), -1, 1))
        values = torch.from_numpy(np.multiply(picked, scale, dtype=scale.dtype))
        x = values.view(*rows.shape, channels, height, width)
        return x.to(device, dtype) if elsewhere else x

    return load


def standardiser(
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Callable[[Tensor], Tensor]:
    """Subtracts the mean of each channel and divides by its deviation; does nothing if none is given."""
    if mean is None:
        return lambda x: x
    shift = torch.tensor(mean, dtype=dtype, device=device).view(-1, 1, 1)
    width = torch.tensor(std if std is not None else [1.0] * len(mean), dtype=dtype, device=device).view(
        -1, 1, 1
    )
    return lambda x: (x - shift) / width
