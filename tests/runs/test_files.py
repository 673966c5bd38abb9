"""Files under new names: nothing is ever replaced, whoever else writes at the same time."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from innerloop.core.files import write_json_new
from innerloop.core.tensors import write_tensors


def names(folder: Path) -> Any:
    return (folder / f"a-{n}.json" for n in range(1, 100))


@pytest.mark.parametrize("links", [True, False])
def test_a_name_is_given_once(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not links:

        def refuse(*_: Any) -> None:
            raise OSError(errno.EPERM, "no hard links on this disk")

        monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "a-1.json").write_text("mine")
    paths = [write_json_new(names(tmp_path), {"n": n}) for n in range(3)]
    assert [path.name for path in paths] == ["a-2.json", "a-3.json", "a-4.json"]
    assert [json.loads(path.read_text())["n"] for path in paths] == [0, 1, 2]
    assert (tmp_path / "a-1.json").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 4  # nothing unfinished


def test_a_name_that_somebody_takes_meanwhile_is_left_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def slow(source: Any, target: Any) -> None:
        if str(target).endswith("a-1.json"):
            Path(target).write_text("theirs")  # between our look and our name
        link(source, target)

    monkeypatch.setattr(os, "link", slow)
    assert write_json_new(names(tmp_path), {}).name == "a-2.json"
    assert (tmp_path / "a-1.json").read_text() == "theirs"


def test_many_at_once_get_many_names(tmp_path: Path) -> None:
    paths: list[Path] = []
    ready = threading.Barrier(8)

    def one(number: int) -> None:
        ready.wait()
        paths.append(write_json_new(names(tmp_path), {"number": number}))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 8
    assert sorted(json.loads(path.read_text())["number"] for path in paths) == list(range(8))


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_tensors_are_as_readable_as_other_files(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", {"a": torch.zeros(1)})
    (tmp_path / "b").touch()
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "b").stat().st_mode
