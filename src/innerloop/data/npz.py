"""Arrays in .npz files, read a block at a time: some are larger than memory."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from innerloop.core.errors import UserError

BLOCK: Final = 1 << 25  # bytes at a time
Shape = tuple[int, ...]


def stream_rows(file: IO[bytes], key: str, name: str) -> Iterator[tuple[Shape, NDArray[Any]]]:
    """Blocks of rows of one array, each with the shape of the whole."""
    try:
        with zipfile.ZipFile(file) as archive, archive.open(f"{key}.npy") as member:
            shape, fortran, dtype = _header(member)
            if dtype.hasobject or (fortran and len(shape) > 1):
                raise UserError(
                    f"'{key}' in {name} is not a plain array in C order; save it again with numpy."
                )
            row = int(np.prod(shape[1:], dtype=np.int64))
            step = max(1, BLOCK // max(1, row * dtype.itemsize))
            for start in range(0, shape[0], step):
                rows = min(step, shape[0] - start)
                data = member.read(rows * row * dtype.itemsize)
                yield shape, np.frombuffer(data, dtype).reshape(rows, *shape[1:])
    except KeyError:
        raise UserError(f"{name} has no array '{key}'.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError) as error:
        raise UserError(f"{name} is damaged ({str(error)[:80]}); get or save it again.") from None


def _header(member: IO[bytes]) -> tuple[Shape, bool, np.dtype[Any]]:
    version = npy.read_magic(member)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return read(member)
