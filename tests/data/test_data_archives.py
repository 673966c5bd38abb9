"""Archives: damaged ones and ones that point outside are refused in one sentence; nothing is unpacked."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from innerloop.core.errors import UserError
from innerloop.data.archives import Archive
from innerloop.data.get import adopt
from innerloop.data.layouts.tiered_imagenet import stream_rows
from support.data_files import cifar_members, omniglot_members, small, write_tar, write_zip

CLASSES = ("Greek/character01", "Greek/character02", "Latin/character01")
MEMBERS = {"a/1.txt": b"one", "a/2.txt": b"two", "b.txt": b"three"}


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.xz", "folder"])
def test_every_kind_gives_the_same(kind: str, tmp_path: Path) -> None:
    if kind == "zip":
        path = write_zip(tmp_path / "x.zip", MEMBERS)
    elif kind == "folder":
        path = tmp_path / "x"
        for name, data in MEMBERS.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
    else:
        path = write_tar(tmp_path / f"x.{kind}", MEMBERS, f"w:{kind.partition('.')[2]}")
    archive = Archive(path)
    assert sorted(archive.names) == sorted(MEMBERS)
    assert dict(archive.stream(["b.txt", "a/1.txt"])) == {"b.txt": b"three", "a/1.txt": b"one"}
    assert archive.read("a/2.txt") == b"two"
    with pytest.raises(UserError, match=r"lacks c.txt"):
        archive.read("c.txt")
    with pytest.raises(UserError, match=r"lacks c.txt"):
        list(archive.stream(["b.txt", "c.txt"]))


@pytest.mark.parametrize(
    "name", ["../evil.png", "a/../../evil.png", "/etc/evil.png", "C:/evil.png", "..\\evil.png"]
)
def test_names_that_point_outside(name: str, tmp_path: Path) -> None:
    for path in (
        write_zip(tmp_path / "x.zip", {**MEMBERS, name: b"!"}),
        write_tar(tmp_path / "x.tar.gz", {**MEMBERS, name: b"!"}),
    ):
        with pytest.raises(UserError, match="points outside of it") as caught:
            _ = Archive(path).names
        assert "\n" not in str(caught.value)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.tar.gz", "x.zip"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_in_a_tar(kind: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("a/link.png")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(UserError, match=r"holds the link a/link.png"):
        _ = Archive(path).names


def test_a_link_in_a_zip_is_only_its_text(tmp_path: Path) -> None:
    """Zips store a link as a file with the target inside; it is read as those bytes and never followed."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("link.png")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, str(secret))
    assert Archive(path).read("link.png") == str(secret).encode()


def test_truncated_and_corrupted_zips(tmp_path: Path) -> None:
    whole = write_zip(tmp_path / "whole.zip", omniglot_members(CLASSES)).read_bytes()
    entry, classes = small("omniglot", CLASSES, 9, content_sha256="unknown", decoded_sha256="unknown")
    flipped = bytearray(whole)
    flipped[60:90] = bytes(30)
    for name, blob in {"cut.zip": whole[:-200], "half.zip": whole[: len(whole) // 2], "empty.zip": b"",
                       "flipped.zip": bytes(flipped)}.items():  # fmt: skip
        path = tmp_path / name
        path.write_bytes(blob)
        with pytest.raises(UserError, match=f"{name}.*damaged") as caught:
            adopt(entry, classes, [path], tmp_path / "store")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "store").exists()
    assert not list(tmp_path.glob(".partial*"))


def test_truncated_tars(tmp_path: Path) -> None:
    names = ["apple", "bear"]
    whole = write_tar(tmp_path / "whole.tar.gz", cifar_members(2, 20, names)).read_bytes()
    entry, classes = small("cifar-fs", names, 80, content_sha256="unknown")
    for cut in (10, len(whole) // 2, len(whole) - 200):
        path = tmp_path / "cifar-100-python.tar.gz"
        path.write_bytes(whole[:cut])
        with pytest.raises(UserError, match="damaged") as caught:
            adopt(entry, classes, [path], tmp_path / "store")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_no_such_archive(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file or folder"):
        Archive(tmp_path / "nowhere.zip")


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "images_background.zip"
    path.write_text("<html>Too many requests</html>")
    with pytest.raises(UserError, match="not the archive that its name says"):
        Archive(path)


def test_arrays_are_streamed_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("innerloop.data.layouts.tiered_imagenet.BLOCK", 1000)
    array = np.random.default_rng(0).integers(0, 256, (23, 8, 8, 3), dtype=np.uint8)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", images=array, other=np.arange(3))
        with (tmp_path / "x.npz").open("rb") as file:
            blocks = list(stream_rows(file, "images", "x.npz"))
        assert len(blocks) > 3
        assert {shape for shape, _ in blocks} == {array.shape}
        np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), array)
    with (tmp_path / "x.npz").open("rb") as file, pytest.raises(UserError, match="no array 'labels'"):
        list(stream_rows(file, "labels", "x.npz"))
    with pytest.raises(UserError, match="damaged"):
        list(stream_rows(io.BytesIO((tmp_path / "x.npz").read_bytes()[:500]), "images", "x.npz"))
