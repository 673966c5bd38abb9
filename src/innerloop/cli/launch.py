"""Ranks of a run: ``run.ranks`` starts them here, and again if one is lost; the command as one of them.

Needs no torch. For several machines there is ``torchrun``, which does the same.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from innerloop.cli.output import say, write
from innerloop.core.child_processes import ends_with_parent, python_command
from innerloop.core.errors import UserError
from innerloop.core.files import json_line
from innerloop.core.ranks import ATTEMPT, JOB, LOST, STORE, LostRankError, Rank
from innerloop.core.resources import available_cores

RESTARTS = 3  # how often lost ranks are started again before the command gives up

GRACE = 30.0  # seconds for ranks to notice that another one is gone, to save, and to end
POLL = 0.1


def launch(arguments: list[str], ranks: int, restarts: int = RESTARTS) -> int:
    """Runs the command on this many ranks of this machine; returns its exit code."""
    # a rank that is killed or does not answer ends this attempt; the next goes on from the last checkpoint
    code = LOST
    with tempfile.TemporaryDirectory(prefix="innerloop-ranks-") as folder:
        for attempt in range(restarts + 1):
            code, stopped = _attempt(arguments, ranks, Path(folder), attempt)
            if stopped or not (code == LOST or code < 0):  # of rank 0: a rank is gone, perhaps itself
                return code
            if attempt < restarts:
                say(
                    f"a rank was lost: all start again from the last checkpoint ({attempt + 1} of {restarts})"
                )
    problem = f"ranks were lost {restarts + 1} times: `innerloop resume last` goes on."
    say(f"error: {problem}")
    if "--json" in arguments:
        write(json_line({"error": problem, "exit_code": LOST}))
    return LOST


def _attempt(arguments: list[str], ranks: int, folder: Path, attempt: int) -> tuple[int, bool]:
    """All ranks once: rank 0's exit code, and whether a signal asked for the end."""
    command = python_command("-m", "innerloop", *arguments)
    started: list[subprocess.Popen[bytes]] = []
    with _forwarding(started) as asked:
        try:
            for rank in range(ranks):
                environment = {**os.environ, **_environment(rank, ranks, folder, attempt)}
                started.append(
                    # a session of their own: Ctrl-C reaches this process alone, which passes it on once
                    subprocess.Popen(command, env=environment, start_new_session=True)
                )
            return _watch(started), bool(asked)
        finally:
            for child in started:
                if child.poll() is None:
                    child.kill()
                child.wait()


def _environment(rank: int, ranks: int, folder: Path, attempt: int) -> dict[str, str]:
    share = str(max(1, available_cores() // ranks))
    network = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    own = {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(ranks),
        ATTEMPT: str(attempt),
        STORE: str(folder / f"store-{attempt}"),
        JOB: str(folder / "run"),
        **ends_with_parent(),
    }
    usual = {"OMP_NUM_THREADS": share, **network}
    return {**{name: os.environ.get(name, value) for name, value in usual.items()}, **own}


def _watch(started: list[subprocess.Popen[bytes]]) -> int:
    """Waits for rank 0; if another rank fails first, rank 0 has some time to notice."""
    leader, failed_at = started[0], None
    while leader.poll() is None:
        if failed_at is None and any(child.poll() for child in started[1:]):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() - failed_at > GRACE:
            return LOST  # it hangs, or is at something long: its checkpoint is whole in any case
        time.sleep(POLL)
    deadline = time.monotonic() + GRACE
    while any(child.poll() is None for child in started) and time.monotonic() < deadline:
        if leader.returncode:
            break  # the others have nothing to finish
        time.sleep(POLL)
    return int(leader.returncode)


@contextmanager
def _forwarding(started: list[subprocess.Popen[bytes]]) -> Iterator[list[int]]:
    """Passes Ctrl-C and SIGTERM on to rank 0; yields the signals that came."""
    asked: list[int] = []

    def forward(number: int, _frame: object) -> None:
        """Remembers a signal, and passes it on."""
        asked.append(number)
        if started and started[0].poll() is None:
            started[0].send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


RANKED = ("train", "resume", "eval")
"""Verbs whose work ranks share. Of any other, rank 0 does all."""

_RANK: list[Rank] = []  # that of this process, while it carries out a command
_COMMAND: list[str] = []  # what it carries out, without its name


def as_rank(here: Rank, given: list[str], run: Callable[[list[str]], int]) -> int:
    """Carries out a command among other ranks: rank 0 does what it says, and the others do their share."""
    if not given or given[0] not in RANKED:
        return 0 if here.rank else run(given)
    from innerloop.experiment.fitting import carry_out
    from innerloop.experiment.ranks import follow, leading

    try:
        if here.rank:
            code, whole = follow(here, carry_out)
        else:
            with leading(here) as group:
                code = _lead(here, group.recall(), given, run)
            whole = group.whole
    except LostRankError as error:  # they never met
        say(f"error: {error}")
        code, whole = LOST, False
    if not whole:
        _end_at_once(code)
    return code


def _lead(here: Rank, earlier: str | None, given: list[str], run: Callable[[list[str]], int]) -> int:
    _RANK.append(here)
    try:
        if given[0] == "train" and earlier is not None:
            return _go_on(Path(earlier), given, run)
        return run(given)
    finally:
        _RANK.clear()


def _go_on(earlier: Path, given: list[str], run: Callable[[list[str]], int]) -> int:
    """After a rank was lost: resumes the run that this command made before."""
    from innerloop.runs.manifest import read_manifest

    if read_manifest(earlier).get("status") == "finished":
        say(f"{earlier} is finished")
        if "--json" in given:
            write(json_line({"run": str(earlier)}))
        return 0
    options = [item for item in given[1:] if item in ("--json", "--quiet", "-q")]
    # this command made the run: code that it names was typed or trusted then
    return run(["resume", str(earlier), "--trust", *options])


def note_command(given: Sequence[str]) -> None:
    """Keeps the command, for ranks that are started to carry it out, and for cards and pages."""
    _COMMAND[:] = given


def typed_command() -> str:
    """The command that is carried out, as a shell takes it."""
    return shlex.join(["innerloop", *_COMMAND])


def start_ranks(read: Callable[[], int]) -> None:
    """Where a recipe asks for ranks and this process is none, starts them, and ends with their exit code."""
    wanted = 1
    with contextlib.suppress(UserError):
        wanted = read()
    if wanted == 1:
        return
    if not _RANK and os.name == "nt":
        raise UserError(
            f"run.ranks={wanted} cannot start processes on Windows: `torchrun --nproc-per-node={wanted} -m "
            "innerloop …` with the same command does, without run.ranks."
        )
    if not _RANK:
        raise typer.Exit(launch(list(_COMMAND), wanted))
    here = _RANK[0].size
    if here != wanted:
        raise UserError(
            f"run.ranks={wanted}, and the command was started on {here} ranks: leave out run.ranks under "
            "torchrun, or give it the same number."
        )


def _end_at_once(code: int) -> None:
    """Ends this process. The usual way waits for exchanges that are under way, with ranks that are gone."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
