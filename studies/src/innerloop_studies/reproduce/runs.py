"""Carries out studies in run directories of their own, one of them or several in a batch.

A batch is ``runs/reproduce-all/<time>-s0/``, whose ``result.json`` names its members. One that fails does not
stop the others; after an interruption it goes on, and keeps finished members unless their version was raised.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

from innerloop.core.errors import UserError
from innerloop.core.files import read_json, write_json_atomic
from innerloop.report.plots.style import write_figures
from innerloop.runs.directory import create_run
from innerloop.runs.manifest import actual_status, read_manifest, start_manifest, update_manifest
from innerloop_studies import reproduce
from innerloop_studies.reproduce import REPRODUCTIONS, check, made_by
from innerloop_studies.reproduce.rows import Say

ALL = "all"
FOLDER = "reproduce-all"
KEPT = ("redoes", "rows", "figures", "protocol", "seconds")  # what a batch keeps of a member's result
Result: TypeAlias = dict[str, Any]


def carry_out(name: str, scale: str, *, argv: list[str] | None, say: Say, folder: Path) -> Result:
    """Redoes a table or figure."""
    check(name, scale)
    return _carry_on(_begin(name, scale, argv, folder), name, scale, say)


def _begin(name: str, scale: str, argv: list[str] | None, folder: Path) -> Path:
    run = create_run(folder, f"reproduce-{name}", 0)
    about = {"kind": "reproduce", "scale": scale, "redoes": REPRODUCTIONS[name], "made_by": made_by(name)}
    start_manifest(run, argv, f"reproduce {name} --scale {scale}", about)
    return run


def _carry_on(run: Path, name: str, scale: str, say: Say) -> Result:
    """Redoes it in this directory; the manifest says how it ended, whatever happens."""
    started = time.perf_counter()
    try:
        made = reproduce.find(name)(scale, say)
        figures = write_figures(run, made.figures)
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt)
        told = str(error) if stopped or isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        update_manifest(run, status="interrupted" if stopped else "failed", reason=told or None)
        raise
    result: Result = {"name": name, "redoes": REPRODUCTIONS[name], "scale": scale}
    result |= {"rows": [row._asdict() for row in made.rows], "protocol": dict(made.protocol)}
    result |= {"figure": figures[0] if figures else None, "figures": figures}
    result |= {"seconds": time.perf_counter() - started, "run": str(run)}
    write_json_atomic(run / "result.json", {**result, "data": dict(made.data)})
    update_manifest(run, status="finished")
    return result


def is_batch(words: Sequence[str]) -> bool:
    """Whether these words of the command line may mean more than one study."""
    return len(words) > 1 or words[0] == ALL or any(character in words[0] for character in "*?[")


def select(words: Sequence[str]) -> list[str]:
    """The names that ``all``, patterns and names mean, each once, in the order of the list."""
    chosen: set[str] = set()
    for word in words:
        fitting = [name for name in REPRODUCTIONS if word == ALL or fnmatchcase(name, word)]
        if not fitting:
            if is_batch([word]):
                raise UserError(f"no reproduction fits '{word}': `innerloop reproduce ls` lists them.")
            check(word)
        chosen.update(fitting)
    return [name for name in REPRODUCTIONS if name in chosen]


def begin_batch(names: list[str], scale: str, argv: list[str] | None, folder: Path) -> Path:
    """The directory of a batch: that of the same one if it was interrupted, else a new one."""
    about = {"kind": "reproduce-all", "names": names, "scale": scale}
    for run in sorted((folder / FOLDER).glob("*"), reverse=True):
        try:
            manifest = read_manifest(run)
        except UserError:
            continue
        same = all(manifest.get(key) == value for key, value in about.items())
        if same and actual_status(manifest) in ("interrupted", "killed"):
            update_manifest(run, status="running", argv=argv, pid=os.getpid())
            return run
    run = create_run(folder, FOLDER, 0)
    start_manifest(run, argv, f"reproduce {' '.join(names)} --scale {scale}", about)
    return run


def carry_out_batch(batch: Path, argv: list[str] | None, say: Say) -> Result:
    """Redoes the members that have not finished yet."""
    manifest, folder = read_manifest(batch), batch.parent.parent
    names, scale = [str(name) for name in manifest["names"]], str(manifest["scale"])
    before, entries = list[Result](), list[Result]()
    with suppress(OSError, ValueError, KeyError, TypeError):
        before = list(read_json(batch / "result.json")["reproductions"])
    done = {entry["name"]: entry for entry in before if _is_kept(entry, folder)}
    for i, name in enumerate(names, start=1):
        place = f"[{i}/{len(names)}] {name}"
        if name in done:
            entries.append(done[name])
            say(f"{place}: kept from {done[name]['run']}")
        else:
            say(f"{place} at {scale}: {REPRODUCTIONS[name]}")
            run = _begin(name, scale, argv, folder)
            where = run.relative_to(folder).as_posix()
            entry = {"name": name, "run": where, "crashed": False, "made_by": made_by(name)}
            entries.append(entry)
            try:
                result = _carry_on(run, name, scale, say)
                entry |= {**{key: result[key] for key in KEPT}, "status": "finished"}
            except UserError as error:
                entry |= {"status": "failed", "reason": str(error)}
            except Exception as error:
                say(traceback.format_exc())
                entry |= {"status": "failed", "reason": f"{type(error).__name__}: {error}", "crashed": True}
            except BaseException:
                entry |= {"status": "interrupted", "reason": "interrupted"}
                update_manifest(batch, status="interrupted")
                raise
            finally:
                write_json_atomic(batch / "result.json", {"scale": scale, "reproductions": entries})
            say(f"{place}: {sentence(entry)}")
    write_json_atomic(batch / "result.json", {"scale": scale, "reproductions": entries})
    update_manifest(batch, status="finished")
    rows = [row for entry in entries for row in entry.get("rows", [])]
    members = [{**entry, "run": str(folder / entry["run"])} for entry in entries]
    whole: Result = {"scale": scale, "reproductions": members, "statements": len(rows)}
    whole["hold"], whole["as_recorded"] = counted(rows)
    whole["failed"] = [entry["name"] for entry in entries if entry["status"] != "finished"]
    return whole | {"seconds": sum(entry.get("seconds", 0.0) for entry in entries), "run": str(batch)}


def _is_kept(entry: Result, folder: Path) -> bool:
    finished = entry.get("status") == "finished" and (folder / entry["run"] / "result.json").is_file()
    return finished and entry.get("made_by") == made_by(entry["name"])


def counted(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """How many of them hold, and how many are as recorded."""
    return sum(bool(row["holds"]) for row in rows), sum(bool(row["ok"]) for row in rows)


def sentence(entry: Result) -> str:
    """How one of them ended, in one line."""
    if entry["status"] != "finished":
        return f"{entry['status']}: {entry['reason']}"
    (hold, recorded), n = counted(entry["rows"]), len(entry["rows"])
    return f"{hold} of {n} hold, {recorded} of {n} as recorded, {entry['seconds']:.1f} s"
