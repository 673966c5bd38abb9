"""Random crop, colour jitter, flip (Lee et al. 2019); every random number a function of seed and number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.random import derive_seed, hashed_uniform

LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, what Pillow and torchvision take for grey


class Augmentation(NamedTuple):
    """How strongly to augment; zero switches a part off."""

    pad: int = 4
    flip: float = 0.5
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4


def lee2019(size: int) -> Augmentation:
    """The published strengths: pad 8 at 84 pixels, 4 at 32 (a tenth of the side elsewhere)."""
    return Augmentation(pad=8 if size >= 84 else max(1, round(size / 8)))


def pad_crop(x: Tensor, dx: Tensor, dy: Tensor, pad: int) -> Tensor:
    """Crops of the original size out of zero-padded pictures, each at its own offset (0 to 2·pad)."""
    n, _, h, w = x.shape
    padded = F.pad(x, (pad, pad, pad, pad))
    rows = dy[:, None] + torch.arange(h, device=x.device)
    columns = dx[:, None] + torch.arange(w, device=x.device)
    picture = torch.arange(n, device=x.device)
    return padded[picture[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def colour_jitter(x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor) -> Tensor:
    """Factors per picture on brightness, contrast, saturation, in this order, clamped to 0…1 after each."""
    view = (-1, 1, 1, 1)
    x = (x * brightness.view(view)).clamp(0, 1)
    grey = _grey(x)
    mean = grey.mean((1, 2, 3), keepdim=True)
    x = torch.lerp(mean.expand_as(x), x, contrast.view(view)).clamp(0, 1)
    if x.shape[1] == 3:
        x = torch.lerp(_grey(x).expand_as(x), x, saturation.view(view)).clamp(0, 1)
    return x


def _grey(x: Tensor) -> Tensor:
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    luma = torch.tensor(LUMA, dtype=x.dtype, device=x.device).view(1, 3, 1, 1)
    return (x * luma).sum(1, keepdim=True)


def augment(x: Tensor, numbers: Sequence[int], seed: int, strength: Augmentation) -> Tensor:
    """Augments pictures ``(n, C, H, W)`` in 0…1; picture ``j`` by the random numbers of ``numbers[j]``."""
    index = np.asarray(numbers, dtype=np.int64)
    u = torch.from_numpy(hashed_uniform(derive_seed(seed, "augment"), index, 6)).to(x.device)
    if strength.pad:
        dx, dy = ((u[:, i] * (2 * strength.pad + 1)).long() for i in (0, 1))
        x = pad_crop(x, dx, dy, strength.pad)
    if strength.flip:
        x = torch.where((u[:, 2] < strength.flip).view(-1, 1, 1, 1), x.flip(-1), x)
    if strength.brightness or strength.contrast or strength.saturation:
        amounts = (strength.brightness, strength.contrast, strength.saturation)
        factors = [(1 + a * (2 * u[:, 3 + i] - 1)).to(x.dtype) for i, a in enumerate(amounts)]
        x = colour_jitter(x, *factors)
    return x


def episode_transform(seed: int, strength: Augmentation) -> Callable[[Tensor, Sequence[int]], Tensor]:
    """Augmentation of episodes ``(E, n, C, H, W)``: picture ``j`` of episode ``i`` never changes."""

    def transform(x: Tensor, numbers: Sequence[int]) -> Tensor:
        """Augments the pictures of some episodes, which are given by their numbers."""
        n = x.shape[1]
        each = (np.asarray(numbers)[:, None] * 4096 + np.arange(n)).reshape(-1)
        return augment(x.reshape(-1, *x.shape[2:]), each.tolist(), seed, strength).view(x.shape)

    return transform
