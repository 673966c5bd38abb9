"""The page of ``innerloop predict``: gathers what :mod:`innerloop.report.prediction_page` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from innerloop.classify.predicting.adapted import Adapted
from innerloop.classify.predicting.told import left_out
from innerloop.core.files import write_text_atomic
from innerloop.evaluation.sureness.expected import Mistaken, confusion, mistaken
from innerloop.report.prediction_page import (
    Class,
    Example,
    labelled_page,
    least_sure_first,
    percent,
    thumbnails,
)
from innerloop.runs.manifest import now, version_of

MOST_PICTURES = 400
MOST_EXAMPLES = 300
"""Shown on a page, at most; where classes are many, some examples of each."""
ROOM = 5_000_000
"""Characters for the pictures, and half as many for the examples: the page stays below 8 MB."""


def write_labelled_page(
    path: Path,
    adapted: Adapted,
    told: Mapping[str, Any],
    examples: Mapping[str, Sequence[Path]],
    command: str = "",
) -> Path:
    """Writes the page."""
    held_out = left_out(adapted)
    wrong = {} if held_out is None else mistaken(held_out)
    table = None if held_out is None else confusion(held_out, len(adapted.names)).tolist()
    rows = least_sure_first(told["predictions"])[:MOST_PICTURES]
    pictures = thumbnails([Path(row["file"]) for row in rows], ROOM)
    classes = _classes(examples, wrong, adapted.names)
    write_text_atomic(path, labelled_page(told, pictures, classes, table, _facts(adapted, told, command)))
    return path


def _classes(
    examples: Mapping[str, Sequence[Path]], wrong: Mapping[int, Mistaken], names: Sequence[Any]
) -> list[Class]:
    """Some examples of each class, those that were labelled wrong when left out before the others."""
    each = max(1, MOST_EXAMPLES // max(1, len(examples)))
    chosen: list[tuple[str, int, list[tuple[Path, str]]]] = []
    first = 0
    for name, files in examples.items():
        known = [(file, _remark(wrong.get(first + i), names)) for i, file in enumerate(files)]
        chosen.append((name, len(files), sorted(known, key=lambda item: not item[1])[:each]))
        first += len(files)
    small = iter(thumbnails([file for _, _, known in chosen for file, _ in known], ROOM // 2))
    return [
        Class(name, count, [Example(str(file), text, words) for (file, words), text in zip(known, small)])  # noqa: B905 (small ends where the room does)
        for name, count, known in chosen
    ]


def _remark(mistaken: Mistaken | None, names: Sequence[Any]) -> str:
    if mistaken is None:
        return ""
    return f"taken for {names[mistaken.said]}, right in {percent(mistaken.right)}"


def _facts(adapted: Adapted, told: Mapping[str, Any], command: str) -> list[tuple[str, str]]:
    predictor, sure = adapted.predictor, adapted.sureness
    facts = [("command", command or "from Python"), ("when", now()), ("took", f"{told['seconds']:.1f} s")]
    if predictor.backbone is not None:
        named = predictor.backbone
        facts += [("backbone", named.name), ("its weights", named.weights), ("their licence", named.licence)]
    else:
        facts += [("network", predictor.recipe.model.kind), ("of", predictor.source)]
    facts += [("method", told["method"]), ("norm policy", told["norm"])]
    if sure is not None and sure.expected is not None:
        facts.append(("temperature", f"{sure.temperature:.4g}, fitted to examples left out"))
    if sure is not None and sure.novelty is not None:
        novelty = sure.novelty
        facts.append(
            ("called unknown", f"at most {percent(novelty.false_alarms)} of pictures like the examples")
        )
    return [*facts, ("torch", str(version_of("torch")))]
