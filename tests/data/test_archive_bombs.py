"""Archives and pictures that unpack to far more than they are: refused before memory fills."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.data import archives as bounds
from innerloop.data.archives import Archive
from innerloop.data.folder import FolderOptions
from innerloop.data.opening import open_path
from support.data_files import giant_picture, write_tar, write_zip

MEGABYTE = 1 << 20
ZEROS = bytes(8 * MEGABYTE)


@pytest.fixture(autouse=True)
def _small(own_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bombs of megabytes instead of terabytes: the rule is the same."""
    monkeypatch.setattr(bounds, "ALWAYS", MEGABYTE)


def refusals(path: Path) -> set[str]:
    """What every way to look into an archive says; none unpacks it first."""
    told = set()
    ways: list[Callable[[], object]] = [
        lambda: Archive(path).names,
        lambda: Archive(path).read("a.png"),
        lambda: list(Archive(path).stream(["a.png"])),
    ]
    for way in ways:
        tracemalloc.start()
        with pytest.raises(UserError, match=f"{path.name} was refused: it (says|holds)") as caught:
            way()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 6 * MEGABYTE
        told.add(str(caught.value))
    return told


def in_one_line(told: set[str]) -> bool:
    return bool(told) and not any("\n" in sentence for sentence in told)


def zipped(path: Path) -> Path:
    return write_zip(path / "bomb.zip", {"a.png": ZEROS})


def overlapping(path: Path) -> Path:
    """Many entries that share one content: each is small, all of them are not."""
    return write_zip(path / "bomb.zip", {f"{n}.png": ZEROS[:MEGABYTE] for n in range(20)} | {"a.png": b"1"})


def packed(path: Path, compress: Callable[..., bytes]) -> Path:
    plain = write_tar(path / "bomb.tar", {"a.png": ZEROS}, "w:")
    plain.write_bytes(compress(plain.read_bytes()))
    return plain


def by_gzip(path: Path) -> Path:
    return packed(path, gzip.compress)


def by_bzip2(path: Path) -> Path:
    return packed(path, bz2.compress)


def by_xz(path: Path) -> Path:
    return packed(path, partial(lzma.compress, preset=0))


def long_header(path: Path) -> Path:
    """The size is not in a file but in the extended header before one."""
    with tarfile.open(path / "bomb.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as made:
        info = tarfile.TarInfo("a.png")
        info.pax_headers = {"comment": "0" * len(ZEROS)}
        made.addfile(info)
    return path / "bomb.tar.gz"


def sparse(path: Path) -> Path:
    """A kilobyte without any packing, which says that it is a terabyte of nothing."""
    info = tarfile.TarInfo("a.png")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT)[:512])
    header[483:495] = b"%011o\0" % (1 << 32)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (path / "bomb.tar").write_bytes(bytes(header) + bytes(1024))
    return path / "bomb.tar"


@pytest.mark.parametrize("make", [zipped, overlapping, by_gzip, by_bzip2, by_xz, long_header, sparse])
def test_bombs_are_refused(make: Callable[[Path], Path], tmp_path: Path) -> None:
    assert in_one_line(refusals(make(tmp_path)))
    assert [file.name.startswith("bomb") for file in tmp_path.iterdir()] == [True]


def test_a_size_that_is_only_said_is_refused(tmp_path: Path) -> None:
    content = bytearray(write_zip(tmp_path / "said.zip", {"a.png": b"1"}).read_bytes())
    at = content.rfind(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", 0xFFFFFFF0)
    (tmp_path / "said.zip").write_bytes(content)
    assert in_one_line(refusals(tmp_path / "said.zip"))


@pytest.mark.parametrize("kind", ["zip", "gz"])
def test_too_many_files_are_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {f"{n}": b"" for n in range(200)} | {"a.png": b""}
    path = (
        write_zip(tmp_path / "many.zip", members) if kind == "zip" else write_tar(tmp_path / "m.tgz", members)
    )
    assert len(Archive(path).names) == 201
    monkeypatch.setattr(bounds, "MOST_FILES", 100)
    assert in_one_line(refusals(path))


def test_an_archive_inside_is_a_file_and_is_not_opened(tmp_path: Path) -> None:
    inner = write_zip(tmp_path / "inner.zip", {"../evil.png": b"1", "bomb.png": ZEROS}).read_bytes()
    outer = Archive(write_zip(tmp_path / "outer.zip", {"a/inner.zip": inner, "b.png": b"1"}))
    assert outer.names == ("a/inner.zip", "b.png")
    assert outer.read("a/inner.zip") == inner
    assert sorted(file.name for file in tmp_path.iterdir()) == ["inner.zip", "outer.zip"]


def test_what_shrinks_as_data_do_is_read(tmp_path: Path) -> None:
    drawing = np.zeros((400, 64, 64), np.uint8)
    drawing[:, ::5, ::3] = np.random.default_rng(0).integers(0, 256, (400, 13, 22), dtype=np.uint8)
    path = tmp_path / "drawings.npz"
    np.savez_compressed(path, images=drawing, labels=np.arange(400) // 20)
    assert drawing.size > MEGABYTE > path.stat().st_size
    assert len(open_path(path, FolderOptions()).images) == 400
    assert Archive(write_tar(tmp_path / "a.tar.gz", {"a": drawing.tobytes()})).names == ("a",)


def test_arrays_that_are_bombs(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, images=np.zeros((100, 300, 300), np.uint8), labels=np.arange(100) // 2)
    with pytest.raises(UserError, match=r"bomb\.npz was refused"):
        open_path(path, FolderOptions())


def test_an_array_that_says_it_is_enormous(tmp_path: Path) -> None:
    raw = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        raw, {"descr": "|u1", "fortran_order": False, "shape": (1 << 24, 1 << 12, 1 << 12)}
    )
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as made:
        made.writestr("images.npy", raw.getvalue() + bytes(100))
        made.writestr("labels.npy", b"")
    with pytest.raises(UserError, match=r"a\.npz is damaged"):
        open_path(tmp_path / "a.npz", FolderOptions())


def test_giant_pictures_are_named_and_may_be_left_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for shade, name in enumerate(("ant", "bee", "cat")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("L", (8, 8), 20 * number + shade).save(tmp_path / "pictures" / name / f"{number}.png")
    giant_picture(tmp_path / "pictures" / "ant" / "giant.png")
    get = ["data", "get", "mine", "--from", str(tmp_path / "pictures")]
    assert main(get) == 2
    assert "ant/giant.png (it has more than the 80 million pixels" in capfd.readouterr().err
    assert main([*get, "--skip-bad"]) == 0
    assert "6 pictures of 3 classes" in capfd.readouterr().out
