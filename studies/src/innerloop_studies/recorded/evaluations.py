"""What shipped recipes reach: the files of commands that train and judge, and the tables of their scores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from innerloop.core.statistics import mean_interval
from innerloop.runs.manifest import read_manifest
from innerloop.runs.metrics import read_metrics
from innerloop_studies.recorded.files import ROOT, elapsed, keep, machine_of, required
from innerloop_studies.recorded.text import interval, table, took
from innerloop_studies.recorded.trainings import EVALUATIONS

METRICS, LEARNER = "metrics.jsonl", "learner."
COLUMNS = 12
"""A table has no more validations."""


def adopt_evaluation(
    name: str,
    result: Mapping[str, Any],
    made_by: Mapping[str, str | None] | None,
    folder: Path = ROOT,
    also: Mapping[str, Mapping[str, Any]] | None = None,
    timed: bool = True,
) -> Path:
    """Keeps what the runs of a command reached on their test tasks."""
    if name not in EVALUATIONS:
        raise SystemExit(f"nothing is called '{name}': it is one of {', '.join(EVALUATIONS)}.")
    runs = [folder / run for run in result.get("runs") or [result["run"]]]
    scores = [judged(run, timed=timed) for run in runs]
    ended = max(one["ended"] for one in scores)
    command = f"innerloop {' '.join(EVALUATIONS[name])}"
    content = {"name": name, "command": command, "runs": scores, "machine": scores[0]["machine"]}
    content |= {"versions": scores[0]["versions"], "made_by": made_by, "ended": ended}
    content |= {"also": {key: kept_of(one) for key, one in (also or {}).items()}} if also else {}
    return keep("evaluations", name, content)


def judged(run: Path, *, timed: bool = True) -> dict[str, Any]:
    """What one run reached, without the scores of single tasks.

    The evaluation is the first of its directory: what training ends with.
    """
    manifest = read_manifest(run)
    files = [json.loads(file.read_text(encoding="utf-8")) for file in (run / "eval").glob("*.json")]
    first = min(files, key=lambda one: one["time"])
    kept = kept_of(first)
    about = {key: manifest.get(key) for key in ("versions", "started", "ended")}
    about |= trained(read_metrics(run / METRICS) if (run / METRICS).is_file() else [])
    seconds = elapsed(manifest) if timed else None
    return {**kept, **about, "seconds": seconds, "machine": machine_of(manifest)}


def trained(metrics: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The course of a training: validations, and what its learner reported with the last line.

    >>> lines = [{"step": 1, "loss": 2.0, "learner.inner_residual": 0.5}]
    >>> trained([*lines, {"step": 9, "validation": 1.0, "ci95": 0.1}])
    {'validations': [{'step': 9, 'mean': 1.0, 'ci95': 0.1}], 'reported': {'inner_residual': 0.5}}
    """
    validations: dict[int, dict[str, Any]] = {}
    told: dict[str, float] = {}
    for line in metrics:
        if "validation" in line:
            validations[line["step"]] = {
                "step": line["step"],
                "mean": line["validation"],
                "ci95": line["ci95"],
            }
        named = {key: value for key, value in line.items() if key.startswith(LEARNER)}
        told = {key.removeprefix(LEARNER): value for key, value in named.items()} or told
    course = thinned(list(validations.values()))
    return {**({"validations": course} if course else {}), **({"reported": told} if told else {})}


def thinned(course: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most :data:`COLUMNS` of the validations, at even distances, the last one among them.

    >>> [one["step"] for one in thinned([{"step": step} for step in range(1, 26)])]
    [1, 4, 7, 10, 13, 16, 19, 22, 25]
    """
    every = max(1, -(-(len(course) - 1) // (COLUMNS - 1)))
    return list(reversed(course[::-1][::every]))


def kept_of(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """What pages print of an evaluation, and what it depends on."""
    known = ("score", "mean", "ci95", "episodes", "by_step", "protocol", "baselines")
    kept = {key: evaluation[key] for key in known if key in evaluation}
    if "comparison" in evaluation:
        kept["comparison"] = {key: evaluation["comparison"][key] for key in ("difference", "ci95", "verdict")}
    return kept


def reached(name: str) -> list[dict[str, Any]]:
    """The runs of an evaluation."""
    return list(required("evaluations", name)["runs"])


def adaptation(*names: str) -> str:
    """Scores after every inner step, a line for each run; the last one with its interval over tasks."""
    lines: list[Sequence[str]] = []
    for name, title in titled(names):
        runs = reached(name)
        for run in runs:
            *before, last = run["by_step"]
            cells = [f"{step['mean']:.3f}" for step in before]
            over = f"**{over_seeds(runs)}**" if run is runs[-1] else ""
            lines.append(
                (f"{title}, seed {run['protocol']['train_seed']}", *cells, interval(last, digits=3), over)
            )
    steps = [str(step["steps"]) for step in runs[0]["by_step"]]
    return table(("after inner steps", *steps, "over seeds"), lines)


def titled(names: Iterable[str]) -> list[tuple[str, str]]:
    """Names with titles.

    >>> titled(["sine-maml=MAML", "sine-erm"])
    [('sine-maml', 'MAML'), ('sine-erm', 'sine-erm')]
    """
    return [(name, title or name) for name, _, title in (word.partition("=") for word in names)]


def over_seeds(runs: Sequence[Mapping[str, Any]]) -> str:
    """The mean of several runs with its interval over them (Student's t).

    >>> over_seeds([{"mean": 1.0}, {"mean": 1.0}])
    '1.000 ± 0.000'
    """
    return interval(mean_interval([run["mean"] for run in runs])._asdict(), digits=3)


def score(name: str, which: str = "") -> str:
    """The score of an evaluation, for a line of text: over seeds, or over the tasks of one run."""
    if which:
        return one_score(further(name, which))
    runs = reached(name)
    return over_seeds(runs) if len(runs) > 1 else one_score(runs[0])


def further(name: str, which: str) -> dict[str, Any]:
    """One of the further judgements of an evaluation."""
    return dict(required("evaluations", name)["also"][which])


def one_score(judged: Mapping[str, Any]) -> str:
    """The score of one judgement, with its interval over tasks: accuracies in per cent.

    >>> one_score({"score": "accuracy", "mean": 0.972, "ci95": 0.003})
    '97.2 ± 0.3 %'
    >>> one_score({"score": "mse", "mean": 1.332, "ci95": 0.18})
    '1.33 ± 0.18'
    """
    return f"{interval(judged, 100)} %" if judged["score"] == "accuracy" else interval(judged, digits=2)


def lead(name: str, which: str) -> str:
    """By how many points a further judgement is above that of the training, task by task."""
    told = further(name, which)["comparison"]
    return interval({"mean": told["difference"], "ci95": told["ci95"]}, 100)


def untrained(name: str, which: str) -> str:
    """What needs no training, on the first tasks of an evaluation."""
    told = {one["name"]: one for one in reached(name)[0]["baselines"]}
    return f"{interval(told[which], 100)} %"


def by_rate(name: str) -> str:
    """The score at every inner rate of a sweep, the best one in bold, for a line of text."""
    runs = sorted(reached(name), key=lambda run: run["protocol"]["inner_lr"])
    better = max if runs[0]["score"] == "accuracy" else min
    best = better(runs, key=lambda run: run["mean"])
    told = [(f"{run['protocol']['inner_lr']:g}: {one_score(run)}", run is best) for run in runs]
    return "; ".join(f"**{text}**" if bold else text for text, bold in told)


def validations(name: str) -> str:
    """What the validations of a training gave, with their intervals over tasks."""
    run = reached(name)[0]
    steps = [f"{one['step']:,}" for one in run["validations"]]
    scores = [one_score({**one, "score": run["score"]}) for one in run["validations"]]
    return table(("meta-step", *steps), [("validation", *scores)])


def reported(name: str, what: str) -> str:
    """What a learner reported with its last line, such as ``inner_residual``, for a line of text."""
    return f"{reached(name)[0]['reported'][what]:.2g}"


def weights(name: str) -> str:
    """Which weights of a run were judged."""
    return str(reached(name)[0]["protocol"]["weights"])


def time_of(name: str) -> str:
    """What the runs of an evaluation took on average, by the clock, for a line of text."""
    seconds = [run["seconds"] for run in reached(name)]
    return "not timed" if None in seconds else took(sum(seconds) / len(seconds))
