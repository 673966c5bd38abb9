"""How ``goldens.py`` runs its cases, and what it keeps of what they answer.

Every case runs in a forked process, in a folder of its own, as on one core, and under a clock that counts how
often the package looks at it: what is decided by time is decided alike again.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from golden_answers import normal, shape

CASES = Path(__file__).with_name("goldens.cases")
ON = "run.threads=1 run.execution=loop run.compile=off run.log_every=1"
TINY = f"outer.steps=4 eval.episodes=4 eval.validation_episodes=2 {ON}"
PICTURES = (
    f"{TINY} outer.batch=2 model.filters=4 tasks.queries=2 eval.queries=2 eval.every=2 eval.baselines=false"
)
UNJUDGED = "eval.every=100 eval.episodes=1 eval.validation_episodes=1 eval.curve=false"
SETTINGS = {
    "{sine}": f"{TINY} outer.batch=2 model.hidden=[8]",
    "{glyphs}": f"{PICTURES} tasks.ways=3 eval.ways=3",
    "{own}": PICTURES,
    "{pretraining}": f"{TINY} model.filters=4 tasks.minibatch=8 eval.every=2 eval.baselines=false",
    "{on}": ON,
}
FIRST = (
    "train sine-maml {sine} name=one",
    "train omniglot-maml data.name=glyphs {glyphs} name=two",
    "train pictures-protonet data.name=photos/ {own} name=three",
    "train omniglot-supervised data.name=glyphs {pretraining} name=four",
)
"""Runs that every case finds."""
TICK, SLOW = 0.02, 0.05
"""Seconds between two looks of the package at a clock; the latter for cases that would take long."""


def preload() -> None:
    """Imports in this process what would take every case seconds."""
    os.environ.update(OMP_NUM_THREADS="1", COLUMNS="100")
    for name in (
        "torch._dynamo",
        "sklearn.svm",
        "matplotlib.pyplot",
        "typer",
        "rich.table",
        "jinja2",
        "torch.export",
    ):
        importlib.import_module(name)
    package = importlib.import_module("innerloop")
    for name in ("Experiment", "advise", "write_page", "testing", "evaluate_backbone", "FewShotClassifier"):
        getattr(package, name)


def prepare(work: Path) -> None:
    """Makes what every case finds: pictures and runs in ``work/first``."""
    first = work / "first"
    first.mkdir()
    os.environ.update(INNERLOOP_DATA=str(work / "data"), XDG_CACHE_HOME=str(work / "cache"))
    draw_pictures(first)
    for words in FIRST:
        code, _, err = forked(lambda words=words: command(typed(words)), first)
        if code:
            raise SystemExit(f"{words}\n{err}")


def all_verbs(work: Path) -> list[str]:
    """Every verb there is, and verbs of verbs; the empty one is the command itself."""
    return ["", *(found for verb in verbs_of("", work) for found in (verb, *verbs_of(verb, work)))]


def verbs_of(verb: str, work: Path) -> list[str]:
    """What a verb lists as commands in its help."""
    _, out, _ = forked(lambda: command([*verb.split(), "--help"]), work / "first")
    return [
        f"{verb} {each}".strip() for each in re.findall(r"^  ([a-z]+)  ", out.partition("Commands:")[2], re.M)
    ]


def draw_pictures(folder: Path) -> None:
    """Eight classes of eight pictures, three of three, six pictures without a class; and a foreign recipe."""
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(0)
    classes = [*((f"photos/class-{i}", 8) for i in range(8)), *((f"few/class-{i}", 3) for i in range(3))]
    for place, count in [*classes, ("more", 6)]:
        (folder / place).mkdir(parents=True)
        tint = draw.integers(0, 200, 3)
        for i in range(count):
            noise = (tint + draw.integers(0, 56, (20, 20, 3))).astype(np.uint8)
            Image.fromarray(noise).save(folder / place / f"{i}.png")
    (folder / "mine.toml").write_text('name = "mine"\n[tasks]\nfamily = "mine:lines"\n', encoding="utf-8")


def read_cases() -> dict[str, str]:
    """Words of every case by its name."""
    lines = (line.partition(": ") for line in CASES.read_text(encoding="utf-8").splitlines())
    return {name: words for name, colon, words in lines if colon and not name.startswith("#")}


def typed(words: str) -> list[str]:
    """The words of a command; of a setting that is given twice, the last one."""
    for short, settings in SETTINGS.items():
        words = words.replace(short, settings)
    places = {
        word.partition("=")[0] if "=" in word else place: word
        for place, word in enumerate(shlex.split(words))
    }
    return [*places.values()]


def run_case(name: str, words: str, work: Path) -> dict[str, Any]:
    """Runs the commands of a case in a folder; exit code, answer and new files of the last one."""
    folder = Path(shutil.copytree(work / "first", work / name.replace("/", "-")))
    for part in words.split(" && "):
        before, stop = files_in(folder), re.match(r"\^(\d+) ", part)
        given = typed(part.removeprefix(stop[0] if stop else ""))
        given += [] if "--help" in given else ["--json"]
        how = stop and int(stop[1]), SLOW if name.startswith("shape/") else TICK
        code, out, err = forked(lambda given=given, how=how: command(given, *how), folder)
    try:
        answer = json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        answer = out.splitlines()
    told = {"error": normal(err.splitlines(), work)} if code else {}
    if name.startswith("shape/"):
        return {"code": code, "answer": shape(answer), **told}
    files = sorted({normal(file, work) for file in files_in(folder) - before})
    shutil.rmtree(folder)
    return {"code": code, "answer": normal(answer, folder), **told, "files": files}


def run_losses(mode: str, settings: str, work: Path) -> dict[str, Any]:
    """The losses of an execution mode, in a process of its own."""
    folder = work / f"losses-{mode}"
    folder.mkdir()

    def losses() -> dict[str, Any]:
        counting_clock()
        return all_losses(settings)

    return dict(normal(forked(losses, folder), folder))


def all_losses(settings: str, without: Sequence[str] = ()) -> dict[str, Any]:
    """Losses and norms of gradients of the first steps of every case of ``losses/``, or why it is refused."""
    found = {}
    for name, words in read_cases().items():
        if name.startswith("losses/") and name.removeprefix("losses/") not in without:
            if "TEACHER" in words:  # the run before
                words = words.replace("TEACHER", str(next(Path("runs", "omniglot-supervised").iterdir())))
            found[name.removeprefix("losses/")] = losses_of(*typed(f"{words} {UNJUDGED} {settings}"))
    return found


def losses_of(recipe: str, *items: str) -> dict[str, Any]:
    """The first steps of a recipe."""
    import innerloop as il

    try:
        run = il.Experiment(recipe, *items).fit(progress=False)
    except (il.UserError, RuntimeError) as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    lines = map(json.loads, (Path(run.path) / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    steps = [entry for entry in lines if "loss" in entry]
    return {key: [entry[key] for entry in steps] for key in ("loss", "grad_norm")}


def forked(work: Callable[[], Any], folder: Path) -> Any:
    """What the work gives, as JSON, in a process of its own that starts in the folder."""
    answer = folder.with_name(f"{folder.name}.answer")
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(folder)
            answer.write_text(json.dumps(work()), encoding="utf-8")
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"{folder.name}: its process ended with {status}")
    return json.loads(answer.read_text(encoding="utf-8"))


def command(words: list[str], stop_at: int | None = None, tick: float = TICK) -> tuple[int | str, str, str]:
    """Exit code and output of ``python -m innerloop`` in this process, which it ends with."""
    counting_clock(stop_at, tick)
    sys.argv, code = ["innerloop", *words], 0
    kept = Path.cwd().with_name("out.txt"), Path.cwd().with_name("err.txt")
    for number, file in enumerate(kept, start=1):
        os.dup2(os.open(file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), number)
    try:
        runpy.run_module("innerloop", run_name="__main__")
    except SystemExit as ended:
        code = ended.code or 0  # type: ignore[assignment]
    sys.stdout.flush()
    sys.stderr.flush()
    return (code, *(file.read_text(encoding="utf-8") for file in kept))  # type: ignore[return-value]


def counting_clock(stop_at: int | None = None, tick: float = TICK) -> None:
    """For the package, not for others, clocks count how often they are looked at, and there is one core."""
    real = {name: getattr(time, name) for name in ("perf_counter", "monotonic")}
    looks = itertools.count()

    def looked(name: str) -> float:
        if not str(sys._getframe(2).f_globals.get("__name__", "")).startswith("innerloop"):
            return float(real[name]())
        if name == "monotonic":
            return 1000.0  # budgets never end
        count = next(looks)
        if count == stop_at:
            os.kill(os.getpid(), signal.SIGINT)
        return 1000.0 + tick * count

    time.perf_counter, time.monotonic = (lambda: looked("perf_counter")), (lambda: looked("monotonic"))
    os.sched_getaffinity = lambda *_: {0}


def files_in(folder: Path) -> set[str]:
    """Every file below a folder."""
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
