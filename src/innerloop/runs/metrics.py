"""``metrics.jsonl``: one JSON object per line, readable while it grows and after a crash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from innerloop.core.errors import UserError
from innerloop.core.files import json_line, write_text_atomic
from innerloop.runs.tracking import TrackerRun, followers, scalars


class MetricsWriter:
    """Appends lines to a metrics file; gives their numbers to TensorBoard and to a tracker if asked."""

    def __init__(self, path: Path, tensorboard: bool = False, tracked: TrackerRun | None = None) -> None:
        cut_torn_line(path)
        last = _last_step(path) if tensorboard else None
        self._followers = followers(path, tensorboard, tracked, last)
        self._file = path.open("a", encoding="utf-8", newline="\n")

    def write(self, values: Mapping[str, Any]) -> None:
        """Append one line and hand it to the operating system, so that a killed process loses none of it."""
        self._file.write(json_line(dict(values)) + "\n")
        self._file.flush()
        self.tell(values)

    def tell(self, values: Mapping[str, Any]) -> None:
        """Give the numbers of a record to those that follow, and keep them out of the file."""
        for follower in self._followers:
            follower.write(scalars(values), values.get("step"))

    def close(self) -> None:
        """Close the files; harmless when called twice."""
        self._file.close()
        for follower in self._followers:
            follower.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All complete lines; none where the file does not exist. Half a last line (a killed writer) is left out.

    Raises:
        UserError: a line before the last is not a JSON object.
    """
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif number < len(lines):  # a complete line ends in a newline, so the torn one is the last piece
            raise UserError(f"{path}, line {number} is not a JSON object. Was it edited by hand?")
    return records


def truncate_after(path: Path, step: int) -> None:
    """Drop lines of steps after ``step`` and half a last line, in one atomic replacement."""
    # a resumed run repeats these steps and would otherwise write them twice
    if not path.is_file():
        return
    kept = [record for record in read_metrics(path) if not _after(record, step)]
    write_text_atomic(path, "".join(json_line(record) + "\n" for record in kept))


def cut_torn_line(path: Path) -> None:
    """Remove what stands behind the last newline, so that the next line starts on its own."""
    if not path.is_file():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        write_text_atomic(path, content[:whole].decode("utf-8", errors="replace"))


def _last_step(path: Path) -> int | None:
    steps = [record["step"] for record in read_metrics(path) if isinstance(record.get("step"), int)]
    return max(steps, default=None)


def _after(record: Mapping[str, Any], step: int) -> bool:
    at = record.get("step")
    return isinstance(at, (int, float)) and at > step
