r"""A head under many settings at once: inverse penalties, features of unit length or as they come.

Where the intercept is not penalised, :math:`\tfrac12\|W\|^2 + C\sum_i\ell(Wz_i + b)` is the same problem as
one with :math:`C = 1` for features :math:`\sqrt C z`: its solution is :math:`\sqrt C` times the weights of
that one, with the same intercept. So all settings of all episodes are one batch for a solver.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.losses import accuracy
from innerloop.evaluation.heads import HEADS, fit_heads, head_scores, unit
from innerloop.evaluation.protocol import Protocol
from innerloop.solvers.problems import Linear

PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Inverse penalties of an ensemble for which none are given."""


class GridPoint(NamedTuple):
    """How a head is fitted: its inverse penalty, and whether features are divided by their norm."""

    C: float
    normalise: bool


class GridVerdict(NamedTuple):
    """What heads under several settings make of episodes."""

    accuracy: Tensor
    ensemble: Tensor
    unconverged: int


def grid_of(protocol: Protocol) -> list[GridPoint]:
    """All settings of a grid, each penalty with features of unit length and as they come; and the own one."""
    # a head without a penalty has two; the own one is a member of an ensemble if it is in the grid
    own = GridPoint(protocol.C, protocol.normalise)
    if not HEADS[protocol.head].penalised:
        return [own, own._replace(normalise=not own.normalise)]
    settings = [GridPoint(float(C), n) for n in (True, False) for C in dict.fromkeys(protocol.grid)]
    return settings if protocol.ensemble or own in settings else [*settings, own]


def fit_grid(z: Tensor, y: Tensor, ways: int, head: str, settings: Sequence[GridPoint]) -> list[Linear]:
    """One head per problem and setting; those of one setting together, in the order of the settings."""
    if not HEADS[head].scales:
        return [fit_heads(z, y, ways, head, one.C, one.normalise) for one in settings]
    shapes = {True: unit(z), False: z}
    stacked = torch.cat([math.sqrt(one.C) * shapes[one.normalise] for one in settings])
    fitted = fit_heads(stacked, y.repeat(len(settings), 1), ways, head, 1.0, normalise=False)
    parts = zip(
        settings,
        fitted.weights.chunk(len(settings)),
        fitted.bias.chunk(len(settings)),
        [None] * len(settings) if fitted.converged is None else fitted.converged.chunk(len(settings)),
        strict=True,
    )
    return [Linear(math.sqrt(one.C) * w, b, proven, fitted.pairs) for one, w, b, proven in parts]


def judge_grid(
    z: Tensor, y: Tensor, q: Tensor, truth: Tensor, ways: int, head: str, settings: Sequence[GridPoint]
) -> GridVerdict:
    """Accuracies under every setting, and of the mean of all probabilities."""
    # the mean needs no choice of a setting, for which a task's few examples would have to be divided
    accuracies, mean, unconverged = [], None, 0
    for one, fitted in zip(settings, fit_grid(z, y, ways, head, settings), strict=True):
        scores = head_scores(fitted, q, one.normalise).double()
        accuracies.append(accuracy(scores, truth))
        share = (HEADS[head].temperature * scores).softmax(-1) / len(settings)
        mean = share if mean is None else mean + share
        unconverged += 0 if fitted.converged is None else int((~fitted.converged).sum())
    assert mean is not None
    return GridVerdict(torch.stack(accuracies, 1).double(), accuracy(mean, truth).double(), unconverged)
