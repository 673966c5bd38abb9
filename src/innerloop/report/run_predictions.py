"""Labels that an evaluation gave in its first test tasks: read from a run, counted, shown on its page."""

from __future__ import annotations

import math
import statistics
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from innerloop.core.files import read_json
from innerloop.core.statistics import Interval, mean_interval
from innerloop.report.figures import address, calibration_picture
from innerloop.report.prediction_page import MOST_CLASSES, heat_row
from innerloop.report.read_run import RunData, inside
from innerloop.report.text import View, finite_scores, interval, number, percent
from innerloop.runs.directory import PREDICTIONS

FEW = 5  # with fewer tasks than this, a mean says little and its interval less
Part: TypeAlias = tuple[str, Interval]
"""Some of the tasks, in words, and their mean score; its ``ci95`` is nan where that says nothing."""
PAIRS = 10  # confused pairs that are told
HARDEST = 8  # classes that are seen at once; the others are behind a click


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


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _numbers(values: Sequence[Any], below: int) -> list[int]:
    if not all(type(value) is int and 0 <= value < below for value in _listed(values)):
        raise ValueError("not such numbers")
    return list(values)


class ClassRow(NamedTuple):
    """One class: its accuracy over the tasks that have it, its pictures, what it is mostly taken for."""

    name: str
    accuracy: Interval
    pictures: int
    mistaken: str
    times: int


class ConfusedPair(NamedTuple):
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


def class_rows(predictions: RunPredictions) -> list[ClassRow]:
    """All classes, the hardest first, but those of few tasks last: chance alone puts them anywhere."""
    # intervals are over tasks, as pictures of one task hang together
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


def confused_pairs(predictions: RunPredictions) -> list[ConfusedPair]:
    """Pairs of classes by the share of confused pictures, of those in tasks that have both classes."""
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
    pairs = [
        ConfusedPair(*pair, taken[pair], pictures, tasks[pair]) for pair, pictures in met.items() if pictures
    ]
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
        (words, Interval(statistics.fmean(some), float("nan"), len(some))) for words, some in parts.items()
    ]


def by_kind(predictions: RunPredictions) -> list[Part]:
    """Tasks of every kind of a mixture; empty where there is one kind."""
    names = [name or f"kind {i + 1}" for i, name in enumerate(predictions.kinds)]
    of = {name: [task for task in predictions.tasks if task.kind == i] for i, name in enumerate(names)}
    return _parted(of)


def by_groups(predictions: RunPredictions) -> list[Part]:
    """Tasks by how many groups their classes come from: classes of one group are usually alike."""
    if predictions.groups is None:
        return []
    tasks: dict[int, list[TaskPredictions]] = {}
    for task in predictions.tasks:
        tasks.setdefault(len({predictions.groups[own] for own in task.classes}), []).append(task)
    return _parted({f"classes of {n} group{'s' * (n > 1)}": tasks[n] for n in sorted(tasks)})


def _parted(parts: Mapping[str, list[TaskPredictions]]) -> list[Part]:
    scores = {words: [task.accuracy for task in tasks] for words, tasks in parts.items()}
    made = [(words, mean_interval(values)) for words, values in scores.items() if values]
    return made if len(made) > 1 else []


def labels_view(
    predictions: RunPredictions, evaluation: Mapping[str, Any], name: str, with_pictures: bool = True
) -> View:
    """Everything the template shows of the labels that an evaluation gave."""
    known = {task.episode: task for task in predictions.tasks}
    probability = [p for task in predictions.tasks for p in task.probability]
    right = [hit for task in predictions.tasks for hit in task.right]
    of = evaluation.get("episodes")
    first = "the first " if isinstance(of, int) and of > len(predictions.tasks) else ""
    all_of_them = f"{first}{number(len(predictions.tasks))}{f' of {number(of)}' if first else ''} test tasks"
    hardest, rest = _class_tables(predictions)
    pairs = confused_pairs(predictions)
    return {
        "lead": f"From {all_of_them}: {number(sum(right))} of {number(len(right))} labels are right, "
        f"{percent(sum(right) / len(right))}.",
        "samples": [_sample(one, known[one.episode], predictions) for one in predictions.shown]
        if with_pictures
        else [],
        "calibration": calibration_picture(probability, right, name),
        "hardest": hardest,
        "rest": rest,
        "heat": _heat(predictions, pairs),
        "pairs": _pairs(predictions, pairs),
    }


def difficulty_tables(predictions: RunPredictions | None, evaluation: Mapping[str, Any] | None) -> list[View]:
    """Scores of easy and of hard tasks: as they turned out, by kind, and by how alike classes are."""
    if evaluation is None:
        return []
    score = str(evaluation.get("score") or "score")
    tables = [
        ("All test tasks, sorted by their score", by_outcome(evaluation)),
        ("By kind of task", by_kind(predictions) if predictions else []),
        ("By how many groups the classes come from", by_groups(predictions) if predictions else []),
    ]
    return [_parts_table(title, parts, score) for title, parts in tables if parts]


def _sample(shown: ShownTask, task: TaskPredictions, predictions: RunPredictions) -> View:
    """A task in pictures, a row for every class."""
    hardest = min(predictions.tasks, key=lambda one: one.accuracy)
    why = "the first, not chosen" if task is predictions.tasks[0] else ""
    if task is hardest:
        why = f"{why}, and " if why else ""
        why += f"the hardest of these {number(len(predictions.tasks))}"
    rows = []
    for label, (support, queries) in enumerate(zip(shown.support, shown.queries, strict=True)):
        own = predictions.classes[task.classes[label]]
        cells = [_query(one, label, task, predictions) for one in queries]
        rows.append({"letter": _letter(label), "name": own, "support": support, "queries": cells})
    return {
        "title": f"Test task {number(task.episode)}",
        "words": f"{why}; {number(sum(task.right))} of {number(len(task.labels))} right".lstrip("; "),
        "rows": rows,
        "more": len(task.classes) - len(rows),
    }


def _query(one: Query, label: int, task: TaskPredictions, predictions: RunPredictions) -> View:
    letter, said = "–", "none of them"
    if one.said < len(task.classes):
        letter, said = _letter(one.said), predictions.classes[task.classes[one.said]]
    shown = {"letter": letter, "said": said, "probability": percent(one.probability)}
    return {**one._asdict(), "right": one.said == label, **shown}


def _letter(label: int) -> str:
    return string.ascii_uppercase[label] if label < 26 else str(label + 1)


def _class_tables(predictions: RunPredictions) -> tuple[View, View]:
    rows = [
        [
            row.name,
            _score(row.accuracy, "accuracy"),
            number(row.accuracy.n),
            number(row.pictures),
            f"{row.mistaken} ({number(row.times)})" if row.mistaken else "–",
        ]
        for row in class_rows(predictions)
    ]
    head = ["class", "right, 95 % CI over tasks", "tasks", "pictures", "mostly taken for"]
    first = len(rows) if len(rows) <= HARDEST + 2 else HARDEST
    table = {"title": "", "head": head}
    return {**table, "rows": rows[:first]}, {**table, "rows": rows[first:]}


def _pairs(predictions: RunPredictions, pairs: Sequence[ConfusedPair]) -> list[str]:
    """The most confused pairs in words; a single picture is no pattern."""
    names = predictions.classes
    often = [pair for pair in pairs if pair.true != pair.said and pair.times > 1][:PAIRS]
    return [
        f"{names[pair.true]} was taken for {names[pair.said]} {number(pair.times)} times, "
        f"{percent(pair.share)} of its {number(pair.pictures)} pictures in the "
        f"{f'{number(pair.tasks)} tasks' if pair.tasks > 1 else 'one task'} with both"
        for pair in often
    ]


def _heat(predictions: RunPredictions, pairs: Sequence[ConfusedPair]) -> View | None:
    if len(predictions.classes) > MOST_CLASSES:
        return None
    shares = {(pair.true, pair.said): pair.share for pair in pairs}
    names, numbers = predictions.classes, range(len(predictions.classes))
    rows = [heat_row(name, [shares.get((a, b)) for b in numbers]) for a, name in enumerate(names)]
    return {"names": names, "rows": rows}


def _parts_table(title: str, parts: Sequence[Part], score: str) -> View:
    certain = any(math.isfinite(estimate.ci95) for _, estimate in parts)
    head = ["tasks", f"{score}, 95 % CI" if certain else f"mean {score}", "how many"]
    rows = [[words, _score(estimate, score), number(estimate.n)] for words, estimate in parts]
    return {"title": title, "head": head, "rows": rows}


def _score(estimate: Interval, score: str) -> str:
    if math.isfinite(estimate.ci95) and estimate.n >= FEW:
        return interval(estimate.mean, estimate.ci95, score)
    mean = f"{100 * estimate.mean:.1f} %" if score == "accuracy" else number(estimate.mean, 3)
    return f"{mean} (few tasks)" if estimate.n < FEW else mean
