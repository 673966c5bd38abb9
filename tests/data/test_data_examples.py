"""Known answers of small functions."""

from pathlib import Path

import numpy as np
from PIL import Image

from innerloop.data.archives import ALWAYS, room
from innerloop.data.arrays import as_bytes
from innerloop.data.folder_tree import class_names, groups_of
from innerloop.data.layouts.layout import grouped_rows
from innerloop.data.paths import is_name
from innerloop.data.pictures import filter_of, is_picture, is_taken_for_picture, short_side, too_large
from innerloop.data.source import ListedFiles, NumberedFiles


def test_names_of_files():
    assert [is_name(name) for name in ("my-birds", "../birds", "cache")] == [True, False, False]
    names = ("a/b.JPEG", "a/Thumbs.db", "__MACOSX/._b.jpg")
    assert [is_picture(name) for name in names] == [True, False, False]
    assert [is_taken_for_picture(name) for name in ("a.MOV", "b.heic", "b.txt")] == [True, True, False]
    assert ListedFiles(("a.png", "b.png"))(1) == "b.png"
    assert NumberedFiles("X[{row}]")(3) == "X[3]"


def test_classes_of_folders():
    split = {"train": (0,), "test": (1,)}
    assert class_names(["train/cat", "test/owl"], Path("pets")) == (["cat", "owl"], split)
    assert groups_of(["greek/alpha", "greek/beta", "latin/a"]) == ((0, 0, 1), ("greek", "latin"))
    assert grouped_rows({"b": ["3"], "a": ["1", "2"]}, ["a", "b"]) == (["1", "2", "3"], [2, 1])


def test_sizes_and_pixels():
    assert room(Path(__file__)) == ALWAYS
    assert as_bytes(np.array([0.0, 0.5, 1.0])).tolist() == [0, 128, 255]
    assert too_large((800, 600)) is None
    assert str(too_large((20_000, 20_000))).startswith("it has 20000×20000 pixels")
    assert filter_of("bicubic") == Image.Resampling.BICUBIC
    assert short_side((300, 200), 100) == (100, 150)
