"""mini- and tiered-ImageNet's layouts, on small archives built from Tiny-ImageNet's photographs."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from innerloop.core.errors import UserError
from innerloop.data.get import adopt, check, get
from support.data_files import adopted, encoded, old_pickle, picture, small, squashed, write_tar, write_zip
from support.places import DATA

SYNSETS = ("n01443537", "n01629819", "n01641577", "n01644900")


def picture_folder(photographs: dict[str, list[bytes]], root: Path) -> Path:
    """A folder for each class in train/ and val/, whose parts are not those of the published split."""
    for c, name in enumerate(SYNSETS):
        folder = root / ("train" if c < 3 else "val") / name
        folder.mkdir(parents=True)
        for i, data in enumerate(photographs[name]):
            (folder / f"{name}{i:08d}.jpg").write_bytes(data)
    return root


@pytest.fixture(scope="module")
def photographs() -> dict[str, list[bytes]]:
    """Real JPEG photographs by synset, or synthetic ones where there is no data."""
    named = os.environ.get("INNERLOOP_TEST_DATA")
    folder = Path(named) if named else DATA
    packed = folder / "tiny_imagenet_60.npz"
    if not packed.is_file():
        made = ([encoded(picture(10 * c + i, 64), "JPEG") for i in range(5)] for c in range(len(SYNSETS)))
        return dict(zip(SYNSETS, made, strict=True))
    table = np.load(packed)
    jpeg, offsets, numbers = table["jpeg"], table["offsets"], table["labels"]
    wnids = table["wnids"].tolist()
    by_name: dict[str, list[bytes]] = {}
    for name in SYNSETS:
        rows = np.flatnonzero(numbers == wnids.index(name))[:5]
        by_name[name] = [jpeg[offsets[row] : offsets[row + 1]].tobytes() for row in rows]
    return by_name


@pytest.mark.parametrize("old", [True, False], ids=["numpy.core", "numpy._core"])
def test_mini_imagenet_pickles(old: bool, photographs: dict[str, list[bytes]], tmp_path: Path) -> None:
    paths = []
    for part, names in (("train", SYNSETS[2:]), ("val", SYNSETS[:1]), ("test", SYNSETS[1:2])):
        rows = [squashed(data) for name in names for data in photographs[name]]
        indices = {name: list(range(5 * k, 5 * k + 5)) for k, name in enumerate(names)}
        table = {"image_data": np.stack(rows), "class_dict": indices}
        path = tmp_path / f"mini-imagenet-cache-{part}.pkl"
        path.write_bytes(old_pickle(table) if old else pickle.dumps(table))
        paths.append(path)
    source = adopted("mini-imagenet", SYNSETS, 20, paths, tmp_path / "store")
    assert source.images.shape == (20, 84, 84, 3)
    np.testing.assert_array_equal(source.images[16], squashed(photographs[SYNSETS[3]][1]))
    assert source.files(16) == "mini-imagenet-cache-train.pkl#n01644900/6"
    with pytest.raises(UserError, match="lacks 1 of mini-ImageNet's 4 classes, such as n01629819"):
        adopted("mini-imagenet", SYNSETS, 20, paths[:2], tmp_path / "other")
    packed = write_tar(tmp_path / "mini-imagenet.tar.gz", {path.name: path.read_bytes() for path in paths})
    again = adopted("mini-imagenet", SYNSETS, 20, [packed], tmp_path / "tar")
    assert again.content_sha256 == source.content_sha256


@pytest.mark.parametrize("style", ["ravi", "vinyals", "names only"])
def test_mini_imagenet_lists_and_pictures(
    style: str, photographs: dict[str, list[bytes]], tmp_path: Path
) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    lines = ["filename,label" if style == "ravi" else "filename,class"]
    for name in SYNSETS:
        for i, data in enumerate(photographs[name]):
            file = f"{name}_{i}.JPEG" if style == "vinyals" else f"{name}{i:08d}.jpg"
            (folder / file).write_bytes(data)
            lines.append(f"{file},{name}")
    (folder / "n0999999900000001.jpg").write_bytes(photographs[SYNSETS[0]][0])  # of another class
    given = [folder]
    if style != "names only":
        (tmp_path / "train.csv").write_text("\n".join(lines))
        given.append(tmp_path / "train.csv")
    source = adopted("mini-imagenet", SYNSETS, 20, given, tmp_path / "store")
    np.testing.assert_array_equal(source.images[7], squashed(photographs[SYNSETS[1]][2]))
    assert source.counts.tolist() == [5, 5, 5, 5]
    (folder / source.files(3)).unlink()
    with pytest.raises(UserError, match="holds 19 pictures of 4 classes, and mini-imagenet has 20"):
        adopted("mini-imagenet", SYNSETS, 20, given, tmp_path / "other")


def test_a_folder_that_is_incomplete_is_refused_with_the_class_and_the_fix(
    photographs: dict[str, list[bytes]], tmp_path: Path
) -> None:
    folder = picture_folder(photographs, tmp_path / "mini")
    entry, listed = small("mini-imagenet", SYNSETS, 20)
    entry = entry._replace(per_class=5)
    for i in range(2):
        (folder / "val" / SYNSETS[3] / f"{SYNSETS[3]}{i:08d}.jpg").unlink()
    with pytest.raises(UserError) as caught:
        adopt(entry, listed, [folder], tmp_path / "store")
    assert str(caught.value) == (
        "mini holds 3 pictures of class 'n01644900', and mini-imagenet has 5 of each class: it is incomplete "
        "or something else; give a whole copy with --from."
    )
    shutil.rmtree(folder / "val" / SYNSETS[3])
    with pytest.raises(
        UserError, match="no pictures of 1 of the 4 classes, such as n01644900: give the folder"
    ):
        adopt(entry, listed, [folder], tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_the_pixels_of_one_known_copy_are_recognised_and_others_described(
    photographs: dict[str, list[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody publishes the pictures of mini-ImageNet: the hash is that of one copy among others."""
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "data"))
    folder = picture_folder(photographs, tmp_path / "mini")
    entry, listed = small("mini-imagenet", SYNSETS, 20)
    monkeypatch.setattr("innerloop.data.get.class_list", lambda name: listed)
    monkeypatch.setattr("innerloop.data.get.catalogue", lambda: {"mini-imagenet": entry})
    other = get("mini-imagenet", [folder]).stored
    assert (other.status, other.content_known) == ("another copy", False)
    assert check("mini-imagenet") == other
    entry = entry._replace(content_sha256=other.content_sha256)  # what the catalogue is read as from here on
    known = get("mini-imagenet", [folder], again=True).stored
    assert (known.status, known.content_known) == ("known copy", True)
    assert check("mini-imagenet") == known


def test_mini_imagenet_with_a_broken_picture(photographs: dict[str, list[bytes]], tmp_path: Path) -> None:
    members = {
        f"images/{name}{i:08d}.jpg": data for name in SYNSETS for i, data in enumerate(photographs[name])
    }
    members["images/n0164157700000002.jpg"] = members["images/n0164157700000002.jpg"][:300]
    path = write_zip(tmp_path / "images.zip", members)
    with pytest.raises(UserError, match=r"n0164157700000002.jpg' in the archive cannot be read as a picture"):
        adopted("mini-imagenet", SYNSETS, 20, [path], tmp_path / "store")
    assert not (tmp_path / "store").exists()


def tiered_members(photographs: dict[str, list[bytes]], form: str) -> dict[str, bytes]:
    """As Ren et al. wrote them: OpenCV's blue-green-red arrays, whose PNGs decode to red-green-blue."""
    members = {}
    parts = {"train": SYNSETS[:2], "val": SYNSETS[2:3], "test": SYNSETS[3:]}
    for part, names in parts.items():
        rgb = np.stack([squashed(data) for name in names for data in photographs[name]])[::-1]  # no order
        numbers = np.repeat(np.arange(len(names)), 5)[::-1].astype(np.int32)
        if form == "png":
            pngs = [np.frombuffer(encoded(image), np.uint8).reshape(-1, 1) for image in rgb]
            members[f"tiered-imagenet/{part}_images_png.pkl"] = old_pickle(pngs)
        else:
            buffer = io.BytesIO()
            np.savez(buffer, images=rgb[..., ::-1])
            members[f"tiered-imagenet/{part}_images.npz"] = buffer.getvalue()
        table = {
            "label_specific": numbers,
            "label_general": np.zeros_like(numbers),
            "label_specific_str": [
                "crane" if part != "train" or k else "goldfish" for k in range(len(names))
            ],
            "label_general_str": [f"animals of {part}"],
        }
        members[f"tiered-imagenet/{part}_labels.pkl"] = old_pickle(table)
    return members


@pytest.mark.parametrize("form", ["png", "npz"])
def test_tiered_imagenet(form: str, photographs: dict[str, list[bytes]], tmp_path: Path) -> None:
    path = write_tar(tmp_path / "tiered-imagenet.tar", tiered_members(photographs, form), "w")
    source = adopted("tiered-imagenet", SYNSETS, 20, [path], tmp_path / "store")
    assert {part: ids.tolist() for part, ids in source.splits.items()} == {
        "train": [0, 1],
        "validation": [2],
        "test": [3],
    }
    assert source.class_names[0] == "goldfish"
    assert len(set(source.class_names)) == 4  # three are called crane
    assert source.groups is not None
    assert source.groups.tolist() == [0, 0, 1, 2]
    assert source.group_names == ("animals of train", "animals of val", "animals of test")
    expected = {squashed(data).tobytes() for data in photographs[SYNSETS[1]]}
    assert {image.tobytes() for image in source.images[5:10]} == expected  # not blue-green-red


def test_tiered_imagenet_with_miscounted_superclasses(
    photographs: dict[str, list[bytes]], tmp_path: Path
) -> None:
    members = tiered_members(photographs, "png")
    table = pickle.loads(members["tiered-imagenet/val_labels.pkl"])
    table["label_general"] = table["label_general"] + 1  # names no superclass
    members["tiered-imagenet/val_labels.pkl"] = old_pickle(table)
    path = write_tar(tmp_path / "tiered-imagenet.tar", members, "w")
    assert adopted("tiered-imagenet", SYNSETS, 20, [path], tmp_path / "store").groups is None


def test_tiered_imagenet_with_a_file_missing_or_short(
    photographs: dict[str, list[bytes]], tmp_path: Path
) -> None:
    members = tiered_members(photographs, "png")
    short = {**members, "tiered-imagenet/val_images_png.pkl": old_pickle([np.zeros(3, np.uint8)])}
    path = write_tar(tmp_path / "a.tar", short, "w")
    with pytest.raises(UserError, match="does not hold one picture for each of 5 labels"):
        adopted("tiered-imagenet", SYNSETS, 20, [path], tmp_path / "store")
    del members["tiered-imagenet/test_images_png.pkl"]
    path = write_tar(tmp_path / "b.tar", members, "w")
    with pytest.raises(UserError, match=r"lacks test_images_png.pkl"):
        adopted("tiered-imagenet", SYNSETS, 20, [path], tmp_path / "store")


def test_tiered_imagenet_from_imagenets_folders(photographs: dict[str, list[bytes]], tmp_path: Path) -> None:
    for name in SYNSETS:
        (tmp_path / "train" / name).mkdir(parents=True)
        for i, data in enumerate(photographs[name]):
            (tmp_path / "train" / name / f"{name}_{i}.JPEG").write_bytes(data)
    source = adopted("tiered-imagenet", SYNSETS, 20, [tmp_path / "train"], tmp_path / "store")
    np.testing.assert_array_equal(source.images[0], squashed(photographs[SYNSETS[0]][0]))
