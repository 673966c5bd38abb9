"""The command as one of several ranks, which ``torchrun`` or ``run.ranks`` started."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from innerloop.cli.launch import launch, ranks_wanted
from innerloop.cli.output import say, write
from innerloop.core.errors import UserError
from innerloop.core.files import json_line
from innerloop.core.ranks import LOST, LostRankError, Place

RANKED = ("train", "resume", "eval")
"""Verbs whose work ranks share. Of any other, rank 0 does all."""

_PLACE: list[Place] = []  # that of this process, while it carries out a command
_COMMAND: list[str] = []  # what it carries out, without its name


def as_rank(place: Place, given: list[str], run: Callable[[list[str]], int]) -> int:
    """Carries out a command among other ranks: rank 0 does what it says, and the others do their share.

    Args:
        place: of this process.
        given: the command without its name.
        run: carries out a command, and returns its exit code.
    """
    if not given or given[0] not in RANKED:
        return 0 if place.rank else run(given)
    from innerloop.experiment.following import carry_out
    from innerloop.experiment.together import follow, leading

    try:
        if place.rank:
            code, whole = follow(place, carry_out)
        else:
            with leading(place) as group:
                code = _lead(place, group.recall(), given, run)
            whole = group.whole
    except LostRankError as error:  # they never met
        say(f"error: {error}")
        code, whole = LOST, False
    if not whole:
        _end_at_once(code)
    return code


def _lead(place: Place, earlier: str | None, given: list[str], run: Callable[[list[str]], int]) -> int:
    _PLACE.append(place)
    try:
        if given[0] == "train" and earlier is not None:
            return _go_on(Path(earlier), given, run)
        return run(given)
    finally:
        _PLACE.clear()


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
    """Where a recipe asks for ranks and this process is none, starts them, and ends with their exit code.

    Args:
        read: reads ``run.ranks``.

    Raises:
        UserError: ``torchrun`` started another number.
    """
    wanted = ranks_wanted(read)
    if wanted == 1:
        return
    if not _PLACE and os.name == "nt":
        raise UserError(
            f"run.ranks={wanted} cannot start processes on Windows: `torchrun --nproc-per-node={wanted} -m "
            "innerloop …` with the same command does, without run.ranks."
        )
    if not _PLACE:
        raise typer.Exit(launch(list(_COMMAND), wanted))
    here = _PLACE[0].size
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
