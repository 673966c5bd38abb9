r"""Sinusoids, the field's first regression problem."""

from __future__ import annotations

import math

import torch

from innerloop.core.random import Draws
from innerloop.core.types import TaskBatch


def _sinusoids(
    draws: Draws,
    shots: int,
    queries: int,
    amplitude: tuple[float, float],
    phase: tuple[float, float],
    x_range: tuple[float, float],
    sign: int,
) -> TaskBatch:
    a = draws.uniform("amplitude", (1, 1), *amplitude)
    b = draws.uniform("phase", (1, 1), *phase)
    xs = draws.uniform("x-support", (shots, 1), *x_range, per="sample")
    xq = draws.uniform("x-query", (queries, 1), *x_range, per="sample")
    ys, yq = (a * torch.sin(x + sign * b) for x in (xs, xq))
    return TaskBatch(xs, ys, xq, yq, torch.from_numpy(draws.task.copy()))


def sine(
    draws: Draws,
    shots: int,
    queries: int,
    amplitude: tuple[float, float] = (0.1, 5.0),
    phase: tuple[float, float] = (0.0, math.pi),
    x_range: tuple[float, float] = (-5.0, 5.0),
) -> TaskBatch:
    r"""Finn et al. (2017): :math:`y = a \sin(x - b)`, a ~ U(0.1, 5), b ~ U(0, π), x ~ U(−5, 5).

    >>> batch = sine(Draws(0, [0, 1]), shots=10, queries=15)
    >>> batch.x_support.shape, batch.y_query.shape
    (torch.Size([2, 10, 1]), torch.Size([2, 15, 1]))
    """
    return _sinusoids(draws, shots, queries, amplitude, phase, x_range, sign=-1)


def adaptlr_sine(
    draws: Draws,
    shots: int,
    queries: int,
    amplitude: tuple[float, float] = (0.0, math.pi),
    phase: tuple[float, float] = (0.0, math.pi),
    x_range: tuple[float, float] = (-5.0, 5.0),
) -> TaskBatch:
    r"""AdaptLR H.3: :math:`y = a \sin(x + b)`, a and b ~ U(0, π), x ~ U(−5, 5)."""
    return _sinusoids(draws, shots, queries, amplitude, phase, x_range, sign=+1)
