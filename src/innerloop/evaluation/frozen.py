"""Judging a frozen network by the field's protocol: features once, then thousands of heads at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.statistics import mean_interval
from innerloop.core.types import Buffers, Params
from innerloop.data.source import ImageSource
from innerloop.evaluation.features import CACHEABLE, FeatureCache, Rows, pictures_of
from innerloop.evaluation.grid import grid_of
from innerloop.evaluation.heads import check_head
from innerloop.evaluation.judges import (
    Judge,
    Subject,
    by_cached_features,
    by_episode_features,
    by_features,
    by_fine_tuning,
)
from innerloop.evaluation.labelling import Predicted, predicted
from innerloop.evaluation.protocol import FINE_TUNING, Protocol, check_grid, check_protocol
from innerloop.evaluation.scores import Evaluation, GridRow
from innerloop.nets.network import Network
from innerloop.tasks.few_shot import FewShot, Kind, few_shot
from innerloop.training.execution.plan import Plan, torch_threads
from innerloop.training.execution.ranks import shared_out

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
    subject = Subject(network, params, buffers, pictures, protocol, plan)
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
            v = judge(episodes.rows(index, kind), episodes.kinds[kind].shape.ways)
            said = v.said[: int((index < keep).sum())]  # numbers rise within a group
            told.append((v.accuracy.double().cpu(), torch.tensor(v.unconverged), v.grid.cpu(), said.cpu()))
        return told

    count, unconverged = protocol.episodes, 0
    groups = _by_kind(episodes, count, together)
    settings = grid_of(protocol) if protocol.grid else []
    out, table = np.full(count, np.nan), np.full((count, len(settings) + 1), np.nan)
    labels: list[Predicted] = []
    for (index, _), (accuracy, left, grid, said) in zip(groups, shared_out(some, groups, ranks), strict=True):
        out[index] = accuracy.numpy()
        labels += predicted(said, index[: len(said)].tolist())
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
