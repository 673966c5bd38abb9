"""Judging a frozen network by the field's protocol: features once, then thousands of heads at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.losses import accuracy, get_loss, score
from innerloop.core.statistics import mean_interval
from innerloop.core.types import Buffers, Params, Task, TaskBatch
from innerloop.data.source import ImageSource
from innerloop.evaluation.features import (
    CACHEABLE,
    FeatureCache,
    Pictures,
    Rows,
    cached_features,
    finite_problems,
    pictures_of,
)
from innerloop.evaluation.grid import GridPoint, grid_of, judge_grid
from innerloop.evaluation.heads import HEADS, check_head, fit_heads, head_scores, unit, unit_scores
from innerloop.evaluation.protocol import FINE_TUNING, Protocol, check_grid, check_protocol
from innerloop.evaluation.scores import EpisodePredictions, Evaluation, GridRow, marks, read_marks
from innerloop.learners.fine_tuning import fine_tune
from innerloop.nets.network import Network
from innerloop.nets.norms import statistics_for
from innerloop.tasks.episodes import EpisodeRows, Kind
from innerloop.tasks.few_shot import FewShot, few_shot
from innerloop.training.execution.mapping import map_tasks
from innerloop.training.execution.plan import Plan, torch_threads
from innerloop.training.execution.ranks import map_over_ranks

TOGETHER = 200  # episodes whose heads are fitted at a time, to bound memory
ALONE = 20  # episodes that are loaded at a time: TOGETHER is a multiple of it


def evaluate_head(
    network: Network,
    params: Params,
    buffers: Buffers,
    source: ImageSource,
    protocol: Protocol,
    split: str = "test",
    *,
    kinds: Sequence[Kind] | None = None,
    balanced: bool = True,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    plan: Plan | None = None,
    keep: int = 0,
) -> Evaluation:
    """Fits a head on the features of every episode's support set and scores it on the query set.

    Episodes are those of :func:`innerloop.tasks.few_shot.few_shot_sampler` with the same seed, so that any
    two evaluations can be compared pair by pair. Where the norm policy lets a picture be judged on its own,
    features are computed once per picture; under ``support`` and ``transductive`` once per episode.

    Args:
        network: supplies the features; its last layer is not used.
        params: its weights.
        buffers: its running statistics, without noise.
        source: the pictures.
        protocol: ways, shots, head and so on.
        split: which classes.
        kinds: a mixture of kinds of tasks instead of the protocol's one.
        balanced: as in ``few_shot_sampler``.
        mean: of each channel in training, subtracted.
        std: of each channel in training, divided by.
        plan: how to run it; a plain loop if omitted.
        keep: first episodes of which the labels that were given are kept (not those of a grid of heads).

    Raises:
        UserError: for an unknown head, another norm policy than the network's, too few pictures.

    >>> from innerloop import glyphs
    >>> from innerloop import conv4
    >>> net = conv4(1, 28, 5, filters=8, norm="group")
    >>> params, buffers = net.init(torch.Generator().manual_seed(0))
    >>> protocol = Protocol(shots=1, queries=5, episodes=10, norm="group", head="cosine")
    >>> evaluation = evaluate_head(net, params, buffers, glyphs(), protocol)
    >>> evaluation.interval.mean > 0.3                        # untrained, and well above chance
    True
    """
    check_protocol(protocol, network.norm)
    episodes = few_shot(source, split, protocol.seed, tuple(kinds or protocol.kinds()), balanced)
    example = next(iter(params.values()))
    pictures = pictures_of(
        source, seed=protocol.seed, mean=mean, std=std, dtype=example.dtype, device=example.device
    )
    given, plan = plan, (plan or Plan())._replace(compile="off")
    subject = FrozenNetwork(network, params, buffers, pictures, protocol, plan)
    with torch_threads(given), torch.no_grad():
        if protocol.head == FINE_TUNING:
            judge = by_fine_tuning(subject)
        elif network.norm in CACHEABLE:
            judge = by_cached_features(subject, _used_rows(episodes, protocol.episodes))
        else:
            judge = by_episode_features(subject)
        # where episodes are judged one by one, ranks share them in smaller portions
        together = ALONE if protocol.head == FINE_TUNING and plan.ranks > 1 else TOGETHER
        return _evaluation(episodes, protocol, judge, together, plan.ranks, keep)


def evaluate_features(
    embed: Callable[[Rows], Tensor],
    source: ImageSource,
    protocol: Protocol,
    split: str = "test",
    *,
    kinds: Sequence[Kind] | None = None,
    balanced: bool = True,
    plan: Plan | None = None,
    keep: int = 0,
) -> Evaluation:
    """As :func:`evaluate_head`, on the same episodes, with features that come from elsewhere.

    Args:
        embed: different rows of the source, in rising order → their features ``(n, d)``; called once.
        source: the pictures; only their classes and splits are looked at here.
        protocol: ways, shots, head and so on, without copies.
        split: which classes.
        kinds: a mixture of kinds of tasks instead of the protocol's one.
        balanced: as in ``few_shot_sampler``.
        plan: how many threads solve heads.
        keep: as in :func:`evaluate_head`.

    Raises:
        UserError: for an unknown head, one that needs the network itself, too few pictures.

    >>> from innerloop import glyphs
    >>> source = glyphs()
    >>> pixels = lambda rows: torch.from_numpy(source.images[rows].reshape(len(rows), -1) / 255.0)
    >>> evaluation = evaluate_features(pixels, source, Protocol(queries=5, episodes=10, head="centroid"))
    >>> evaluation.interval.mean > 0.3
    True
    """
    check_head(protocol.head)
    check_grid(protocol)
    if protocol.copies:
        raise UserError("features that are there already have no copies: leave copies at 0.")
    episodes = few_shot(source, split, protocol.seed, tuple(kinds or protocol.kinds()), balanced)
    with torch_threads(plan), torch.no_grad():
        rows = np.union1d(*_used_rows(episodes, protocol.episodes))
        cache = FeatureCache(rows, embed(rows))
        return _evaluation(episodes, protocol, by_features(cache, cache, protocol), keep=keep)


def _by_kind(episodes: FewShot, count: int, together: int = TOGETHER) -> list[tuple[Rows, int]]:
    """Episode numbers of every kind, at most ``together`` at a time."""
    index = np.arange(count)
    which = episodes.kind_of(index)
    groups = [(index[which == kind], int(kind)) for kind in np.unique(which)]
    return [
        (part, kind) for mine, kind in groups for part in np.split(mine, range(together, len(mine), together))
    ]


def _evaluation(
    episodes: FewShot,
    protocol: Protocol,
    judge: Judge,
    together: int = TOGETHER,
    ranks: int = 1,
    keep: int = 0,
) -> Evaluation:
    def some(groups: list[tuple[Rows, int]]) -> list[tuple[Tensor, ...]]:
        """Accuracies of groups of episodes, heads that have not converged, the grid, and kept labels."""
        told: list[tuple[Tensor, ...]] = []
        for index, kind in groups:
            v = judge(episodes.rows(index, kind), episodes.kinds[kind].ways)
            said = v.said[: int((index < keep).sum())]  # numbers rise within a group
            told.append((v.accuracy.double().cpu(), torch.tensor(v.unconverged), v.grid.cpu(), said.cpu()))
        return told

    count, unconverged = protocol.episodes, 0
    groups = _by_kind(episodes, count, together)
    settings = grid_of(protocol) if protocol.grid else []
    out, table = np.full(count, np.nan), np.full((count, len(settings) + 1), np.nan)
    labels: list[EpisodePredictions] = []
    for (index, _), (right, left, grid, said) in zip(
        groups, map_over_ranks(some, groups, ranks), strict=True
    ):
        out[index] = right.numpy()
        labels += read_marks(said, index[: len(said)].tolist())
        unconverged += int(left)
        if grid.numel():
            table[index] = grid.numpy()
    scores = [float(value) for value in out]
    intervals = [mean_interval(column.tolist()) for column in table.T] if settings else []
    named: list[tuple[float | None, bool | None]] = [*settings, (None, None)] if settings else []
    rows = tuple(GridRow(*name, one) for name, one in zip(named, intervals, strict=True))
    kept = tuple(sorted(labels))
    return Evaluation(scores, mean_interval(scores), "accuracy", unconverged, grid=rows, predicted=kept)


def _used_rows(episodes: FewShot, count: int) -> tuple[Rows, Rows]:
    """Rows that occur as support, and as query, in any of the episodes."""
    drawn = [episodes.rows(index, kind) for index, kind in _by_kind(episodes, count)]
    return (
        np.unique(np.concatenate([rows.support.reshape(-1) for rows in drawn])),
        np.unique(np.concatenate([rows.query.reshape(-1) for rows in drawn])),
    )


AT_ONCE = 200
"""Heads that are fitted at a time under a grid of settings, to bound memory."""


class Verdict(NamedTuple):
    """Accuracy of each episode, how many of their heads are not proven solutions, and a grid's accuracies."""

    # grid: (E, settings + 1), the last column the ensemble's; said: marks of every episode, none under a grid

    accuracy: Tensor
    unconverged: int
    grid: Tensor = torch.empty(0, 0)
    said: Tensor = torch.empty(0, 3, 0)


Judge = Callable[[EpisodeRows, int], Verdict]
"""``(rows of some episodes, ways) -> how well they are labelled``."""


class FrozenNetwork(NamedTuple):
    """What is judged, and how."""

    network: Network
    params: Params
    buffers: Buffers
    pictures: Pictures
    protocol: Protocol
    plan: Plan


def by_cached_features(subject: FrozenNetwork, used: tuple[Rows, Rows]) -> Judge:
    """Features of the used rows (support, query), each computed once: for norm policies that allow it."""
    network, params, buffers, pictures, protocol, plan = subject
    copies = protocol.copies
    plain = used[1] if copies else np.union1d(*used)
    cache = cached_features(network, params, buffers, pictures.plain, plain, plan)
    shown = cache
    if copies:
        batch = max(1, 128 // copies)
        shown = cached_features(
            network, params, buffers, lambda rows: pictures.copies(rows, copies), used[0], plan, batch
        )
    return by_features(shown, cache, protocol)


def by_features(support: FeatureCache, query: FeatureCache, protocol: Protocol) -> Judge:
    """Features that are there already, of all rows (or of copies of them) that episodes show."""
    # done once per row and not per episode: whether it is finite, and its length
    sound, sound_query = support.finite(), query.finite()
    if ready := protocol.normalise and not protocol.grid:
        support, query = (cache._replace(values=unit(cache.values)) for cache in (support, query))

    def judge(rows: EpisodeRows, ways: int) -> Verdict:
        """Fits heads on the kept features of some episodes."""
        z = support.at(rows.support)
        y = repeated(rows.support_labels, protocol.copies, z.device)
        finite = sound[support.places(rows.support)].all(1) & sound_query[query.places(rows.query)].all(1)
        q = query.at(rows.query)
        return head_accuracy(z.flatten(1, -2), y, q, rows, ways, protocol, finite=finite, ready=ready)

    return judge


def by_episode_features(subject: FrozenNetwork) -> Judge:
    """Features of every episode anew: for statistics that depend on the episode."""
    network, params, buffers, pictures, protocol, plan = subject
    norm = network.norm

    def features(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Tensor]:
        """Features of one episode's support and query set."""
        z, after = network.features(params, buffers, task.x_support, statistics_for(norm, "support", False))
        q, _ = network.features(params, after, task.x_query, statistics_for(norm, "query", False))
        return z, q

    mapped = map_tasks(features, plan)

    def judge(rows: EpisodeRows, ways: int) -> Verdict:
        """Computes the features of some episodes, and fits heads on them."""
        parts = [mapped(params, buffers, part) for part in batches(rows, pictures, protocol.copies)]
        z, q = (torch.cat(part) for part in zip(*parts, strict=True))
        y = repeated(rows.support_labels, protocol.copies, z.device)
        return head_accuracy(z, y, q, rows, ways, protocol)

    return judge


def by_fine_tuning(subject: FrozenNetwork) -> Judge:
    """Gradient steps on the whole network, episode by episode."""
    network, params, buffers, pictures, protocol, plan = subject

    def judge(rows: EpisodeRows, ways: int) -> Verdict:
        """Fine-tunes on every one of some episodes."""
        learner = fine_tune(network, ways, protocol.lr, protocol.steps, protocol.normalise)

        def one(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Tensor]:
            """The accuracy on one episode, and what was said of its queries."""
            adapted = learner.adapt(params, buffers, task.x_support, task.y_support)
            outputs, _ = learner.predict(adapted, task.x_query)
            return score(get_loss("cross-entropy"), outputs, task.y_query), marks(outputs, task.y_query)

        mapped = map_tasks(one, plan)
        parts = [mapped(params, buffers, p) for p in batches(rows, pictures, protocol.copies)]
        scores, said = (torch.cat(part) for part in zip(*parts, strict=True))
        return Verdict(scores, 0, said=said)

    return judge


def batches(rows: EpisodeRows, pictures: Pictures, copies: int) -> Iterator[TaskBatch]:
    """Episodes as the network sees them, a few at a time; support pictures replaced by copies if asked."""
    for start in range(0, len(rows.classes), ALONE):
        part = EpisodeRows(*(field[start : start + ALONE] for field in rows))
        x = pictures.copies(part.support, copies).flatten(1, 2) if copies else pictures.plain(part.support)
        q = pictures.plain(part.query)
        labels = torch.from_numpy(part.query_labels).to(q.device)
        number = torch.from_numpy(part.classes.copy()).to(q.device)
        yield TaskBatch(x, repeated(part.support_labels, copies, x.device), q, labels, number)


def head_accuracy(
    z: Tensor,
    y: Tensor,
    q: Tensor,
    rows: EpisodeRows,
    ways: int,
    protocol: Protocol,
    *,
    finite: Tensor | None = None,
    ready: bool = False,
) -> Verdict:
    """What heads make of episodes, from features ``(E, n, d)`` of supports and ``(E, q, d)`` of queries."""
    # episodes whose features are not finite are not given to a solver: their accuracy is nan
    scores = torch.full((len(z),), torch.nan, dtype=torch.float64, device=z.device)
    finite = finite_problems(z) & finite_problems(q) if finite is None else finite
    finite = finite.nonzero()[:, 0]
    if not len(finite):
        return Verdict(scores, 0)
    whole = len(finite) == len(z)  # as nearly always: nothing is copied
    z, y, q = (z, y, q) if whole else (z[finite], y[finite], q[finite])
    truth = torch.from_numpy(rows.query_labels).to(q.device)[finite]
    if protocol.grid:
        cells, unconverged = _grid(z, y, q, truth, ways, protocol)
        table = torch.full((len(scores), cells.shape[1]), torch.nan, dtype=torch.float64, device=z.device)
        table[finite] = cells
        own = GridPoint(protocol.C, protocol.normalise)
        which = -1 if protocol.ensemble else grid_of(protocol).index(own)
        return Verdict(table[:, which], unconverged, table)
    fitted = fit_heads(z, y, ways, protocol.head, protocol.C, protocol.normalise and not ready)
    decisions = unit_scores(fitted, q) if ready else head_scores(fitted, q, protocol.normalise)
    scores[finite] = accuracy(decisions.double(), truth)
    said = torch.full((len(scores), 3, truth.shape[-1]), torch.nan, device=z.device)
    said[finite] = marks(HEADS[protocol.head].temperature * decisions, truth)
    left = 0 if fitted.converged is None else int((~fitted.converged).sum())
    return Verdict(scores, left, said=said)


def _grid(
    z: Tensor, y: Tensor, q: Tensor, truth: Tensor, ways: int, protocol: Protocol
) -> tuple[Tensor, int]:
    """Accuracies ``(E, settings + 1)``, a few episodes at a time: each has as many heads as settings."""
    settings = grid_of(protocol)
    size = max(1, AT_ONCE // len(settings))
    parts = [
        judge_grid(*some, ways, protocol.head, settings)
        for some in zip(z.split(size), y.split(size), q.split(size), truth.split(size), strict=True)
    ]
    table = torch.cat([torch.cat([part.accuracy, part.ensemble[:, None]], 1) for part in parts])
    return table, sum(part.unconverged for part in parts)


def repeated(labels: Rows, copies: int, device: torch.device) -> Tensor:
    """Labels of the support set, once per copy."""
    return torch.from_numpy(np.repeat(labels, max(1, copies), axis=-1)).to(device)
