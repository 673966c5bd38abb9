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

from innerloop.classify.heads import HeadSettings
from innerloop.core.statistics import mean_interval
from innerloop.evaluation.heads import HEADS, fit_heads, head_scores, unit

REPEATS = 5  # times that examples are divided anew into those left out together

MOST_FOLDS = 10  # heads of one division, where classes have more examples than that

AT_ONCE = 2_000_000  # numbers of features that are solved together, to bound memory

Places = NDArray[np.int64]


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
        distances: from the nearest mean of a class, see :mod:`~innerloop.classify.sureness`.
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
    z: Tensor,
    y: Tensor,
    ways: int,
    head: HeadSettings | None = None,
    seed: int = 0,
    copies: Tensor | None = None,
) -> HeldOut | None:
    """Judges every example by heads that have learned from others.

    Args:
        z: features of the examples, ``(n, d)``.
        y: their classes, 0 to ``ways − 1``; each has an example.
        ways: number of classes.
        head: how heads are fitted.
        seed: of the divisions.
        copies: the first copy of every example, from :func:`~innerloop.classify.cross_validation.copies_of`.

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
    scores, distances = judge_divisions(z, y, ways, made, head or HeadSettings())
    places = torch.from_numpy(np.concatenate([division.left_out for division in made]))
    pictures = first[places]
    judged_ones = len(pictures.unique())
    return HeldOut(torch.cat(scores), y[places], places, torch.cat(distances), judged_ones, pictures)


def divisions(y: Places, seed: int, repeats: int = REPEATS, copies: Places | None = None) -> list[Division]:
    """Divisions in which every picture of a class of two or more is left out once in each repeat."""
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


def judge_divisions(
    z: Tensor, y: Tensor, ways: int, made: list[Division], head: HeadSettings
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
            fitted = fit_heads(
                z[kept].double(), y[kept], ways, head.kind, head.C, head.normalise, balanced=True
            )
            tempered = HEADS[head.kind].temperature * head_scores(fitted, z[out].double(), head.normalise)
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


ROUNDING = 1e-5  # how much features of the same picture may differ, relative to their length
COPY = 0.5
"""Two pictures of a class are copies if they are closer than this times the usual distance, see below."""
CHAIN = 0.6  # a picture belongs to copies that were found if it is closer than this to one of them
CROPS = 0.75
"""The same where most pictures of a class are that close to another one, as chance hardly makes them."""


def copies_of(z: Tensor, y: Tensor, pictures: bool = False) -> Tensor:
    """For every example the place of the first one that is a copy of the same picture; else its own place.

    Rows that are equal are copies. So are pictures of one class whose features are closer than chance
    explains. What chance does is seen in pictures that are certainly different, those of different classes:
    the usual distance is the median, over examples, of that from the nearest example of another class.
    Photographs of one class are hardly ever half as far apart as that; crops of one photograph are. Small
    crops are farther apart, but there is hardly a class of photographs most of which have another one within
    0.6 of that distance.

    Args:
        z: features ``(n, d)``.
        y: their classes.
        pictures: whether these are features of a network that was trained on many classes of pictures. Others
            may hold the examples of a class together as closely as copies.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.01], [0.7, 0.7], [0.0, 1.0], [0.0, 1.0]])
    >>> y = torch.tensor([0, 0, 0, 1, 1])
    >>> copies_of(z, y).tolist(), copies_of(z, y, pictures=True).tolist()
    ([0, 1, 2, 3, 3], [0, 0, 2, 3, 3])
    """
    z, first = z.double(), torch.arange(len(y))
    x, members = unit(z), [(y == c).nonzero().flatten() for c in y.unique()]
    usual = 0.0
    if pictures:
        others = [torch.cdist(x[rows], x[y != y[rows[0]]]).amin(1) for rows in members]
        usual = float(torch.cat(others).median())
    for rows in members:
        length = z[rows].norm(dim=1)
        same = _apart(z[rows]) <= ROUNDING * torch.maximum(length[:, None], length)
        apart = _apart(x[rows])
        close = int((apart < CHAIN * usual).fill_diagonal_(False).any(1).sum())
        pair, chain = (CHAIN, CROPS) if close > max(2, len(rows) / 2) else (COPY, CHAIN)
        linked = _first_linked(same | (apart < chain * usual))
        pairs = (same | (apart < pair * usual)).fill_diagonal_(False)
        found = torch.isin(linked, linked[pairs.any(1)])
        first[rows] = rows[torch.where(found, linked, torch.arange(len(rows)))]
    return first


def _apart(x: Tensor) -> Tensor:
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")


def _first_linked(linked: Tensor) -> Tensor:
    """The first place that can be reached from each by links ``(n, n)``, which include those to itself."""
    first = torch.arange(len(linked))
    while True:
        lower = torch.where(linked, first, len(linked)).amin(1)
        if torch.equal(lower, first):
            return first
        first = lower


def groups_of(first: Tensor) -> list[list[int]]:
    """Copies of one picture together, by their places; pictures without copies are not there."""
    several = (first.bincount() > 1).nonzero().flatten()
    return [(first == place).nonzero().flatten().tolist() for place in several]


CHOICES = 20  # random choices of examples for every point


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
    head: HeadSettings | None = None,
    seed: int = 0,
    repeats: int = CHOICES,
    copies: Tensor | None = None,
) -> list[CurvePoint]:
    """Accuracy with 1, 2, 4 … examples of every class, and with all but one of the smallest class.

    Args:
        z: features of the examples, ``(n, d)``.
        y: their classes, 0 to ``ways − 1``.
        ways: number of classes.
        head: how heads are fitted.
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
        scores, _ = judge_divisions(z, y, ways, made, head or HeadSettings())
        hits = [
            float((row.argmax(1) == y[division.left_out]).double().mean())
            for row, division in zip(scores, made, strict=True)
        ]
        interval = mean_interval(hits)
        points.append(CurvePoint(shots, interval.mean, interval.ci95))
    return points


def _sizes(most: int) -> list[int]:
    """Doubling, and the most there can be."""
    doubled = [2**k for k in range(most.bit_length()) if 2**k <= most]
    return [*doubled, *([most] if most and most not in doubled else [])]


def _choice(labels: Places, first: Places, ways: int, shots: int, draw: np.random.Generator) -> Division:
    pictures = np.unique(first)
    chosen = [draw.permutation(pictures[labels[pictures] == c])[:shots] for c in range(ways)]
    kept = np.isin(first, np.concatenate(chosen))
    return Division(np.flatnonzero(kept), np.flatnonzero(~kept))
