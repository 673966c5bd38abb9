"""What is hashed, exactly."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 24  # bytes at a time


def content_hash(images: NDArray[np.uint8]) -> str:
    """sha256 over the pixels: uint8, C order of (row, height, width, channel), no header."""
    digest = hashlib.sha256()
    row = max(1, int(np.prod(images.shape[1:], dtype=np.int64)))
    step = max(1, BLOCK // row)
    for start in range(0, len(images), step):
        digest.update(np.ascontiguousarray(images[start : start + step], dtype=np.uint8).data)
    return digest.hexdigest()


def file_hash(path: Path, algorithm: str = "sha256") -> str:
    """Checksum of a file, as hex digits."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def text_hash(*parts: str) -> str:
    """sha256 of several strings; where one ends and the next begins counts."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
