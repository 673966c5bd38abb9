"""Small pictures, and archives in the publishers' layouts."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from innerloop.data.catalogue import CatalogueEntry, ClassList, catalogue
from innerloop.data.get import adopt
from innerloop.data.source import ImageSource
from innerloop.data.store import open_store


def picture(seed: int, size: int = 84, channels: int = 3) -> NDArray[np.uint8]:
    """A smooth random picture, so that JPEG and resizing treat it kindly."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    made = np.asarray(Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC))
    return made if channels == 3 else made[..., 0]


def encoded(array: NDArray[Any], form: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, form, **options)
    return buffer.getvalue()


def write_zip(path: Path, members: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def write_tar(path: Path, members: Mapping[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def old_pickle(value: Any) -> bytes:
    """As numpy before 2.0 named its modules."""
    blob = pickle.dumps(value, protocol=2)
    return blob.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def small(name: str, classes: Sequence[str], images: int, **changes: Any) -> tuple[CatalogueEntry, ClassList]:
    """A row of the catalogue, and its class list, cut down to a few classes."""
    entry = catalogue()[name]._replace(classes=len(classes), images=images, per_class=None, **changes)
    return entry, ClassList(tuple(classes), None, (), {}, {})


def omniglot_members(classes: Sequence[str], drawings: int = 3) -> dict[str, bytes]:
    """1-bit drawings, black on white, in the folders of images_background.zip."""
    members = {}
    for number, name in enumerate(classes):
        for drawer in range(drawings):
            ink = picture(100 * number + drawer, 105, 1) > 128
            path = f"images_background/{name}/{number:04d}_{drawer + 1:02d}.png"
            members[path] = encoded(~ink)
    return members


def cifar_members(n_classes: int, per_class: int, names: Sequence[str]) -> dict[str, bytes]:
    """The three pickles of cifar-100-python.tar.gz, rows in no order."""
    random = np.random.default_rng(0)
    members = {}
    for part in ("train", "test"):
        labels = random.permutation(np.repeat(np.arange(n_classes), per_class))
        table = {
            b"filenames": [f"{part}_{label}_{row:04d}.png".encode() for row, label in enumerate(labels)],
            b"batch_label": part.encode(),
            b"fine_labels": labels.tolist(),
            b"coarse_labels": [0] * len(labels),
            b"data": random.integers(0, 256, (len(labels), 3072), dtype=np.uint8),
        }
        members[f"cifar-100-python/{part}"] = old_pickle(table)
    meta = {b"fine_label_names": [name.encode() for name in names], b"coarse_label_names": [b"all"]}
    members["cifar-100-python/meta"] = old_pickle(meta)
    return members


def class_folders(root: Path, classes: Mapping[str, int], size: int = 20) -> Path:
    """A folder of class folders with so many pictures each."""
    for number, (name, count) in enumerate(classes.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            (root / name / f"{i:03d}.png").write_bytes(encoded(picture(1000 * number + i, size)))
    return root


def squashed(data: bytes) -> NDArray[np.uint8]:
    """As the ImageNet family is stored: 84×84 without keeping proportions."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB").resize((84, 84), Image.Resampling.LANCZOS))


def adopted(name: str, classes: tuple[str, ...], images: int, paths: list[Path], folder: Path) -> ImageSource:
    """Adopt archives of a cut-down dataset, and open the store."""
    entry, listed = small(name, classes, images, content_sha256="unknown", decoded_sha256="unknown")
    index = adopt(entry, listed, paths, folder)
    assert index["status"] == "unconfirmed"
    return open_store(folder, name)


def giant_picture(path: Path, side: int = 60_000) -> None:
    """A PNG of some bytes whose head says that it has billions of pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
