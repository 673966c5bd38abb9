"""What ``make results`` runs: every command whose file is missing, or was made by another source."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from innerloop_studies.bench import BENCHMARKS
from innerloop_studies.recorded.evaluations import adopt_evaluation
from innerloop_studies.recorded.files import ROOT, SCALE, adopt_benchmark, adopt_run, read
from innerloop_studies.recorded.measurements import MEASUREMENTS, measure
from innerloop_studies.recorded.photographs import write_photographs
from innerloop_studies.recorded.predictions import MODULE as PREDICTED
from innerloop_studies.recorded.predictions import PREDICTIONS, adopt_prediction
from innerloop_studies.recorded.printed import MODULE as SPOKEN
from innerloop_studies.recorded.printed import PRINTED, record
from innerloop_studies.recorded.trainings import ALSO, EVALUATIONS, MODULE, PHOTOS, RUN
from innerloop_studies.recorded.unfinished import begin, end
from innerloop_studies.reproduce import PACKAGE, REPRODUCTIONS, module_name, stated, torch_version

NOT_AS_RECORDED = 3
"""The exit code of a reproduction that ran to its end and found something else than was recorded."""


class Command(NamedTuple):
    """A command whose numbers the pages print."""

    kind: str
    name: str
    words: Sequence[str]
    module: str


def commands() -> Iterator[Command]:
    """All of them, short and long."""
    for name in REPRODUCTIONS:
        yield Command("reproductions", name, ("reproduce", name, "--scale", SCALE), module_name(name))
    for name in BENCHMARKS:
        yield Command(
            "benchmarks", name, ("bench", name), f"innerloop_studies.bench.{name.replace('-', '_')}"
        )
    for name, words in EVALUATIONS.items():
        yield Command("evaluations", name, words, MODULE)
    for name, words in PREDICTIONS.items():
        yield Command("predictions", name, words, PREDICTED)
    for name, one in MEASUREMENTS.items():
        yield Command("measurements", name, one.words, one.module)
    for name, words in PRINTED.items():
        yield Command("printed", name, words, SPOKEN)


def chosen(patterns: Sequence[str]) -> list[Command]:
    """Those that are asked for by name; all of them if nothing is.

    >>> [command.name for command in chosen(["landscape-fig[12]"])]
    ['landscape-fig1', 'landscape-fig2']
    """
    every = list(commands())
    for pattern in patterns:
        if not any(fnmatchcase(one.name, pattern) for one in every):
            raise SystemExit(
                f"nothing is called '{pattern}'; `python -m innerloop_studies.recorded status` lists names."
            )
    return [one for one in every if not patterns or any(fnmatchcase(one.name, p) for p in patterns)]


def state_of(command: Command) -> str:
    """Whether its file is there, and made by the source that there is now."""
    kept = read(command.kind, command.name)
    if kept is None:
        return "missing"
    return "up to date" if kept["made_by"] == made_by(command) else "out of date"


def made_by(command: Command) -> dict[str, Any]:
    """What its numbers depend on beside the machine: the version that its module states."""
    file = PACKAGE.parent.joinpath(*command.module.split(".")).with_suffix(".py")
    return {"version": stated(file).get("VERSION"), "torch": torch_version()}


def run(patterns: Sequence[str], say: Callable[[str], None]) -> int:
    """Runs what is missing or out of date, one after another; what fails does not stop the others.

    A file is written as soon as its command ends. What was interrupted goes on where it was, but for
    benchmarks and measurements, which begin anew.
    """
    waiting = [(one, state) for one in chosen(patterns) if (state := state_of(one)) != "up to date"]
    if not waiting:
        say("nothing to run: what is asked for is recorded and up to date")
    failed = 0
    for i, (one, state) in enumerate(waiting, start=1):
        what = one.name if one.kind == "measurements" else f"innerloop {' '.join(one.words)}"
        say(f"[{i}/{len(waiting)}] {what} ({state})")
        try:
            problem = carry_out(one)
        except SystemExit as refused:  # it could not begin, or what it found could not be kept
            problem = str(refused)
        failed += problem is not None
        say(f"[{i}/{len(waiting)}] {one.name}: {problem or 'recorded'}")
    return failed


def carry_out(command: Command) -> str | None:
    """Runs a command and keeps what it found; returns what went wrong."""
    if command.kind == "measurements":
        return measure(command.name, made_by(command))
    if command.kind == "printed":
        return record(command.name, made_by(command))
    if any(PHOTOS in word for word in command.words):
        write_photographs(ROOT / PHOTOS)
    source = made_by(command)
    before = begin(command.name, command.words, source)
    ended = typed(*(("resume", str(before)) if before else command.words))
    try:
        result: dict[str, Any] = json.loads(ended.stdout)
    except ValueError:
        return f"ended with code {ended.returncode}, and no result"
    if ended.returncode not in (0, NOT_AS_RECORDED):
        return str(result.get("error") or f"ended with code {ended.returncode}")
    end(command.name)
    if command.kind == "reproductions":
        adopt_run(ROOT / Path(result["run"]))
    elif command.kind == "benchmarks":
        adopt_benchmark(result, source)
    elif command.kind == "predictions":
        adopt_prediction(command.name, result, source)
    else:
        also = judged_again(command.name, result.get("run"))
        adopt_evaluation(command.name, result, source, also=also, timed=before is None)
    return None


def judged_again(name: str, run: str | None) -> dict[str, dict[str, Any]]:
    """Further judgements of what an evaluation has trained, by what they are called."""
    judged = {}
    for key, words in ALSO.get(name, {}).items():
        asked = ["eval", *(str(run) if word == RUN else word for word in words)]
        ended = typed(*asked)
        if ended.returncode:
            raise SystemExit(f"innerloop {' '.join(asked)} ended with code {ended.returncode}.")
        judged[key] = json.loads(ended.stdout)
    return judged


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs ``innerloop`` at the root, with JSON on its output."""
    called = [sys.executable, "-m", "innerloop", *words, "--json"]
    return subprocess.run(called, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
