"""A run as a whole: how long until its first step, and what of its time is not training."""

import json
import os
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from innerloop.runs.manifest import read_manifest
from innerloop_studies.bench import harness

TITLE = "a whole run: time to its first step, and what of its time is not training"
VERSION = 1
SECONDS = 300.0  # of training in a run
AT_LEAST = 0.95  # of a run without what the recipe asks for besides: validation, and the test
FIRST_STEPS = 200
CASES = {
    "sine-maml": ("sine-maml",),
    "Conv4-64, 28×28": ("omniglot-maml", "data.name=glyphs", "data.rotations=false", "outer.batch=4"),
}


def run(quick: bool = False, say: harness.Say = print, seconds: float | None = None) -> harness.Report:
    """Runs of about five minutes, each in a process of its own, by the command that people type."""
    wanted = seconds or (5.0 if quick else SECONDS)
    few = ("eval.episodes=20", "eval.validation_episodes=20") if quick else ()
    rows = [row for case, words in CASES.items() for row in rows_of(case, (*words, *few), wanted, say)]
    return {"cases": rows, "machine": harness.machine(quick)}


def rows_of(case: str, words: tuple[str, ...], wanted: float, say: harness.Say) -> list[harness.Comparison]:
    """Of the last of up to four runs: each says how many steps the next one needs."""
    steps, first_plan = FIRST_STEPS, 0.0
    with tempfile.TemporaryDirectory() as folder:
        cold = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "inductor"))}
        for _ in range(4):
            told = one_run([*words, f"outer.steps={steps}", f"run.folder={folder}"], cold)
            first_plan = max(first_plan, told["plan"])
            if told["training"] >= 0.7 * wanted:
                break
            steps = round(steps * wanted / told["training"])
    own = told["total"] - told["validation"] - told["test"]
    parts = ("start", "plan", "checkpoints", "logging")
    notes = [
        ", ".join(f"{name} {told[name]:.2g} s" for name in (*parts, "end")),
        f"besides, validation {told['validation']:.2g} s and the test {told['test']:.2g} s",
        f"{told['steps']:,} steps by {told['way']}",
        *([f"plan with compiling {first_plan:.2g} s"] if first_plan > 2 * told["plan"] else []),
    ]
    known = {"ours_ms": 1e3 * own, "peer_ms": 1e3 * told["training"], "ratio": told["training"] / own}
    known |= {"at_least": AT_LEAST}
    whole = harness.single_row(f"{case}, whole run", "its steps alone", known, "; ".join(notes))
    say(f"{case}: {100 - 100 * known['ratio']:.1f} % of {own:.0f} s are not training; {whole['notes']}")
    until = {"ours_ms": 1e3 * told["first_step"]}
    return [whole, harness.single_row(f"{case}, until the first step", "", until, notes[0])]


def one_run(words: list[str], environment: dict[str, str] | None) -> dict[str, Any]:
    """Seconds of a run and of its parts, as it recorded them; what it did not is its start and its end."""
    began = datetime.now().astimezone()
    total, printed = harness.timed_command("train", "train", *words, "--json", env=environment)
    result = json.loads(printed)
    manifest = read_manifest(Path(result["run"]))
    spent = {"validation": 0.0, "checkpoints": 0.0, "logging": 0.0, **manifest["seconds"]}
    first = (datetime.fromisoformat(manifest["first_step"]) - began).total_seconds()
    training = spent["fit"] - spent["validation"] - spent["checkpoints"] - spent["logging"]
    ends = {"start": first - spent["plan"], "end": total - first - spent["fit"] - spent["test"]}
    way = "{mode}@{threads}, compile={compile}".format(**manifest["plan"])
    about = {"total": total, "first_step": first, "training": training, "steps": result["steps"], "way": way}
    return {**spent, **about, **ends}
