"""``metrics.jsonl``: one JSON object per line, readable while it grows and after a crash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from innerloop.core.errors import UserError
from innerloop.runs.files import json_line, write_text_atomic


class MetricsWriter:
    """Appends lines to a metrics file, and TensorBoard events beside it if asked.

    Args:
        path: usually ``<run>/metrics.jsonl``; lines already there are kept, half a last line is cut off.
        tensorboard: also write events into ``<run>/tensorboard``.

    Raises:
        UserError: TensorBoard is asked for and not installed.
    """

    def __init__(self, path: Path, tensorboard: bool = False) -> None:
        cut_torn_line(path)
        self._events = _event_writer(path) if tensorboard else None
        self._file = path.open("a", encoding="utf-8", newline="\n")

    def write(self, values: Mapping[str, Any]) -> None:
        """Append one line and hand it to the operating system, so that a killed process loses none of it."""
        self._file.write(json_line(dict(values)) + "\n")
        self._file.flush()
        if self._events is not None:
            step = values.get("step")
            for key, value in values.items():
                if key != "step" and isinstance(value, (int, float)) and not isinstance(value, bool):
                    self._events.add_scalar(key, value, step)
            self._events.flush()

    def close(self) -> None:
        """Close the files; harmless when called twice."""
        self._file.close()
        if self._events is not None:
            self._events.close()

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
    """Drop lines of steps after ``step`` and half a last line, in one atomic replacement.

    A resumed run repeats these steps and would otherwise write them twice.
    """
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


def _after(record: Mapping[str, Any], step: int) -> bool:
    at = record.get("step")
    return isinstance(at, (int, float)) and at > step


def _event_writer(path: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "{tensorboard}=true needs TensorBoard: `pip install 'innerloop[tensorboard]'`, or leave it out.",
            names=("tensorboard",),
        ) from None
    steps = [record["step"] for record in read_metrics(path) if isinstance(record.get("step"), int)]
    # a resumed run repeats steps after its checkpoint: TensorBoard hides the earlier events from there on
    return SummaryWriter(str(path.parent / "tensorboard"), purge_step=max(steps) + 1 if steps else None)
