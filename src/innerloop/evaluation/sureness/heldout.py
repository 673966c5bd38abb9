"""Every example judged by heads that have not seen it.

One example of *every* class is left out at a time, not one example alone. With few examples a class that
lacks one is less probable beforehand, and a head with a free intercept knows: left out alone, an example is
called wrong more often than a new one would be. Copies of one picture are left out together, and count once:
a head that has seen one of them knows the others.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.evaluation.heads import HEADS, fit_heads, head_scores, unit

REPEATS = 5
"""Times that examples are divided anew into those left out together."""

MOST_FOLDS = 10
"""Heads of one division, where classes have more examples than that."""

AT_ONCE = 2_000_000
"""Numbers of features that are solved together, to bound memory."""

Places = NDArray[np.int64]


class Way(NamedTuple):
    """How a head is fitted: see :func:`innerloop.evaluation.heads.fit_heads`."""

    head: str = "logistic"
    C: float = 1.0
    normalise: bool = True


class Division(NamedTuple):
    """Examples to learn from, and others to judge; both are places."""

    kept: Places
    left_out: Places


class HeldOut(NamedTuple):
    """What heads say of examples that they have not seen; an example has a row for every repeat.

    Attributes:
        scores: ``(rows, ways)``; a softmax makes probabilities of them.
        labels: the true classes.
        places: which examples these are.
        distances: from the nearest mean of a class, see :mod:`~innerloop.evaluation.sureness.novelty`.
        judged: how many different examples; copies of one picture count once.
        pictures: which picture each row is of, the place of its first copy; None where there are no copies.
    """

    scores: Tensor
    labels: Tensor
    places: Tensor
    distances: Tensor
    judged: int
    pictures: Tensor | None = None

    @property
    def units(self) -> Tensor:
        """What is counted: examples, or pictures where some are copies of one."""
        return self.places if self.pictures is None else self.pictures


def hold_out(
    z: Tensor, y: Tensor, ways: int, way: Way | None = None, seed: int = 0, copies: Tensor | None = None
) -> HeldOut | None:
    """Judges every example by heads that have learned from others.

    Args:
        z: features of the examples, ``(n, d)``.
        y: their classes, 0 to ``ways − 1``; each has an example.
        ways: number of classes.
        way: how heads are fitted.
        seed: of the divisions.
        copies: the first copy of every example, from :func:`~innerloop.evaluation.sureness.copies.copies_of`.

    Returns:
        None where every class has a single picture, and so none can be left out.

    >>> z = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> held_out = hold_out(z, torch.tensor([0, 0, 1, 1]), 2)
    >>> held_out.judged, held_out.scores.argmax(1).equal(held_out.labels)
    (4, True)
    >>> hold_out(z[[0, 2]], torch.tensor([0, 1]), 2) is None
    True
    """
    first = torch.arange(len(y)) if copies is None else copies
    made = divisions(y.cpu().numpy(), seed, copies=first.numpy())
    if not made:
        return None
    scores, distances = judged(z, y, ways, made, way or Way())
    places = torch.from_numpy(np.concatenate([division.left_out for division in made]))
    pictures = first[places]
    judged_ones = len(pictures.unique())
    return HeldOut(torch.cat(scores), y[places], places, torch.cat(distances), judged_ones, pictures)


def divisions(y: Places, seed: int, repeats: int = REPEATS, copies: Places | None = None) -> list[Division]:
    """Divisions in which every picture of a class of two or more is left out once in each repeat.

    >>> [division.left_out.tolist() for division in divisions(np.array([0, 0, 1, 1, 2]), 0, repeats=1)]
    [[0, 2], [1, 3]]
    """
    first = np.arange(len(y)) if copies is None else copies
    pictures = np.unique(first)
    counts = np.bincount(y[pictures])
    enough = counts[counts > 1]
    if not len(enough):
        return []
    folds = min(MOST_FOLDS, int(enough.min()))
    draw, every, made = np.random.default_rng(seed), np.arange(len(y)), []
    for _ in range(repeats):
        fold = np.full(len(y), -1)
        for c in np.flatnonzero(counts > 1):
            fold[draw.permutation(pictures[y[pictures] == c])] = np.arange(counts[c]) % folds
        fold = fold[first]
        made += [Division(every[fold != k], every[fold == k]) for k in range(folds)]
    return made


def judged(
    z: Tensor, y: Tensor, ways: int, made: list[Division], way: Way
) -> tuple[list[Tensor], list[Tensor]]:
    """Of every division the scores of what was left out, and how far it is from the nearest class."""
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, division in enumerate(made):
        alike[len(division.kept), len(division.left_out)].append(number)
    scores: list[Tensor] = [z.new_empty(0)] * len(made)
    distances: list[Tensor] = [z.new_empty(0)] * len(made)
    for numbers in alike.values():
        size = max(1, AT_ONCE // (len(made[numbers[0]].kept) * z.shape[1]))
        for start in range(0, len(numbers), size):
            some = numbers[start : start + size]
            kept, out = (torch.from_numpy(np.stack([made[i][side] for i in some])) for side in (0, 1))
            fitted = fit_heads(z[kept].double(), y[kept], ways, *way, balanced=True)
            tempered = HEADS[way.head].temperature * head_scores(fitted, z[out].double(), way.normalise)
            far = nearest(class_means(z[kept], y[kept], ways), z[out])
            for place, number in enumerate(some):
                scores[number], distances[number] = tempered[place].double(), far[place]
    return scores, distances


def class_means(z: Tensor, y: Tensor, ways: int) -> Tensor:
    """Means ``(…, ways, d)`` of the unit features ``(…, n, d)`` of every class, in float64."""
    of_class = torch.nn.functional.one_hot(y, ways).double()
    return of_class.mT @ unit(z.double()) / of_class.sum(-2)[..., None]


def nearest(means: Tensor, z: Tensor) -> Tensor:
    """Distances ``(…, q)`` of unit features ``(…, q, d)`` from the nearest of the means."""
    return torch.cdist(unit(z.double()), means).amin(-1)
