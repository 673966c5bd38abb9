"""The labels that were given in the first test tasks, kept in the run for its page, with a few pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from innerloop.core.files import json_line, write_text_atomic
from innerloop.data.source import ImageSource
from innerloop.evaluation.scores import EpisodePredictions
from innerloop.experiment.data import Data
from innerloop.experiment.pictures import build_kinds
from innerloop.experiment.recipe.schema import Recipe
from innerloop.runs.directory import PREDICTIONS
from innerloop.tasks.episodes import EpisodeRows
from innerloop.tasks.few_shot import FewShot, few_shot

CLASSES, SUPPORT, QUERIES = 10, 3, 8
"""Of a task that is shown: classes, and pictures of each, at most."""

SIDE = 84
"""Pixels of the longer side of a picture that is kept."""

_EXACT = 40  # up to this side a picture is kept as it is


def keep_predictions(
    run: Path, evaluation: Path, recipe: Recipe, data: Data, given: Sequence[EpisodePredictions]
) -> Path:
    """Writes what was said of queries, and two tasks in pictures: the first, and that of lowest accuracy."""
    kinds = build_kinds(recipe, training=False)
    drawn = few_shot(data.pictures, "test", recipe.eval.seed, kinds, recipe.tasks.balanced)
    rows = {one.episode: _rows(drawn, one.episode) for one in given}
    met = sorted({int(c) for _, episode_rows in rows.values() for c in episode_rows.classes[0]})
    place = {number: i for i, number in enumerate(met)}
    hardest = min(given, key=lambda one: one.accuracy)
    shown = [given[0]] if hardest is given[0] else [given[0], hardest]
    content = {
        "evaluation": evaluation.name,
        "classes": [drawn.source.class_names[number] for number in met],
        "groups": _groups(drawn.source, met),
        "kinds": [kind.name for kind in kinds],
        "tasks": [_task(one, *rows[one.episode], place) for one in given],
        "shown": [_shown(one, rows[one.episode][1], drawn.source) for one in shown],
    }
    folder = run / PREDICTIONS
    folder.mkdir(exist_ok=True)
    write_text_atomic(folder / evaluation.name, json_line(content) + "\n")  # compact: many numbers
    return folder / evaluation.name


def _rows(drawn: FewShot, episode: int) -> tuple[int, EpisodeRows]:
    index = np.asarray([episode], np.int64)
    kind = int(drawn.kind_of(index)[0])
    return kind, drawn.rows(index, kind)


def _groups(source: ImageSource, classes: Sequence[int]) -> list[str] | None:
    return None if source.groups is None else [source.group_names[source.groups[c]] for c in classes]


def _task(one: EpisodePredictions, kind: int, rows: EpisodeRows, place: dict[int, int]) -> dict[str, Any]:
    classes = [place[int(c)] for c in rows.classes[0]]
    given = {"labels": one.labels, "said": one.said, "probability": one.probability}
    return {"episode": one.episode, "kind": kind, "classes": classes, **given}


def _shown(one: EpisodePredictions, rows: EpisodeRows, source: ImageSource) -> dict[str, Any]:
    """A task in pictures: for every class some of its examples, and some queries with what was said."""
    shown = []
    for label in range(min(rows.classes.shape[1], CLASSES)):
        support = rows.support[0][rows.support_labels[0] == label][:SUPPORT]
        places = [i for i, true in enumerate(one.labels) if true == label][:QUERIES]
        queries = [
            {
                "picture": _text(source.images[rows.query[0][i]]),
                "said": one.said[i],
                "probability": one.probability[i],
            }
            for i in places
        ]
        shown.append({"support": [_text(source.images[row]) for row in support], "queries": queries})
    return {"episode": one.episode, "rows": shown}


def _text(pixels: NDArray[np.uint8]) -> str:
    """A picture ``(H, W, C)`` in base64: exact where it is small, else a JPEG of at most :data:`SIDE`."""
    image = Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels))
    buffer = io.BytesIO()
    if max(image.size) <= _EXACT:
        image.save(buffer, "PNG", optimize=True)
    else:
        image.thumbnail((SIDE, SIDE))
        image.save(buffer, "JPEG", quality=78)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
