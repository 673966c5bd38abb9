"""What a score looks at: a few tasks, small crops of pictures, and a seed, for every repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.random import derive_seed, generator, hashed_uniform
from innerloop.core.types import TaskBatch
from innerloop.data.augment import Augmentation, augment, lee2019
from innerloop.data.source import ImageSource
from innerloop.tasks.episodes import Kind
from innerloop.tasks.few_shot import FewShot, few_shot
from innerloop.tasks.loading import image_loader, standardiser

CROP, CROPS = 3, 3000
"""Side and number of the crops on which linear regions are counted (TE-NAS, MetaNTK-NAS)."""

CROP_BATCH = 1000
"""Crops that are passed, and normalised, together."""

COLOUR = ((125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255))
"""Mean and deviation of colour pictures in the search of MetaNTK-NAS, whatever the data."""

_Index: TypeAlias = NDArray[np.int64]
_SEEN = 1000  # pictures from which mean and deviation are taken where they are not given
_AT_ONCE = 250  # pictures that are resized together


class Draw(NamedTuple):
    """One repeat's data.

    Attributes:
        tasks: inputs and labels; by default three tasks of 5 classes, one support and one query picture each.
        crops: ``(inputs, 1, 3, 3)``, for linear regions.
        seed: of first weights and fresh last layers.
    """

    tasks: TaskBatch
    crops: Tensor
    seed: int


Draws: TypeAlias = Callable[[int], Draw]
"""Number of a repeat → its data, a pure function of the number."""


def digest(draw: Draw) -> str:
    """Short and the same for equal data only."""
    made = hashlib.sha256(str(draw.seed).encode())
    for tensor in (*draw.tasks, draw.crops):
        made.update(repr((tuple(tensor.shape), str(tensor.dtype))).encode())
        made.update(np.ascontiguousarray(tensor.cpu().numpy()).tobytes())
    return made.hexdigest()[:16]


@dataclass(frozen=True)
class PictureDraws:
    """Draws from labelled pictures, as MetaNTK-NAS makes them; picklable.

    Support pictures are cropped after padding and flipped, query pictures are not. Crops come from the same
    classes, each of one colour channel drawn for it.

    Attributes:
        source: the pictures.
        seed: of all draws.
        split: where classes are drawn from.
        ways: classes of a task.
        shots: support pictures of a class.
        queries: query pictures of a class.
        tasks: how many.
        side: pictures are resized to this side; their own if omitted (the paper: 32).
        crops: how many.
        fixed: tasks come from this many fixed ones (the released code: 1000); from an endless stream if
            omitted.
        flip: the probability to mirror a support picture; one half for colour pictures if omitted, else 0.
        mean: of each channel; the released code's for colour pictures if omitted, else that of the data.
        std: likewise.
        dtype: of the numbers.

    >>> from innerloop import glyphs
    >>> draws = PictureDraws(glyphs(), seed=0, side=16, crops=50)
    >>> draw = draws(2)
    >>> draw.tasks.x_support.shape, draw.crops.shape, digest(draw) == digest(draws(2))
    (torch.Size([3, 5, 1, 16, 16]), torch.Size([50, 1, 3, 3]), True)
    """

    source: ImageSource
    seed: int
    split: str = "train"
    ways: int = 5
    shots: int = 1
    queries: int = 1
    tasks: int = 3
    side: int | None = None
    crops: int = CROPS
    fixed: int | None = None
    flip: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if min(self.size, *self.source.images.shape[1:3]) < CROP:
            raise UserError(f"pictures of side {self.size} have no crops of {CROP}×{CROP}: use larger ones.")
        if self.fixed is not None and self.fixed < self.tasks:
            raise UserError(
                f"{self.tasks} tasks cannot be drawn from {self.fixed} fixed ones: set "
                f"{{fixed}}={self.tasks} or more.",
                names=("fixed",),
            )
        _ = self._plan  # refuses a split with too few classes or pictures

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to other processes: the fields alone."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def size(self) -> int:
        """Side of the pictures given out."""
        return self.side or int(self.source.images.shape[1])

    @cached_property
    def _plan(self) -> FewShot:
        kind = Kind(self.ways, self.shots, self.queries)
        return few_shot(self.source, self.split, self.seed, (kind,))

    @cached_property
    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of each channel."""
        if self.mean is not None:
            return self.mean, self.std or (1.0,) * len(self.mean)
        if self.source.images.shape[-1] == len(COLOUR[0]):
            return COLOUR
        seen = self.source.images[self._rows("statistics", 0, _SEEN)] / 255.0
        deviation = np.maximum(seen.std((0, 1, 2)), 1 / 255)
        return tuple(seen.mean((0, 1, 2)).tolist()), tuple(deviation.tolist())

    def __call__(self, repeat: int) -> Draw:
        """The data of a repeat."""
        seed = derive_seed(self.seed, "repeat", repeat)
        return Draw(self._tasks(repeat, seed), self._crops(repeat), seed)

    def _tasks(self, repeat: int, seed: int) -> TaskBatch:
        index = np.arange(self.tasks) + repeat * self.tasks
        if self.fixed is not None:
            index = torch.randperm(self.fixed, generator=generator(seed, "tasks"))[: self.tasks].numpy()
        rows = self._plan.rows(index, 0)
        scale = standardiser(*self.statistics, self.dtype)
        support = self._pictures(rows.support)
        numbers = range(support.shape[0] * support.shape[1])
        flat = augment(support.flatten(0, 1), list(numbers), derive_seed(seed, "support"), self._strength())
        x, y = (torch.from_numpy(part) for part in (rows.support_labels, rows.query_labels))
        return TaskBatch(
            scale(flat.view_as(support)),
            x,
            scale(self._pictures(rows.query)),
            y,
            torch.from_numpy(rows.classes),
        )

    def _strength(self) -> Augmentation:
        colour = self.source.images.shape[-1] == len(COLOUR[0])
        flip = (0.5 if colour else 0.0) if self.flip is None else self.flip
        return Augmentation(lee2019(self.size).pad, flip, 0.0, 0.0, 0.0)

    def _pictures(self, rows: _Index) -> Tensor:
        """Rows of any shape → pictures in 0 to 1, of the wanted side."""
        x = image_loader(self.source, self.dtype)(rows)
        if x.shape[-2:] == (self.size, self.size):
            return x
        flat = F.interpolate(x.flatten(0, -4), (self.size, self.size), mode="bilinear", antialias=True)
        return flat.view(*rows.shape, *flat.shape[1:])

    def _rows(self, name: str, repeat: int, count: int) -> _Index:
        """Pictures of the split, all different in one pass through it."""
        classes = self._plan.classes
        members = np.concatenate([np.arange(*self.source.starts[[c, c + 1]]) for c in classes])
        key = derive_seed(self.seed, name, repeat)
        passes = [
            np.argsort(hashed_uniform(key, np.array([turn]), len(members))[0], kind="stable")
            for turn in range(-(-count // len(members)))
        ]
        return members[np.concatenate(passes)[:count]]

    def _crops(self, repeat: int) -> Tensor:
        rows = self._rows("crops", repeat, self.crops)
        u = hashed_uniform(derive_seed(self.seed, "places", repeat), np.arange(self.crops), 3)
        y, x = ((u[:, i] * (self.size - CROP + 1)).astype(np.int64) for i in (0, 1))
        colour = (u[:, 2] * self.source.images.shape[-1]).astype(np.int64)
        mean, std = (
            torch.tensor(part, dtype=self.dtype)[colour].view(-1, 1, 1, 1) for part in self.statistics
        )
        return (self._windows(rows, y, x, colour)[:, None] - mean) / std

    def _windows(self, rows: _Index, y: _Index, x: _Index, colour: _Index) -> Tensor:
        """One channel of small windows of pictures, in 0 to 1: ``(n, 3, 3)``."""
        place, colour = np.arange(CROP), colour[:, None, None]
        down, across = y[:, None, None] + place[:, None], x[:, None, None] + place
        if self.source.images.shape[1:3] == (self.size, self.size):  # bytes of whole pictures are not needed
            return (
                torch.from_numpy(self.source.images[rows[:, None, None], down, across, colour]).to(self.dtype)
                / 255
            )
        taken = []
        for at in range(0, len(rows), _AT_ONCE):
            part = slice(at, at + _AT_ONCE)
            pictures = self._pictures(rows[part])
            each = np.arange(len(pictures))[:, None, None]
            taken.append(pictures[each, colour[part], down[part], across[part]])
        return torch.cat(taken)
