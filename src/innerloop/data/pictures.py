"""One picture: from a file of the usual kinds to the size and colour that are wanted, as uint8."""

from __future__ import annotations

import io
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from innerloop.core.errors import UserError
from innerloop.core.preprocessing import RESAMPLES, Preprocessing, Resample, Side
from innerloop.core.resources import available_cores

Colour = Literal["grey", "rgb"]
Fit = Literal["crop", "squash", "pad"]
SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pnm")
)
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
"""What Pillow may read, whatever a file is called: others start programs (PostScript)."""
VIDEOS = frozenset((".mp4", ".mov", ".avi", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv", ".3gp", ".mts"))
OF_PHONES = frozenset((".heic", ".heif", ".avif"))
GREY_MODES = frozenset(("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N"))
MOST_PIXELS = 80_000_000
"""Of a picture that is read: decoded it takes three bytes for each, and several are decoded at a time."""
ENORMOUS = f"it has more than the {MOST_PIXELS // 10**6} million pixels that are read; make it smaller first"
_WHITE = 255
_SIXTEEN_BIT = 65535

A = TypeVar("A")
B = TypeVar("B")


class BadPictureError(Exception):
    """A file that cannot be read as a picture; says why in a few words."""


def is_picture(name: str) -> bool:
    """Whether a file name ends like a picture's, and is not one of the files systems leave behind."""
    path = Path(name)
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def is_taken_for_picture(name: str) -> bool:
    """Whether a file name ends like that of a video, or of a picture that cannot be read here."""
    path = Path(name)
    return path.suffix.lower() in VIDEOS | OF_PHONES and not path.name.startswith(".")


def too_large(size: tuple[int, int]) -> str | None:
    """Why a picture of this width and height is not read; None if it is."""
    width, height = size
    if width * height <= MOST_PIXELS:
        return None
    most = MOST_PIXELS // 10**6
    return (
        f"it has {width}×{height} pixels, more than the {most} million that are read; make it smaller first"
    )


def open_picture(data: bytes | Path) -> Image.Image:
    """Decode fully (of an animation the first frame), turn as its EXIF says, and flatten to "L" or "RGB"."""
    try:
        if isinstance(data, Path):
            check_is_file(data)
        source = io.BytesIO(data) if isinstance(data, bytes) else data
        with Image.open(source, formats=FORMATS) as picture:
            if giant := too_large(picture.size):
                raise BadPictureError(giant)
            picture.load()
            return flatten(ImageOps.exif_transpose(picture))
    except BadPictureError:
        raise
    except Image.DecompressionBombError:
        raise BadPictureError(ENORMOUS) from None
    except Exception as error:  # decoders of damaged files fail in many ways
        raise BadPictureError(reason_of(error)) from None


def check_is_file(path: Path) -> None:
    """Refuses what would wait for ever when it is opened (a pipe), what is not there, and videos."""
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        raise BadPictureError(
            "it is a link to nowhere" if path.is_symlink() else "there is no such file"
        ) from None
    except OSError as error:
        raise BadPictureError(error.strerror or "it cannot be read") from None
    if not stat.S_ISREG(kind):
        raise BadPictureError(
            "it is a folder" if stat.S_ISDIR(kind) else "it is no file but a pipe or a device"
        )
    if path.suffix.lower() in VIDEOS:
        raise BadPictureError("it is a video; take pictures out of it")
    if path.suffix.lower() in OF_PHONES:
        raise BadPictureError("it is of a format that is not read; save it as JPEG or PNG")


def fit_picture(picture: Image.Image, size: int, colour: Colour, fit: Fit = "crop") -> NDArray[np.uint8]:
    """(size, size, channels) by Lanczos resampling of 8-bit values."""
    picture = picture.convert("L" if colour == "grey" else "RGB")
    if picture.size != (size, size):
        lanczos = Image.Resampling.LANCZOS
        if fit == "crop":
            picture = ImageOps.fit(picture, (size, size), lanczos)
        elif fit == "pad":
            picture = ImageOps.pad(picture, (size, size), lanczos, color=_border(picture))
        else:
            picture = picture.resize((size, size), lanczos)
    array = np.asarray(picture, dtype=np.uint8)
    return array[:, :, None] if array.ndim == 2 else array


def read_picture(data: bytes | Path, size: int, colour: Colour, fit: Fit = "crop") -> NDArray[np.uint8]:
    """Open and fit in one go.

    Args:
        data: the file, or its bytes.
        size: side of the square in pixels.
        colour: ``rgb`` or ``grey``.
        fit: how a picture becomes a square (``crop`` cuts the longer side).

    Raises:
        UserError: it cannot be decoded; the message names the file.
    """
    try:
        return fit_picture(open_picture(data), size, colour, fit)
    except BadPictureError as error:
        name = data if isinstance(data, Path) else "the picture"
        raise UserError(f"{name} cannot be read as a picture: {error}.") from None


Progress = Callable[[str, int, int], None]
"""What is being done, how many are done, of how many."""


def silent(_what: str, _done: int, _total: int) -> None:
    """No progress shown."""


def cores() -> int:
    """Threads to decode with: those this process may use, at most eight."""
    return min(8, available_cores())


def in_threads(work: Callable[[A], B], items: Iterable[A], workers: int | None = None) -> Iterator[B]:
    """``map`` in order over a few threads, with few items under way at a time."""
    # Pillow lets go of the interpreter's lock while it decodes, so threads suffice
    workers = cores() if workers is None else workers
    if workers < 2:
        yield from map(work, items)
        return
    rest = iter(items)
    with ThreadPoolExecutor(workers) as pool:
        waiting: list[Future[B]] = [pool.submit(work, item) for item in islice(rest, 4 * workers)]
        try:
            while waiting:
                yield waiting.pop(0).result()
                waiting += [pool.submit(work, item) for item in islice(rest, 1)]
        finally:
            for future in waiting:
                future.cancel()


def flatten(picture: Image.Image) -> Image.Image:
    """Any mode as "L" or "RGB", transparent parts white."""
    mode = picture.mode
    if mode == "F":
        raise BadPictureError("its pixels are floats, and what is white is not said; save it as 8 or 16 bits")
    if mode.startswith("I"):
        return _from_sixteen(picture)
    if "transparency" in picture.info or mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        whole = picture.convert("RGBA")
        white = Image.new("RGBA", whole.size, (_WHITE,) * 4)
        flat = Image.alpha_composite(white, whole).convert("RGB")
        return flat.convert("L") if mode in GREY_MODES else flat
    return picture.convert("L" if mode in GREY_MODES else "RGB")


def _from_sixteen(picture: Image.Image) -> Image.Image:
    values = np.asarray(picture).astype(np.int64)
    if values.size and (values.min() < 0 or values.max() > _SIXTEEN_BIT):
        raise BadPictureError("its pixels have more than 16 bits; save it as 8 or 16 bits")
    return Image.fromarray(((values * _WHITE + _SIXTEEN_BIT // 2) // _SIXTEEN_BIT).astype(np.uint8))


def _border(picture: Image.Image) -> Any:
    array = np.asarray(picture)
    edge = np.concatenate([array[0], array[-1], array[:, 0], array[:, -1]])
    mean = edge.mean(0)
    return int(mean) if edge.ndim == 1 else tuple(int(value) for value in mean)


def reason_of(error: Exception) -> str:
    """Why Pillow could not read a file, in a few words."""
    if isinstance(error, UnidentifiedImageError):
        return "it is of no known format"
    text = str(error).strip().rstrip(".")
    return text.splitlines()[0][:100] if text else type(error).__name__


MOST_BYTES = 1 << 29
"""Of a file that is read."""


def read_bytes(path: Path) -> bytes:
    """A picture file as it is."""
    check_is_file(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadPictureError(f"the file has more than {MOST_BYTES >> 20} MB")
        return path.read_bytes()
    except OSError as error:
        raise BadPictureError(error.strerror or "it cannot be read") from None


def decode(data: bytes) -> Image.Image:
    """As :func:`open_picture`, of a file that may be empty."""
    if not data:
        raise BadPictureError("the file is empty")
    return open_picture(data)


def prepare(picture: Image.Image, how: Preprocessing) -> NDArray[np.uint8]:
    """(height, width, channels) as :class:`Preprocessing` says, still 8-bit."""
    picture = picture.convert("RGB" if how.colour == "rgb" else "L")
    resized = _resized(picture, how)
    array = np.asarray(resized, dtype=np.uint8)
    array = array[:, :, None] if array.ndim == 2 else array
    return array if how.crop is None else middle(array, how.crop)


def _resized(picture: Image.Image, how: Preprocessing) -> Image.Image:
    (height, width), method = how.size, filter_of(how.resample)
    if how.resize == "fill":
        same = picture.size == (width, height)
        return picture if same else ImageOps.fit(picture, (width, height), method)
    if how.resize == "share":
        picture = _middle_square(picture, how.share)
    elif how.resize == "short":
        height, width = short_side(picture.size, min(how.size))
    return picture if picture.size == (width, height) else picture.resize((width, height), method)


def filter_of(name: Resample) -> Image.Resampling:
    """Pillow's filter of that name."""
    return Image.Resampling(RESAMPLES.index(name))


def short_side(size: tuple[int, int], short: int) -> Side:
    """``(height, width)`` when the shorter side of ``(width, height)`` becomes ``short``; rounded down."""
    width, height = size
    if width <= height:
        return max(1, int(short * height / width)), short
    return short, max(1, int(short * width / height))


def _middle_square(picture: Image.Image, share: float) -> Image.Image:
    """As TensorFlow's models cut it: whole pixels, the one that cannot be halved left at the top and left."""
    width, height = picture.size
    side = max(1, int(share * min(width, height)))
    left, top = (width - side + 1) // 2, (height - side + 1) // 2
    return picture.crop((left, top, left + side, top + side))


def middle(array: NDArray[np.uint8], crop: Side) -> NDArray[np.uint8]:
    """The middle of an array (height, width, channels); zeros where it is smaller."""
    height, width = crop
    top, left = (array.shape[0] - height) // 2, (array.shape[1] - width) // 2
    inside = array[max(0, top) : top + height, max(0, left) : left + width]
    if inside.shape[:2] == crop:
        return inside
    out = np.zeros((height, width, array.shape[2]), np.uint8)
    down, right = max(0, -top), max(0, -left)
    out[down : down + inside.shape[0], right : right + inside.shape[1]] = inside
    return out
