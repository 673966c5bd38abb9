"""Folders of one's own pictures."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.data import open_source, read_picture
from support.data_files import class_folders, encoded, picture


@pytest.fixture(autouse=True)
def _data(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path_factory.mktemp("data")))


def put(root: Path, name: str, data: bytes | Image.Image, **options: Any) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, bytes):
        path.write_bytes(data)
    else:
        data.save(path, **options)
    return path


def test_one_folder_per_class(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "pets", {"cat": 3, "dog": 4, "owl": 2, "eel": 5, "ray": 2})
    put(root, "cat/notes.txt", b"not a picture")
    put(root, "cat/.DS_Store", b"")
    put(root, ".thumbnails/x/1.png", encoded(picture(0)))
    source = open_source(root)
    assert source.name == "pets"
    assert source.class_names == ("cat", "dog", "eel", "owl", "ray")
    assert source.counts.tolist() == [3, 4, 5, 2, 2]
    assert source.images.shape == (16, 20, 20, 3)  # all are 20×20
    assert source.files(4) == "dog/001.png"
    np.testing.assert_array_equal(source.images[4], picture(1001, 20))
    assert {part: len(ids) for part, ids in source.splits.items()} == {
        "train": 3,
        "validation": 1,
        "test": 1,
    }
    assert source.groups is None


def test_groups_and_inner_folders(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "a", {"greek/alpha": 2, "greek/beta": 2, "latin/a": 2})
    source = open_source(root)
    assert source.class_names == ("greek/alpha", "greek/beta", "latin/a")
    assert source.groups is not None
    assert source.groups.tolist() == [0, 0, 1]
    assert source.group_names == ("greek", "latin")
    inner = class_folders(
        tmp_path / "b", {"train/n01/images": 2, "train/n02/images": 2, "train/n03/images": 3}
    )
    assert open_source(inner).class_names == ("n01", "n02", "n03")


def test_split_folders(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "x", {"train/cat": 2, "train/dog": 2, "val/owl": 2, "test/eel": 2})
    source = open_source(root)
    assert source.class_names == ("eel", "cat", "dog", "owl")
    named = {part: [source.class_names[c] for c in ids] for part, ids in source.splits.items()}
    assert named == {"test": ["eel"], "train": ["cat", "dog"], "validation": ["owl"]}
    class_folders(root, {"test/cat": 2})
    with pytest.raises(UserError, match="the class 'cat' is in several"):
        open_source(root)


def test_a_split_file(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "x", {"cat": 2, "dog": 2, "owl": 2})
    (tmp_path / "splits.json").write_text(json.dumps({"train": ["cat", "owl"], "test": ["dog"]}))
    source = open_source(root, split_file=tmp_path / "splits.json")
    assert {part: ids.tolist() for part, ids in source.splits.items()} == {"train": [0, 2], "test": [1]}
    assert open_source(root, splits="all").splits["all"].tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="no published split 'vinyals'"):
        open_source(root, splits="vinyals")


def test_every_kind_of_picture(tmp_path: Path) -> None:
    """Grey, 1-bit, 16-bit, transparent, palette, turned by EXIF: each is what a viewer shows."""
    red = np.zeros((20, 20, 3), np.uint8)
    red[:, :10] = (255, 0, 0)  # left half red, right half black
    clear = np.dstack([red, np.full((20, 20), 255, np.uint8)])
    clear[:, 10:, 3] = 0  # the black half is transparent
    ramp = np.linspace(0, 65535, 400).reshape(20, 20).astype(np.uint16)
    turned = Image.Exif()
    turned[0x0112] = 6  # the camera was held on its side
    root = tmp_path / "kinds"
    put(root, "a/rgb.png", Image.fromarray(red))
    put(root, "a/rgba.png", Image.fromarray(clear))
    put(root, "a/palette.png", Image.fromarray(red).quantize(4))
    put(root, "b/grey.png", Image.fromarray(red[..., 0]))
    put(root, "b/one.png", Image.fromarray(red[..., 0] > 0))
    put(root, "b/deep.png", Image.fromarray(ramp))
    put(root, "c/turned.jpg", Image.fromarray(red), exif=turned, quality=100)
    put(root, "c/grey-alpha.png", Image.fromarray(np.dstack([red[..., 0], clear[..., 3]]), "LA"))
    source = open_source(root)
    rows = {source.files(row): source.images[row] for row in range(8)}
    np.testing.assert_array_equal(rows["a/rgb.png"], red)
    np.testing.assert_array_equal(rows["a/palette.png"], red)
    assert (rows["a/rgba.png"][:, 10:] == 255).all()
    assert (rows["a/rgba.png"][:, :10] == (255, 0, 0)).all()
    np.testing.assert_array_equal(rows["b/grey.png"][..., 1], red[..., 0])
    np.testing.assert_array_equal(rows["b/one.png"][..., 2], red[..., 0])
    np.testing.assert_array_equal(rows["b/deep.png"][..., 0], np.round(ramp / 257).astype(np.uint8))
    assert (rows["c/grey-alpha.png"][:, 10:] == 255).all()
    upper, lower = rows["c/turned.jpg"][3:7, :, 0].mean(), rows["c/turned.jpg"][13:17, :, 0].mean()
    assert upper > 200 > 50 > lower  # red is on top


def test_transparent_palette_pictures_and_sixteen_bit_colour(tmp_path: Path) -> None:
    table = Image.new("P", (8, 8), 1)
    table.putpalette([0, 0, 0, 255, 0, 0])
    table.paste(0, (0, 0, 4, 8))
    path = put(tmp_path, "x.png", table, transparency=0)
    array = read_picture(path, 8, "rgb")
    assert (array[:, :4] == 255).all()
    assert (array[:, 4:] == (255, 0, 0)).all()
    with pytest.raises(UserError, match=r"y.tif cannot be read as a picture: its pixels are floats"):
        read_picture(put(tmp_path, "y.tif", Image.fromarray(np.ones((4, 4), np.float32))), 4, "grey")


def test_sizes_and_colours(tmp_path: Path) -> None:
    root = tmp_path / "x"
    for seed, name in enumerate(("a", "b", "c")):
        put(root, f"{name}/wide.png", Image.fromarray(picture(10 * seed + 1, 60)[:30]))
        put(root, f"{name}/square.png", Image.fromarray(picture(10 * seed + 2, 50)[..., 0]))
    assert open_source(root).images.shape == (6, 84, 84, 3)
    small = open_source(root, size=16, colour="grey")
    assert small.images.shape == (6, 16, 16, 1)
    wide = Image.fromarray(picture(1, 60)[:30])
    middle = wide.crop((15, 0, 45, 30)).convert("L").resize((16, 16), Image.Resampling.LANCZOS)
    close = np.abs(small.images[1, ..., 0].astype(int) - np.asarray(middle))
    assert close.max() <= 3  # the middle of the wide picture, up to the order of cropping and resizing
    squashed = open_source(root, size=16, fit="squash").images[1]
    np.testing.assert_array_equal(squashed, np.asarray(wide.resize((16, 16), Image.Resampling.LANCZOS)))
    assert open_source(root, size=16, fit="pad").images.shape == (6, 16, 16, 3)
    grey = tmp_path / "grey"
    for seed, name in enumerate(("a", "b", "c")):
        for i in range(2):
            put(grey, f"{name}/{i}.png", Image.fromarray(picture(10 * seed + i, 28, 1)))
    assert open_source(grey).images.shape == (6, 28, 28, 1)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "x", {"cat": 4, "dog": 4, "owl": 4})
    put(root, "cat/junk.png", b"this is no picture")
    whole = encoded(picture(5, 64), "JPEG")
    put(root, "dog/cut.jpg", whole[: len(whole) // 2])
    put(root, "owl/empty.png", b"")
    with pytest.raises(
        UserError, match=r"3 files cannot be .*cat/junk.png .*dog/cut.jpg .*owl/empty.png.*on_bad=\"skip\""
    ):
        open_source(root)  # one is seen to be bad at once, and then all are decoded
    (root / "cat/junk.png").unlink()
    (root / "owl/empty.png").unlink()
    with pytest.raises(UserError, match=r"1 file cannot be read as pictures: dog/cut.jpg \("):
        open_source(root)  # only decoding shows it
    put(root, "cat/junk.png", b"this is no picture")
    source = open_source(root, on_bad="skip")
    assert source.counts.tolist() == [4, 4, 4]
    assert not {"cat/junk.png", "dog/cut.jpg"} & {source.files(row) for row in range(12)}


def test_classes_that_are_too_small_are_named(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "x", {"cat": 4, "dog": 1, "owl": 4})
    with pytest.raises(UserError, match=r"too few pictures in 'dog' \(1\): every class needs at least 2"):
        open_source(root)
    with pytest.raises(
        UserError, match=r"'cat' \(4\), 'dog' \(1\), 'owl' \(4\): every class needs at least 20"
    ):
        open_source(root, min_images=20)
    assert open_source(root, min_images=1).counts.tolist() == [4, 1, 4]
    put(root, "cat/junk.png", b"x")
    shutil.rmtree(root / "dog")
    class_folders(root, {"dog": 2}, size=21)
    put(root, "dog/001.png", b"x")
    with pytest.raises(UserError, match=r"'dog' \(1\)"):
        open_source(root, on_bad="skip")  # those left out do not count


def test_folders_that_are_not_laid_out_by_class(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither a dataset nor a folder or file"):
        open_source(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no pictures"):
        open_source(tmp_path / "empty")
    root = class_folders(tmp_path / "x", {"cat": 2, "dog": 2})
    put(root, "loose.png", encoded(picture(0)))
    with pytest.raises(UserError, match=r"loose.png lies directly in"):
        open_source(root)
    (root / "loose.png").unlink()
    class_folders(root, {"cat/kittens": 2})
    with pytest.raises(UserError, match=r"'cat' in .* holds pictures and also 'cat/kittens'"):
        open_source(root)
    put(tmp_path, "x.zip", b"PK")
    with pytest.raises(UserError, match="innerloop data get NAME --from"):
        open_source(tmp_path / "x.zip")


def test_names_are_suggested() -> None:
    with pytest.raises(UserError, match=r"'omniglt' is neither a dataset \(did you mean 'omniglot'\?\)"):
        open_source("omniglt")


def test_the_second_opening_reads_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = class_folders(tmp_path / "x", {"cat": 3, "dog": 3, "owl": 3})
    first = open_source(root)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a picture was opened")

    with monkeypatch.context() as patch:
        patch.setattr("PIL.Image.open", fail)
        second = open_source(root)
        assert second.content_sha256 == first.content_sha256
        with pytest.raises(UserError, match="a picture was opened"):
            open_source(root, size=10)  # other options, another conversion
    put(root, "cat/new.png", encoded(picture(77, 20)))
    assert open_source(root).counts.tolist() == [4, 3, 3]
    same_size = encoded(255 - picture(0, 20), "BMP")
    put(root, "cat/000.bmp", encoded(picture(0, 20), "BMP"))
    before = open_source(root).content_sha256
    path = put(root, "cat/000.bmp", same_size)
    os.utime(path, ns=(1, 1))
    assert open_source(root).content_sha256 != before  # the same size, another time


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_linked_folders_are_followed_but_not_for_ever(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "x", {"cat": 2, "dog": 2})
    class_folders(tmp_path / "elsewhere", {"owl": 2}, size=21)
    (root / "owl").symlink_to(tmp_path / "elsewhere" / "owl")
    (root / "loop").symlink_to(root)
    assert open_source(root).class_names == ("cat", "dog", "owl")
