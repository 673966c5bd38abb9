"""Stores are whole or not there: kills, tampering, other processes, no space."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from innerloop.core.errors import UserError
from innerloop.data import from_arrays
from innerloop.data.hashing import content_hash
from innerloop.data.layouts.layout import Layout
from innerloop.data.pictures import Progress
from innerloop.data.store import build_store, open_store, read_index, sweep
from oracles.patience import PATIENCE


def small_layout(value: int = 0) -> Layout:
    def fill(images: NDArray[np.uint8], progress: Progress) -> None:
        images[:] = value
        images[1] += 1

    return Layout(("a", "b"), (2, 1), ["x", "y", "z"], (4, 4, 1), fill, splits={"train": (0,), "test": (1,)})


def test_there_and_back(tmp_path: Path) -> None:
    index = build_store(tmp_path / "s", small_layout(), {"name": "s"})
    source = open_store(tmp_path / "s", "s")
    assert isinstance(source.images, np.memmap)
    assert source.images.shape == (3, 4, 4, 1)
    assert source.starts.tolist() == [0, 2, 3]
    assert [source.files(row) for row in range(3)] == ["x", "y", "z"]
    assert source.splits["test"].tolist() == [1]
    assert source.content_sha256 == content_hash(source.images) == index["content_sha256"]
    assert sorted(file.name for file in (tmp_path / "s").iterdir()) == [
        "files.json",
        "images.npy",
        "index.json",
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fill(images: NDArray[np.uint8], progress: Progress) -> None:
        raise UserError("bad picture")

    with pytest.raises(UserError, match="bad picture"):
        build_store(tmp_path / "s", small_layout()._replace(fill=fill), {})

    def refuse(content: str, decoded: str | None) -> dict[str, str]:
        raise UserError("wrong content")

    with pytest.raises(UserError, match="wrong content"):
        build_store(tmp_path / "s", small_layout(), {}, refuse)
    assert list(tmp_path.iterdir()) == []


CHILD = """
import sys, time
from pathlib import Path
from innerloop.data.layouts.layout import Layout
from innerloop.data.store import build_store

def fill(images, progress):
    images[0] = 1
    images.flush()
    print("half way", flush=True)
    time.sleep(3600)

layout = Layout(("a",), (2,), ["x", "y"], (64, 64, 3), fill)
build_store(Path(sys.argv[1]) / "s", layout, {})
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killing_a_conversion_leaves_nothing_half_made(how: signal.Signals, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "half way\n"
        assert not (tmp_path / "s").exists()
        sweep(tmp_path)  # a living conversion is left alone
        assert len(list(tmp_path.glob(".partial-*"))) == 1
    finally:
        child.send_signal(how)
        child.wait(PATIENCE)
    assert not (tmp_path / "s").exists()
    assert read_index(tmp_path / "s") is None
    if how == signal.SIGINT:
        assert list(tmp_path.iterdir()) == []
    build_store(tmp_path / "s", small_layout(), {})  # the next one clears up after a kill, and works
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


def test_old_leftovers_of_other_machines_are_cleared(tmp_path: Path) -> None:
    fresh, old = tmp_path / ".partial-elsewhere-12-ab", tmp_path / ".partial-elsewhere-13-cd"
    fresh.mkdir()
    old.mkdir()
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    sweep(tmp_path)
    assert fresh.exists()
    assert not old.exists()


def test_two_conversions_at_once(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=PATIENCE)

    def fill(images: NDArray[np.uint8], progress: Progress) -> None:
        images[:] = 7
        both.wait()

    errors: list[BaseException] = []

    def work() -> None:
        try:
            build_store(tmp_path / "s", small_layout()._replace(fill=fill), {})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (open_store(tmp_path / "s", "s").images == 7).all()
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


def test_replacing_takes_one_step(tmp_path: Path) -> None:
    build_store(tmp_path / "s", small_layout(1), {})
    build_store(tmp_path / "s", small_layout(5), {})
    assert open_store(tmp_path / "s", "s").images[0, 0, 0, 0] == 1  # the first stays
    build_store(tmp_path / "s", small_layout(5), {}, replace=True)
    assert open_store(tmp_path / "s", "s").images[0, 0, 0, 0] == 5
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


def test_a_full_disk_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr("innerloop.data.store.shutil.disk_usage", lambda path: usage)
    with pytest.raises(UserError, match=r"GB free: set INNERLOOP_DATA"):
        build_store(tmp_path / "s", small_layout(), {})


def test_no_writing_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written .* set INNERLOOP_DATA"):
        build_store(tmp_path / "file" / "s", small_layout(), {})


def test_damaged_stores_are_told(tmp_path: Path) -> None:
    build_store(tmp_path / "s", small_layout(), {})
    images = tmp_path / "s" / "images.npy"
    whole = images.read_bytes()
    images.write_bytes(whole[:-5])
    with pytest.raises(UserError, match=r"images.npy is damaged"):
        open_store(tmp_path / "s", "s")
    np.save(images, np.zeros((2, 4, 4, 1), np.uint8))
    with pytest.raises(UserError, match="does not fit its index"):
        open_store(tmp_path / "s", "s")
    (tmp_path / "s" / "index.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be used by this version"):
        open_store(tmp_path / "s", "s")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes")
@pytest.mark.parametrize("name", ["images.npy", "index.json", "files.json"])
def test_pipes_in_stores_are_not_waited_for(tmp_path: Path, name: str) -> None:
    build_store(tmp_path / "s", small_layout(), {})
    (tmp_path / "s" / name).unlink()
    os.mkfifo(tmp_path / "s" / name)
    with pytest.raises(UserError, match=name):
        open_store(tmp_path / "s", "s").files(0)


def test_arrays_in_memory_hash_alike(tmp_path: Path) -> None:
    build_store(tmp_path / "s", small_layout(), {})
    stored = open_store(tmp_path / "s", "s")
    again = from_arrays(np.asarray(stored.images), [0, 0, 1])
    assert again.content_sha256 == stored.content_sha256
