"""Pictures and arrays that are not what they seem: every one gets a sentence, none a traceback or a hang."""

from __future__ import annotations

import os
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.data.archives import Archive
from innerloop.data.arrays import from_arrays, from_dataset
from innerloop.data.folder import FolderOptions
from innerloop.data.opening import open_path
from innerloop.data.pictures import BadPictureError, open_picture
from oracles.patience import PATIENCE

pytestmark = pytest.mark.usefixtures("own_data")


def folder_of_pictures(root: Path) -> Path:
    for shade, name in enumerate(("ant", "bee", "cat")):
        (root / name).mkdir(parents=True)
        for number in range(2):
            Image.new("L", (8, 8), 20 * number + shade).save(root / name / f"{number}.png")
    return root


def opened(path: Path, options: FolderOptions | None = None) -> Any:
    """What opening gives, or the error; a hang is a failure."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(open_path(path, options or FolderOptions()))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE if os.environ.get("CI") else 20.0)
    assert outcome, "it hangs"
    return outcome[0]


def a_pipe(place: Path) -> None:
    os.mkfifo(place)


def a_dangling_link(place: Path) -> None:
    place.symlink_to("nowhere.png")


def a_looping_link(place: Path) -> None:
    place.symlink_to(place.name)


@pytest.mark.parametrize("make", [a_pipe, a_dangling_link, a_looping_link])
def test_what_is_no_file_is_named_and_may_be_left_out(make: Callable[[Path], None], tmp_path: Path) -> None:
    root = folder_of_pictures(tmp_path / "pictures")
    make(root / "ant" / "odd.png")
    error = opened(root)
    assert isinstance(error, UserError)
    assert "ant/odd.png" in str(error)
    assert 'on_bad="skip"' in str(error)
    source = opened(root, FolderOptions(on_bad="skip"))
    assert source.counts.tolist() == [2, 2, 2]


def test_a_pipe_is_not_opened_as_a_picture(tmp_path: Path) -> None:
    a_pipe(tmp_path / "odd.png")
    with pytest.raises(BadPictureError, match="no file"):
        open_picture(tmp_path / "odd.png")


def test_a_folder_name_that_is_not_text_is_named(tmp_path: Path) -> None:
    root = folder_of_pictures(tmp_path / "pictures")
    os.rename(root / "ant", os.fsencode(root) + b"/\xff\xfe")
    error = opened(root)
    assert isinstance(error, UserError)
    assert "UTF-8" in str(error)
    assert str(error).encode()  # the message itself can be printed


def test_a_folder_that_cannot_be_listed_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder_of_pictures(tmp_path / "pictures")
    listing = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("ant"):
            raise PermissionError(13, "Permission denied", str(path))
        return listing(path)

    monkeypatch.setattr(os, "scandir", refuse)
    error = opened(root)
    assert isinstance(error, UserError)
    assert "ant" in str(error)


PICTURES = np.zeros((6, 4, 4), np.uint8)
LABELS = np.array([0, 0, 1, 1, 2, 2])
STRUCTURED = np.zeros((6, 4, 4), dtype=[("a", "u1"), ("b", "f4")])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"images": PICTURES.astype("U3"), "labels": LABELS}, "pictures must be"),
        ({"images": PICTURES.astype("S3"), "labels": LABELS}, "pictures must be"),
        ({"images": PICTURES.astype("M8[s]"), "labels": LABELS}, "pictures must be"),
        ({"images": PICTURES.astype("m8[s]"), "labels": LABELS}, "pictures must be"),
        ({"images": PICTURES.astype("c8"), "labels": LABELS}, "pictures must be"),
        ({"images": STRUCTURED, "labels": LABELS}, "pictures must be"),
        ({"images": np.uint8(3), "labels": LABELS}, "of shape"),
        ({"images": PICTURES[:, :0], "labels": LABELS}, "of shape"),
        ({"images": PICTURES, "labels": np.array(3)}, "label for each"),
        ({"images": PICTURES, "labels": LABELS, "names": np.array("ant")}, "names"),
        ({"images": PICTURES, "names": np.array("ant")}, "names"),
        ({"images": PICTURES, "labels": LABELS, "names": np.array([["a", "b", "c"]])}, "names"),
        ({"images": PICTURES, "labels": LABELS, "groups": np.array(1)}, "groups"),
        ({"images": PICTURES, "labels": LABELS, "names": np.array(["a", "b", "a"])}, "twice"),
        ({"images": PICTURES, "labels": np.array([0, 0, 1, 1, np.nan, np.nan])}, "NaN"),
        ({"images": PICTURES, "labels": STRUCTURED[:, 0, 0]}, "labels must be"),
        ({"images": PICTURES, "labels": LABELS.astype("M8[D]")}, "labels must be"),
        ({"images": PICTURES, "labels": LABELS.astype("c8")}, "labels must be"),
    ],
)
def test_odd_arrays_get_a_sentence(arrays: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.npz"
    np.savez(path, **arrays)
    error = opened(path)
    assert isinstance(error, UserError), error
    assert words in str(error)


def test_good_arrays_are_still_read(tmp_path: Path) -> None:
    path = tmp_path / "good.npz"
    np.savez(path, images=PICTURES, labels=LABELS.astype(float), names=np.array(["a", "b", "c"]))
    assert opened(path).class_names == ("a", "b", "c")
    words = from_arrays(PICTURES, np.array(["x", "x", "y", "y", "z", "z"], dtype=object))
    assert words.class_names == ("x", "y", "z")


def test_names_that_a_dataset_gives_twice_are_told_apart() -> None:
    class Cranes:
        classes = ("crane", "crane", "ant")

        def __len__(self) -> int:
            return 6

        def __getitem__(self, row: int) -> tuple[Any, int]:
            return PICTURES[row], row // 2

    assert from_dataset(Cranes()).class_names == ("crane (0)", "crane (1)", "ant")


@pytest.mark.parametrize("name", ["", ".", "./", "/"])
def test_an_archive_member_without_a_name_is_refused(name: str, tmp_path: Path) -> None:
    packed = tmp_path / "odd.tar"
    with tarfile.open(packed, "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    zipped = tmp_path / "odd.zip"
    with zipfile.ZipFile(zipped, "w") as archive_zip:
        archive_zip.writestr(zipfile.ZipInfo(name), b"")
    for path in (packed, zipped):
        try:
            names = Archive(path).names
        except UserError as error:
            names = (str(error),)
        assert not names or "refused" in names[0] or "damaged" in names[0]
