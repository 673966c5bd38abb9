"""Reads the labels that an evaluation gave in its first test tasks, if the run kept them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from innerloop.core.files import read_json
from innerloop.report.read_run import RunData, inside
from innerloop.runs.directory import PREDICTIONS

_KINDS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg"}


class KeptTask(NamedTuple):
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


class Kept(NamedTuple):
    """What ``predictions/<name of the evaluation>`` holds."""

    classes: list[str]
    groups: list[str] | None
    kinds: list[str]
    tasks: list[KeptTask]
    shown: list[ShownTask]


def kept_predictions(run: RunData, evaluation: Mapping[str, Any] | None) -> tuple[Kept | None, str]:
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


def _kept(content: Mapping[str, Any]) -> Kept:
    classes = [str(name) for name in _listed(content["classes"])]
    groups = None if content["groups"] is None else [str(name) for name in _listed(content["groups"])]
    kinds = [str(name) for name in _listed(content["kinds"])]
    tasks = [_task(one, len(classes), len(kinds)) for one in _listed(content["tasks"])]
    known = {task.episode: task for task in tasks}
    shown = [_shown(one, known) for one in _listed(content["shown"])]
    if not tasks or (groups is not None and len(groups) != len(classes)):
        raise ValueError("no tasks, or groups of other classes")
    return Kept(classes, groups, kinds, tasks, shown)


def _task(entry: Mapping[str, Any], classes: int, kinds: int) -> KeptTask:
    own = _numbers(entry["classes"], classes)
    labels = _numbers(entry["labels"], len(own))
    said = _numbers(entry["said"], 10**6)  # a network may have more outputs than the task has classes
    probability = [float(p) for p in _listed(entry["probability"])]
    (episode,), (kind,) = _numbers([entry["episode"]], 10**9), _numbers([entry["kind"]], kinds)
    if not labels or not len(labels) == len(said) == len(probability):
        raise ValueError("labels of different lengths")
    if not all(0 <= p <= 1 for p in probability):
        raise ValueError("no probabilities")
    return KeptTask(episode, kind, own, labels, said, probability)


def _shown(entry: Mapping[str, Any], known: Mapping[int, KeptTask]) -> ShownTask:
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
