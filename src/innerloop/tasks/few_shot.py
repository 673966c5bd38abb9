"""Single episodes, looked up in blocks that were drawn together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.random import derive_seed, hashed_uniform
from innerloop.core.types import Batch, RaggedBatch, Task, TaskBatch
from innerloop.data.opening import open_source
from innerloop.data.source import ImageSource
from innerloop.tasks.episodes import (
    EpisodeRows,
    Kind,
    check_counts,
    choose_across_groups,
    choose_classes,
    choose_from_one_group,
    choose_rows,
    split_rows,
    unbalanced_shots,
)
from innerloop.tasks.loading import PictureLoader, Transform, image_loader, standardiser
from innerloop.tasks.sampler import Sampler


class Episode(NamedTuple):
    """One episode: rows of its pictures, support first, and labels that are its own to change."""

    rows: NDArray[np.int64]
    support: int
    y_support: Tensor
    y_query: Tensor
    id: Tensor


class _EpisodeBlock(NamedTuple):
    """Episodes side by side: their rows, and per episode all pictures and all numbers in one line."""

    rows: EpisodeRows
    pictures: NDArray[np.int64]
    numbers: NDArray[np.int64]


class RowBlocks:
    """Rows of episodes of one kind, drawn in blocks because most of the cost is per call; gives copies."""

    SIZE, KEPT = 128, 8

    def __init__(
        self,
        rows: Callable[[NDArray[np.int64]], EpisodeRows],
        number: NDArray[np.int64],
        device: torch.device | str = "cpu",
    ) -> None:
        self._rows, self._number, self._device = rows, number, device
        self._blocks: dict[int, _EpisodeBlock] = {}

    def __call__(self, index: NDArray[np.int64]) -> EpisodeRows:
        """The rows of those episodes."""
        first, n = int(index[0]), len(index)
        block, place = divmod(first, self.SIZE)
        if (
            place + n > self.SIZE
            or int(index[-1]) != first + n - 1
            or (n > 2 and (np.diff(index) != 1).any())
        ):
            return self._rows(index)
        return EpisodeRows(*(field[place : place + n].copy() for field in self._block(block).rows))

    def episode(self, i: int) -> Episode:
        """The ``i``-th episode alone."""
        block, place = divmod(i, self.SIZE)
        whole = self._block(block)
        support, query = whole.rows.support.shape[1], whole.rows.query.shape[1]
        numbers = torch.from_numpy(whole.numbers[place].copy()).to(self._device)
        y_support, y_query, ids = numbers.split_with_sizes([support, query, len(numbers) - support - query])
        return Episode(whole.pictures[place], support, y_support, y_query, ids)

    def _block(self, block: int) -> _EpisodeBlock:
        whole = self._blocks.get(block)
        if whole is None:
            rows = self._rows(np.arange(block * self.SIZE, (block + 1) * self.SIZE))
            numbers = (rows.support_labels, rows.query_labels, self._number[rows.classes])
            whole = _EpisodeBlock(
                rows, np.concatenate([rows.support, rows.query], 1), np.concatenate(numbers, 1)
            )
            self._blocks[block] = whole
            if len(self._blocks) > self.KEPT:
                self._blocks.pop(next(iter(self._blocks)), None)
        return whole


class FewShot(NamedTuple):
    """Episodes down to row numbers, before any picture is touched."""

    source: ImageSource
    rows: Callable[[NDArray[np.int64], int], EpisodeRows]
    kind_of: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    kinds: tuple[Kind, ...]
    classes: NDArray[np.int64]


def split_classes(source: ImageSource, split: str) -> NDArray[np.int64]:
    """The classes of a split, or an error that lists the splits there are."""
    if split == "all":
        return np.arange(source.n_classes)
    sizes = {name: len(classes) for name, classes in source.splits.items() if len(classes)}
    known = ", ".join(f"{name} ({n} classes)" for name, n in sizes.items()) or "none"
    if split not in source.splits:
        raise UserError(f"{source.name} has no split '{split}'{did_you_mean(split, sizes)}; it has {known}.")
    if split not in sizes:
        raise UserError(
            f"the split '{split}' of {source.name} has no classes, which tasks could be drawn from; it has "
            f"{known}: list classes under '{split}' too."
        )
    return source.splits[split]


def few_shot(
    source: ImageSource, split: str, seed: int, kinds: Sequence[Kind], balanced: bool = True
) -> FewShot:
    """Episodes of a mixture of kinds of tasks, checked before any is drawn."""
    pool = split_classes(source, split)
    base = derive_seed(seed, "few-shot", split)
    places = [f"kinds[{place}]." if len(kinds) > 1 else "" for place in range(len(kinds))]
    pools = [
        _group_pools(source, pool, kind, split, place) for kind, place in zip(kinds, places, strict=True)
    ]
    for kind, groups, place in zip(kinds, pools, places, strict=True):
        members = np.concatenate(groups) if groups else pool
        check_counts(source, members, kind, balanced, split, place)
    shares = np.cumsum([kind.share for kind in kinds])

    def kind_of(index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which kind every episode is."""
        if len(kinds) == 1:
            return np.zeros(len(index), np.int64)
        u = hashed_uniform(derive_seed(base, "kind"), index, 1)[:, 0] * shares[-1]
        return np.minimum(np.searchsorted(shares, u, side="right"), len(kinds) - 1)

    def rows(index: NDArray[np.int64], which: int) -> EpisodeRows:
        """The pictures of episodes that are all of one kind."""
        kind, groups = kinds[which], pools[which]
        if kind.choice == "one-group":
            classes = choose_from_one_group(base, index, groups, kind.ways)
        elif kind.choice == "across-groups":
            classes = choose_across_groups(base, index, groups, kind.ways)
        else:
            classes = choose_classes(base, index, np.concatenate(groups) if groups else pool, kind.ways)
        shots = None if balanced else unbalanced_shots(base, index, kind)
        most = kind.shots if shots is None else int(shots.max())
        picked = choose_rows(base, index, classes, source, most + kind.queries)
        return split_rows(picked, classes, kind, shots)

    return FewShot(source, rows, kind_of, tuple(kinds), pool)


def _group_pools(
    source: ImageSource, pool: NDArray[np.int64], kind: Kind, split: str, place: str
) -> list[NDArray[np.int64]]:
    """The classes of every group that the kind draws from, within the split; ``place`` as in check_counts."""
    if kind.choice == "any" and kind.groups is None:
        return []
    if source.groups is None:
        raise UserError(
            f"{source.name} has no groups of classes (alphabets, superclasses): set {{{place}choice}}=any.",
            names=(f"{place}choice",),
        )
    names = list(source.group_names)
    unknown = [g for g in kind.groups or () if g not in names]
    if unknown:
        raise UserError(f"{source.name} has no group '{unknown[0]}'{did_you_mean(unknown[0], names)}.")
    wanted = range(len(names)) if kind.groups is None else [names.index(g) for g in kind.groups]
    of_pool = source.groups[pool]
    members = [pool[of_pool == g] for g in wanted if (of_pool == g).any()]
    ways = kind.ways
    if kind.choice == "one-group":
        large = [group for group in members if len(group) >= ways]
        if not large:
            most = max(map(len, members), default=0)
            fix = f"lower {{{place}ways}} to {most}" if most > 1 else "draw from other groups"
            raise UserError(
                f"no group of the split '{split}' of {source.name} has {ways} classes: {fix}.",
                names=(f"{place}ways",),
            )
        return large
    if kind.choice == "across-groups" and len(members) < ways:
        raise UserError(
            f"{ways} classes from different groups need {ways} groups; the split '{split}' of {source.name} "
            f"has {len(members)}: lower {{{place}ways}} to {len(members)}.",
            names=(f"{place}ways",),
        )
    return members


def few_shot_sampler(
    source: ImageSource | str,
    split: str = "train",
    *,
    seed: int = 0,
    ways: int = 5,
    shots: int = 1,
    queries: int = 15,
    kinds: Sequence[Kind] | None = None,
    balanced: bool = True,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    transform: Transform | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Sampler:
    """N-way K-shot episodes; the ``i``-th one is a pure function of ``(seed, i)``, down to file names.

    Args:
        source: the pictures, or the name of a dataset or a folder.
        split: ``train``, ``validation``, ``test``, or ``all``.
        seed: of the stream; splits never share episodes.
        ways: classes per episode.
        shots: support pictures per class.
        queries: query pictures per class.
        kinds: a mixture of kinds of tasks instead of one; kinds of unequal shape make ragged batches.
        balanced: false draws unequal shots per class, with the same total and at least one each.
        mean: of each channel on a scale of 0 to 1, subtracted; pictures stay in 0 to 1 if omitted.
        std: of each channel, divided by.
        transform: augmentation of the batch in 0 to 1, before mean and deviation.
        dtype: of the pictures given out.
        device: where they are put.

    >>> from innerloop import glyphs
    >>> episodes = few_shot_sampler(glyphs(), "train", seed=0, ways=5, shots=1, queries=3)
    >>> task = episodes.episode(17)
    >>> task.x_support.shape, task.y_query.tolist()[:6]
    (torch.Size([5, 1, 28, 28]), [0, 0, 0, 1, 1, 1])
    >>> episodes.files(17)["support"][0]
    'alphabet05/character03/07'
    """
    source = open_source(source) if isinstance(source, str) else source
    kinds = tuple(kinds) if kinds is not None else (Kind(ways, shots, queries),)
    plan = few_shot(source, split, seed, kinds, balanced)
    pictures = PictureLoader(
        image_loader(source, dtype, device), standardiser(mean, std, dtype, device), transform
    )
    number = np.full(source.n_classes, -1, np.int64)
    number[plan.classes] = np.arange(len(plan.classes))
    blocks = RowBlocks(lambda index: plan.rows(index, 0), number, device)
    rows_of = (lambda index, _: blocks(index)) if len(kinds) == 1 else plan.rows

    def of_kind(index: NDArray[np.int64], kind: int) -> TaskBatch:
        """Episodes that are all of one kind."""
        rows = rows_of(index, kind)
        xs, xq = pictures.of_episodes(rows.support, rows.query, index)
        ys, yq = torch.from_numpy(rows.support_labels), torch.from_numpy(rows.query_labels)
        ids = torch.from_numpy(number[rows.classes])
        return TaskBatch(xs, ys.to(device), xq, yq.to(device), ids.to(device))

    def episodes(indices: Sequence[int]) -> Batch:
        """The episodes of these numbers, as one batch."""
        index = np.asarray(indices, dtype=np.int64)
        return of_kind(index, 0) if len(kinds) == 1 else _mixed(plan, of_kind, index)

    def one(i: int) -> Task:
        """One episode alone, without the axis of a batch."""
        drawn = blocks.episode(i)
        xs, xq = pictures.of_one(drawn.rows, drawn.support, i)
        return Task(xs, drawn.y_support, xq, drawn.y_query, drawn.id)

    def hard(indices: Sequence[int]) -> NDArray[np.bool_]:
        """Which episodes are of a hard kind."""
        return np.array([kind.hard for kind in kinds])[plan.kind_of(np.asarray(indices, dtype=np.int64))]

    name, alone = f"{source.name}/{split}", one if len(kinds) == 1 else None
    told = hard if any(kind.hard for kind in kinds) else None
    return Sampler(episodes, None, name, lambda i: _files(plan, i), alone, told)


def _mixed(
    plan: FewShot, of_kind: Callable[[NDArray[np.int64], int], TaskBatch], index: NDArray[np.int64]
) -> Batch:
    """Episodes of several kinds, drawn kind by kind and put back in order."""
    which = plan.kind_of(index)
    parts = [(np.flatnonzero(which == kind), int(kind)) for kind in np.unique(which)]
    batches = [of_kind(index[places], kind) for places, kind in parts]
    order = np.argsort(np.concatenate([places for places, _ in parts]), kind="stable")
    if len({(kind.ways, kind.shots, kind.queries) for kind in plan.kinds}) > 1:
        tasks = [task for batch in batches for task in batch.tasks()]
        return RaggedBatch(tuple(tasks[i] for i in order))
    back = torch.from_numpy(order)
    return TaskBatch(*(torch.cat(fields)[back] for fields in zip(*batches, strict=True)))


def _files(plan: FewShot, i: int) -> dict[str, object]:
    """The names behind an episode: its kind, its classes, its pictures."""
    index, source = np.asarray([i], dtype=np.int64), plan.source
    kind = int(plan.kind_of(index)[0])
    rows = plan.rows(index, kind)
    return {
        "kind": plan.kinds[kind].name,
        "classes": [source.class_names[c] for c in rows.classes[0]],
        "support": [source.files(int(r)) for r in rows.support[0]],
        "query": [source.files(int(r)) for r in rows.query[0]],
    }
