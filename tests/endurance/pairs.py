"""Two commands at once on one run, or on one data set: one is refused, or both do what they would alone."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from endurance.children import Ended, carry_out, finish, start
from endurance.kinds import TRAINED, Conversion, Evaluation
from endurance.storm import Damage
from endurance.whole import run_content
from innerloop.runs.directory import list_runs
from innerloop.runs.manifest import update_manifest

Both = tuple[Ended, Ended]


def at_once(commands: Sequence[list[str]], folder: Path, wait: float, **options: Any) -> Both:
    """Carries out two commands in two processes, the second some seconds after the first."""
    outputs = [folder / f"output-{number}.txt" for number in (1, 2)]
    started = time.monotonic()
    first = start(commands[0], outputs[0], **options)
    time.sleep(wait)
    second = start(commands[1], outputs[1], **options)
    return finish(first, outputs[0], started), finish(second, outputs[1], started)


def told(both: Both) -> str:
    """What both said, for a message."""
    return "\n".join(f"{one.code}: {one.output[-700:]}" for one in both)


def resumes(folder: Path, times: int, seed: int) -> int:
    """Two ``resume`` of one run: one does it, the other is told so. Gives how many were refused."""
    words = ["train", "sine-maml", *TRAINED, f"run.folder={folder / 'whole'}", "-q"]
    folder.mkdir(parents=True)
    alone = carry_out(words, folder / "output.txt")
    (whole,) = list_runs(folder / "whole")
    expected, draw = run_content(whole), random.Random(seed)
    for trial in range(times):
        run = folder / f"trial-{trial}" / "sine-maml" / whole.name
        shutil.copytree(whole, run)
        for left in ("checkpoints", "eval"):
            shutil.rmtree(run / left)
        (run / "metrics.jsonl").write_text("")
        update_manifest(run, status="interrupted")
        wait = draw.uniform(0, 0.3 * alone.seconds) * (trial % 3 > 0)
        both = at_once([["resume", str(run), "-q"]] * 2, run.parent, wait)
        refused = [one for one in both if one.code == 2]
        if len(refused) != 1 or not any(w in refused[0].output for w in ("being worked on", "is finished")):
            raise Damage(told(both))
        if "Traceback" in told(both) or run_content(run) != expected:
            raise Damage(f"{run} is not as it would be\n{told(both)}")
    return times


def evaluations(folder: Path, times: int, seed: int) -> int:
    """Two ``eval`` of one run with different settings: both are kept, each as it would be alone."""
    kind, draw = Evaluation(), random.Random(seed)
    folder.mkdir(parents=True)
    kind.prepare(folder)
    for trial in range(times):
        here = folder / f"trial-{trial}"
        kind.begin(folder, here, trial)
        (run,) = list_runs(here)
        commands = [["eval", str(run), f"eval.episodes={count}"] for count in (40, 50)]
        both = at_once(commands, here, draw.uniform(0, 0.02) * (trial % 3 > 0))
        kept = [json.loads(file.read_text())["episodes"] for file in (run / "eval").glob("*.json")]
        if [one.code for one in both] != [0, 0] or sorted(kept) != [40, 50]:
            raise Damage(f"evaluations of {kept} episodes are kept\n{told(both)}")
    return 0


def conversions(folder: Path, times: int, seed: int) -> int:
    """Two ``data get`` of one name: both succeed, and one whole data set is there."""
    kind, draw = Conversion(), random.Random(seed)
    folder.mkdir(parents=True)
    kind.prepare(folder)
    expected = None
    for trial in range(times):
        here = folder / f"trial-{trial}"
        here.mkdir()
        kind.begin(folder, here, trial)
        words = kind.words(folder, here)
        wait = draw.uniform(0, 0.1) * (trial % 3 > 0)
        both = at_once([words, words], here, wait, environment=kind.environment(here))
        kind.check(folder, here)
        found = kind.content(here, "")
        expected = expected or found
        if [one.code for one in both] != [0, 0] or found != expected:
            raise Damage(told(both))
    return 0


PAIRS = {"resume": resumes, "eval": evaluations, "data get": conversions}
