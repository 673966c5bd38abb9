"""The publishers' layouts, on small archives of the same shape."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.data.catalogue import ClassList
from innerloop.data.get import adopt
from innerloop.data.source import labels
from support.data_files import (
    adopted,
    cifar_members,
    encoded,
    old_pickle,
    omniglot_members,
    picture,
    small,
    squashed,
    write_tar,
    write_zip,
)

OMNIGLOT = ("Greek/character01", "Greek/character02", "Latin/character01")


def test_omniglot(tmp_path: Path) -> None:
    members = omniglot_members(OMNIGLOT)
    shuffled = dict(sorted(members.items(), reverse=True))  # packed in another order
    half = len(members) // 2
    first = write_zip(tmp_path / "a.zip", dict(list(shuffled.items())[:half]))
    second = write_zip(tmp_path / "b.zip", dict(list(shuffled.items())[half:]))
    source = adopted("omniglot", OMNIGLOT, 9, [first, second], tmp_path / "store")
    assert source.class_names == OMNIGLOT
    assert source.images.shape == (9, 28, 28, 1)
    assert source.files(4) == "images_background/Greek/character02/0001_02.png"
    ink = picture(101, 105, 1) > 128
    paper = Image.fromarray(np.where(ink, 0, 255).astype(np.uint8))
    expected = 255 - np.asarray(paper.resize((28, 28), Image.Resampling.LANCZOS))
    np.testing.assert_array_equal(source.images[4, ..., 0], expected)
    assert len(np.unique(source.images[4])) > 10  # 1-bit pictures resized as such would be black and white


def test_omniglot_by_half(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "images_background.zip", omniglot_members(OMNIGLOT[:2]))
    with pytest.raises(UserError, match="lacks 1 of Omniglot's 3 characters, such as Latin/character01"):
        adopted("omniglot", OMNIGLOT, 9, [path], tmp_path / "store")


def test_omniglot_of_another_size(tmp_path: Path) -> None:
    members = omniglot_members(OMNIGLOT)
    members[next(iter(members))] = encoded(picture(0, 28, 1))
    path = write_zip(tmp_path / "x.zip", members)
    with pytest.raises(UserError, match="this is not Omniglot"):
        adopted("omniglot", OMNIGLOT, 9, [path], tmp_path / "store")


def test_cifar100(tmp_path: Path) -> None:
    names = ("apple", "bear", "chair")
    members = cifar_members(3, 4, names)
    path = write_tar(tmp_path / "cifar-100-python.tar.gz", members)
    source = adopted("cifar-fs", names, 24, [path], tmp_path / "store")
    assert source.counts.tolist() == [8, 8, 8]
    assert [source.files(row).split("/")[0] for row in range(8)] == ["train"] * 4 + ["test"] * 4
    train = pickle.loads(members["cifar-100-python/train"])
    row = train[b"filenames"].index(source.files(9).partition("/")[2].encode())
    np.testing.assert_array_equal(source.images[9].transpose(2, 0, 1).ravel(), train[b"data"][row])
    assert labels(source)[9] == train[b"fine_labels"][row] == 1


def test_cifar100_unpacked(tmp_path: Path) -> None:
    names = ("apple", "bear")
    members = cifar_members(2, 3, names)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, data in members.items():
        (folder / name.rpartition("/")[2]).write_bytes(data)
    packed = adopted("cifar-fs", names, 12, [write_tar(tmp_path / "x.tar.gz", members)], tmp_path / "a")
    loose = adopted("cifar-fs", names, 12, [folder], tmp_path / "b")
    assert packed.content_sha256 == loose.content_sha256


def test_something_else_than_cifar100(tmp_path: Path) -> None:
    names = ("apple", "bear")
    wrong_names = write_tar(tmp_path / "a.tar.gz", cifar_members(2, 3, ("airplane", "automobile")))
    with pytest.raises(UserError, match="this is not CIFAR-100"):
        adopted("cifar-fs", names, 12, [wrong_names], tmp_path / "store")
    members = cifar_members(2, 3, names)
    members["cifar-100-python/train"] = old_pickle({b"data": np.zeros((3, 3072), np.uint8)})
    with pytest.raises(UserError, match="lacks data, fine_labels or filenames"):
        adopted("cifar-fs", names, 12, [write_tar(tmp_path / "b.tar.gz", members)], tmp_path / "store")
    members["cifar-100-python/train"] = b"garbage"
    with pytest.raises(UserError, match="damaged or not a pickle"):
        adopted("cifar-fs", names, 12, [write_tar(tmp_path / "c.tar.gz", members)], tmp_path / "store")
    del members["cifar-100-python/train"]
    with pytest.raises(UserError, match="lacks the file 'train'"):
        adopted("cifar-fs", names, 12, [write_tar(tmp_path / "d.tar.gz", members)], tmp_path / "store")


def cub_members() -> dict[str, bytes]:
    members, lines = {}, []
    for number, name in enumerate(("001.Albatross", "002.Auk", "003.Bunting")):
        for i in range(4 + number):
            shape = picture(10 * number + i, 100)[: 60 + 10 * i]  # of different proportions
            array = shape[..., 0] if (number, i) == (1, 2) else shape  # and some are grey
            file = f"{name}/{name[4:]}_{i:04d}.jpg"
            members[f"CUB_200_2011/images/{file}"] = encoded(array, "JPEG", quality=95)
            lines.append(f"{len(lines) + 1} {file}")
    members["CUB_200_2011/images.txt"] = ("\n".join(lines) + "\n").encode()
    members["CUB_200_2011/classes.txt"] = b"1 001.Albatross\n2 002.Auk\n3 003.Bunting\n"
    members["attributes.txt"] = b"1 has_bill_shape::curved\n"
    return members


def test_cub(tmp_path: Path) -> None:
    names = ("001.Albatross", "002.Auk", "003.Bunting")
    members = cub_members()
    path = write_tar(tmp_path / "CUB_200_2011.tgz", members)
    source = adopted("cub", names, 15, [path], tmp_path / "store")
    assert source.counts.tolist() == [4, 5, 6]
    assert source.files(6) == "002.Auk/Auk_0002.jpg"
    grey = source.images[6]
    assert (grey[..., 0] == grey[..., 1]).all()
    np.testing.assert_array_equal(
        source.images[5], squashed(members["CUB_200_2011/images/002.Auk/Auk_0001.jpg"])
    )
    del members["CUB_200_2011/images/002.Auk/Auk_0001.jpg"]
    with pytest.raises(UserError, match=r"do not agree, such as on 002.Auk/Auk_0001.jpg"):
        adopted("cub", names, 15, [write_tar(tmp_path / "x.tgz", members)], tmp_path / "other")


def test_published_splits_reach_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through open_source, with a catalogue cut down to three characters."""
    from innerloop.data import open_source

    entry, _ = small("omniglot", OMNIGLOT, 9, content_sha256="unknown", decoded_sha256="unknown")
    classes = ClassList(
        OMNIGLOT,
        (0, 0, 1),
        ("Greek", "Latin"),
        {
            "vinyals": {"train": (OMNIGLOT[2],), "test": OMNIGLOT[:2]},
            "alphabet": {"train": OMNIGLOT[:2], "test": OMNIGLOT[2:]},
        },
        {},
    )
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("innerloop.data.opening.catalogue", lambda: {"omniglot": entry})
    monkeypatch.setattr("innerloop.data.catalogue.class_list", lambda name: classes)
    with pytest.raises(UserError, match="omniglot is not on this machine: `innerloop data get omniglot`"):
        open_source("omniglot")
    path = write_zip(tmp_path / "x.zip", omniglot_members(OMNIGLOT))
    adopt(entry, classes, [path], tmp_path / "data" / "omniglot")
    vinyals = open_source("omniglot")
    assert {part: ids.tolist() for part, ids in vinyals.splits.items()} == {"train": [2], "test": [0, 1]}
    alphabet = open_source("omniglot", splits="alphabet")
    assert alphabet.splits["train"].tolist() == [0, 1]
    assert open_source("omniglot", splits="all").splits["all"].tolist() == [0, 1, 2]
    assert vinyals.groups is not None
    assert vinyals.groups.tolist() == [0, 0, 1]
    small_pictures = open_source("omniglot", size=14)
    assert small_pictures.images.shape == (9, 14, 14, 1)
    assert small_pictures.files(4) == vinyals.files(4)
    assert open_source("omniglot", colour="rgb").images.shape == (9, 28, 28, 3)
    shutil.rmtree(tmp_path / "data")
