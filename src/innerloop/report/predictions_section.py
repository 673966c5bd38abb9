"""The part of a run's page that looks at single labels: sample tasks, calibration, classes, hard tasks."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from typing import Any

from innerloop.core.statistics import Interval
from innerloop.report.figures import Picture
from innerloop.report.plots.scores import calibration_data, calibration_figure
from innerloop.report.plots.style import figure_to_svg
from innerloop.report.prediction_page import MOST_CLASSES, heat_row, percent
from innerloop.report.predictions import (
    FEW,
    Pair,
    Part,
    Query,
    RunPredictions,
    ShownTask,
    TaskPredictions,
    by_groups,
    by_kind,
    by_outcome,
    class_rows,
    confused_pairs,
)
from innerloop.report.text import View, interval, number

PAIRS = 10
"""Confused pairs that are told."""
HARDEST = 8
"""Classes that are seen at once; the others are behind a click."""


def labels_view(
    predictions: RunPredictions, evaluation: Mapping[str, Any], name: str, with_pictures: bool = True
) -> View:
    """Everything the template shows of the labels that an evaluation gave."""
    known = {task.episode: task for task in predictions.tasks}
    labels = sum(len(task.labels) for task in predictions.tasks)
    right = sum(sum(task.right) for task in predictions.tasks)
    of = evaluation.get("episodes")
    first = "the first " if isinstance(of, int) and of > len(predictions.tasks) else ""
    all_of_them = f"{first}{number(len(predictions.tasks))}{f' of {number(of)}' if first else ''} test tasks"
    hardest, rest = _class_tables(predictions)
    return {
        "lead": f"From {all_of_them}: {number(right)} of {number(labels)} labels are right, "
        f"{percent(right / labels)}.",
        "samples": [_sample(one, known[one.episode], predictions) for one in predictions.shown]
        if with_pictures
        else [],
        "calibration": calibration_picture(predictions, name),
        "hardest": hardest,
        "rest": rest,
        "heat": _heat(predictions, confused_pairs(predictions)),
        "pairs": _pairs(predictions, confused_pairs(predictions)),
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


def calibration_picture(predictions: RunPredictions, name: str) -> Picture:
    """How often labels were right against how probable they were called."""
    probability = [p for task in predictions.tasks for p in task.probability]
    right = [hit for task in predictions.tasks for hit in task.right]
    data = calibration_data(probability, right)
    called, true = (sum(values) / len(right) for values in (probability, right))
    gap = called - true
    verdict = (
        "about as sure as it is right" if abs(gap) < 0.02 else "too sure" if gap > 0 else "not sure enough"
    )
    words = [
        f"Labels are called {percent(called)} probable on average, and {percent(true)} are right: "
        f"on the whole it is {verdict}.",
        f"Expected calibration error {number(100 * data['error'], 2)} points "
        f"({len(data['counts'])} bins of equal width).",
    ]
    svg = figure_to_svg(calibration_figure(data), f"{name}-calibration", "Calibration", " ".join(words))
    return Picture("Calibration", words, svg)


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
    said = predictions.classes[task.classes[one.said]] if one.said < len(task.classes) else "none of them"
    letter = _letter(one.said) if one.said < len(task.classes) else "–"
    return {
        "picture": one.picture,
        "right": one.said == label,
        "letter": letter,
        "said": said,
        "probability": percent(one.probability),
    }


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
    return {"title": "", "head": head, "rows": rows[:first]}, {
        "title": "",
        "head": head,
        "rows": rows[first:],
    }


def _pairs(predictions: RunPredictions, pairs: Sequence[Pair]) -> list[str]:
    """The most confused pairs in words; a single picture is no pattern."""
    names = predictions.classes
    often = [pair for pair in pairs if pair.true != pair.said and pair.times > 1][:PAIRS]
    return [
        f"{names[pair.true]} was taken for {names[pair.said]} {number(pair.times)} times, "
        f"{percent(pair.share)} of its {number(pair.pictures)} pictures in the {_tasks(pair.tasks)} with both"
        for pair in often
    ]


def _tasks(count: int) -> str:
    return f"{number(count)} tasks" if count > 1 else "one task"


def _heat(predictions: RunPredictions, pairs: Sequence[Pair]) -> View | None:
    if len(predictions.classes) > MOST_CLASSES:
        return None
    shares = {(pair.true, pair.said): pair.share for pair in pairs}
    numbers = range(len(predictions.classes))
    return {
        "names": predictions.classes,
        "rows": [
            heat_row(name, [shares.get((a, b)) for b in numbers])
            for a, name in enumerate(predictions.classes)
        ],
    }


def _parts_table(title: str, parts: Sequence[Part], score: str) -> View:
    certain = any(math.isfinite(part.score.ci95) for part in parts)
    head = ["tasks", f"{score}, 95 % CI" if certain else f"mean {score}", "how many"]
    rows = [[part.words, _score(part.score, score), number(part.tasks)] for part in parts]
    return {"title": title, "head": head, "rows": rows}


def _score(estimate: Interval, score: str) -> str:
    if math.isfinite(estimate.ci95) and estimate.n >= FEW:
        return interval(estimate.mean, estimate.ci95, score)
    mean = f"{100 * estimate.mean:.1f} %" if score == "accuracy" else number(estimate.mean, 3)
    return f"{mean} (few tasks)" if estimate.n < FEW else mean
