"""Kills a kind of work again and again, goes on with it, and compares the end with an undisturbed one."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from endurance.children import READ_A_LEFTOVER, Ended, Moment, carry_out, wait_for_orphans
from endurance.kinds import Kind
from endurance.whole import unfinished

MOST_IN_A_ROUND = 12
"""Kills after which a round may end in peace."""

BEING_ENDED = "is being worked on"
"""What is told to a command that comes while processes of the killed one are still ending."""

FINISHED = " is finished"
INTERRUPTED = 130


@dataclass
class Tally:
    """What a storm did and found."""

    kind: str
    kills: int = 0
    by_clock: int = 0
    at_file_operations: int = 0
    with_children: int = 0
    rounds: int = 0
    refused: int = 0
    leftovers: int = 0
    seconds: float = 0.0
    undisturbed_seconds: float = 0.0
    undisturbed_operations: int = 0
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


class Damage(AssertionError):
    """Something was lost, or is not the same."""


def storm(
    kind: Kind,
    kills: int,
    seed: int,
    folder: Path,
    number: int = signal.SIGKILL,
    say: Callable[[str], None] = lambda _: None,
) -> Tally:
    """So many kills of a kind of work, in as many rounds as it takes.

    Half of the moments are drawn uniformly from the time that an undisturbed command takes, half from its
    file operations; half of the kills hit the processes that it started as well; and half of the next
    commands do not wait until those that were not hit have ended.

    Args:
        kind: what is killed.
        kills: at least so many.
        seed: of the moments.
        folder: an empty one to work in.
        number: of the signal: SIGKILL, or SIGTERM, which must leave with 130.
        say: told after every round.
    """
    tally, draw, started = Tally(kind.name), random.Random(f"{seed} {kind.name} {number}"), time.monotonic()
    shared = folder / "shared"
    shared.mkdir(parents=True)
    kind.prepare(shared)
    whole, usual = _undisturbed(kind, shared, folder / "whole")
    tally.undisturbed_seconds, tally.undisturbed_operations = usual.seconds, usual.operations
    while tally.kills < kills:
        here = folder / f"round-{tally.rounds}"
        try:
            _round(kind, shared, here, tally, lambda: _moment(draw, usual, number), draw, kills)
            found = kind.content(here, (here / "output.txt").read_text(errors="replace"))
            if found != whole:
                raise Damage(f"the end is not that of an undisturbed run: {difference(found, whole)}")
            shutil.rmtree(here, ignore_errors=True)
        except Exception as error:  # told, and the storm goes on with a new round
            tally.problems.append(
                f"round {tally.rounds}, kill {tally.kills}: {type(error).__name__}: {error}"
            )
        finally:
            wait_for_orphans()
        tally.rounds += 1
        say(f"{kind.name}: {tally.kills} kills in {tally.rounds} rounds, {len(tally.problems)} problems")
        if len(tally.problems) >= 10:
            break
    tally.seconds = time.monotonic() - started
    return tally


def difference(found: Any, whole: Any, where: str = "") -> str:
    """Where two contents differ first, and what stands there.

    >>> difference({"a": [1, 2]}, {"a": [1, 3]})
    'a/1: 2, not 3'
    """
    if isinstance(found, dict) and isinstance(whole, dict) and found.keys() == whole.keys():
        pairs = [(str(key), found[key], whole[key]) for key in found]
    elif isinstance(found, list) and isinstance(whole, list) and len(found) == len(whole):
        pairs = [(str(place), one, two) for place, (one, two) in enumerate(zip(found, whole, strict=True))]
    else:
        return f"{where}: {str(found)[:300]}, not {str(whole)[:300]}"
    name, one, two = next((name, one, two) for name, one, two in pairs if one != two)
    return difference(one, two, f"{where}/{name}" if where else name)


def _undisturbed(kind: Kind, shared: Path, folder: Path) -> tuple[Any, Ended]:
    folder.mkdir()
    kind.begin(shared, folder, 0)
    words, variables = kind.words(shared, folder), kind.environment(folder)
    ended = carry_out(words, folder / "output.txt", environment=variables)
    wait_for_orphans()
    if ended.code:
        raise Damage(f"{' '.join(words)} fails undisturbed:\n{ended.output[-2000:]}")
    return kind.content(folder, ended.output), ended


def _moment(draw: random.Random, usual: Ended, number: int) -> Moment:
    group = draw.random() < 0.5
    if draw.random() < 0.5:
        return Moment(seconds=draw.uniform(0, usual.seconds), group=group, number=number)
    return Moment(operation=draw.randint(1, max(1, usual.operations)), group=group, number=number)


def _round(
    kind: Kind,
    shared: Path,
    folder: Path,
    tally: Tally,
    moment: Callable[[], Moment],
    draw: random.Random,
    kills: int,
) -> None:
    """From nothing to the end of the work, through kills."""
    folder.mkdir()
    kind.begin(shared, folder, tally.rounds)
    before = tally.kills
    while True:
        calm = tally.kills >= kills or tally.kills - before >= MOST_IN_A_ROUND
        at, left = None if calm else moment(), unfinished(folder)
        tally.leftovers += len(left)
        words = kind.words(shared, folder)
        ended = carry_out(words, folder / "output.txt", at, left, kind.environment(folder))
        if ended.code == 0 or (ended.code == 2 and FINISHED in ended.output):  # killed after its last word
            return
        if _was_killed(ended, at):
            _count(tally, at)
            if draw.random() < 0.5:
                wait_for_orphans()
            kind.check(shared, folder)
        elif ended.code == 2 and BEING_ENDED in ended.output:
            tally.refused += 1
            wait_for_orphans()
        else:
            what = (
                "read what a kill had left" if ended.code == READ_A_LEFTOVER else f"ended with {ended.code}"
            )
            raise Damage(f"{words[0]} {what}: {ended.output[-1500:]}")


def _was_killed(ended: Ended, at: Moment | None) -> bool:
    """SIGKILL leaves no word. SIGTERM leaves with 130, unless it comes before the command has begun."""
    if at is None:
        return False
    if ended.code == INTERRUPTED and "Traceback" in ended.output:
        raise Damage(ended.output[-1500:])
    return ended.code == -at.number or (at.number != signal.SIGKILL and ended.code == INTERRUPTED)


def _count(tally: Tally, at: Moment | None) -> None:
    assert at is not None
    tally.kills += 1
    tally.by_clock += at.seconds is not None
    tally.at_file_operations += at.operation is not None
    tally.with_children += at.group
