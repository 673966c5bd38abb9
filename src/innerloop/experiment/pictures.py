"""Samplers of pictures, from a recipe."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from innerloop.core.random import derive_seed
from innerloop.data.source import ImageSource
from innerloop.experiment.messages import episode_words
from innerloop.experiment.picture_record import read_kept, with_kept_splits
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES, kinds_asked
from innerloop.experiment.recipe.schema import DataSettings, Recipe
from innerloop.tasks.episodes import Kind
from innerloop.tasks.sampler import Sampler

if TYPE_CHECKING:
    from innerloop.data.pictures import Progress


class Scale(NamedTuple):
    """Mean and deviation of each channel, from 0 to 1; both None where pictures stay as they are."""

    mean: list[float] | None
    std: list[float] | None


def own_scale(kind: str) -> tuple[list[float], list[float]] | None:
    """Mean and deviation that a network wants pictures in 0…1 standardised by; None if it has no wish."""
    from innerloop.nets.hugging_face import PREFIX, is_hugging_face, read_preprocessing
    from innerloop.nets.pretrained import PRETRAINED

    if kind in PRETRAINED:
        return PRETRAINED[kind].preprocessing.scale()
    if is_hugging_face(kind):
        return read_preprocessing(kind.removeprefix(PREFIX)).scale()
    return None


def open_pictures(data: DataSettings, progress: Progress | None = None) -> ImageSource:
    """The pictures that a recipe names, as their publisher or their folder splits them."""
    from innerloop.data.opening import open_source
    from innerloop.data.pictures import silent

    kept = read_kept(data.split_file)
    source = open_source(
        data.name,
        size=data.size,
        colour=data.colour,
        splits=data.splits,
        split_file=None if kept else data.split_file,
        on_bad=data.on_bad,
        leave_out=data.leave_out,
        progress=progress or silent,
    )
    return with_kept_splits(source, kept) if kept else source


_opened = functools.lru_cache(maxsize=4)(open_pictures)


@functools.lru_cache(maxsize=4)
def plain_source(data: DataSettings) -> ImageSource:
    """The pictures of a recipe without rotations, with a validation split; opened once per process."""
    source = _opened(data)
    return _with_validation(source) if _lacks_validation(source) else source


@functools.lru_cache(maxsize=4)
def _source(data: DataSettings) -> ImageSource:
    from innerloop.tasks.supervised import with_rotations

    source = plain_source(data)
    return with_rotations(source) if data.rotations else source


def _lacks_validation(source: ImageSource) -> bool:
    return not len(source.splits.get("validation", ())) and len(source.splits.get("train", ())) > 1


def _with_validation(source: ImageSource) -> ImageSource:
    """Some training classes are held out for validation: see :func:`innerloop.data.splits.hold_out`."""
    from innerloop.data.splits import hold_out

    own = source.splits
    groups = None if source.groups is None else [source.group_names[g] for g in source.groups]
    parts = hold_out(own["train"].tolist(), source.class_names, groups)
    return source._replace(splits={**own, **{part: np.array(c, np.int64) for part, c in parts.items()}})


def build_source(recipe: Recipe) -> ImageSource:
    """The pictures of a recipe; opened once per process."""
    return _source(recipe.data)


def held_out(recipe: Recipe) -> str | None:
    """What is said of validation classes that the split does not have itself; None if it has."""
    if recipe.tasks.family not in IMAGE_FAMILIES or not _lacks_validation(_opened(recipe.data)):
        return None
    source = _opened(recipe.data)
    part, all_of_them = _with_validation(source).splits["validation"], len(source.splits["train"])
    whole = "" if source.groups is None else f" ({len(np.unique(source.groups[part]))} groups)"
    held = f"{len(part)} of {all_of_them} training classes{whole}"
    return f"this split has no validation classes: {held} are held out for it"


def scale_of(recipe: Recipe, pictures: Callable[[], ImageSource]) -> Scale:
    """Mean and deviation that standardise the pictures: the network's own, or what training used and kept."""
    if own := own_scale(recipe.model.kind):
        return Scale(*own)
    if not recipe.data.standardise:
        return Scale(None, None)
    kept = read_kept(recipe.data.split_file)
    if kept and kept["mean"] is not None:
        return Scale(kept["mean"], kept["std"])
    return Scale(*channel_statistics(pictures()))


def channel_statistics(source: ImageSource) -> tuple[list[float], list[float]]:
    """Mean and deviation, 0 to 1, of each channel over some training pictures; over all where none are."""
    from innerloop.tasks.few_shot import split_classes

    classes = split_classes(source, "train" if len(source.splits.get("train", ())) else "all")
    key = (source.content_sha256, source.images.shape, classes.tobytes())
    if not source.content_sha256:  # pictures in memory, which nobody has hashed
        return _channel_statistics(source, classes)
    if key not in _STATISTICS:  # seconds for thousands of pictures, and many recipes share them
        _STATISTICS[key] = _channel_statistics(source, classes)
    return _STATISTICS[key]


_STATISTICS: dict[tuple[str, tuple[int, ...], bytes], tuple[list[float], list[float]]] = {}


def _channel_statistics(source: ImageSource, classes: NDArray[np.int64]) -> tuple[list[float], list[float]]:
    rows = np.concatenate([np.arange(source.starts[c], source.starts[c + 1]) for c in classes])
    some = rows[:: max(1, len(rows) // 5000)]
    channels, values = source.images.shape[-1], np.arange(256) / 255
    counts = np.zeros((channels, 256), np.int64)  # there are no other values: nothing of the size of the data
    for start in range(0, len(some), 100):
        pixels = source.images[some[start : start + 100]].reshape(-1, channels)
        counts += [np.bincount(pixels[:, channel], minlength=256) for channel in range(channels)]
    share = counts / counts.sum(1, keepdims=True)
    mean = share @ values
    std = np.sqrt((share * (values - mean[:, None]) ** 2).sum(1))
    return mean.tolist(), std.tolist()


def build_kinds(recipe: Recipe, training: bool) -> list[Kind]:
    """The kinds of tasks."""
    return [
        Kind(k.ways, k.shots, k.queries, k.choice, tuple(k.groups) or None, k.share, k.name, k.hard)
        for k in kinds_asked(recipe, training)
    ]


def hard_groups(recipe: Recipe, source: ImageSource) -> tuple[str, ...]:
    """The groups whose training tasks are hard: those that are named, else the hardest of the split."""
    from innerloop.tasks.hard_groups import hardest_groups

    tasks = recipe.tasks
    return tuple(tasks.hard_groups) or hardest_groups(source, "train", tasks.ways, tasks.hardest)


def build_image_sampler(
    recipe: Recipe,
    source: ImageSource,
    scale: Scale,
    split: str,
    dtype: torch.dtype,
    hard: tuple[str, ...] = (),
) -> Sampler:
    """Episodes of a split, or minibatches; tasks of ``hard`` groups are drawn apart in training."""
    from innerloop.data.augment import episode_transform, lee2019
    from innerloop.tasks.few_shot import few_shot_sampler
    from innerloop.tasks.hard_groups import by_hardness
    from innerloop.tasks.supervised import supervised_sampler

    training = split == "train"
    seed = recipe.run.seed if training else recipe.eval.seed
    transform = None
    if training and recipe.data.augment == "lee2019":
        transform = episode_transform(derive_seed(seed, "augment"), lee2019(source.images.shape[1]))
    common: dict[str, Any] = {**scale._asdict(), "seed": seed, "transform": transform}
    common |= {"dtype": dtype, "device": recipe.run.device}
    if training and recipe.tasks.family == "supervised":
        return supervised_sampler(source, split, size=recipe.tasks.minibatch, **common)
    kinds = build_kinds(recipe, training)
    if training and hard:
        kinds = by_hardness(kinds[0], source, split, hard, recipe.tasks.hard_share)
    with episode_words(len(recipe.tasks.mixture), training):
        return few_shot_sampler(source, split, kinds=kinds, balanced=recipe.tasks.balanced, **common)


def largest_ways(recipe: Recipe) -> int:
    """The largest number of ways that a task of the recipe can have."""
    return max(kind.ways for training in (True, False) for kind in build_kinds(recipe, training))


def training_classes(source: ImageSource) -> int:
    """How many classes the training split has: rows of a multi-task head."""
    from innerloop.tasks.few_shot import split_classes

    return len(split_classes(source, "train"))
