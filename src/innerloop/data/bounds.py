"""How large an archive may become: one that unpacks to far more than it is gets refused before it is read.

Pictures hardly shrink when they are packed, and arrays of drawings shrink by tens. A file of a few kilobytes
can say that it holds terabytes, and with some ways of packing it even does.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from innerloop.core.errors import UserError

TIMES: Final = 200
"""Times its own size that an archive may unpack to."""

ALWAYS: Final = 64 << 20
"""Bytes that any archive may unpack to."""

MOST_FILES: Final = 5_000_000
"""Files in an archive; ImageNet has 1.3 million."""

_PACKED: Final[dict[bytes, Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


def room(path: Path) -> int:
    """Bytes that a file may unpack to.

    >>> room(Path(__file__)) == ALWAYS
    True
    """
    return max(ALWAYS, TIMES * path.stat().st_size)


def check_size(path: Path, unpacked: int, files: int = 0) -> None:
    """Refuses an archive of too many bytes or files."""
    if unpacked > room(path):
        raise UserError(
            f"{path.name} was refused: it says that it unpacks to more than {room(path):,} bytes, far "
            f"more than its own {path.stat().st_size:,}; no data set does that."
        )
    if files > MOST_FILES:
        raise UserError(
            f"{path.name} was refused: it holds more than {MOST_FILES:,} files; give a part of it."
        )


def checked_zip(archive: zipfile.ZipFile, path: Path) -> list[zipfile.ZipInfo]:
    """The entries of a zip; a reader gives no more bytes of each than its entry says."""
    entries = archive.infolist()
    check_size(path, sum(entry.file_size for entry in entries), len(entries))
    return entries


@contextmanager
def opened_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """A tar, packed or not, of which no more is unpacked than there is room for."""
    with path.open("rb") as file:
        start = file.read(6)
        unpack = next((open_ for magic, open_ in _PACKED.items() if start.startswith(magic)), None)
        file.seek(0)
        if unpack is None:
            with tarfile.open(fileobj=file, mode="r:") as packed:
                yield packed
            return
        with unpack(file, "rb") as stream:
            bounded: Any = _Bounded(stream, path)
            with tarfile.open(fileobj=bounded, mode="r:") as packed:
                yield packed


def checked_members(packed: tarfile.TarFile, path: Path) -> Iterable[tarfile.TarInfo]:
    """The members of a tar; a sparse one may say that it has any size."""
    for count, member in enumerate(packed):
        check_size(path, member.size, count)
        yield member


class _Bounded:
    """A stream that is refused where it goes on for too long; what ``tarfile`` reads from."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream, self._path, self._room = stream, path, room(path)

    def read(self, size: int = -1) -> bytes:
        """Reads on, and refuses the archive once it has given too much."""
        left = self._room - self._stream.tell() + 1
        data = self._stream.read(left if size < 0 else min(size, left))
        check_size(self._path, self._stream.tell())
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Moves to another place, and refuses one that is too far."""
        if whence == 0:
            check_size(self._path, offset)
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """The place in the stream."""
        return self._stream.tell()

    def close(self) -> None:
        """Closes the stream."""
        self._stream.close()
