"""Judging a frozen network by the field's protocol: features once, then thousands of heads at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from innerloop.core.statistics import mean_interval
from innerloop.core.types import Buffers, Params
from innerloop.data.source import ImageSource
from innerloop.evaluation.features import CACHEABLE, Rows, pictures_of
from innerloop.evaluation.judges import Judge, by_cached_features, by_episode_features, by_fine_tuning
from innerloop.evaluation.protocol import FINE_TUNING, Protocol, check_protocol
from innerloop.evaluation.scores import Evaluation
from innerloop.execution import Plan
from innerloop.execution.plan import torch_threads
from innerloop.execution.ranks import shared_out
from innerloop.nets.network import Network
from innerloop.tasks.few_shot import FewShot, Kind, few_shot

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

    Raises:
        UserError: for an unknown head, another norm policy than the network's, too few pictures.

    >>> from innerloop.data.glyphs import glyphs
    >>> from innerloop.nets.conv4 import conv4
    >>> net = conv4(1, 28, 5, filters=8, norm="group")
    >>> params, buffers = net.init(torch.Generator().manual_seed(0))
    >>> protocol = Protocol(shots=1, queries=5, episodes=10, norm="group", head="cosine")
    >>> found = evaluate_head(net, params, buffers, glyphs(), protocol)
    >>> found.interval.mean > 0.3                        # untrained, and well above chance
    True
    """
    check_protocol(protocol, network.norm)
    episodes = few_shot(source, split, protocol.seed, tuple(kinds or protocol.kinds()), balanced)
    example = next(iter(params.values()))
    pictures = pictures_of(
        source, seed=protocol.seed, mean=mean, std=std, dtype=example.dtype, device=example.device
    )
    given, plan = plan, (plan or Plan())._replace(compile="off")
    with torch_threads(given), torch.no_grad():
        if protocol.head == FINE_TUNING:
            judge = by_fine_tuning(network, params, buffers, pictures, protocol, plan)
        elif network.norm in CACHEABLE:
            used = _used_rows(episodes, protocol.episodes)
            judge = by_cached_features(network, params, buffers, pictures, protocol, plan, used)
        else:
            judge = by_episode_features(network, params, buffers, pictures, protocol, plan)
        # where episodes are judged one by one, ranks share them in smaller portions
        together = ALONE if protocol.head == FINE_TUNING and plan.ranks > 1 else TOGETHER
        scores, unconverged = _scores(episodes, protocol.episodes, judge, together, plan.ranks)
    return Evaluation(scores, mean_interval(scores), "accuracy", unconverged)


def _by_kind(episodes: FewShot, count: int, together: int = TOGETHER) -> list[tuple[Rows, int]]:
    """Episode numbers of every kind, at most ``together`` at a time."""
    index = np.arange(count)
    which = episodes.kind_of(index)
    groups = [(index[which == kind], int(kind)) for kind in np.unique(which)]
    return [
        (part, kind) for mine, kind in groups for part in np.split(mine, range(together, len(mine), together))
    ]


def _scores(
    episodes: FewShot, count: int, judge: Judge, together: int, ranks: int
) -> tuple[list[float], int]:
    def some(groups: list[tuple[Rows, int]]) -> list[tuple[Tensor, ...]]:
        found = [judge(episodes.rows(index, kind), episodes.kinds[kind].shape.ways) for index, kind in groups]
        return [(verdict.accuracy.double().cpu(), torch.tensor(verdict.unconverged)) for verdict in found]

    out, unconverged = np.full(count, np.nan), 0
    groups = _by_kind(episodes, count, together)
    for (index, _), (accuracy, left) in zip(groups, shared_out(some, groups, ranks), strict=True):
        out[index] = accuracy.numpy()
        unconverged += int(left)
    return [float(value) for value in out], unconverged


def _used_rows(episodes: FewShot, count: int) -> tuple[Rows, Rows]:
    """Rows that occur as support, and as query, in any of the episodes."""
    found = [episodes.rows(index, kind) for index, kind in _by_kind(episodes, count)]
    return (
        np.unique(np.concatenate([rows.support.reshape(-1) for rows in found])),
        np.unique(np.concatenate([rows.query.reshape(-1) for rows in found])),
    )
