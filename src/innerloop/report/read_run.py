"""Reads a run directory for the page; what is missing or damaged is noted, not raised."""

from __future__ import annotations

import math
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.core.files import read_json
from innerloop.core.formatting import duration
from innerloop.experiment.recipe.protocols import expected_protocol, own_evaluation
from innerloop.report.text import moment, number, when
from innerloop.runs.directory import RECIPE, is_run, refuse_links
from innerloop.runs.manifest import read_manifest
from innerloop.runs.metrics import read_metrics

WITHOUT_RECIPE = ("advise", "analyze", "reproduce", "reproduce-all", "search")
_LARGEST = 1e300  # a float can hold no more, and whole numbers of any size stand in JSON
_ENTRIES: dict[str, Any] = {
    "score": str,
    "ci95": int | float,
    "episodes": int,
    "protocol": dict,
    "changed": dict,
    "scores": list,
    "by_step": list,
    "baselines": list,
    "unconverged_heads": int,
    "time": str,
}
"""What entries of an evaluation are, where they are there."""


class RunData(NamedTuple):
    """Everything the page says about a run comes from here."""

    path: Path
    recipe: dict[str, Any]
    recipe_text: str
    manifest: dict[str, Any]
    metrics: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    problems: list[str]
    result: dict[str, Any]

    @property
    def kind(self) -> str:
        """``analyze``, ``reproduce``, ``reproduce-all``, ``search``, or ``train`` for all with a recipe."""
        kind = self.manifest.get("kind")
        return kind if kind in WITHOUT_RECIPE else "train"

    @property
    def name(self) -> str:
        """The recipe's name, or the folder that holds its runs."""
        return str(self.recipe.get("name") or self.path.absolute().parent.name)

    @property
    def seed(self) -> int | None:
        """``run.seed``, if the recipe could be read."""
        seed = flatten(self.recipe).get("run.seed")
        return seed if isinstance(seed, int) else None

    @property
    def status(self) -> str:
        """How it ended, as the manifest says, or ``unknown``."""
        return str(self.manifest.get("status") or "unknown")

    @property
    def steps_done(self) -> int:
        """The last meta-step in ``metrics.jsonl``."""
        return max((line["step"] for line in self.metrics if isinstance(line.get("step"), int)), default=0)


def load_run(path: Path) -> RunData:
    """Reads a run directory."""
    if not is_run(path):
        raise UserError(
            f"{path} is not a run (no {RECIPE} or manifest.json in it): `innerloop ls` lists those there are."
        )
    refuse_links(path)
    problems: list[str] = []
    manifest: dict[str, Any] = {}
    metrics: list[dict[str, Any]] = []
    try:
        manifest = read_manifest(path)
    except UserError as error:
        problems.append(inside(str(error), path))
    if manifest.get("kind") in WITHOUT_RECIPE:
        return RunData(path, {}, "", manifest, [], [], problems, _result(path, manifest, problems))
    recipe, text = _recipe(path / RECIPE, problems)
    try:
        metrics = read_metrics(path / "metrics.jsonl")
    except UserError as error:
        problems.append(inside(str(error), path))
    evaluations = list(_evaluations(path / "eval", problems))
    return RunData(path, recipe, text, manifest, metrics, evaluations, problems, {})


def _result(path: Path, manifest: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """What an analysis or a reproduction found; there once the run has finished."""
    try:
        result = read_json(path / "result.json")
    except FileNotFoundError:
        if manifest.get("status") == "finished":
            problems.append("there is no result.json.")
        return {}
    except (OSError, ValueError) as error:
        problems.append(inside(str(error), path))
        return {}
    return result if isinstance(result, dict) else {}


def _recipe(file: Path, problems: list[str]) -> tuple[dict[str, Any], str]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        problems.append(f"there is no readable {RECIPE}.")
        return {}, ""
    try:
        recipe = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        problems.append(f"{RECIPE} is not valid TOML: {reason}.")
        return {}, text
    try:
        own_evaluation(recipe, [{}])
        expected_protocol(recipe)
    except (KeyError, TypeError, ValueError, AttributeError):  # settings of another kind than any version had
        problems.append(f"{RECIPE} holds settings that cannot be read.")
        return {}, text
    return recipe, text


def _evaluations(folder: Path, problems: list[str]) -> Iterator[dict[str, Any]]:
    """Evaluations in the order they were made."""
    readable: list[tuple[str, int, str, dict[str, Any]]] = []
    for file in sorted(folder.glob("*.json")):
        try:
            value = read_json(file)
        except (OSError, ValueError) as error:
            problems.append(inside(str(error), folder.parent))
            continue
        lost = isinstance(value, dict) and value.get("mean") is None and value.get("not_finite")
        if lost:
            value["mean"] = math.nan  # JSON has no word for it
        if not isinstance(value, dict) or not _is_number(value.get("mean")):
            problems.append(f"eval/{file.name} holds no mean.")
            continue
        if (odd := _odd_entry(value)) is not None:
            problems.append(f"eval/{file.name} is damaged: its '{odd}' is nothing that an evaluation writes.")
            continue
        number = file.stem.rpartition("-")[2]
        order = int(number) if number.isdigit() else 0
        readable.append((str(value.get("time", "")), order, file.name, {**value, "file": file.name}))
    for *_, evaluation in sorted(readable, key=lambda row: row[:3]):
        yield evaluation


def _odd_entry(evaluation: Mapping[str, Any]) -> str | None:
    """The name of an entry that is of another kind than evaluations write, if there is one."""
    for name, kind in _ENTRIES.items():
        if not isinstance(evaluation.get(name), kind | None):
            return name
    steps = evaluation.get("by_step") or []
    sound = all(
        isinstance(row, dict) and isinstance(row.get("steps"), int) and {"mean", "ci95"} <= row.keys()
        for row in steps
    )
    numbers = [row.get(name) for row in steps if isinstance(row, dict) for name in ("mean", "ci95")]
    if not sound or not all(n is None or _is_number(n) for n in numbers):
        return "by_step"
    return None if all(map(_is_baseline, evaluation.get("baselines") or [])) else "baselines"


def _is_baseline(row: Any) -> bool:
    """Whether it is what evaluations write of a baseline."""
    if not isinstance(row, dict) or not isinstance(row.get("words"), str):
        return False
    numbers = [row.get(name) for name in ("ci95", "gain", "gain_ci95")]
    return all(n is None or _is_number(n) for n in numbers) and all(
        _is_number(row.get(name)) for name in ("mean", "episodes")
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < _LARGEST)


def headline(run: RunData) -> dict[str, Any] | None:
    """The evaluation that a page leads with: by the recipe's own protocol, where there is one."""
    return own_evaluation(run.recipe, run.evaluations)[0]


def others(run: RunData) -> list[dict[str, Any]]:
    """All evaluations but the headline, oldest first."""
    first = headline(run)
    return [evaluation for evaluation in run.evaluations if evaluation is not first]


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys, as on the command line; free-form ``settings`` and ``options`` tables are opened too.

    >>> flatten({"inner": {"lr": 0.01}, "name": "x"})
    {'inner.lr': 0.01, 'name': 'x'}
    """
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        elif not isinstance(value, Mapping):
            flat[f"{prefix}{key}"] = value
    return flat


def inside(message: str, folder: Path) -> str:
    """Paths inside the run, relative to it: the page may be shown to others."""
    return message.replace(f"{folder}/", "").replace(str(folder), "the run")


def course_rows(run: RunData) -> list[tuple[str, str]]:
    """How a training run went: command, times, steps, speed."""
    rows = time_rows(run.manifest)
    planned = flatten(run.recipe).get("outer.steps")
    of = f" of {number(planned)}" if isinstance(planned, int) else ""
    rows.append(("meta-steps", f"{number(run.steps_done)}{of}" if run.metrics else "none logged"))
    speeds = [line["tasks_per_second"] for line in run.metrics if line.get("tasks_per_second")]
    if speeds:
        rows.append(("speed", f"{number(round(speeds[-1]))} tasks per second (last logged)"))
    return rows


def time_rows(manifest: Mapping[str, Any], seconds: Any = None) -> list[tuple[str, str]]:
    """Command, beginning and end; ``seconds`` is what the run measured itself, if it did."""
    rows: list[tuple[str, str]] = []
    argv = manifest.get("argv")
    rows.append(("command", command_text(argv) if isinstance(argv, list) and argv else "started from Python"))
    rows.append(("started", when(manifest.get("started"))))
    started, ended = moment(manifest.get("started")), moment(manifest.get("ended"))
    if ended:
        rows.append(("ended", when(manifest.get("ended"))))
    if isinstance(seconds, int | float):
        rows.append(("took", duration(seconds)))
    elif started and ended and (started.tzinfo is None) == (ended.tzinfo is None):
        rows.append(("took", duration(max(0.0, (ended - started).total_seconds()))))
    return rows


def command_text(argv: list[Any]) -> str:
    """The command as typed, without the path of the executable."""
    words = [str(word) for word in argv]
    if "/" in words[0] or "\\" in words[0]:
        words[0] = "innerloop"
    return shlex.join(words)


def environment_rows(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Versions, machine, hashes, as far as recorded."""
    versions, data = (
        part if isinstance(part, Mapping) else {} for part in (manifest.get("versions"), manifest.get("data"))
    )
    machine = ("innerloop", "torch", "numpy", "python", "platform", "device", "cores")
    hashes = [manifest[key] for key in ("recipe_sha256", "recipe_hash") if manifest.get(key)]
    return [
        *((str(key), str(value)) for key, value in versions.items()),
        *((key, str(manifest[key])) for key in machine if manifest.get(key) is not None),
        *(("recipe hash", str(value)[:16]) for value in hashes),
        *((f"data {key}".replace("_", " "), str(value)) for key, value in flatten(data).items()),
    ]
