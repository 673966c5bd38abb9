"""Tensors in safetensors files. Reading one that is damaged or foreign runs no code and gives a sentence."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from innerloop.core.errors import UserError, fault_message
from innerloop.core.files import DamagedFileError, check_plain_file, plain, umask

_SYSTEM = re.compile(r"(?:code: |os error )(\d+)")  # as its versions write the number of an error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file."""
    check_plain_file(path)
    try:
        return load_file(path)
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DamagedFileError(f"{path} is damaged, or not a safetensors file ({reason})") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None) -> None:
    """Writes contiguous tensors that share no memory, and words about them."""
    try:
        save_file(dict(tensors), path, None if about is None else dict(about))
        os.chmod(path, 0o666 & ~umask())  # some versions of the library make private files
    except SafetensorError as error:
        code = _SYSTEM.search(str(error))
        number = int(code[1]) if code else errno.EIO
        raise OSError(number, str(error), str(path)) from None


_ABOUT = "innerloop"


def write_described(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Writes tensors with plain data about them; what is there stays until the new file is whole."""
    copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    half = path.with_name(f".{path.name}-{os.getpid()}.tmp")
    try:
        write_tensors(half, copies, {_ABOUT: json.dumps(plain(about))})
        os.replace(half, path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {fault_message(error) or error}") from None


def read_described(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What :func:`write_described` wrote: the data, empty where there are none, and the tensors."""
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {}).get(_ABOUT, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        what = reason if isinstance(error, OSError) else f"it is damaged, or no safetensors file ({reason})"
        raise UserError(f"cannot read {path}: {what}.") from None
    return about if isinstance(about, dict) else {}, tensors
