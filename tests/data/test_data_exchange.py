"""``data get NAME --again`` killed at every step: the data are there afterwards, old or new, and whole."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from innerloop.data import open_source
from innerloop.data.get import get
from innerloop.data.listing import list_datasets
from innerloop.data.store import read_index, take_place
from oracles.patience import PATIENCE
from support.data_files import class_folders

exchange = importlib.import_module("innerloop.data.store")
DIED = 77


@contextlib.contextmanager
def dying_at(step: int) -> Iterator[list[int]]:
    """From the given rename, exchange or removal on, the process ends as a kill would end it."""
    left = [step]

    def fatal(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                os._exit(DIED)
            left[0] -= 1
            return call(*args, **kwargs)

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", fatal(Path.rename))
        patch.setattr("innerloop.data.store.exchanged", fatal(exchange.exchanged))
        patch.setattr("shutil.rmtree", fatal(__import__("shutil").rmtree))
        yield left


def replaced_until(step: int, pets: Path) -> int:
    """``get --again`` in a process that dies at a step; its exit code."""
    child = os.fork()
    if child == 0:
        try:
            with dying_at(step):
                get("pets", [pets], again=True)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def opened() -> list[str]:
    return list(open_source("pets").class_names)


def gotten() -> list[str]:
    assert get("pets").already
    return opened()


def listed() -> list[str]:
    assert "pets" in {row.name for row in list_datasets()}
    return opened()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
@pytest.mark.parametrize("look", [opened, gotten, listed])
@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.one_in(3)
def test_a_kill_at_any_step_loses_nothing(
    atomic: bool, look: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "data"))
    if not atomic:  # as on disks and systems that cannot exchange
        monkeypatch.setattr("innerloop.data.store.exchanged", lambda one, two: False)
    old = class_folders(tmp_path / "old" / "pets", {"cat": 3, "dog": 4})
    new = class_folders(tmp_path / "new" / "pets", {"cat": 3, "dog": 4, "owl": 2})
    kinds = {("cat", "dog"), ("cat", "dog", "owl")}
    seen, step, code = set(), 0, DIED
    while code == DIED:
        get("pets", [old], again=True)
        code = replaced_until(step, new)
        assert code in (0, DIED)
        shown = tuple(look())
        assert shown in kinds, f"after a kill at step {step}"
        seen.add(shown)
        step += 1
    assert seen == kinds  # killed both before and after the change
    assert shown == ("cat", "dog", "owl")
    assert step > (2 if atomic else 4)
    get("pets", [old], again=True)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["pets"]  # nothing stays behind


def test_a_failed_rename_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "old").write_text("")
    monkeypatch.setattr("innerloop.data.store.exchanged", lambda one, two: False)
    with pytest.raises(FileNotFoundError):
        take_place(tmp_path / "nothing", tmp_path / "s")
    assert (tmp_path / "s" / "old").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_looking_while_another_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that comes between the two renames waits; it does not put the old one back."""
    monkeypatch.setattr("innerloop.data.store.exchanged", lambda one, two: False)
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "data"))
    get("pets", [class_folders(tmp_path / "a" / "pets", {"cat": 3, "dog": 4})])
    new = class_folders(tmp_path / "b" / "pets", {"cat": 3, "dog": 4, "owl": 2})
    rename, between, readers = Path.rename, threading.Event(), []

    def slow(self: Path, target: Path) -> Any:
        done = rename(self, target)
        if target.name.startswith(".replaced-") and not readers:
            readers.append(threading.Thread(target=lambda: read_index(tmp_path / "data" / "pets")))
            readers[0].start()
            between.set()
        return done

    monkeypatch.setattr(Path, "rename", slow)
    get("pets", [new], again=True)
    assert between.is_set()
    readers[0].join(PATIENCE)
    assert opened() == ["cat", "dog", "owl"]
