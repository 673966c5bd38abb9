"""Sweeps: ranges, draws, runs that are killed, stopped and resumed; on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

import pytest

from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.experiment.sweeps import sweep as sweep_module
from innerloop.experiment.sweeps.grid import Range, make_cells, make_space, read_range
from innerloop.experiment.sweeps.runs import (
    STOPS,
    RunEnd,
    RunJob,
    Validated,
    carry_out,
    job_of,
    list_runs_of,
    read_status,
    stop_run,
)
from innerloop.experiment.sweeps.study import (
    BEFORE_PRUNING,
    DRAWS,
    Study,
    keep_draws,
    kept_draws,
    optuna_problem,
)
from innerloop.experiment.sweeps.sweep import sweep
from innerloop.runs.manifest import read_manifest, start_manifest
from oracles.patience import wait_until
from support.commands import TINY

pytestmark = pytest.mark.usefixtures("own_folder")

with_optuna = pytest.mark.skipif(bool(optuna_problem()), reason=optuna_problem())
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, and kills what it forked")

FIXED = ["outer.steps=6", "run.save_every=2", "run.log_every=1", "eval.every=2", "inner.steps=1"]
GRID = ["inner.lr=[0.001,0.01,0.02]", *FIXED, *(item for item in TINY if not item.startswith("outer.steps"))]


@pytest.fixture
def in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs train in the workers themselves: no new Python, no page."""
    monkeypatch.setattr(sweep_module, "carry_out", run_here)
    monkeypatch.setattr("innerloop.experiment.pages.write_report", _small_page)


def run_here(job: RunJob) -> RunEnd:
    """As a run of a sweep, in the process of its worker."""
    from innerloop.experiment.recipe.settings import recipe_from_toml
    from innerloop.experiment.resuming import resume
    from innerloop.experiment.training import train

    earlier = list_runs_of(Path(job.folder), job.label)
    if earlier:
        return RunEnd(str(resume(earlier[-1], progress=False).run))
    return RunEnd(str(train(recipe_from_toml(Path(job.file)), progress=False).run))


def _small_page(runs: list[Path], out: Path) -> Path:
    out.write_text("\n".join(map(str, runs)))
    return out


# ---- ranges and mistakes ----


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("log(1e-3,1)", Range("log", 0.001, 1)),
        ("uniform( 0, .5 )", Range("uniform", 0, 0.5)),
        ("int(1,10)", Range("int", 1, 10)),
        ("logint(4,64)", Range("logint", 4, 64)),
    ],
)
def test_ranges_are_read(typed: str, meant: Range) -> None:
    how, _, inside = typed.removesuffix(")").partition("(")
    assert read_range("inner.lr", how, inside) == meant


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("log(1,0.1)", "the smaller number comes first: write inner.lr=log(0.1,1)"),
        ("log(0,1)", "log takes numbers above 0"),
        ("log(1e-3)", "a range has two numbers"),
        ("uniform(a,b)", "a range has two numbers"),
        ("uniform(1,inf)", "a range has two numbers"),
        ("int(1,2.5)", "int takes whole numbers"),
        ("int(3,3)", "write inner.lr=3"),
        ("logg(1,2)", "there is no range 'logg' (did you mean 'log'?)"),
        (f"int(1,{'9' * 400})", "a range has two numbers"),
    ],
)
def test_a_range_that_is_none_is_told_with_one_that_is(typed: str, told: str) -> None:
    with pytest.raises(UserError) as error:
        make_space("sine-maml", [f"inner.lr={typed}"])
    assert told in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_every_mistake_of_a_command_is_told_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["inner.lr=log(1,0.1)", "inner.steps=uniform(1,5)", "seed=[0,1]", "outer.stpes=3", "word"]
    code = main(["sweep", "sine-maml", *words, "--trials", "0", "--sampler", "tpee"])
    lines = capfd.readouterr().err.splitlines()
    expected = [
        "--trials 0 draws nothing",
        "--sampler is tpe or random, not 'tpee' (did you mean 'tpe'?)",
        "'word' is not a setting",
        "the smaller number comes first",
        "seed is not to be searched for",
        "unknown setting 'outer.stpes'",
        "inner.steps must be a whole number of at least 0, not 1.0",
        "inner.steps must be a whole number of at least 0, not 2.527864",
    ]
    missing = [text for text in expected if not any(text in line for line in lines)]
    assert code == 2
    assert missing in ([], ["inner.steps must be a whole number of at least 0, not 1.0"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["inner.lr=log(1e-3,1)"], "such as --trials 20"),
        (["seed=[0,1]", "--jobs", "2", "--cluster", "tcp://there:8786"], "a cluster has workers of its own"),
        (["seed=[0,1]", "--sampler", "random"], "also say how many, such as --trials 20"),
        (["--trials", "3"], "a sweep needs at least one range or list"),
        (["inner.lr=[]", "--trials", "3"], "sweeps over nothing"),
    ],
)
def test_options_that_do_not_go_together(
    words: list[str], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "sine-maml", *words]) == 2
    assert told in capfd.readouterr().err


@pytest.mark.parametrize(
    ("version", "told"), [(None, "it is not installed"), ("4.0.1", "4.0.1 is installed")]
)
def test_without_optuna_one_sentence_says_what_to_do(
    version: str | None, told: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    there = module_from_spec(ModuleSpec("optuna", None))
    monkeypatch.setitem(sys.modules, "optuna", there)  # whether or not it is installed
    monkeypatch.setattr("innerloop.experiment.sweeps.study.version_of", lambda _: version)
    assert main(["sweep", "sine-maml", "seed=[0,1]", "--prune", "run.folder=here"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert told in line
    assert "pip install 'innerloop[optuna]'" in line
    assert not Path("here").exists()


# ---- what was drawn ----


def test_only_values_that_were_asked_for_are_read_from_kept_draws(tmp_path: Path) -> None:
    space, _ = make_space(
        "sine-maml", ["inner.lr=log(1e-3,1)", "inner.steps=int(1,4)", "inner.method=[maml,anil]"]
    )
    good = {"inner.lr": 0.1, "inner.steps": 2, "inner.method": "anil"}
    keep_draws(tmp_path, [good, good])
    assert kept_draws(tmp_path, space) == [good, good]
    for key, value in (
        ("inner.lr", 7.0),
        ("inner.steps", 9),
        ("inner.method", "os:system"),
        ("inner.lr", "x"),
        ("inner.steps", True),
    ):
        keep_draws(tmp_path, [good, {**good, key: value}])
        with pytest.raises(UserError, match=r"draws.json is damaged: move it away"):
            kept_draws(tmp_path, space)
    cell = space.cell(7, good)
    assert cell.label == "0007+lr=0.1+steps=2+method=anil"
    assert (cell.recipe.inner.lr, cell.recipe.inner.steps, cell.recipe.inner.method) == (0.1, 2, "anil")


@with_optuna
def test_a_grid_can_be_told_to_optuna() -> None:
    cells = make_cells("sine-maml", ["model.hidden=[[4],[4,4]]", "seed=[0,1]"])
    values: dict[str, list[Any]] = {"model.hidden": [[4], [4, 4]], "run.seed": [0, 1]}
    space = make_space("sine-maml", ["inner.lr=[0.1]"])[0]._replace(choices=values)
    study = Study("s", "mse", space)
    assert [study.add(cell.settings) for cell in cells] == [cell.settings for cell in cells]


@pytest.mark.usefixtures("in_workers")
def test_runs_that_were_there_before_are_not_counted_as_done_now(capsys: pytest.CaptureFixture[str]) -> None:
    sweep("sine-maml", GRID, jobs=1, progress=False)
    sweep("sine-maml", GRID, jobs=1)
    said = capsys.readouterr().err
    assert said.count("finished before") == 3
    assert "3/3" in said
    assert "runs/" not in said.partition("3/3")[2]  # no pace: nothing was run


@with_optuna
@pytest.mark.usefixtures("in_workers")
def test_random_draws_depend_on_their_number_and_more_can_be_drawn_later() -> None:
    drawn = ["inner.lr=log(1e-3,0.1)", "inner.method=[maml,fomaml]", *GRID[1:]]
    options: dict[str, Any] = {"sampler": "random", "progress": False}
    two = sweep("sine-maml", drawn, trials=2, jobs=2, **options)
    three = sweep("sine-maml", drawn, trials=3, jobs=1, **options)
    assert len(two.runs) == 2
    assert len(three.runs) == 3
    assert set(two.runs) < set(three.runs)
    (three.folder / DRAWS).unlink()
    again = sweep("sine-maml", drawn, trials=3, jobs=1, **options)
    points = [row.settings for row in three.table]
    assert points == [row.settings for row in again.table]
    assert three.runs == again.runs
    assert all(0.001 <= point["inner.lr"] <= 0.1 for point in points)
    validations = [row.validation for row in three.table]
    assert validations == sorted(validations)
    assert json.loads((three.folder / "sweep.json").read_text())["table"] == three.as_dict()["table"]


@pytest.mark.slow
@with_optuna
@pytest.mark.usefixtures("in_workers")
def test_a_sweep_that_draws_knows_after_a_stop_what_it_knew_before() -> None:
    """The estimator of densities draws by what is finished: the same draws mean the same knowledge."""
    drawn = ["inner.lr=log(1e-3,0.1)", *GRID[1:], "outer.steps=2"]
    drawn.remove("outer.steps=6")
    whole = sweep("sine-maml", drawn, trials=13, jobs=1, progress=False)
    draws = json.loads((whole.folder / DRAWS).read_text())
    for run in whole.runs:
        if int(run.parent.name[:4]) > 10:
            shutil.rmtree(run)
    (whole.folder / DRAWS).write_text(json.dumps(draws[:11]))
    again = sweep("sine-maml", drawn, trials=13, jobs=1, progress=False)
    assert json.loads((whole.folder / DRAWS).read_text()) == draws
    assert again.table == whole.table


def fails_at_one_rate(job: RunJob) -> RunEnd:
    if "lr=0.01" in job.label:
        return RunEnd(None, "the disk is \x1b[2J full")
    return run_here(job)


@pytest.mark.usefixtures("in_workers")
def test_a_run_that_fails_is_tried_again_by_the_same_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sweep_module, "carry_out", fails_at_one_rate)
        with pytest.raises(UserError, match=r"lr=0.01 failed .*run the same sweep again"):
            sweep("sine-maml", GRID, jobs=1, progress=False)
    (kept,) = Path("runs").glob("*/*/*/manifest.json")
    done = sweep("sine-maml", GRID, jobs=2, progress=False)
    assert [row.mean is None for row in done.table] == [False] * 3
    assert kept.parent in done.runs


def dies_after_checkpoints(job: RunJob) -> RunEnd:
    """The worker is killed right after the second checkpoint of its first run."""
    from innerloop.experiment import session as recorder

    if not Path("died").exists():
        save, left = recorder.save_checkpoint, iter((1, 0))

        def saved(*arguments: Any, **named: Any) -> Any:
            done = save(*arguments, **named)
            if next(left) == 0:
                Path("died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        recorder.save_checkpoint = saved
    return run_here(job)


@forks
@pytest.mark.usefixtures("in_workers")
def test_the_run_of_a_killed_worker_is_finished_by_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = sweep("sine-maml", [*GRID, "run.folder=alone"], jobs=1, progress=False)
    monkeypatch.setattr(sweep_module, "carry_out", dies_after_checkpoints)
    result = sweep("sine-maml", [*GRID, "run.folder=killed"], jobs=2)
    assert Path("died").exists()
    assert "its work is done again" in capsys.readouterr().err
    assert result.table == whole.table
    assert len(list(Path("killed").glob("*/*/*/manifest.json"))) == 3  # it went on in its directory
    logs = [(run / "log.txt").read_text() for run in result.runs]
    assert any("execution as before" in log for log in logs)


# ---- pruning ----


@with_optuna
def test_a_run_that_is_clearly_worse_is_known() -> None:
    seeds = list(range(BEFORE_PRUNING + 2))
    space = make_space("sine-maml", ["inner.lr=[0.1]"])[0]._replace(choices={"run.seed": seeds})
    study = Study("s", "mse", space)
    for seed in seeds:
        study.add({"run.seed": seed})
    for number in range(BEFORE_PRUNING):
        study.report(number, [Validated(2, 1.0 + number, 0.1)])
        study.end(number, 0.5)
    near, far = BEFORE_PRUNING, BEFORE_PRUNING + 1
    assert not study.clearly_worse(near, [Validated(2, 3.4, 0.5)])  # the median is 3: its interval holds it
    assert study.clearly_worse(far, [Validated(2, 3.6, 0.5)])
    assert not study.clearly_worse(far, [Validated(4, 9.0, 0.5)])  # nobody was judged at that step


def waits_to_be_stopped(job: RunJob) -> RunEnd:
    """The run with the largest rate is bad, and goes on until it is told to stop."""
    from innerloop.experiment.recipe.settings import recipe_from_toml
    from innerloop.runs.directory import create_run

    folder = Path(job.folder)
    recipe = recipe_from_toml(Path(job.file))
    bad = recipe.run.seed == BEFORE_PRUNING
    if not bad:
        return run_here(job)
    run = create_run(folder, job.label, recipe.run.seed)
    (run / "recipe.toml").write_text(Path(job.file).read_text())
    start_manifest(run, None, "")
    (run / "metrics.jsonl").write_text(json.dumps({"step": 2, "validation": 1e9, "ci95": 0.5}) + "\n")
    wait_until((folder / STOPS / job.label).exists)
    return RunEnd(str(run), interrupted=True)


@with_optuna
@forks
@pytest.mark.usefixtures("in_workers")
def test_a_run_that_is_clearly_worse_stops_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep_module, "carry_out", waits_to_be_stopped)
    grid = [f"seed={list(range(BEFORE_PRUNING + 1))}", *GRID[1:]]
    with pytest.raises(UserError, match="finite score"):  # one row, of all seeds, and one of them stopped
        sweep("sine-maml", grid, jobs=1, prune=True)
    said = capsys.readouterr().err
    reason = "pruned at step 2 of 6: validation 1e+09 ± 0.5 is worse than the median of finished runs"
    assert f"seed={BEFORE_PRUNING}: {reason}" in said
    (run,) = list_runs_of(next(Path("runs").glob("sweep-*")), f"seed={BEFORE_PRUNING}")
    manifest = read_manifest(run)
    assert (manifest["status"], bool(manifest["ended"])) == ("pruned", True)
    assert manifest["reason"].startswith(reason)
    from innerloop.report import write_page

    assert "finished runs were better" in write_page([run]).read_text()


def test_a_stop_file_ends_a_run_with_a_checkpoint(tmp_path: Path) -> None:
    (cell,) = make_cells("sine-maml", ["seed=[0]", *GRID[1:], "outer.steps=100000"][:-1])
    long = cell.recipe.model_copy(update={"outer": cell.recipe.outer.model_copy(update={"steps": 100_000})})
    job = job_of(cell._replace(recipe=long), tmp_path, 1)
    ended: list[RunEnd] = []
    thread = threading.Thread(target=lambda: ended.append(carry_out(job)))
    thread.start()
    wait_until(lambda: any(tmp_path.glob("*/*/metrics.jsonl")))
    stop_run(tmp_path, job.label)
    thread.join()
    (end,) = ended
    assert end.interrupted
    assert end.run is not None
    assert read_status(Path(end.run)) == "interrupted"


# ---- the command ----


@pytest.mark.slow
@with_optuna
def test_the_command_draws_and_writes_a_page(capfd: pytest.CaptureFixture[str]) -> None:
    few = [item for item in TINY if "outer.steps" not in item]
    words = ["sweep", "sine-maml", *few, "outer.steps=200", "eval.every=50", "inner.steps=int(1,3)"]
    words += ["inner.lr=log(1e-6,0.05)", "--trials", "3", "--prune"]
    assert main(words) == 0
    shown = capfd.readouterr()
    assert "best validation first" in shown.out
    (page,) = [line.removeprefix("page: ") for line in shown.out.splitlines() if line.startswith("page: ")]
    assert Path(page).is_file()
    states = [read_status(file.parent) for file in Path("runs").glob("*/*/*/manifest.json")]
    assert states == ["finished"] * 3  # too few are finished for others to be compared with


@pytest.mark.parametrize(("reason", "told"), [("stopped early", False), ("not finite", True)])
def test_only_a_run_that_diverged_has_a_score_that_is_not_finite(
    reason: str, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    from innerloop.cli.sweep import _render

    row = {"settings": {"outer.lr": 0.1}, "score": "mse", "mean": None, "ci95": None, "over": "1 of 1 runs"}
    row |= {"validation": None, "judged_by": "", "reason": reason, "difference": None}
    _render({"table": [row], "runs": ["a"], "folder": "runs", "notes": []})
    assert ("mse is not finite" in capsys.readouterr().out) is told
