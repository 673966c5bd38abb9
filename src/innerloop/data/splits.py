"""Which classes to train, validate and test on, for data that comes without a published split."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.formatting import printable, shorten
from innerloop.data.hashing import text_hash

Splits = dict[str, tuple[int, ...]]
WORDS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
_HELD_OUT = 0.2  # of the classes, for validation and again for test
_WANTED = 5  # classes to test on, so that tasks have five ways: of few classes up to a quarter is held out


def divide(class_names: Sequence[str]) -> Splits:
    """60/20/20 % of the classes, chosen by a hash of their names: the same on every machine, in any order."""
    n = len(class_names)
    if n < 3:
        return {"all": tuple(range(n))}
    held = max(2 if n >= 6 else 1, round(_HELD_OUT * n), min(_WANTED, n // 4))
    order = sorted(range(n), key=lambda c: text_hash("split", class_names[c]))
    parts = {"train": order[2 * held :], "validation": order[:held], "test": order[held : 2 * held]}
    return {part: tuple(sorted(classes)) for part, classes in parts.items()}


def hold_out(classes: Sequence[int], class_names: Sequence[str], groups: Sequence[str] | None) -> Splits:
    """A fifth of the training classes for validation, where a split has none; whole groups if any."""
    # by a hash of their names: the same on every machine, whatever is trained with them; never the last one
    unit_of = {c: groups[c] if groups is not None else class_names[c] for c in classes}
    if len(set(unit_of.values())) < 2:
        unit_of = {c: class_names[c] for c in classes}
    units = sorted(set(unit_of.values()), key=lambda name: text_hash("split", name))
    held: set[int] = set()
    for unit in units[:-1]:
        if len(held) >= max(1, round(_HELD_OUT * len(classes))):
            break
        held |= {c for c in classes if unit_of[c] == unit}
    return {"train": tuple(sorted(set(classes) - held)), "validation": tuple(sorted(held))}


def read_split_file(path: Path, class_names: Sequence[str]) -> Splits:
    """A JSON object of lists of class names, or a csv file with the columns class and split."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the split file {path} cannot be read: {error}.") from None
    listed = _from_csv(content, path) if path.suffix.lower() == ".csv" else _from_json(content, path)
    return named_splits(listed, class_names, str(path))


def named_splits(listed: Mapping[str, Sequence[Any]], class_names: Sequence[str], origin: str) -> Splits:
    """Lists of class names as class numbers; the last part of a name will do where it is not ambiguous."""
    number = {name: c for c, name in enumerate(class_names)}
    tails = [name.rpartition("/")[2] for name in class_names]
    number.update({tail: c for c, tail in enumerate(tails) if tails.count(tail) == 1 and tail not in number})
    home: dict[int, str] = {}
    splits: Splits = {}
    for word, names in listed.items():
        part = WORDS.get(str(word).lower(), str(word))
        for name in names:
            if str(name) not in number:
                shown = shorten(printable(name))
                raise UserError(
                    f"{origin} names the class '{shown}'{did_you_mean(shown, number)}, which is not there."
                )
            if home.setdefault(number[str(name)], part) != part:
                raise UserError(
                    f"{origin} puts the class '{name}' in both {home[number[str(name)]]} and {part}; the "
                    "splits of few-shot learning hold different classes."
                )
        splits[part] = tuple(sorted({number[str(name)] for name in names} | set(splits.get(part, ()))))
    if not any(splits.values()):
        raise UserError(f"{origin} lists no classes.")
    return splits


def _from_json(content: str, path: Path) -> dict[str, list[Any]]:
    try:
        table = json.loads(content)
    except ValueError as error:
        raise UserError(f"the split file {path} is not valid JSON: {error}.") from None
    if not isinstance(table, dict) or not all(isinstance(names, list) for names in table.values()):
        raise UserError(f'the split file {path} must look like {{"train": ["cat", "dog"], "test": ["owl"]}}.')
    return table


def _from_csv(content: str, path: Path) -> dict[str, list[str]]:
    table = csv.DictReader(content.splitlines())
    columns = table.fieldnames or ()
    name = next((column for column in ("class", "label", "name") if column in columns), None)
    if name is None or "split" not in columns:
        raise UserError(f"the split file {path} needs the columns class and split in its first line.")
    listed: dict[str, list[str]] = {}
    for row in table:
        listed.setdefault((row["split"] or "").strip(), []).append((row[name] or "").strip())
    return listed
