"""Plain minibatches of labelled pictures, as tasks without a query set: what pre-training consumes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from innerloop.core.random import derive_seed
from innerloop.core.types import TaskBatch
from innerloop.data.opening import open_source
from innerloop.data.source import ImageSource
from innerloop.tasks.few_shot import split_classes
from innerloop.tasks.loading import Transform, image_loader, standardiser
from innerloop.tasks.sampler import Sampler, task_order


def supervised_sampler(
    source: ImageSource | str,
    split: str = "train",
    *,
    seed: int = 0,
    size: int = 64,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    transform: Transform | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Sampler:
    """Minibatch ``i`` holds ``size`` pictures of the split; every pass over them is in a new order.

    Labels count the split's classes from 0. The pictures stand in the support set; the query set is empty.

    Args:
        source: the pictures, or the name of a dataset or a folder.
        split: ``train``, ``validation``, ``test``, or ``all``.
        seed: of the order.
        size: pictures in a minibatch.
        mean: of each channel on a scale of 0 to 1, subtracted; pictures stay in 0 to 1 if omitted.
        std: of each channel, divided by.
        transform: augmentation of the batch in 0 to 1, before mean and deviation.
        dtype: of the pictures given out.
        device: where they are put.

    >>> from innerloop import glyphs
    >>> batch = supervised_sampler(glyphs(), "train", seed=0, size=8).batch(0, 1)
    >>> batch.x_support.shape, batch.x_query.shape
    (torch.Size([1, 8, 1, 28, 28]), torch.Size([1, 0, 1, 28, 28]))
    """
    source = open_source(source) if isinstance(source, str) else source
    classes = split_classes(source, split)
    rows = np.concatenate([np.arange(source.starts[c], source.starts[c + 1]) for c in classes])
    labels = np.repeat(np.arange(len(classes)), source.counts[classes])
    stream = derive_seed(seed, "supervised", split)
    load, scale = image_loader(source, dtype, device), standardiser(mean, std, dtype, device)

    def episodes(indices: Sequence[int]) -> TaskBatch:
        """The minibatches of these numbers."""
        index = np.asarray(indices, dtype=np.int64)
        places = (index[:, None] * size + np.arange(size)).reshape(-1)
        chosen = task_order(stream, len(rows), places).reshape(len(index), size)
        x = load(rows[chosen])
        if transform is not None:
            x = transform(x, index.tolist())
        x, y = scale(x), torch.from_numpy(labels[chosen]).to(device)
        number = torch.from_numpy(index.copy()).to(device)
        return TaskBatch(x, y, x[:, :0], y[:, :0], number)

    return Sampler(episodes, None, f"{source.name}/{split} minibatches")


DEGREES = (0, 90, 180, 270)


def _turned_name(source: ImageSource, row: int) -> str:
    """The name of a row's file, with the turn appended."""
    turn, original = divmod(row, len(source.images))
    return source.files(original) + (f"#{DEGREES[turn]}" if turn else "")


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
        files=partial(_turned_name, source),
        content_sha256=f"{source.content_sha256}+rotations",
    )
