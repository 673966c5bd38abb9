"""The commands whose numbers the pages print; ``make results`` runs those that are missing or out of date.

What a reproduction or a benchmark computes has the ``VERSION`` that its module states; the version of another
command stands in :data:`VERSIONS`. Whoever changes what a command finds raises it by one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.core.files import read_object, write_json_atomic
from innerloop.runs.manifest import now, read_manifest
from innerloop.runs.metrics import read_metrics
from innerloop.runs.process import identity
from innerloop_studies.bench import BENCHMARKS
from innerloop_studies.bench.own_pictures import REAL, photographs
from innerloop_studies.bench.worker import cpu_name
from innerloop_studies.recorded import RESULTS, ROOT, keep, path_of, read
from innerloop_studies.reproduce import REPRODUCTIONS, made_by, torch_version

SCALE = "cpu"
NOT_AS_RECORDED = 3  # the exit code of a reproduction that found something else than was recorded
DATA = "INNERLOOP_TEST_DATA"
PHOTOS, CLASSES, EACH = "photos/", 100, 40
"""The folder of photographs on which recipes for one's own pictures are judged, and how many it has."""
SURENESS = f"python -m innerloop_studies.measurements.sureness ${DATA}"
NOTES = Path("runs/.recorded")  # which version began what, below the root

LINES: dict[str, dict[str, str]] = {  # what is typed, by kind and by the name of the file
    "evaluations": {
        "sine-maml": "innerloop sweep sine-maml seed=[0,1,2] eval.seed=11",
        "sine-erm": "innerloop sweep sine-erm seed=[0,1,2] eval.seed=11",
        "sine-imaml": "innerloop sweep sine-imaml seed=[0,1,2] eval.seed=12",
        "sine-minibatchprox": "innerloop sweep sine-minibatchprox seed=[0,1,2] eval.seed=12",
        "sine-anil-rates": "innerloop sweep sine-anil inner.lr=[0.001,0.003,0.01,0.03] outer.steps=2000",
        "omniglot-protonet": (
            "innerloop train omniglot-protonet tasks.ways=20 outer.steps=4000 "
            "outer.schedule=cosine eval.seed=11"
        ),
        "omniglot-maml": (
            "innerloop train omniglot-maml outer.batch=16 tasks.queries=5 eval.queries=15 "
            "outer.steps=4000 outer.lr=2e-3 outer.schedule=cosine eval.seed=11"
        ),
        "omniglot-imaml": "innerloop train omniglot-imaml-cpu",
        "cifar-fs-supervised": "innerloop train cifar-fs-supervised-thin eval.seed=11",
        "cifar-fs-supervised-1000": "innerloop train cifar-fs-supervised-thin outer.steps=1000 eval.seed=11",
        "sine-maml-published": "innerloop sweep sine-maml-published seed=[0,1,2]",
        "omniglot-protonet-published": "innerloop train omniglot-protonet-published",
        "omniglot-protonet-published-5shot": (
            "innerloop train omniglot-protonet-published tasks.shots=5 eval.shots=5 outer.steps=6000"
        ),
        "omniglot-maml-published": "innerloop train omniglot-maml-published",
        "omniglot-maml-published-5shot": "innerloop train omniglot-maml-published tasks.shots=5 eval.shots=5",
        "cifar-fs-protonet-published": "innerloop train cifar-fs-protonet-published",
        "cifar-fs-protonet-published-5shot": (
            "innerloop train cifar-fs-protonet-published tasks.shots=5 eval.shots=5"
        ),
        "cifar-fs-maml-published": "innerloop train cifar-fs-maml-published",
        "cifar-fs-maml-published-5shot": "innerloop train cifar-fs-maml-published tasks.shots=5 eval.shots=5",
        "cifar-fs-r2d2-published": "innerloop train cifar-fs-r2d2-published",
        "cifar-fs-supervised-published": "innerloop train cifar-fs-supervised-published",
        "mini-imagenet-protonet-published": "innerloop train mini-imagenet-protonet-published",
        "mini-imagenet-protonet-published-5shot": (
            "innerloop train mini-imagenet-protonet-published tasks.shots=5 eval.shots=5 outer.steps=6000"
        ),
        "mini-imagenet-supervised-published": "innerloop train mini-imagenet-supervised-published",
        "photos-protonet": "innerloop train photos/",
        "photos-protonet-plain": "innerloop train photos/ data.augment=none",
        "photos-supervised": "innerloop train pictures-supervised data.name=photos/",
        "photos-supervised-plain": "innerloop train pictures-supervised data.name=photos/ data.augment=none",
        "photos-maml": "innerloop train pictures-maml data.name=photos/",
        "photos-maml-augmented": "innerloop train pictures-maml data.name=photos/ data.augment=lee2019",
    },
    "predictions": {
        "scores-cifar-fs": "innerloop search cifar-fs --validate steps=400 episodes=200 budget=40m",
        "scores-omniglot": "innerloop search omniglot --validate steps=250 episodes=200 budget=40m",
        "scores-cifar-fs-tasks": (
            "innerloop search cifar-fs --validate tasks.family=few-shot steps=165 episodes=200 budget=40m"
        ),
    },
    "measurements": {
        "sureness": SURENESS,
        "sureness-many-queries": f"{SURENESS} --each 60 --queries 55",
        "proximal": "python -m innerloop_studies.measurements.proximal",
    },
    "printed": {"advise-glyphs": "innerloop advise glyphs budget=60s"},
}
KINDS = ("reproductions", "benchmarks", *LINES)
VERSIONS: dict[str, int] = {}  # of what a line finds, by the name of the file; 1 where none stands
_ONE_SHOT = {"1-shot": "innerloop eval RUN eval.shots=1"}
_TWENTY_WAYS = {"20-way": "innerloop eval RUN eval.ways=20"}
ALSO: dict[str, Mapping[str, str]] = {
    "omniglot-protonet-published": _TWENTY_WAYS,
    "omniglot-protonet-published-5shot": _TWENTY_WAYS,
    "cifar-fs-r2d2-published": _ONE_SHOT,
    "cifar-fs-supervised-published": _ONE_SHOT,
    "mini-imagenet-supervised-published": _ONE_SHOT,
    "omniglot-maml": {"support": "innerloop eval RUN model.norm=support eval.seed=11"},
    "photos-supervised": {"pretrained": "innerloop eval --backbone efficientnet-lite0 --against RUN"},
}
"""Further judgements of what was trained, or of others on its tasks, by what they are called. ``RUN`` stands
for the directory of the training."""


class Command(NamedTuple):
    """A command whose numbers the pages print: what is typed, and what its numbers depend on."""

    kind: str
    name: str
    line: str
    made_by: Mapping[str, Any]


def commands() -> Iterator[Command]:
    """All of them, short and long."""
    for name in REPRODUCTIONS:
        yield Command("reproductions", name, f"innerloop reproduce {name} --scale {SCALE}", made_by(name))
    torch = torch_version()
    for name, one in BENCHMARKS.items():
        stated = {"version": one.version, "torch": torch}
        yield Command("benchmarks", name, f"innerloop bench {name}", stated)
    for kind, lines in LINES.items():
        for name, line in lines.items():
            yield Command(kind, name, line, {"version": VERSIONS.get(name, 1), "torch": torch})


def chosen(patterns: Sequence[str]) -> list[Command]:
    """Those that are asked for by name; all of them if nothing is."""
    every = list(commands())
    for pattern in patterns:
        if not any(fnmatchcase(one.name, pattern) for one in every):
            listing = "`python -m innerloop_studies.recorded status` lists names"
            raise UserError(f"nothing is called '{pattern}'; {listing}.")
    return [one for one in every if not patterns or any(fnmatchcase(one.name, p) for p in patterns)]


def state_of(command: Command) -> str:
    """Whether its file is there, and of the version that is stated now."""
    content = read(command.kind, command.name)
    if content is None:
        return "missing"
    before, after = content.get("made_by") or {}, command.made_by
    changed = [f"{key} {before.get(key)} → {after[key]}" for key in after if before.get(key) != after[key]]
    return f"out of date ({', '.join(changed)})" if changed else "up to date"


def run(patterns: Sequence[str], say: Callable[[str], None]) -> int:
    """Runs what is missing or out of date, one after another; what fails does not stop the others."""
    waiting = [(one, state) for one in chosen(patterns) if (state := state_of(one)) != "up to date"]
    if not waiting:
        say("nothing to run: what is asked for is recorded and up to date")
    failed = 0
    for i, (one, state) in enumerate(waiting, start=1):
        say(f"[{i}/{len(waiting)}] {one.line} ({state})")
        try:
            problem = carry_out(one)
        except UserError as refused:  # it could not begin, or what it found could not be kept
            problem = str(refused)
        failed += problem is not None
        say(f"[{i}/{len(waiting)}] {one.name}: {problem or 'recorded'}")
    return failed


def carry_out(command: Command) -> str | None:
    """Runs a command and keeps what it found; returns what went wrong."""
    if PHOTOS in command.line:
        write_photographs(ROOT / PHOTOS)
    before = begin(command)
    words = ["innerloop", "resume", str(before)] if before else command.line.split()
    if command.kind == "reproductions":
        words += ["--parts", str(RESULTS / "parts")]  # beside results: what is finished can be committed
    printed = command.kind == "printed"
    ended = run_words(*words, *([] if printed else ["--json"]))
    try:
        lines = [line.rstrip() for line in ended.stdout.strip().splitlines()]
        result: dict[str, Any] = {"lines": lines} if printed else json.loads(ended.stdout)
    except ValueError:
        return f"ended with code {ended.returncode}, and no result"
    if ended.returncode not in (0, NOT_AS_RECORDED):
        return str(result.get("error") or f"ended with code {ended.returncode}")
    note_of(command).unlink(missing_ok=True)
    if command.kind == "reproductions":
        adopt_run(ROOT / Path(result["run"]))
    elif command.kind == "benchmarks":
        adopt_benchmark(result)
    elif command.kind == "evaluations":
        also = further_evaluations(command.name, result.get("run"))
        adopt_evaluation(command.name, result, also=also, timed=before is None)
    else:
        adopt_output(command, result)
    return None


def run_words(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs what is typed, at the root."""
    folder = os.environ.get(DATA)
    if f"${DATA}" in words and not folder:
        raise UserError(f"set {DATA} to the folder of pictures that {words[2]} names")
    program, *rest = (folder or "" if word == f"${DATA}" else word for word in words)
    called = [sys.executable, *(["-m", "innerloop"] if program == "innerloop" else []), *rest]
    return subprocess.run(called, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)


def further_evaluations(name: str, run: str | None) -> dict[str, dict[str, Any]]:
    """Further judgements of what an evaluation has trained, by what they are called."""
    judged = {}
    for key, line in ALSO.get(name, {}).items():
        words = [str(run) if word == "RUN" else word for word in line.split()]
        ended = run_words(*words, "--json")
        if ended.returncode:
            raise UserError(f"{' '.join(words)} ended with code {ended.returncode}.")
        judged[key] = json.loads(ended.stdout)
    return judged


def write_photographs(folder: Path, classes: int = CLASSES, each: int = EACH) -> None:
    """Writes photographs of Tiny-ImageNet as JPEG files, a folder for each class, if they are not there."""
    archive = Path(os.environ.get(DATA, ""), REAL)
    if folder.is_dir():
        return
    if not archive.is_file():
        raise UserError(f"photographs are taken from {REAL}: set {DATA} to its folder.")
    begun = folder.with_name(f"{folder.name}.part")  # a folder that is there is whole
    for label, number, data in photographs(archive, classes, each):
        file = begun / f"class{label:03d}" / f"{number:03d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    begun.rename(folder)


# ---- what was interrupted ----


def note_of(command: Command) -> Path:
    """The file that says which version began a command."""
    return ROOT / NOTES / f"{command.name}.json"


def begin(command: Command) -> Path | None:
    """The run to go on with; None if there is none, and notes which version begins one."""
    words, note = command.line.split()[1:], note_of(command)
    if words[0] not in ("train", "search"):  # sweeps and reproductions go on by themselves
        return None
    # what another version began is left alone: its beginning and its end would not belong together
    if not note.is_file() or read_object(note) != dict(command.made_by):
        note.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(note, dict(command.made_by))
        return None
    runs = sorted((ROOT / "runs").glob("*/*/manifest.json"), key=lambda file: file.parent.name, reverse=True)
    for file in runs:  # the newest that these words began, if it has not come to its end
        try:
            manifest = read_manifest(file.parent)
        except UserError:  # damaged, or not of ours
            continue
        if (manifest.get("argv") or [])[1:] == [*words, "--json"]:
            return None if manifest["status"] in ("finished", "failed") else file.parent
    return None


# ---- how a finished command becomes a file ----

TABLED = (  # reproductions with a table of their own, for which the data behind their rows are kept
    *("advice-numbers", "advice-race", "bridge-table3", "landscape-table1", "landscape-table2"),
    *("metantk-table2", "rate-regret", "rate-unseen"),
)
LONG = 12  # lists of more numbers are draws or curves, which no table prints; the run itself keeps them
COLUMNS = 12  # a table has no more validations
LEARNER = "learner."


def adopt(path: Path, evaluation: str | None = None) -> Path:
    """Keeps a finished run of ``innerloop reproduce``, or a file that the version of now has printed."""
    if path.is_dir():
        return adopt_run(path)
    if not path.exists():
        raise UserError(f"there is no {path}.")
    result = read_object(path)
    if evaluation is not None:
        return adopt_evaluation(evaluation, result, path.resolve().parent)
    ended = datetime.fromtimestamp(path.stat().st_mtime).astimezone().isoformat(timespec="seconds")
    return adopt_benchmark(result, ended)


def adopt_run(run: Path) -> Path:
    """Keeps what a finished ``innerloop reproduce NAME --scale cpu`` has found."""
    manifest = read_manifest(run)
    if manifest.get("kind") != "reproduce" or manifest["status"] != "finished":
        raise UserError(f"{run} is no finished reproduction: it is {manifest['status']}.")
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    name = result["name"]
    if result["scale"] != SCALE or name not in REPRODUCTIONS:
        raise UserError(f"{run} is {name} at {result['scale']}; the documentation shows those at {SCALE}.")
    newest = read("reproductions", name)
    if newest and newest["ended"] > manifest["ended"]:
        raise UserError(f"{path_of('reproductions', name)} is of a later run than {run}.")
    content = {key: result[key] for key in ("name", "redoes", "scale", "rows", "protocol", "seconds")}
    here = run.resolve()  # seconds of the runs before, whose parts it may have used again
    others = [one for one in sorted(here.parent.iterdir()) if one.is_dir() and one.name < here.name]
    before = (read_manifest(one) for one in others)
    content["earlier"] = [elapsed(one) for one in before if one.get("scale") == manifest["scale"]]
    content["command"] = f"innerloop reproduce {name} --scale {SCALE}"
    content |= {key: manifest.get(key) for key in ("versions", "made_by", "started", "ended")}
    content["machine"] = machine_of(manifest)
    if name in TABLED:
        content["data"] = short(result["data"])
    return keep("reproductions", name, content)


def adopt_benchmark(result: dict[str, Any], ended: str | None = None) -> Path:
    """Keeps what ``innerloop bench NAME --json`` has printed."""
    if "cases" not in result or "machine" not in result:
        raise UserError(f"this is no result of a benchmark: {str(result)[:80]}")
    name = result["name"]
    content = {key: short(value) for key, value in result.items() if key != "figure"}
    made = {"version": BENCHMARKS[name].version, "torch": result["machine"]["torch"]}
    content |= {"command": f"innerloop bench {name}", "made_by": made, "ended": ended or now()}
    return keep("benchmarks", name, content)


def adopt_output(command: Command, result: Mapping[str, Any]) -> Path:
    """Keeps what a command printed that leaves no run behind; of a validation, not its candidates."""
    found = dict(result)
    if command.kind == "predictions":
        known = ("table", "reliability", "protocol", "training_seconds", "seconds")
        found = {key: value for key, value in result.items() if key in known}
        found["accuracies"] = [one["accuracy"] for one in result["candidates"]]
    content = {"name": command.name, "command": command.line, **found}
    content["machine"] = {"cpu": cpu_name(), "cores": os.cpu_count()}
    return keep(command.kind, command.name, {**content, "made_by": dict(command.made_by), "ended": now()})


def adopt_evaluation(
    name: str,
    result: Mapping[str, Any],
    folder: Path = ROOT,
    also: Mapping[str, Mapping[str, Any]] | None = None,
    timed: bool = True,
) -> Path:
    """Keeps what the runs of a command reached on their test tasks."""
    known = LINES["evaluations"]
    if name not in known:
        raise UserError(f"nothing is called '{name}': it is one of {', '.join(known)}.")
    runs = [first_evaluation(folder / run, timed) for run in result.get("runs") or [result["run"]]]
    versions = runs[0]["versions"]
    content = {"name": name, "command": known[name], "runs": runs, "machine": runs[0]["machine"]}
    content["made_by"] = {"version": VERSIONS.get(name, 1), "torch": (versions or {}).get("torch")}
    content |= {"versions": versions, "ended": max(one["ended"] for one in runs)}
    content |= {"also": {key: summary_of(one) for key, one in also.items()}} if also else {}
    return keep("evaluations", name, content)


def first_evaluation(run: Path, timed: bool) -> dict[str, Any]:
    """The first evaluation of a run, with which training ends, without the scores of single tasks."""
    manifest = read_manifest(run)
    files = [json.loads(file.read_text(encoding="utf-8")) for file in (run / "eval").glob("*.json")]
    about = {key: manifest.get(key) for key in ("versions", "started", "ended")}
    validated: dict[int, dict[str, Any]] = {}
    reported: dict[str, float] = {}  # what the learner said with the last line
    seconds = 0.0  # of training
    for line in read_metrics(run / "metrics.jsonl"):
        seconds += line.get("seconds", 0.0)
        if "validation" in line:
            point = {"step": line["step"], "seconds": round(seconds, 1)}
            validated[line["step"]] = {**point, "mean": line["validation"], "ci95": line["ci95"]}
        named = {key.removeprefix(LEARNER): line[key] for key in line if key.startswith(LEARNER)}
        reported = named or reported
    course = {"validations": thin(list(validated.values())), "reported": reported}
    about |= {key: value for key, value in course.items() if value}
    about |= {"seconds": elapsed(manifest) if timed else None, "machine": machine_of(manifest)}
    return summary_of(min(files, key=lambda one: one["time"])) | about


def thin(course: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most :data:`COLUMNS` of the validations, at even distances, the last one among them."""
    every = max(1, -(-(len(course) - 1) // (COLUMNS - 1)))
    return list(reversed(course[::-1][::every]))


def summary_of(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """What pages print of an evaluation, and what it depends on."""
    known = ("score", "mean", "ci95", "episodes", "by_step", "protocol", "baselines")
    kept = {key: evaluation[key] for key in known if key in evaluation}
    if "comparison" in evaluation:
        kept["comparison"] = {key: evaluation["comparison"][key] for key in ("difference", "ci95", "verdict")}
    return kept


def elapsed(manifest: dict[str, Any]) -> float | None:
    """Seconds between the start and the end of a run, by the clock; None if its end is not known."""
    if not manifest.get("ended"):
        return None
    started, ended = (datetime.fromisoformat(manifest[key]) for key in ("started", "ended"))
    return (ended - started).total_seconds()


def machine_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """Where a run was made; its processor is known if this machine has not been started anew since."""
    here = manifest.get("boot") is not None and manifest.get("boot") == identity().get("boot")
    known = {key: manifest.get(key) for key in ("platform", "cores", "device")}
    return {"cpu": cpu_name() if here else None, **known}


def short(data: Any) -> Any:
    """Data without long lists of numbers, which no table prints, and with six digits of every number."""
    if isinstance(data, dict):
        lists = {k for k, v in data.items() if isinstance(v, list) and len(v) > LONG}
        return {k: short(v) for k, v in data.items() if k not in lists or isinstance(v[0], dict)}
    if isinstance(data, float):
        return float(f"{data:.6g}")
    return [short(value) for value in data] if isinstance(data, list) else data
