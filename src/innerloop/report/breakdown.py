"""Where labels are right and where not: by class, by pair of classes, by how hard the task is."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from innerloop.core.statistics import Interval, mean_interval
from innerloop.report.kept_predictions import Kept, KeptTask
from innerloop.report.words import finite_scores

FEW = 5
"""With fewer tasks than this, a mean says little and its interval less."""


class ClassRow(NamedTuple):
    """One class: its accuracy over the tasks that have it, its pictures, what it is mostly taken for."""

    name: str
    accuracy: Interval
    pictures: int
    mistaken: str
    times: int


class Pair(NamedTuple):
    """Pictures of ``true``, in the tasks that have both, that were taken for ``said``."""

    true: int
    said: int
    times: int
    pictures: int
    tasks: int

    @property
    def share(self) -> float:
        """Of the pictures that could be."""
        return self.times / self.pictures


class Part(NamedTuple):
    """Some of the tasks: in words, how many, and their mean score; ``ci95`` is nan where it says nothing."""

    words: str
    tasks: int
    score: Interval


def class_rows(kept: Kept) -> list[ClassRow]:
    """All classes, the hardest first, but those of few tasks last: chance alone puts them anywhere.

    The interval is over tasks, as pictures of one task hang together.
    """
    scores: dict[int, list[float]] = {}
    pictures: Counter[int] = Counter()
    taken: dict[int, Counter[int]] = {}
    for task in kept.tasks:
        for label, own in enumerate(task.classes):
            said = [s for true, s in zip(task.labels, task.said, strict=True) if true == label]
            if not said:
                continue
            scores.setdefault(own, []).append(sum(s == label for s in said) / len(said))
            pictures[own] += len(said)
            wrong = (task.classes[s] for s in said if s != label and s < len(task.classes))
            taken.setdefault(own, Counter()).update(wrong)
    rows = []
    for own, values in scores.items():
        most, times = taken[own].most_common(1)[0] if taken[own] else (None, 0)
        mistaken = "" if most is None else kept.classes[most]
        rows.append(ClassRow(kept.classes[own], mean_interval(values), pictures[own], mistaken, times))
    return sorted(rows, key=lambda row: (row.accuracy.n < FEW, row.accuracy.mean, row.name))


def confused_pairs(kept: Kept) -> list[Pair]:
    """Pairs of classes, those with the largest share of confused pictures first.

    The share is of the pictures that could be confused: those in tasks that have both classes.
    """
    met: Counter[tuple[int, int]] = Counter()
    taken: Counter[tuple[int, int]] = Counter()
    tasks: Counter[tuple[int, int]] = Counter()
    for task in kept.tasks:
        counts = Counter(task.labels)
        said = Counter(zip(task.labels, task.said, strict=True))
        for a, true in enumerate(task.classes):
            for b, other in enumerate(task.classes):
                met[true, other] += counts[a]
                taken[true, other] += said[a, b]
                tasks[true, other] += 1
    pairs = [Pair(*pair, taken[pair], pictures, tasks[pair]) for pair, pictures in met.items() if pictures]
    return sorted(pairs, key=lambda pair: (-pair.share, -pair.times, pair[:2]))


def by_outcome(evaluation: Mapping[str, Any]) -> list[Part]:
    """The hardest quarter of all tasks, the half between, the easiest quarter, as they turned out."""
    lower_is_better = evaluation.get("score") != "accuracy"
    scores = sorted(finite_scores(evaluation), reverse=lower_is_better)
    quarter = len(scores) // 4
    if quarter < 2:
        return []
    parts = {
        "the hardest quarter": scores[:quarter],
        "the half between": scores[quarter : len(scores) - quarter],
        "the easiest quarter": scores[len(scores) - quarter :],
    }
    # chosen by their scores, so that an interval would say nothing
    return [
        Part(words, len(some), Interval(statistics.fmean(some), float("nan"), len(some)))
        for words, some in parts.items()
    ]


def by_kind(kept: Kept) -> list[Part]:
    """Tasks of every kind of a mixture; empty where there is one kind."""
    names = [name or f"kind {i + 1}" for i, name in enumerate(kept.kinds)]
    return _parted({name: [task for task in kept.tasks if task.kind == i] for i, name in enumerate(names)})


def by_groups(kept: Kept) -> list[Part]:
    """Tasks by how many groups their classes come from: classes of one group are usually alike."""
    if kept.groups is None:
        return []
    tasks: dict[int, list[KeptTask]] = {}
    for task in kept.tasks:
        tasks.setdefault(len({kept.groups[own] for own in task.classes}), []).append(task)
    return _parted({f"classes of {n} group{'s' * (n > 1)}": tasks[n] for n in sorted(tasks)})


def _parted(parts: Mapping[str, list[KeptTask]]) -> list[Part]:
    told = [
        Part(words, len(tasks), mean_interval([task.accuracy for task in tasks]))
        for words, tasks in parts.items()
        if tasks
    ]
    return told if len(told) > 1 else []
