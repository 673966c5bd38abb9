"""Turned pictures as classes of their own (Santoro et al. 2016; usual on Omniglot)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from innerloop.data.source import ImageSource

DEGREES = (0, 90, 180, 270)


@dataclass(frozen=True)
class TurnedFiles:
    """File names with the turn appended; a class, because closures cannot be sent to other processes."""

    source: ImageSource

    def __call__(self, row: int) -> str:
        """The name of a row's file."""
        turn, original = divmod(row, len(self.source.images))
        return self.source.files(original) + (f"#{DEGREES[turn]}" if turn else "")


def with_rotations(source: ImageSource) -> ImageSource:
    """Four times as many classes: every class as it is, and turned by 90, 180 and 270 degrees.

    A turned class is in the same split and group as its original. The pictures are held in memory.

    >>> from innerloop import glyphs
    >>> turned = with_rotations(glyphs())
    >>> turned.n_classes, len(turned.splits["train"]), turned.files(12000)
    (2400, 1600, 'alphabet00/character00/00#90')
    """
    n, pictures = source.n_classes, len(source.images)
    images = np.concatenate([np.rot90(source.images, turn, axes=(1, 2)) for turn in range(4)])
    starts = np.concatenate([source.starts[:-1] + turn * pictures for turn in range(4)] + [[4 * pictures]])
    names = tuple(name + (f"#{d}" if d else "") for d in DEGREES for name in source.class_names)
    splits = {
        split: np.concatenate([classes + turn * n for turn in range(4)])
        for split, classes in source.splits.items()
    }
    groups = None if source.groups is None else np.tile(source.groups, 4)
    return source._replace(
        name=f"{source.name}+rotations",
        images=images,
        starts=starts.astype(np.int64),
        class_names=names,
        splits=splits,
        groups=groups,
        files=TurnedFiles(source),
        content_sha256=f"{source.content_sha256}+rotations",
    )
