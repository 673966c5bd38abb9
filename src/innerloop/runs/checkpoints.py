"""Checkpoints that survive ``kill -9`` at any instant: safetensors and JSON, published by rename.

Directories ``checkpoints/step-…`` are complete before they get their name, and pointers ``<tag>.json``
(``last``, ``best``) move only to complete ones: at every instant each tag leads to a whole one. What no tag
names is deleted. A pointer holds the SHA-256 of ``state.json``, and that the one of the tensors.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.core.files import (
    DamagedFileError,
    check_plain_file,
    read_object,
    sync_file,
    sync_folder,
    write_json_atomic,
)
from innerloop.runs.directory import MANIFEST, RECIPE

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "checkpoints"
TENSORS = "tensors.safetensors"
STATE = "state.json"
_TEMPORARY = ".tmp-"
_READ_ATTEMPTS = 5
_SUM = "sha256"
_DIRECTORY = re.compile(r"step-\d+(-\d+)?")


class DamagedCheckpointError(UserError):
    """A checkpoint's files are not those that were saved."""


def save_checkpoint(
    run: Path,
    step: int,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    tags: tuple[str, ...] = ("last",),
) -> Path:
    """Write one checkpoint and let every tag in ``tags`` name it."""
    folder = run / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    about = encoded({"step": step, "state": dict(state)})  # before anything is written: it may be refused
    temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder))
    try:
        _write_tensors(temporary / TENSORS, tensors)
        text = json.dumps({**about, _SUM: _checksum(temporary / TENSORS)}, allow_nan=False)
        (temporary / STATE).write_text(text, encoding="utf-8")
        sync_file(temporary / STATE)
        sync_folder(temporary)
        temporary.chmod(folder.stat().st_mode & 0o777)  # mkdtemp makes private folders
        final = _publish(temporary, folder, step)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    # `last` moves last: a run resumed from it must find the `best` that its state speaks of
    for tag in sorted(tags, key=lambda tag: tag == "last"):
        pointer = {"checkpoint": final.name, "step": step, _SUM: hashlib.sha256(text.encode()).hexdigest()}
        write_json_atomic(folder / f"{tag}.json", pointer)
    _clean(folder)
    return final


class Checkpoint(NamedTuple):
    """What a checkpoint holds.

    Attributes:
        tensors: by name.
        state: plain data, by name.
    """

    tensors: dict[str, Tensor]
    state: dict[str, Any]


def load_checkpoint(run: Path, tag: str = "last") -> Checkpoint | None:
    """The tensors and state that ``tag`` names, or None where there is no such checkpoint yet.

    May be called while the run trains: if the checkpoint is replaced during the read, the new one is read.

    Raises:
        DamagedCheckpointError: the checkpoint's files were damaged or removed; says which other one is whole.
    """
    try:
        return _load(run / FOLDER, tag)
    except DamagedCheckpointError as error:
        raise DamagedCheckpointError(f"{error}; {_way_out(run, tag)}.") from None


def _load(folder: Path, tag: str) -> Checkpoint | None:
    problem: Exception | None = None
    for _ in range(_READ_ATTEMPTS):
        try:
            pointer = read_object(folder / f"{tag}.json")
        except FileNotFoundError:
            return None
        except DamagedFileError as error:
            raise DamagedCheckpointError(f"{error}") from None
        try:
            return _read(folder / _name(pointer), pointer.get(_SUM))
        except FileNotFoundError as error:
            problem = error  # replaced while we read: the pointer now names the next one
        except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
            raise DamagedCheckpointError(
                f"the checkpoint '{tag}' of {folder.parent} is damaged ({error})"
            ) from None
    raise DamagedCheckpointError(
        f"the checkpoint '{tag}' of {folder.parent} names files that are gone ({problem})"
    )


def _read(where: Path, expected: str | None) -> Checkpoint:
    from innerloop.core.tensors import read_tensors

    _verify(where / STATE, expected)
    about = decoded(read_object(where / STATE))
    _verify(where / TENSORS, about.get(_SUM))
    if not isinstance(about["state"], dict):
        raise ValueError(f"{STATE} holds no state")
    return Checkpoint(read_tensors(where / TENSORS), about["state"])


def _name(pointer: Mapping[str, Any]) -> str:
    """The directory that a pointer names; only one beside it can be meant."""
    name = pointer["checkpoint"]
    if not isinstance(name, str) or not _DIRECTORY.fullmatch(name):
        raise ValueError(f"it names {json.dumps(name)[:60]}, which is no checkpoint")
    return name


def _verify(path: Path, expected: str | None) -> None:
    """Raises ValueError where the file is not the one that was saved; older checkpoints say nothing on it."""
    if expected is not None and _checksum(path) != expected:
        raise ValueError(f"{path.name} is not as it was saved: its SHA-256 differs")


def _checksum(path: Path) -> str:
    check_plain_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _way_out(run: Path, damaged: str) -> str:
    """What can be done about a damaged checkpoint: the other one, where that is whole, or a new start."""
    other = {"last": "best", "best": "last"}.get(damaged)
    if other is not None:
        try:
            whole = _load(run / FOLDER, other) is not None
        except DamagedCheckpointError:
            whole = False
        if whole:
            step, folder = checkpoint_step(run, other), run / FOLDER
            command = f"cp {folder / other}.json {folder / damaged}.json"
            return f"'{other}' (step {step}) is whole, and `{command}` uses it instead"
    return f"there is no other one, so train it again with `innerloop train {run}`"


def checkpoint_step(run: Path, tag: str = "last") -> int | None:
    """The step of the checkpoint that ``tag`` names, without reading it; None where none can be read."""
    try:
        step = read_object(run / FOLDER / f"{tag}.json").get("step")
    except (FileNotFoundError, DamagedFileError):
        return None
    return step if isinstance(step, int) else None


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    import torch

    from innerloop.core.tensors import write_tensors

    # the format wants contiguous tensors that share no memory, which views and tied parameters do
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    write_tensors(path, copies)
    sync_file(path)


def _publish(temporary: Path, folder: Path, step: int) -> Path:
    """Give the finished directory its name; a step saved twice (a resumed run) gets ``-2`` and so on."""
    attempt = 1
    while True:
        final = folder / (f"step-{step:08d}" if attempt == 1 else f"step-{step:08d}-{attempt}")
        if not final.exists():
            os.rename(temporary, final)
            sync_folder(folder)
            return final
        attempt += 1


def _clean(folder: Path) -> None:
    try:
        named = {_name(read_object(pointer)) for pointer in folder.glob("*.json")}
    except (ValueError, KeyError, OSError):  # a damaged pointer: what it named may be all that is left
        return
    for path in folder.iterdir():
        stale = path.name.startswith(_TEMPORARY) or (path.name.startswith("step-") and path.name not in named)
        if stale and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name.startswith(".") and path.name.endswith(
            ".tmp"
        ):  # a pointer that a kill left half-written
            path.unlink(missing_ok=True)


_FLOAT = "__float__"


def encoded(value: Any) -> Any:
    """Plain data with non-finite floats as ``{"__float__": "inf"}``, because JSON has no such numbers."""
    if isinstance(value, Mapping):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encoded(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: repr(float(value))}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"checkpoint state holds a {type(value).__name__}: put tensors in `tensors`, keep state plain."
    )


def decoded(value: Any) -> Any:
    """What :func:`encoded` was given; tuples come back as lists."""
    if isinstance(value, dict):
        if value.keys() == {_FLOAT}:
            return float(value[_FLOAT])
        return {key: decoded(item) for key, item in value.items()}
    return [decoded(item) for item in value] if isinstance(value, list) else value


_OWN = (MANIFEST, RECIPE, "metrics.jsonl")
"""Files of a run that only its one writer writes; evaluations and pages may be written by others, now."""


def clear_leftovers(run: Path) -> None:
    """To be called by whoever holds the lock of the run: what is unfinished is then nobody's."""
    for path in (run / FOLDER).glob(".tmp-*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in [
        *(run / FOLDER).glob(".*.tmp"),
        *(path for name in _OWN for path in run.glob(f".{name}-*.tmp")),
    ]:
        with contextlib.suppress(OSError):
            path.unlink()
