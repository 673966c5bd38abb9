"""What more examples would bring: heads on some of the examples, judged on the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from innerloop.core.statistics import mean_interval
from innerloop.evaluation.sureness.heldout import Division, Places, Way, judged

REPEATS = 20
"""Random choices of examples for every point."""


class CurvePoint(NamedTuple):
    """Accuracy with this many examples of every class.

    Attributes:
        shots: examples of a class that a head learned from.
        accuracy: on those left out, over random choices.
        ci95: half of its 95 % interval over choices: of these examples, not of new ones.
    """

    shots: int
    accuracy: float
    ci95: float


def learning_curve(
    z: Tensor,
    y: Tensor,
    ways: int,
    way: Way | None = None,
    seed: int = 0,
    repeats: int = REPEATS,
    copies: Tensor | None = None,
) -> list[CurvePoint]:
    """Accuracy with 1, 2, 4 … examples of every class, and with all but one of the smallest class.

    Args:
        z: features of the examples, ``(n, d)``.
        y: their classes, 0 to ``ways − 1``.
        ways: number of classes.
        way: how heads are fitted.
        seed: of the choices.
        repeats: choices for every point.
        copies: the first copy of every example; copies of one picture count as one example.

    Returns:
        Nothing where a class has a single picture.
    """
    labels = y.cpu().numpy()
    first = np.arange(len(labels)) if copies is None else copies.numpy()
    least, points = int(np.bincount(labels[np.unique(first)], minlength=ways).min()), []
    for shots in _sizes(least - 1):
        draw = np.random.default_rng([seed, shots])
        made = [_choice(labels, first, ways, shots, draw) for _ in range(repeats)]
        scores, _ = judged(z, y, ways, made, way or Way())
        hits = [
            float((row.argmax(1) == y[division.left_out]).double().mean())
            for row, division in zip(scores, made, strict=True)
        ]
        interval = mean_interval(hits)
        points.append(CurvePoint(shots, interval.mean, interval.ci95))
    return points


def _sizes(most: int) -> list[int]:
    """Doubling, and the most there can be.

    >>> _sizes(5), _sizes(4), _sizes(0)
    ([1, 2, 4, 5], [1, 2, 4], [])
    """
    doubled = [2**k for k in range(most.bit_length()) if 2**k <= most]
    return [*doubled, *([most] if most and most not in doubled else [])]


def _choice(labels: Places, first: Places, ways: int, shots: int, draw: np.random.Generator) -> Division:
    pictures = np.unique(first)
    chosen = [draw.permutation(pictures[labels[pictures] == c])[:shots] for c in range(ways)]
    kept = np.isin(first, np.concatenate(chosen))
    return Division(np.flatnonzero(kept), np.flatnonzero(~kept))
