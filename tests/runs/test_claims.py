"""Claims in a shared folder: one holder at a time, and a dead one's work is taken over."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from innerloop.runs.claims import LEASE, Claim, Claims


class Clock:
    """Seconds that pass when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def from_afar(folder: Path, name: str = "a~1", **changed: Any) -> None:
    """Makes a claim look like that of a process on another machine."""
    told = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**told, "host": "elsewhere", **changed}))


def held_elsewhere(folder: Path) -> None:
    """A claim of a process that says nothing more, on another machine."""
    claim = Claims(folder).take("a")
    assert claim is not None
    claim._ended.set()  # no more signs of life, and no release either
    from_afar(folder)


def watched(claims: Claims, clock: Clock, seconds: float, every: float = 1.0) -> Claim | None:
    """Looks again and again for so long."""
    end = clock.now + seconds
    while clock.now < end:
        clock.now += every
        if (claim := claims.take("a")) is not None:
            return claim
    return None


def test_of_many_at_once_one_gets_it_and_after_it_the_next(tmp_path: Path) -> None:
    got: list[Claim] = []
    gate = threading.Barrier(8)

    def compete() -> None:
        claims = Claims(tmp_path)
        gate.wait()
        if (claim := claims.take("a")) is not None:
            got.append(claim)

    threads = [threading.Thread(target=compete) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert Claims(tmp_path).take("b") is not None  # other work is free
    got[0].release()
    got[0].release()
    again = Claims(tmp_path).take("a")
    assert again is not None
    assert not again.lost


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked child")
def test_a_killed_process_of_this_machine_loses_its_claim_at_once(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        Claims(tmp_path).take("a")
        os.write(writer, b"x")
        signal.pause()
        os._exit(0)
    os.read(reader, 1)
    claims = Claims(tmp_path)
    assert claims.take("a") is None
    assert claims.holder("a").startswith(f"process {child} on ")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert claims.take("a") is not None


def test_a_silent_process_of_another_machine_loses_it_after_the_lease(tmp_path: Path) -> None:
    held_elsewhere(tmp_path)
    clock = Clock()
    claims = Claims(tmp_path, clock=clock)
    assert claims.take("a") is None
    assert watched(claims, clock, LEASE - 1) is None
    taken = watched(claims, clock, 3)
    assert taken is not None
    assert not taken.lost
    assert Claims(tmp_path, clock=clock).take("a") is None


def test_signs_of_life_keep_a_claim_and_the_time_of_other_machines_does_not_matter(tmp_path: Path) -> None:
    held_elsewhere(tmp_path)
    clock = Clock()
    claims = Claims(tmp_path, clock=clock)
    for beat in range(20):
        from_afar(tmp_path, beat=beat)
        os.utime(tmp_path / "a~1", (0, 0) if beat % 2 else (2**31, 2**31))
        assert watched(claims, clock, LEASE / 2) is None


def test_a_watcher_that_was_stopped_itself_starts_to_watch_anew(tmp_path: Path) -> None:
    held_elsewhere(tmp_path)
    clock = Clock()
    claims = Claims(tmp_path, clock=clock)
    assert claims.take("a") is None
    clock.now += 100 * LEASE  # the machine slept; the holder may have slept with it
    assert claims.take("a") is None
    assert watched(claims, clock, LEASE - 2) is None


@pytest.mark.parametrize("changed", [{"boot": "another"}, {"pid_space": "pid:[1]"}, {"boot": None}])
def test_a_number_of_another_boot_or_container_says_nothing(tmp_path: Path, changed: Any) -> None:
    claim = Claims(tmp_path).take("a")
    assert claim is not None
    claim._ended.set()
    told = json.loads((tmp_path / "a~1").read_text())
    (tmp_path / "a~1").write_text(json.dumps({**told, "pid": 2**31 - 2, **changed}))
    assert Claims(tmp_path).take("a") is None


def test_who_was_taken_over_sees_it(tmp_path: Path) -> None:
    first = Claims(tmp_path).take("a")
    assert first is not None
    from_afar(tmp_path, released=True)
    assert not first.lost
    assert Claims(tmp_path).take("a") is not None
    assert first.lost


@pytest.mark.parametrize("text", ["", "{", "[]", '{"lease": "x"}', '{"lease": 1e99}'])
def test_a_claim_that_was_never_written_whole_is_taken_over_after_the_lease(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "a~1").write_text(text)
    clock = Clock()
    claims = Claims(tmp_path, clock=clock)
    assert watched(claims, clock, LEASE) is None
    assert claims.holder("a") == "another process"
    assert watched(claims, clock, 3) is not None


def test_a_holder_beats(tmp_path: Path) -> None:
    from oracles.patience import wait_until

    with Claims(tmp_path, lease=0.05).take("a") as claim:  # type: ignore[union-attr]
        wait_until(lambda: json.loads((tmp_path / "a~1").read_text())["beat"] >= 2)
        assert not claim.lost
    assert json.loads((tmp_path / "a~1").read_text())["released"] is True


def test_what_is_done_alone_is_done_one_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []
    seen: list[int] = []

    def work() -> None:
        with Claims(tmp_path).alone("a", every=0.001):
            inside.append(1)
            seen.append(sum(inside))
            inside.append(-1)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 5


@pytest.mark.parametrize("name", ["", "../a", "a/b", "a~1", "a b"])
def test_a_name_stays_in_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        Claims(tmp_path / "claims").take(name)
