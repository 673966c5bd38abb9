"""Tensors in safetensors files. Reading one that is damaged or foreign runs no code and gives a sentence."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from innerloop.core.files import DamagedFileError, check_plain_file, umask

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
