"""How sure a head on a few examples may be: what it reaches, how probable it is, what it does not know."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from innerloop.classify.cross_validation import HeldOut, class_means, hold_out, nearest
from innerloop.classify.heads import HeadSettings

PAIRS = 5  # confusion pairs of classes that are told


class Share(NamedTuple):
    """A share with its 95 % interval (Wilson's score), and of how many examples."""

    value: float
    low: float
    high: float
    n: int

    def as_dict(self, counted: str = "examples") -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"accuracy": self.value, "low": self.low, "high": self.high, counted: self.n}


class ConfusionPair(NamedTuple):
    """Examples of one class that were taken for another: their share among those of the class."""

    true: Any
    said: Any
    share: float


class ExpectedAccuracy(NamedTuple):
    """What to expect of new pictures that are drawn as the examples were.

    Attributes:
        accuracy: over all examples of the classes that were tested.
        by_class: by the name of a class; classes of one picture cannot be tested and are not there.
        confused: the pairs that are confused most.
        untested: classes of a single picture, of which nothing is known.
    """

    accuracy: Share
    by_class: dict[Any, Share]
    confused: list[ConfusionPair]
    untested: list[Any]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            **self.accuracy.as_dict(),
            "by_class": {str(name): share.as_dict() for name, share in self.by_class.items()},
            "confused": [{"true": str(c.true), "said": str(c.said), "share": c.share} for c in self.confused],
            "untested": [str(name) for name in self.untested],
        }

    def __repr__(self) -> str:
        of = f"{len(self.by_class)} classes"
        lines = [
            f"{_percent(self.accuracy)} right on new pictures like the {self.accuracy.n} examples of {of}"
        ]
        if self.untested:
            lines.append(f"not tested, for want of a second picture: {enumerate_names(self.untested)}")
        worst = sorted(self.by_class.items(), key=lambda item: item[1].value)[:3]
        lines.append("hardest: " + ", ".join(f"{name} {_percent(share)}" for name, share in worst))
        if self.confused:
            pairs = [f"{c.true} for {c.said} ({100 * c.share:.0f} %)" for c in self.confused[:3]]
            lines.append(f"confused: {', '.join(pairs)}")
        return "\n".join(lines)


def _percent(share: Share) -> str:
    return f"{100 * share.value:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f} %)"


def expected_accuracy(held_out: HeldOut, names: Sequence[Any]) -> ExpectedAccuracy:
    """Counts how often examples were labelled right by heads that had not seen them.

    A head that is used has one example more of every class than those that were judged, so it is slightly
    better than this. Repeats of one example, and copies of one picture, are averaged before they are counted:
    the interval is over pictures.

    Args:
        held_out: from :func:`~innerloop.classify.cross_validation.hold_out`.
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
    table = confusion_table(held_out, len(names))
    untested = [name for name in names if name not in by_class]
    return ExpectedAccuracy(share_of(list(means.values())), by_class, _confused(table, names), untested)


def confusion_table(held_out: HeldOut, ways: int) -> NDArray[np.float64]:
    """How often each class was taken for each: a row for every true class, over repeats."""
    table = np.zeros((ways, ways))
    np.add.at(table, (held_out.labels.cpu().numpy(), held_out.scores.argmax(1).cpu().numpy()), 1.0)
    return table


class Mistake(NamedTuple):
    """An example that was labelled wrong when it was left out: how often right, and what it was taken for."""

    right: float
    said: int


def mistakes_in(held_out: HeldOut) -> dict[int, Mistake]:
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
            mistakes[place] = Mistake(1 - wrong.total() / len(labels), wrong.most_common(1)[0][0])
    return mistakes


def share_of(values: Sequence[float]) -> Share:
    """Wilson's interval for the mean of values in 0…1, which holds at 0 and 1 too."""
    # (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)
    n, z = len(values), 1.959963984540054
    p = math.fsum(values) / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return Share(p, max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale), n)


def _confused(table: NDArray[np.float64], names: Sequence[Any]) -> list[ConfusionPair]:
    rows = table.sum(1, keepdims=True)
    shares = np.divide(table, rows, out=np.zeros_like(table), where=rows > 0)
    np.fill_diagonal(shares, 0.0)
    order = np.argsort(-shares, axis=None, kind="stable")[:PAIRS]
    pairs = [divmod(int(i), len(names)) for i in order]
    return [ConfusionPair(names[a], names[b], float(shares[a, b])) for a, b in pairs if shares[a, b] > 0]


class Novelty(NamedTuple):
    """Where "far from every class" begins.

    Attributes:
        threshold: a distance of unit features from the nearest mean of a class.
        false_alarms: the share of pictures of the classes that lie beyond it, at most, if they are like the
            examples.
        examples: how many decided it.
    """

    threshold: float
    false_alarms: float
    examples: int


def novelty_of(held_out: HeldOut, false_alarms: float = 0.05) -> Novelty:
    r"""The threshold from the examples themselves, each measured from means of others (conformal prediction).

    Of :math:`n` examples and one more picture like them, in any order, the last is the farthest with
    probability :math:`1/(n+1)`. So beyond the :math:`\lceil(1-\alpha)(n+1)\rceil`-th smallest distance lie at
    most a share :math:`\alpha` of new pictures. With fewer examples than :math:`1/\alpha - 1` the largest
    distance is taken, and the share is :math:`1/(n+1)`. An example's distances over repeats are averaged.

    Args:
        held_out: from :func:`~innerloop.classify.cross_validation.hold_out`.
        false_alarms: α.
    """
    places, row = held_out.units.unique(return_inverse=True)
    total = torch.zeros(len(places), dtype=torch.float64).index_add(0, row, held_out.distances.double())
    distances = (total / row.bincount()).sort().values
    n = len(distances)
    rank = math.ceil((1 - false_alarms) * (n + 1) - 1e-9)
    if rank > n:
        return Novelty(float(distances[-1]), 1 / (n + 1), n)
    return Novelty(float(distances[rank - 1]), false_alarms, n)


SPREAD = 1.5  # standard deviation of the logarithm of a temperature, before anything was seen

_LOWEST, _HIGHEST = math.log(1e-3), math.log(1e3)
_GOLDEN = (math.sqrt(5) - 1) / 2


def fitted_temperature(scores: Tensor, labels: Tensor, examples: int) -> float:
    r"""The number that scores are divided by before a softmax makes probabilities of them.

    It minimises :math:`n\,\overline{\ell(T)} + (\log T)^2/2\sigma^2`: the mean cross-entropy of scores over
    :math:`T` for each of the :math:`n` examples, and a prior that keeps :math:`T` finite where every example
    is right.

    Args:
        scores: ``(rows, ways)`` of examples that the heads had not seen.
        labels: their classes.
        examples: how many different ones; repeats of one count once.

    >>> T = fitted_temperature(torch.tensor([[9.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 1]), 2)
    >>> T > 3  # half of them wrong: less sure than the scores say
    True
    """

    def cost(log_temperature: float) -> float:
        """What is minimised, as a function of the logarithm of the temperature."""
        surprise = F.cross_entropy(scores / math.exp(log_temperature), labels)
        return examples * float(surprise) + log_temperature**2 / (2 * SPREAD**2)

    return math.exp(_smallest(cost, _LOWEST, _HIGHEST))


def _smallest(cost: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of one number with a single valley is smallest, by golden section."""
    a, b = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    fa, fb = cost(a), cost(b)
    while high - low > 1e-6:
        if fa <= fb:
            high, b, fb = b, a, fa
            a = high - _GOLDEN * (high - low)
            fa = cost(a)
        else:
            low, a, fa = a, b, fb
            b = low + _GOLDEN * (high - low)
            fb = cost(b)
    return (low + high) / 2


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    r"""Expected calibration error, :math:`\sum_b \frac{n_b}{n}\,|\text{accuracy}_b - \text{confidence}_b|`.

    Predictions are put into bins of equal width by how probable they are called.

    Args:
        probabilities: ``(n, ways)``.
        labels: the true classes.
        bins: how many.

    >>> calibration_error(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])).__round__(6)
    0.3
    """
    confidence, said = probabilities.double().max(1)
    right = (said == labels).double()
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gap = torch.zeros(bins, dtype=torch.float64).index_add(0, place, right - confidence)
    return float(gap.abs().sum() / len(labels))


FALSE_ALARMS = 0.05  # share of pictures of the classes that may be called unknown


class Sureness(NamedTuple):
    """How sure a head may be.

    Attributes:
        temperature: what its scores are divided by before a softmax makes probabilities of them.
        expected: how often it will be right; None where nothing could be left out.
        novelty: where "far from every class" begins; None likewise.
        means: of the classes, unit features ``(ways, d)``; what far is measured from.
    """

    temperature: float
    expected: ExpectedAccuracy | None
    novelty: Novelty | None
    means: Tensor

    def far(self, z: Tensor) -> Tensor:
        """Which features ``(n, d)`` are far from every class; none where that is not known."""
        if self.novelty is None:
            return torch.zeros(len(z), dtype=torch.bool)
        return nearest(self.means, z) > self.novelty.threshold


def sureness_of(
    z: Tensor,
    y: Tensor,
    names: Sequence[Any],
    head: HeadSettings | None = None,
    seed: int = 0,
    false_alarms: float = FALSE_ALARMS,
    copies: Tensor | None = None,
) -> Sureness:
    """Judges every example by heads that have not seen it, and draws the conclusions.

    Args:
        z: features of the examples, ``(n, d)``.
        y: their classes, places in ``names``.
        names: of the classes.
        head: how heads are fitted.
        seed: of how examples are left out.
        false_alarms: the share of pictures of the classes that may be called unknown.
        copies: the first copy of every example, see :func:`~innerloop.classify.cross_validation.copies_of`.

    >>> z = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> sureness = sureness_of(z, torch.tensor([0, 0, 1, 1]), ["east", "north"])
    >>> sureness.expected.accuracy.value, sureness.far(torch.tensor([[1.0, 0.05], [-1.0, 0.0]])).tolist()
    (1.0, [False, True])
    """
    means = class_means(z, y, len(names))
    held_out = hold_out(z, y, len(names), head, seed, copies)
    if held_out is None:
        return Sureness(1.0, None, None, means)
    return Sureness(
        fitted_temperature(held_out.scores, held_out.labels, held_out.judged),
        expected_accuracy(held_out, names),
        novelty_of(held_out, false_alarms),
        means,
    )


MOST = 10  # names that are enumerated


def enumerate_names(names: Sequence[Any]) -> str:
    """Names with commas, and how many more there are."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(map(str, names[:MOST])) + more


def covers(expected: Mapping[str, Any]) -> str:
    """Which pictures it is about: those drawn as the examples were, of classes that were tested."""
    words = f"on new pictures drawn as the {expected['examples']} examples were"
    untested, tested = expected["untested"], len(expected["by_class"])
    if not untested:
        return words
    of = f"of {tested} of {tested + len(untested)} classes"
    return f"{words}, {of}; not tested, for want of a second picture: {enumerate_names(untested)}"


def copies_lines(copies: Sequence[Mapping[str, Any]]) -> list[str]:
    """A warning for each of the first groups of copies, and how many more there are."""
    lines = [
        f"warning: {len(row['examples'])} examples of {row['label']} look like copies of one picture, and "
        f"count as one: {enumerate_names(row['examples'])}"
        for row in copies[:MOST]
    ]
    if len(copies) > MOST:
        lines.append(f"warning: {len(copies) - MOST} more groups of copies, which --json lists")
    return lines
