"""What shipped recipes reach: commands that train and judge, and the tables of their scores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from innerloop.core.statistics import mean_interval
from innerloop.runs.manifest import read_manifest
from recorded.files import ROOT, elapsed, keep, machine_of, required
from recorded.text import interval, table, took

THREE = "seed=[0,1,2]"
EVALUATIONS: dict[str, Sequence[str]] = {
    "sine-maml": ("sweep", "sine-maml", THREE, "eval.seed=11"),
    "sine-erm": ("sweep", "sine-erm", THREE, "eval.seed=11"),
    "omniglot-protonet": (
        *("train", "omniglot-protonet", "tasks.ways=20", "outer.steps=4000"),
        *("outer.schedule=cosine", "eval.seed=11"),
    ),
    "omniglot-maml": (
        *(
            "train",
            "omniglot-maml",
            "outer.batch=16",
            "tasks.queries=5",
            "eval.queries=15",
            "outer.steps=4000",
        ),
        *("outer.lr=2e-3", "outer.schedule=cosine", "eval.seed=11"),
    ),
    "omniglot-imaml": ("train", "omniglot-imaml-cpu"),
    "cifar-fs-supervised": ("train", "cifar-fs-supervised-thin", "eval.seed=11"),
    "cifar-fs-supervised-1000": (*("train", "cifar-fs-supervised-thin", "outer.steps=1000", "eval.seed=11"),),
}
"""What is typed after ``innerloop``, by the name of the file."""
ALSO: dict[str, Mapping[str, Sequence[str]]] = {
    "omniglot-maml": {"support": ("model.norm=support", "eval.seed=11")},
}
"""Further judgements of the same weights: what follows ``innerloop eval RUN``, by what they are called."""
MODULE = "innerloop.experiment.run"
"""Whose source, recipes included, these numbers depend on."""


def adopt_evaluation(
    name: str,
    result: Mapping[str, Any],
    made_by: Mapping[str, str | None] | None,
    folder: Path = ROOT,
    also: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Keeps what the runs of a command reached on their test tasks.

    Args:
        name: one of :data:`EVALUATIONS`.
        result: the JSON that ``innerloop train`` or ``innerloop sweep`` printed.
        made_by: the source that trained; None if it is not known any more.
        folder: where the command was typed.
        also: the JSON of further judgements (:data:`ALSO`), by what they are called.

    Raises:
        SystemExit: there is no such evaluation.
    """
    if name not in EVALUATIONS:
        raise SystemExit(f"nothing is called '{name}': it is one of {', '.join(EVALUATIONS)}.")
    runs = [folder / run for run in result.get("runs") or [result["run"]]]
    scores = [judged(run) for run in runs]
    ended = max(one["ended"] for one in scores)
    command = f"innerloop {' '.join(EVALUATIONS[name])}"
    content = {"name": name, "command": command, "runs": scores, "machine": scores[0]["machine"]}
    content |= {"versions": scores[0]["versions"], "made_by": made_by, "ended": ended}
    content |= {"also": {key: kept_of(one) for key, one in (also or {}).items()}} if also else {}
    return keep("evaluations", name, content)


def judged(run: Path) -> dict[str, Any]:
    """What one run reached, without the scores of single tasks.

    The evaluation is the first of its directory: what training ends with.
    """
    manifest = read_manifest(run)
    files = [json.loads(file.read_text(encoding="utf-8")) for file in (run / "eval").glob("*.json")]
    first = min(files, key=lambda one: one["time"])
    kept = kept_of(first)
    about = {key: manifest.get(key) for key in ("versions", "started", "ended")}
    return {**kept, **about, "seconds": elapsed(manifest), "machine": machine_of(manifest)}


def kept_of(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """What pages print of an evaluation, and what it depends on."""
    known = ("score", "mean", "ci95", "episodes", "by_step", "protocol")
    return {key: evaluation[key] for key in known if key in evaluation}


def reached(name: str) -> list[dict[str, Any]]:
    """The runs of an evaluation."""
    return list(required("evaluations", name)["runs"])


def adaptation(*names: str) -> str:
    """Scores after every inner step, a line for each run; the last one with its interval over tasks.

    Args:
        *names: of evaluations, each perhaps followed by ``=`` and what to call it.
    """
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
    """The score of an evaluation, for a line of text: over seeds, or over the tasks of one run in percent.

    Args:
        name: of the evaluation.
        which: of its further judgements (:data:`ALSO`); that of the training if omitted.
    """
    if which:
        return f"{interval(required('evaluations', name)['also'][which], 100)} %"
    runs = reached(name)
    return over_seeds(runs) if len(runs) > 1 else f"{interval(runs[0], 100)} %"


def time_of(name: str) -> str:
    """What the runs of an evaluation took on average, by the clock, for a line of text."""
    runs = reached(name)
    return took(sum(run["seconds"] for run in runs) / len(runs))
