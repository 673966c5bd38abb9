"""Zip, tar, folder or file: names and bytes, within bounds. Nothing is unpacked to disk."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
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
    """Bytes that a file may unpack to."""
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


_DAMAGE: Final = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    NotImplementedError,  # compression that this Python cannot undo
    RuntimeError,  # encrypted zips
    UnicodeDecodeError,
)


class Archive:
    """What a publisher hands out, whatever it is packed in: regular files by their path inside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            raise UserError(f"there is no file or folder {path}.")
        self.kind = _kind(path)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Regular files, as packed."""
        if self.kind == "folder":
            inside = (file for file in sorted(self.path.rglob("*")) if file.is_file())
            return tuple(file.relative_to(self.path).as_posix() for file in inside)
        if self.kind == "file":
            return (self.path.name,)
        try:
            names = self._zip_names() if self.kind == "zip" else self._tar_names()
        except _DAMAGE as error:
            raise self._damaged(error) from None
        for name in names:
            _check_inside(name, self.path)
        return tuple(names)

    def read(self, name: str) -> bytes:
        """The bytes of one file."""
        with self.open(name) as opened:
            return opened.read()

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """One file, to be read piece by piece: some are larger than memory allows twice."""
        opener = self._open_each({name})
        try:
            entry = next(opener, None)
            if entry is None:
                raise UserError(f"{self.path.name} lacks {name}; get it again from its publisher.")
            with entry[1] as opened:
                yield opened
        except _DAMAGE as error:
            raise self._damaged(error) from None
        finally:
            opener.close()

    def stream(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Name and bytes of every wanted file, in packed order."""
        left = set(wanted)
        try:
            for name, opened in self._open_each(left):
                with opened:
                    yield name, opened.read()
                left.discard(name)
        except _DAMAGE as error:
            raise self._damaged(error) from None
        if left:
            raise UserError(f"{self.path.name} lacks {min(left)}; get it again from its publisher.")

    def _open_each(self, wanted: set[str]) -> Generator[tuple[str, IO[bytes]], None, None]:
        if self.kind in ("folder", "file"):
            root = self.path if self.kind == "folder" else self.path.parent
            for name in sorted(wanted):
                if (root / name).is_file():
                    yield name, (root / name).open("rb")
        elif self.kind == "zip":
            with zipfile.ZipFile(self.path) as archive:
                for entry in checked_zip(archive, self.path):
                    if entry.filename in wanted:
                        yield entry.filename, archive.open(entry)
        else:
            with opened_tar(self.path) as packed:
                for member in checked_members(packed, self.path):
                    name = _tidy(member.name)
                    if member.isfile() and name in wanted:
                        opened = packed.extractfile(member)
                        assert opened is not None  # it is a regular file
                        yield name, opened

    def _zip_names(self) -> list[str]:
        with zipfile.ZipFile(self.path) as archive:
            names = [entry.filename for entry in checked_zip(archive, self.path)]
            return [name for name in names if not name.endswith("/")]  # is_dir stumbles over an empty name

    def _tar_names(self) -> list[str]:
        names = []
        with opened_tar(self.path) as packed:
            for member in checked_members(packed, self.path):
                if member.issym() or member.islnk():
                    raise UserError(
                        f"{self.path.name} was refused: it holds the link {member.name}, which may lead "
                        "outside; publishers' archives hold files only."
                    )
                if member.isfile():
                    names.append(_tidy(member.name))
        return names

    def _damaged(self, error: BaseException) -> UserError:
        reason = str(error).strip().splitlines()[0][:80] if str(error).strip() else type(error).__name__
        return UserError(f"{self.path.name} is damaged ({reason}); get it again from its publisher.")


def _kind(path: Path) -> str:
    if path.is_dir():
        return "folder"
    try:
        if _is_tar(path):  # first: a tar that ends with a zip looks like a zip
            return "tar"
        if zipfile.is_zipfile(path) and path.suffix.lower() != ".npz":
            return "zip"
    except (OSError, zlib.error, lzma.LZMAError, EOFError):
        pass
    if path.name.lower().endswith((".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")):
        raise UserError(
            f"{path.name} is damaged or not the archive that its name says; get it again from its publisher."
        )
    return "file"


def _is_tar(path: Path) -> bool:
    try:
        with opened_tar(path):
            return True
    except tarfile.TarError:
        return False


def _tidy(name: str) -> str:
    return name.removeprefix("./")


def _check_inside(name: str, archive: Path) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if not path.parts:
        raise UserError(
            f"{archive.name} was refused: it holds a file without a name, which no published archive does."
        )
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        raise UserError(
            f"{archive.name} was refused: its file '{name}' points outside of it, which no "
            "published archive does."
        )
