"""The folder of photographs on which recipes for one's own pictures are judged."""

from __future__ import annotations

import os
from pathlib import Path

from innerloop_studies.bench.own_pictures import REAL, photographs

CLASSES, EACH = 100, 40


def write_photographs(folder: Path, classes: int = CLASSES, each: int = EACH) -> None:
    """Writes photographs of Tiny-ImageNet as JPEG files, a folder for each class, at even distances.

    What is there already is left as it is.
    """
    archive = Path(os.environ.get("INNERLOOP_TEST_DATA", ""), REAL)
    if folder.is_dir():
        return
    if not archive.is_file():
        raise SystemExit(f"photographs are taken from {REAL}: set INNERLOOP_TEST_DATA to its folder.")
    begun = folder.with_name(f"{folder.name}.part")  # a folder that is there is whole
    for label, number, data in photographs(archive, classes, each):
        file = begun / f"class{label:03d}" / f"{number:03d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    begun.rename(folder)
