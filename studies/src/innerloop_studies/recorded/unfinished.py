"""Trainings and searches of ``make results`` that were interrupted: the same command goes on with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from innerloop.core.errors import UserError
from innerloop.core.files import read_object, write_json_atomic
from innerloop.runs.manifest import read_manifest
from innerloop_studies.recorded.files import ROOT

NOTES = Path("runs/.recorded")
"""Which source began what, below the root."""
RESUMABLE = ("train", "search")
"""Verbs whose runs ``innerloop resume`` continues; sweeps and reproductions go on by themselves."""


def begin(name: str, words: Sequence[str], made_by: Mapping[str, str | None]) -> Path | None:
    """Says which run to go on with; None if there is none, and notes which source begins one.

    A run that another source began is left alone: its beginning and its end would not belong together.
    """
    if words[0] not in RESUMABLE:
        return None
    note = ROOT / NOTES / f"{name}.json"
    if note.is_file() and read_object(note) == dict(made_by):
        return unfinished(words)
    note.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(note, dict(made_by))
    return None


def end(name: str) -> None:
    """Forgets who began it: what comes next is a run of its own."""
    (ROOT / NOTES / f"{name}.json").unlink(missing_ok=True)


def unfinished(words: Sequence[str]) -> Path | None:
    """The newest run that these words began and that has not come to its end."""
    runs = sorted((ROOT / "runs").glob("*/*/manifest.json"), key=lambda file: file.parent.name, reverse=True)
    for file in runs:
        try:
            manifest = read_manifest(file.parent)
        except UserError:  # damaged, or not of ours
            continue
        if (manifest.get("argv") or [])[1:] == [*words, "--json"]:
            return None if manifest["status"] in ("finished", "failed") else file.parent
    return None
