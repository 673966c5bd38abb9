"""Which pictures make an episode: pure functions of ``(seed, episode)`` on class and row numbers."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError
from innerloop.core.random import derive_seed, hashed_bits, hashed_uniform
from innerloop.data.source import ImageSource

_TOP = np.uint64(2**64 - 1)
SHORT = 64  # rows of keys up to this length are sorted whole: quicker than selecting first


class EpisodeRows(NamedTuple):
    """Class numbers ``(E, ways)`` and picture rows ``(E, samples)`` with their local labels."""

    classes: NDArray[np.int64]
    support: NDArray[np.int64]
    support_labels: NDArray[np.int64]
    query: NDArray[np.int64]
    query_labels: NDArray[np.int64]


Choice: TypeAlias = Literal["any", "one-group", "across-groups"]


class Kind(NamedTuple):
    """One kind of few-shot task, alone or in a mixture.

    Attributes:
        ways: classes of a task.
        shots: support pictures of each.
        queries: query pictures of each.
        choice: ``any`` classes, all from ``one-group`` (an alphabet: hard), or each from another group
            (``across-groups``: easy).
        groups: names of the groups to draw from; all of the split's if ``None``.
        share: how often, relative to the other kinds.
        name: for reports.
        hard: whether these are the tasks that training may give more weight.
    """

    ways: int
    shots: int
    queries: int
    choice: Choice = "any"
    groups: tuple[str, ...] | None = None
    share: float = 1.0
    name: str = ""
    hard: bool = False


def first_by_key(keys: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """The places of the ``count`` smallest keys along the last axis, smallest first: a random selection."""
    n = keys.shape[-1]
    if n <= SHORT:
        return np.argsort(keys, axis=-1)[..., :count]
    candidates = 4 * count + 16
    if n >= 4 * candidates:
        selected = _below_a_bound(keys.reshape(-1, n), count, candidates)
        if selected is not None:
            return selected.reshape(*keys.shape[:-1], count)
    some = np.argpartition(keys, min(count, n) - 1, axis=-1)[..., :count]
    order = np.argsort(np.take_along_axis(keys, some, -1), axis=-1)
    return np.take_along_axis(some, order, -1)


def _below_a_bound(keys: NDArray[np.uint64], count: int, expected: int) -> NDArray[np.int64] | None:
    """As above for long rows of uniform keys: sorts what lies below a bound that this many should pass."""
    # None if a row has fewer than ``count`` keys below it, which is rare unless rows are padded
    rows, n = keys.shape
    flat = np.ascontiguousarray(keys).reshape(-1)
    places = np.flatnonzero(flat < np.uint64(2**64 * expected // n))
    starts = np.searchsorted(places, n * np.arange(rows + 1))
    counts = np.diff(starts)
    if len(counts) == 0 or int(counts.min()) < count:
        return None
    along = np.arange(int(counts.max()))
    some = places[np.minimum(starts[:-1, None] + along, len(places) - 1)]
    own = np.where(along < counts[:, None], flat[some], _TOP)
    best = np.take_along_axis(some, np.argsort(own, axis=-1)[:, :count], -1)
    return best - n * np.arange(rows)[:, None]


def choose_classes(
    seed: int, index: NDArray[np.int64], pool: NDArray[np.int64], ways: int
) -> NDArray[np.int64]:
    """``ways`` different classes of a pool for every episode: ``(E, ways)``."""
    keys = hashed_bits(derive_seed(seed, "classes"), index, len(pool))
    return pool[first_by_key(keys, ways)]


def choose_from_one_group(
    seed: int, index: NDArray[np.int64], pools: list[NDArray[np.int64]], ways: int
) -> NDArray[np.int64]:
    """All classes of an episode from one group (an alphabet), which is drawn first."""
    group = (hashed_uniform(derive_seed(seed, "group"), index, 1)[:, 0] * len(pools)).astype(np.int64)
    out = np.empty((len(index), ways), np.int64)
    for g in np.unique(group):
        mine = group == g
        out[mine] = choose_classes(derive_seed(seed, "within"), index[mine], pools[g], ways)
    return out


def choose_across_groups(
    seed: int, index: NDArray[np.int64], pools: list[NDArray[np.int64]], ways: int
) -> NDArray[np.int64]:
    """Every class of an episode from another group."""
    keys = hashed_bits(derive_seed(seed, "groups"), index, len(pools))
    groups = first_by_key(keys, ways)
    sizes = np.array([len(pool) for pool in pools])
    which = (hashed_uniform(derive_seed(seed, "member"), index, ways) * sizes[groups]).astype(np.int64)
    padded = np.zeros((len(pools), sizes.max()), np.int64)
    for g, pool in enumerate(pools):
        padded[g, : len(pool)] = pool
    return padded[groups, which]


def choose_rows(
    seed: int, index: NDArray[np.int64], classes: NDArray[np.int64], source: ImageSource, per_class: int
) -> NDArray[np.int64]:
    """``per_class`` different pictures of every class: ``(E, ways, per_class)``."""
    # an episode's keys depend on its own classes only, not on the episodes beside it nor on the pool
    counts = source.counts[classes]
    widest = int(counts.max())
    ways, key = classes.shape[1], derive_seed(seed, "rows")
    if int(counts.min()) == widest:
        keys = hashed_bits(key, index, ways * widest).reshape(len(index), ways, widest)
    else:
        keys = hashed_bits(key, index, widest, np.cumsum(counts, 1) - counts)
        keys[np.arange(widest) >= counts[..., None]] = _TOP
    return source.starts[classes][..., None] + first_by_key(keys, per_class)


def unbalanced_shots(seed: int, index: NDArray[np.int64], kind: Kind) -> NDArray[np.int64]:
    """Random shots per class with the total kept: at least one each, the rest thrown at random."""
    extra = kind.ways * (kind.shots - 1)
    shots = np.ones((len(index), kind.ways), np.int64)
    if extra:
        thrown = hashed_uniform(derive_seed(seed, "unbalanced"), index, extra + kind.ways)
        # each episode has its own taste: classes differ by more than chance would make them
        taste = np.cumsum(-np.log(thrown[:, : kind.ways]), 1)
        landed = thrown[:, kind.ways :] * taste[:, -1:]
        which = (landed[..., None] > taste[:, None, :]).sum(-1)
        for w in range(kind.ways):
            shots[:, w] += (which == w).sum(1)
    return shots


def split_rows(
    rows: NDArray[np.int64], classes: NDArray[np.int64], kind: Kind, shots: NDArray[np.int64] | None
) -> EpisodeRows:
    """Class after class. Queries are the first rows drawn, so more shots leave an episode's queries alone."""
    episodes, ways = classes.shape
    query = rows[..., : kind.queries].reshape(episodes, -1)
    query_labels = np.tile(np.repeat(np.arange(ways), kind.queries), (episodes, 1))
    rest = rows[..., kind.queries :]
    if shots is None:
        support = rest[..., : kind.shots].reshape(episodes, -1)
        labels = np.tile(np.repeat(np.arange(ways), kind.shots), (episodes, 1))
    else:
        taken = np.arange(rest.shape[-1]) < shots[..., None]
        support = rest[taken].reshape(episodes, -1)
        labels = np.nonzero(taken)[1].reshape(episodes, -1)
    return EpisodeRows(classes, support, labels, query, query_labels)


def check_counts(
    source: ImageSource,
    pool: NDArray[np.int64],
    kind: Kind,
    balanced: bool,
    split: str,
    place: str = "",
) -> None:
    """Refuses before sampling what could not be sampled, naming the class and the fix."""
    names = [f"{place}{name}" for name in ("ways", "shots", "queries")]
    if len(pool) < kind.ways:
        number = "one class" if len(pool) == 1 else f"{len(pool)} classes"
        fix = f"Lower {{{place}ways}} to {len(pool)}, or add classes" if len(pool) > 1 else "Add classes"
        raise UserError(
            f"the split '{split}' of {source.name} has {number} to draw from; {kind.ways}-way tasks need "
            f"{kind.ways}. {fix}.",
            names,
        )
    most = kind.shots if balanced else kind.ways * (kind.shots - 1) + 1
    needed = most + kind.queries
    counts = source.counts[pool]
    smallest = int(counts.argmin())
    have = int(counts[smallest])
    if have < needed:
        name = source.class_names[int(pool[smallest])]
        raise UserError(
            f"class '{name}' of the split '{split}' of {source.name} has {have} pictures; {most} "
            f"shot{'s' * (most > 1)} + {kind.queries} queries need {needed}. "
            f"{_fewer(have, most, kind, balanced, place)}dd pictures.",
            names,
        )


def _fewer(have: int, most: int, kind: Kind, balanced: bool, place: str) -> str:
    """The smallest change that makes a class of this many pictures enough."""
    shots, queries = f"{{{place}shots}}", f"{{{place}queries}}"
    if have > most:
        return f"Lower {queries} to {have - most}, or a"
    if have > kind.queries:
        spare = have - kind.queries
        return f"Lower {shots} to {spare if balanced else (spare - 1) // kind.ways + 1}, or a"
    return f"Lower {shots} to 1 and {queries} to {have - 1}, or a" if have > 1 else "A"
