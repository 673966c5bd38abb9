"""Features on disk, found again by what a picture holds. Rows are kept as they come.

A folder per backbone (its fingerprint) holds pairs of files: ``N.values``, rows of float32, and ``N.keys``,
for each row the sha256 of the picture and a checksum of the row. The row is written first: one without its
key is not there, and one that does not fit its checksum is not used. Every process that writes has a pair of
its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from innerloop.classify.inputs import Digest, PictureInput
from innerloop.core.errors import fault_message
from innerloop.core.files import check_plain_file, read_plain_file, try_lock, write_json_atomic
from innerloop.core.stderr import tell
from innerloop.data.paths import cache_folder
from innerloop.data.pictures import BadPictureError, in_threads

Rows = NDArray[np.float32]
_KEY = struct.Struct("<32sI")
_MOST_PAIRS = 1000


def features_folder() -> Path:
    """Where features are kept; may be deleted at any time, they are computed again."""
    return cache_folder() / "features"


class FeatureFiles:
    """What is kept of one backbone; use as a context."""

    def __init__(
        self,
        folder: Path,
        dimension: int,
        about: dict[str, Any] | None = None,
        say: Callable[[str], object] = tell,
    ) -> None:
        self._folder, self._dimension, self._about, self._say = folder, dimension, about, say
        self._files: tuple[IO[bytes], IO[bytes]] | None = None
        self._lock: int | None = None
        self._broken = False

    def __enter__(self) -> FeatureFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files or ():
            with contextlib.suppress(OSError):
                file.close()
        if self._lock is not None:
            os.close(self._lock)
        self._files = self._lock = None

    def find(self, digests: Iterable[Digest]) -> dict[Digest, Rows]:
        """The rows of those pictures that are kept whole."""
        wanted, rows = set(digests), {}
        for keys in sorted(self._folder.glob("*.keys")) if wanted else ():
            rows.update(self._rows(keys, wanted))
        return rows

    def _rows(self, keys: Path, wanted: set[Digest]) -> dict[Digest, Rows]:
        try:
            known = list(_KEY.iter_unpack(_whole(read_plain_file(keys), _KEY.size)))
            values = keys.with_suffix(".values")
            check_plain_file(values)
            rows = min(len(known), values.stat().st_size // (4 * self._dimension))
            if rows == 0:
                return {}
            mapped = np.memmap(values, np.dtype("<f4"), "r", shape=(rows, self._dimension))
        except (OSError, ValueError):  # no file, or none that may be read: its features are computed again
            return {}
        places = {digest: row for row, (digest, _) in enumerate(known[:rows]) if digest in wanted}
        gathered = np.asarray(mapped)[list(places.values())].astype(np.float32, copy=False)
        kept = dict(zip(places, gathered, strict=True))
        return {
            digest: row
            for digest, row in kept.items()
            if zlib.crc32(row.tobytes()) == known[places[digest]][1]
        }

    def add(self, digests: Sequence[Digest], rows: Rows) -> None:
        """Keeps rows; where they cannot be written, this is said once, and they are not kept."""
        if self._broken or not len(digests):
            return
        try:
            keys, values = self._open()
            rows = np.ascontiguousarray(rows, np.dtype("<f4"))
            values.write(rows.tobytes())
            keys.write(
                b"".join(_KEY.pack(d, zlib.crc32(r.tobytes())) for d, r in zip(digests, rows, strict=True))
            )
        except OSError as error:
            self._broken = True
            self._say(f"features are not kept: {fault_message(error) or error}")

    def _open(self) -> tuple[IO[bytes], IO[bytes]]:
        """The pair of files that this process writes: the first that nobody else does."""
        if self._files is not None:
            return self._files
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._about is not None and not (self._folder / "about.json").exists():
            write_json_atomic(self._folder / "about.json", self._about)
        for number in range(_MOST_PAIRS):
            pair = [self._folder / f"{number}.{kind}" for kind in ("keys", "values", "lock")]
            if any(path.exists() and not path.is_file() for path in pair):
                continue  # opening a pipe would wait for ever
            handle = os.open(self._folder / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o644)
            if try_lock(handle):
                self._lock = handle
                break
            os.close(handle)
        else:
            raise OSError(f"{_MOST_PAIRS} processes write to {self._folder}")
        self._files = self._mended(self._folder / f"{number}.keys", self._folder / f"{number}.values")
        return self._files

    def _mended(self, keys: Path, values: Path) -> tuple[IO[bytes], IO[bytes]]:
        """Both opened to go on behind their last whole row; what a kill left behind it is cut off."""
        files = [open(path, "ab", buffering=0) for path in (keys, values)]  # noqa: SIM115  (closed on exit)
        sizes = (_KEY.size, 4 * self._dimension)
        rows = min(file.tell() // size for file, size in zip(files, sizes, strict=True))
        for file, size in zip(files, sizes, strict=True):
            if file.tell() != rows * size:
                file.truncate(rows * size)
                file.seek(0, os.SEEK_END)
        return files[0], files[1]


def _whole(data: bytes, size: int) -> bytes:
    """Without the part of a record at the end."""
    return data[: len(data) // size * size]


Outcome = Digest | str  # what stands for a picture, or why it cannot be read
SETTLED = 2.0  # seconds after which a time of change is trusted: clocks of file systems are coarse
FOLDER = "files"
_WORDS = 8  # a digest as this many numbers of four bytes: rows of the same files that keep features


def digests(
    items: Sequence[PictureInput], folder: Path | None, workers: int, clock: Callable[[], float] = time.time
) -> list[Outcome]:
    """What stands for each picture; files are only read if they are new or have changed."""
    if folder is None:
        return list(in_threads(_stood_for, items, workers))
    now = clock()
    states = [_state(item) for item in items]
    with FeatureFiles(folder / FOLDER, _WORDS, say=lambda _: None) as files:  # features say it themselves
        known = files.find(state[0] for state in states if state is not None)
        outcomes: list[Outcome | None] = [
            None if state is None or state[0] not in known else known[state[0]].tobytes() for state in states
        ]
        left = [i for i, outcome in enumerate(outcomes) if outcome is None]
        fresh = dict(zip(left, in_threads(_stood_for, [items[i] for i in left], workers), strict=True))
        settled = {
            state[0]: outcome
            for i, outcome in fresh.items()
            if isinstance(outcome, bytes) and (state := states[i]) and now - state[1] > SETTLED
        }
        rows = [np.frombuffer(digest, "<f4") for digest in settled.values()]
        files.add(list(settled), np.stack(rows) if rows else np.empty((0, _WORDS), np.float32))
    return [fresh[i] if outcome is None else outcome for i, outcome in enumerate(outcomes)]


def _stood_for(item: PictureInput) -> Outcome:
    try:
        return item.digest()
    except BadPictureError as error:
        return str(error)


def _state(item: PictureInput) -> tuple[Digest, float] | None:
    """What the system tells of a file, as one key, and when it changed; none where it cannot be looked at."""
    if not isinstance(item.given, Path):
        return None
    try:
        told = os.stat(item.given)
    except (OSError, ValueError):
        return None
    about = (told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino, told.st_dev)
    name = os.fsencode(os.path.abspath(item.given))
    key = hashlib.sha256(f"{about}".encode() + b"\0" + name).digest()
    return key, max(told.st_mtime, told.st_ctime)
