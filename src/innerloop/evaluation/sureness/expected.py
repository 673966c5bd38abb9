"""How often a head will be right, from examples that it has not seen."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innerloop.evaluation.sureness.heldout import HeldOut
from innerloop.evaluation.sureness.words import listed

PAIRS = 5
"""Confused pairs of classes that are told."""


class Share(NamedTuple):
    """A share with its 95 % interval (Wilson's score), and of how many examples."""

    value: float
    low: float
    high: float
    n: int


class Confused(NamedTuple):
    """Examples of one class that were taken for another: their share among those of the class."""

    true: Any
    said: Any
    share: float


class Expected(NamedTuple):
    """What to expect of new pictures that are drawn as the examples were.

    Attributes:
        accuracy: over all examples of the classes that were tested.
        by_class: by the name of a class; classes of one picture cannot be tested and are not there.
        confused: the pairs that are confused most.
        untested: classes of a single picture, of which nothing is known.
    """

    accuracy: Share
    by_class: dict[Any, Share]
    confused: list[Confused]
    untested: list[Any]

    def __repr__(self) -> str:
        of = f"{len(self.by_class)} classes"
        lines = [
            f"{_percent(self.accuracy)} right on new pictures like the {self.accuracy.n} examples of {of}"
        ]
        if self.untested:
            lines.append(f"not tested, for want of a second picture: {listed(self.untested)}")
        worst = sorted(self.by_class.items(), key=lambda item: item[1].value)[:3]
        lines.append("hardest: " + ", ".join(f"{name} {_percent(share)}" for name, share in worst))
        if self.confused:
            pairs = [f"{c.true} for {c.said} ({100 * c.share:.0f} %)" for c in self.confused[:3]]
            lines.append(f"confused: {', '.join(pairs)}")
        return "\n".join(lines)


def _percent(share: Share) -> str:
    return f"{100 * share.value:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f} %)"


def expected_accuracy(held_out: HeldOut, names: Sequence[Any]) -> Expected:
    """Counts how often examples were labelled right by heads that had not seen them.

    A head that is used has one example more of every class than those that were judged, so it is slightly
    better than this. Repeats of one example, and copies of one picture, are averaged before they are counted:
    the interval is over pictures.

    Args:
        held_out: from :func:`~innerloop.evaluation.sureness.heldout.hold_out`.
        names: of the classes, in order.
    """
    labels, places = held_out.labels.cpu().numpy(), held_out.units.cpu().numpy()
    said = held_out.scores.argmax(1).cpu().numpy()
    right: dict[int, list[bool]] = {int(place): [] for place in np.unique(places)}
    for place, hit in zip(places, said == labels, strict=True):
        right[int(place)].append(bool(hit))
    means = {place: float(np.mean(hits)) for place, hits in right.items()}
    class_of = dict(zip(places.tolist(), labels.tolist(), strict=True))
    by_class = {
        name: share_of([mean for place, mean in means.items() if class_of[place] == c])
        for c, name in enumerate(names)
        if c in set(class_of.values())
    }
    table = confusion(held_out, len(names))
    untested = [name for name in names if name not in by_class]
    return Expected(share_of(list(means.values())), by_class, _confused(table, names), untested)


def confusion(held_out: HeldOut, ways: int) -> NDArray[np.float64]:
    """How often each class was taken for each: a row for every true class, over repeats."""
    table = np.zeros((ways, ways))
    np.add.at(table, (held_out.labels.cpu().numpy(), held_out.scores.argmax(1).cpu().numpy()), 1.0)
    return table


class Mistaken(NamedTuple):
    """An example that was labelled wrong when it was left out: how often right, and what it was taken for."""

    right: float
    said: int


def mistaken(held_out: HeldOut) -> dict[int, Mistaken]:
    """Examples, by their places, that were not always labelled right: perhaps their labels are wrong."""
    said, places = held_out.scores.argmax(1).tolist(), held_out.places.tolist()
    told: dict[int, list[int]] = {place: [] for place in places}
    true = dict(zip(places, held_out.labels.tolist(), strict=True))
    for place, label in zip(places, said, strict=True):
        told[place].append(label)
    mistakes = {}
    for place, labels in told.items():
        wrong = Counter(label for label in labels if label != true[place])
        if wrong:
            mistakes[place] = Mistaken(1 - wrong.total() / len(labels), wrong.most_common(1)[0][0])
    return mistakes


def share_of(values: Sequence[float]) -> Share:
    r"""Wilson's interval for the mean of values in 0…1, which holds at 0 and 1 too.

    .. math:: \frac{\hat p + z^2/2n \pm z\sqrt{\hat p(1-\hat p)/n + z^2/4n^2}}{1 + z^2/n}

    >>> share = share_of([1.0] * 10)
    >>> round(share.low, 3), round(share.high, 3)
    (0.722, 1.0)
    """
    n, z = len(values), 1.959963984540054
    p = math.fsum(values) / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return Share(p, max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale), n)


def _confused(table: NDArray[np.float64], names: Sequence[Any]) -> list[Confused]:
    rows = table.sum(1, keepdims=True)
    shares = np.divide(table, rows, out=np.zeros_like(table), where=rows > 0)
    np.fill_diagonal(shares, 0.0)
    order = np.argsort(-shares, axis=None, kind="stable")[:PAIRS]
    pairs = [divmod(int(i), len(names)) for i in order]
    return [Confused(names[a], names[b], float(shares[a, b])) for a, b in pairs if shares[a, b] > 0]
