"""Several reproductions, one after another: one that fails does not stop the others.

A batch is a run of its own, ``runs/reproduce-all/<time>-s0/``, whose ``result.json`` names its members. Given
again after an interruption, the same batch keeps the members that finished, unless their source has changed
since, and goes on with the others.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from innerloop.core.errors import UserError
from innerloop.core.files import read_json, write_json_atomic
from innerloop.runs.directory import create_run
from innerloop.runs.manifest import actual_status, read_manifest, start_manifest, update_manifest
from innerloop_studies.reproduce import REPRODUCTIONS, check
from innerloop_studies.reproduce.carry_out import begin, carry_on
from innerloop_studies.reproduce.members import finished_before, in_turn, made_by
from innerloop_studies.reproduce.results import Member, Result, Summary
from innerloop_studies.reproduce.rows import Say
from innerloop_studies.reproduce.sharing import Sharing

ALL = "all"
FOLDER = "reproduce-all"


def is_batch(words: Sequence[str]) -> bool:
    """Whether these words of the command line may mean more than one reproduction.

    >>> is_batch(["all"]), is_batch(["adaptlr-*"]), is_batch(["a", "b"]), is_batch(["bridge-fig1"])
    (True, True, True, False)
    """
    return len(words) > 1 or words[0] == ALL or any(character in words[0] for character in "*?[")


def select(words: Sequence[str]) -> list[str]:
    """The names that ``all``, patterns and names mean, each once, in the order of the list.

    >>> select(["landscape-fig*", "bridge-fig1"])
    ['bridge-fig1', 'landscape-fig1', 'landscape-fig2', 'landscape-fig3', 'landscape-fig4', 'landscape-fig8']
    """
    chosen: set[str] = set()
    for word in words:
        fitting = [name for name in REPRODUCTIONS if word == ALL or fnmatchcase(name, word)]
        if not fitting and is_batch([word]):
            raise UserError(f"no reproduction fits '{word}': `innerloop reproduce ls` lists them.")
        if not fitting:
            check(word)
        chosen.update(fitting)
    return [name for name in REPRODUCTIONS if name in chosen]


def begin_batch(
    names: list[str], scale: str, argv: list[str] | None, folder: Path, shared: bool = False
) -> Path:
    """The directory of a batch: that of the same one if it was interrupted, else a new one.

    Processes that share a folder have a directory each, and find what is finished by itself.
    """
    about = {"kind": "reproduce-all", "names": names, "scale": scale}
    for run in sorted((folder / FOLDER).glob("*"), reverse=True) if not shared else ():
        if _same(run, about) and actual_status(read_manifest(run)) in ("interrupted", "killed"):
            update_manifest(run, status="running", argv=argv, pid=os.getpid())
            return run
    run = create_run(folder, FOLDER, 0)
    start_manifest(run, argv, f"reproduce {' '.join(names)} --scale {scale}", about)
    return run


def _same(run: Path, about: Mapping[str, object]) -> bool:
    try:
        manifest = read_manifest(run)
    except UserError:
        return False
    return all(manifest.get(key) == value for key, value in about.items())


def carry_out_batch(batch: Path, argv: list[str] | None, say: Say, sharing: Sharing | None = None) -> Summary:
    """Redoes the members that have not finished yet."""
    manifest, folder = read_manifest(batch), batch.parent.parent
    names, scale = [str(name) for name in manifest["names"]], str(manifest["scale"])
    done = {entry["name"]: entry for entry in _entries(batch) if _is_kept(entry, folder)}
    entries: dict[str, Member] = {}

    def keep() -> None:
        """Writes the entries that there are so far."""
        made = [entries[name] for name in names if name in entries]
        write_json_atomic(batch / "result.json", {"scale": scale, "reproductions": made})

    for i, name in enumerate(in_turn(names, scale, sharing.claims if sharing else None), start=1):
        place = f"[{i}/{len(names)}] {name}"
        kept = done.get(name) or (_finished_elsewhere(folder, name, scale) if sharing else None)
        if kept:
            entries[name] = kept
            say(f"{place}: kept from {kept['run']}")
            keep()
            continue
        say(f"{place} at {scale}: {REPRODUCTIONS[name]}")
        run = begin(name, scale, argv, folder)
        entries[name] = {"name": name, "run": run.relative_to(folder).as_posix(), "crashed": False}
        entries[name]["made_by"] = made_by(name)
        try:
            _carry_out_member(entries[name], run, scale, say)
        except BaseException:
            update_manifest(batch, status="interrupted")
            raise
        finally:
            keep()
        say(f"{place}: {sentence(entries[name])}")
    result = summary(scale, [entries[name] for name in names], folder)
    update_manifest(batch, status="finished")
    return {**result, "run": str(batch)}


def _carry_out_member(entry: Member, run: Path, scale: str, say: Say) -> None:
    """Redoes one of them; its entry says how it ended, whatever happens."""
    try:
        entry |= _finished(entry, carry_on(run, entry["name"], scale, say))
    except UserError as error:
        entry |= {"status": "failed", "reason": str(error)}
    except Exception as error:
        say(traceback.format_exc())
        entry |= {"status": "failed", "reason": f"{type(error).__name__}: {error}", "crashed": True}
    except BaseException:
        entry |= {"status": "interrupted", "reason": "interrupted"}
        raise


def _finished_elsewhere(folder: Path, name: str, scale: str) -> Member | None:
    """The entry of a member that another process of a shared batch has finished."""
    finished = finished_before(folder, name, scale)
    if finished is None:
        return None
    run, result = finished
    entry: Member = {"name": name, "run": run.relative_to(folder).as_posix(), "crashed": False}
    entry["made_by"] = made_by(name)
    try:
        return _finished(entry, result)
    except KeyError:  # a damaged file
        return None


def _finished(entry: Member, result: Result) -> Member:
    return {
        **entry,
        "redoes": result["redoes"],
        "rows": result["rows"],
        "figures": result["figures"],
        "protocol": result["protocol"],
        "seconds": result["seconds"],
        "status": "finished",
    }


def _entries(batch: Path) -> list[Member]:
    try:
        return list(read_json(batch / "result.json")["reproductions"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _is_kept(entry: Member, folder: Path) -> bool:
    finished = entry.get("status") == "finished" and (folder / entry["run"] / "result.json").is_file()
    return finished and entry.get("made_by") == made_by(entry["name"])


def sentence(entry: Member) -> str:
    """How one of them ended, in one line.

    >>> sentence({"status": "finished", "rows": [{"holds": False, "ok": True}], "seconds": 2.0})
    '0 of 1 hold, 1 of 1 as recorded, 2.0 s'
    """
    if entry["status"] != "finished":
        return f"{entry['status']}: {entry['reason']}"
    rows = entry["rows"]
    hold, recorded = (sum(bool(row[key]) for row in rows) for key in ("holds", "ok"))
    return f"{hold} of {len(rows)} hold, {recorded} of {len(rows)} as recorded, {entry['seconds']:.1f} s"


def summary(scale: str, entries: list[Member], folder: Path) -> Summary:
    """All of them counted together."""
    rows = [row for entry in entries for row in entry.get("rows", [])]
    return {
        "scale": scale,
        "reproductions": [{**entry, "run": str(folder / entry["run"])} for entry in entries],
        "statements": len(rows),
        "hold": sum(bool(row["holds"]) for row in rows),
        "as_recorded": sum(bool(row["ok"]) for row in rows),
        "failed": [entry["name"] for entry in entries if entry["status"] != "finished"],
        "seconds": sum(entry.get("seconds", 0.0) for entry in entries),
    }
