"""Labels that an evaluation gave in its first test tasks, read from a run and counted by class."""

from __future__ import annotations

import base64
import binascii
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from innerloop.core.files import read_json
from innerloop.core.statistics import Interval, mean_interval
from innerloop.report.read_run import RunData, inside
from innerloop.report.text import finite_scores
from innerloop.runs.directory import PREDICTIONS

_KINDS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg"}


class TaskPredictions(NamedTuple):
    """Labels of one test task: ``labels`` and ``said`` count within ``classes``, these within all classes."""

    episode: int
    kind: int
    classes: list[int]
    labels: list[int]
    said: list[int]
    probability: list[float]

    @property
    def right(self) -> list[bool]:
        """Whether each label is right."""
        return [a == b for a, b in zip(self.labels, self.said, strict=True)]

    @property
    def accuracy(self) -> float:
        """The share that is right."""
        return sum(self.right) / len(self.labels)


class Query(NamedTuple):
    """A picture, the label that it was given, and how probable that was called."""

    picture: str
    said: int
    probability: float


class ShownTask(NamedTuple):
    """A task in pictures: examples and queries of its first classes, as ``data:`` addresses."""

    episode: int
    support: list[list[str]]
    queries: list[list[Query]]


class RunPredictions(NamedTuple):
    """What ``predictions/<name of the evaluation>`` holds."""

    classes: list[str]
    groups: list[str] | None
    kinds: list[str]
    tasks: list[TaskPredictions]
    shown: list[ShownTask]


def read_predictions(run: RunData, evaluation: Mapping[str, Any] | None) -> tuple[RunPredictions | None, str]:
    """The labels of an evaluation, or none; then perhaps a sentence on a file that cannot be read."""
    name = str((evaluation or {}).get("file") or "")
    file = run.path / PREDICTIONS / name
    if not name or not file.is_file():
        return None, ""
    try:
        return _kept(read_json(file)), ""
    except OSError as error:
        return None, inside(str(error), run.path)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError):
        return None, f"{PREDICTIONS}/{name} is damaged: it holds nothing that an evaluation writes."


def _kept(content: Mapping[str, Any]) -> RunPredictions:
    classes = [str(name) for name in _listed(content["classes"])]
    groups = None if content["groups"] is None else [str(name) for name in _listed(content["groups"])]
    kinds = [str(name) for name in _listed(content["kinds"])]
    tasks = [_task(one, len(classes), len(kinds)) for one in _listed(content["tasks"])]
    known = {task.episode: task for task in tasks}
    shown = [_shown(one, known) for one in _listed(content["shown"])]
    if not tasks or (groups is not None and len(groups) != len(classes)):
        raise ValueError("no tasks, or groups of other classes")
    return RunPredictions(classes, groups, kinds, tasks, shown)


def _task(entry: Mapping[str, Any], classes: int, kinds: int) -> TaskPredictions:
    own = _numbers(entry["classes"], classes)
    labels = _numbers(entry["labels"], len(own))
    said = _numbers(entry["said"], 10**6)  # a network may have more outputs than the task has classes
    probability = [float(p) for p in _listed(entry["probability"])]
    (episode,), (kind,) = _numbers([entry["episode"]], 10**9), _numbers([entry["kind"]], kinds)
    if not labels or not len(labels) == len(said) == len(probability):
        raise ValueError("labels of different lengths")
    if not all(0 <= p <= 1 for p in probability):
        raise ValueError("no probabilities")
    return TaskPredictions(episode, kind, own, labels, said, probability)


def _shown(entry: Mapping[str, Any], known: Mapping[int, TaskPredictions]) -> ShownTask:
    task, rows = known[entry["episode"]], _listed(entry["rows"])
    if len(rows) > len(task.classes):
        raise ValueError("more rows than classes")
    support = [[address(text) for text in _listed(row["support"])] for row in rows]
    queries = [
        [
            Query(address(one["picture"]), _numbers([one["said"]], 10**6)[0], float(one["probability"]))
            for one in _listed(row["queries"])
        ]
        for row in rows
    ]
    return ShownTask(task.episode, support, queries)


def address(text: Any) -> str:
    """A picture in base64 as a ``data:`` address; empty for anything that is neither a PNG nor a JPEG."""
    try:
        content = base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        return ""
    kind = next((name for start, name in _KINDS.items() if content.startswith(start)), "")
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}" if kind else ""


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _numbers(values: Sequence[Any], below: int) -> list[int]:
    if not all(type(value) is int and 0 <= value < below for value in _listed(values)):
        raise ValueError("not such numbers")
    return list(values)


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


def class_rows(predictions: RunPredictions) -> list[ClassRow]:
    """All classes, the hardest first, but those of few tasks last: chance alone puts them anywhere.

    The interval is over tasks, as pictures of one task hang together.
    """
    scores: dict[int, list[float]] = {}
    pictures: Counter[int] = Counter()
    taken: dict[int, Counter[int]] = {}
    for task in predictions.tasks:
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
        mistaken = "" if most is None else predictions.classes[most]
        rows.append(ClassRow(predictions.classes[own], mean_interval(values), pictures[own], mistaken, times))
    return sorted(rows, key=lambda row: (row.accuracy.n < FEW, row.accuracy.mean, row.name))


def confused_pairs(predictions: RunPredictions) -> list[Pair]:
    """Pairs of classes, those with the largest share of confused pictures first.

    The share is of the pictures that could be confused: those in tasks that have both classes.
    """
    met: Counter[tuple[int, int]] = Counter()
    taken: Counter[tuple[int, int]] = Counter()
    tasks: Counter[tuple[int, int]] = Counter()
    for task in predictions.tasks:
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


def by_kind(predictions: RunPredictions) -> list[Part]:
    """Tasks of every kind of a mixture; empty where there is one kind."""
    names = [name or f"kind {i + 1}" for i, name in enumerate(predictions.kinds)]
    return _parted(
        {name: [task for task in predictions.tasks if task.kind == i] for i, name in enumerate(names)}
    )


def by_groups(predictions: RunPredictions) -> list[Part]:
    """Tasks by how many groups their classes come from: classes of one group are usually alike."""
    if predictions.groups is None:
        return []
    tasks: dict[int, list[TaskPredictions]] = {}
    for task in predictions.tasks:
        tasks.setdefault(len({predictions.groups[own] for own in task.classes}), []).append(task)
    return _parted({f"classes of {n} group{'s' * (n > 1)}": tasks[n] for n in sorted(tasks)})


def _parted(parts: Mapping[str, list[TaskPredictions]]) -> list[Part]:
    made = [
        Part(words, len(tasks), mean_interval([task.accuracy for task in tasks]))
        for words, tasks in parts.items()
        if tasks
    ]
    return made if len(made) > 1 else []
