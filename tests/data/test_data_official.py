"""Real data: pixel hashes against the packed copies, and the publishers' own layouts end to end."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.data import labels, open_source
from innerloop.data.catalogue import catalogue
from innerloop.data.get import check, get
from innerloop.data.hashing import content_hash


def cifar_pixels(shared_data: Path) -> NDArray[np.uint8]:
    """(60000, 32, 32, 3) in catalogue order: class, part, file name."""
    with np.load(shared_data / "cifar100_delta.npz") as table:
        planes = table["planes"]
        order = np.lexsort((table["filenames"], table["is_test"], table["fine"]))
    planes = np.cumsum(np.cumsum(planes, axis=2, dtype=np.uint8), axis=3, dtype=np.uint8)
    return np.stack([planes[1] + planes[0], planes[0], planes[2] + planes[0]], -1)[order]


def test_omniglots_hashes_are_those_of_the_packed_copies(shared_data: Path) -> None:
    entry = catalogue()["omniglot"]
    images = np.load(shared_data / "omniglot_28.npz")["images"]
    assert images.shape == (entry.classes, entry.per_class, 28, 28)
    assert content_hash(images.reshape(-1, *entry.shape)) == entry.content_sha256
    bits = np.load(shared_data / "omniglot_105_bits.npz")["bits"]
    digest = hashlib.sha256()
    for block in bits:
        digest.update((np.unpackbits(block, axis=-1, count=105 * 105) * np.uint8(255)).tobytes())
    assert digest.hexdigest() == entry.decoded_sha256


def test_omniglots_small_drawings_are_the_large_ones_resized(shared_data: Path) -> None:
    """Black on white, 8 bits, Lanczos, then inverted: exactly, on every 40th drawing."""
    bits = np.load(shared_data / "omniglot_105_bits.npz")["bits"].reshape(-1, 1379)[::40]
    small = np.load(shared_data / "omniglot_28.npz")["images"].reshape(-1, 28, 28)[::40]
    for packed, expected in zip(bits, small, strict=True):
        ink = np.unpackbits(packed, count=105 * 105).reshape(105, 105)
        paper = Image.fromarray((1 - ink) * np.uint8(255))
        resized = np.asarray(paper.resize((28, 28), Image.Resampling.LANCZOS))
        np.testing.assert_array_equal(255 - resized, expected)


@pytest.mark.slow  # CIFAR-100 is unpacked
def test_cifars_hash_is_that_of_the_packed_copy(shared_data: Path) -> None:
    pixels = cifar_pixels(shared_data)
    assert pixels.shape == (60_000, 32, 32, 3)
    computed = content_hash(pixels)
    for name in ("cifar100", "cifar-fs", "fc100"):
        assert catalogue()[name].content_sha256 == computed


@pytest.fixture(scope="module")
def archives(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Omniglot and CIFAR-100 as their publishers pack them."""
    out = tmp_path_factory.mktemp("archives")
    tool = shared_data.parent / "tools" / "official-archives"
    if not tool.is_file():
        pytest.skip(f"no {tool}")
    subprocess.run([sys.executable, str(tool), str(out), "omniglot", "cifar100"], check=True)
    return out


@pytest.mark.slow
def test_omniglot_from_its_archives(
    archives: Path, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path))
    zips = [archives / "images_background.zip", archives / "images_evaluation.zip"]
    with pytest.raises(UserError, match="lacks 659 of Omniglot's 1623 characters"):
        get("omniglot", zips[:1])
    stored = get("omniglot", zips).stored
    assert stored.status == "repacked"
    assert stored.content_sha256 == catalogue()["omniglot"].content_sha256
    assert check("omniglot") == stored
    source = open_source("omniglot")
    packed = np.load(shared_data / "omniglot_28.npz")
    np.testing.assert_array_equal(source.images[..., 0], packed["images"].reshape(-1, 28, 28))
    assert source.counts.tolist() == [20] * 1623
    assert source.groups is not None
    assert source.groups.tolist() == packed["alphabet_index"].tolist()
    first = int(packed["vinyals_test"][0])
    name, number = packed["char_names"][first], packed["char_file_id"][first]
    assert source.files(20 * first + 4) == f"images_evaluation/{name}/{number:04d}_05.png"


@pytest.mark.slow
def test_an_omniglot_with_one_stroke_changed_is_refused(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "data"))
    changed = tmp_path / "images_background.zip"
    with zipfile.ZipFile(archives / "images_background.zip") as old, zipfile.ZipFile(changed, "w") as new:
        for number, name in enumerate(old.namelist()):
            data = old.read(name)
            if number == 777:
                other = old.read(old.namelist()[778])
                assert other != data
                data = other
            new.writestr(name, data)
    with pytest.raises(UserError, match=r"was refused: its pictures are not omniglot's") as caught:
        get("omniglot", [changed, archives / "images_evaluation.zip"])
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.slow
def test_cifar100_from_its_archive(
    archives: Path, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path))
    result = get("cifar-fs", [archives / "cifar-100-python.tar.gz"])
    assert result.stored.status == "repacked"
    assert get("fc100").already  # one store for all three
    fs, fc = open_source("cifar-fs"), open_source("fc100")
    np.testing.assert_array_equal(fs.images, cifar_pixels(shared_data))
    assert [len(ids) for ids in fs.splits.values()] == [64, 16, 20]
    assert [len(ids) for ids in fc.splits.values()] == [60, 20, 20]
    assert (np.bincount(labels(fs)) == 600).all()
    assert open_source("cifar100").splits["all"].tolist() == list(range(100))
