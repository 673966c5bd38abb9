"""Sweeps that processes share through a folder: ranges, claims, pruning, and an ordinary Optuna study."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

import pytest

from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.core.files import write_json_atomic
from innerloop.experiment.sweeps import runs as sweep_runs
from innerloop.experiment.sweeps import shared as sweep_shared
from innerloop.experiment.sweeps import sweep as sweep_module
from innerloop.experiment.sweeps.grid import make_cells, make_space
from innerloop.experiment.sweeps.journal import JOURNAL, optuna_problem
from innerloop.experiment.sweeps.points import Points
from innerloop.experiment.sweeps.ranges import Range, read_range
from innerloop.experiment.sweeps.runs import Validated, list_runs_of, read_status
from innerloop.experiment.sweeps.sweep import sweep
from innerloop.runs.manifest import read_manifest, start_manifest
from support.commands import TINY, answer, finish, start

pytestmark = pytest.mark.usefixtures("own_folder")

with_optuna = pytest.mark.skipif(bool(optuna_problem()), reason=optuna_problem())
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, and kills what it forked")

FIXED = ["outer.steps=6", "run.save_every=2", "run.log_every=1", "eval.every=2", "inner.steps=1"]
GRID = ["inner.lr=[0.001,0.01,0.02]", *FIXED, *(item for item in TINY if not item.startswith("outer.steps"))]


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs train where they are asked for: no new Python, no page."""
    monkeypatch.setattr(sweep_shared, "run_cell", _run_here)
    monkeypatch.setattr("innerloop.experiment.pages.write_report", _small_page)
    monkeypatch.setattr(sweep_shared, "POLL", 0.02)


def _run_here(cell: Any, folder: Path, share: int, say: Any, running: Any, watch: Any = None) -> Path:
    from innerloop.experiment.recipe.settings import recipe_from_toml
    from innerloop.experiment.run import resume, train

    earlier = list_runs_of(folder, cell.label)
    if earlier and read_status(earlier[-1]) in sweep_runs.ENDED:
        return earlier[-1]
    if earlier:
        return resume(earlier[-1], progress=False).run
    recipe = recipe_from_toml(sweep_runs._cell_file(cell, folder, share))
    return train(recipe, progress=False).run


def _small_page(runs: list[Path], out: Path) -> Path:
    out.write_text("\n".join(map(str, runs)))
    return out


def plain_study(folder: Path) -> Any:
    """The study as somebody opens it who has only Optuna."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
    (name,) = optuna.get_all_study_names(storage)
    return optuna.load_study(study_name=name, storage=storage)


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
        (["seed=[0,1]", "--prune"], "--prune compares runs in a shared folder"),
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
    monkeypatch.setattr("innerloop.experiment.sweeps.journal.version_of", lambda _: version)
    assert main(["sweep", "sine-maml", "seed=[0,1]", "--storage", "here"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert told in line
    assert "pip install 'innerloop[optuna]'" in line
    assert not Path("here").exists()


# ---- what a study may say ----


def test_only_values_that_were_asked_for_are_read_from_a_study() -> None:
    space, _ = make_space(
        "sine-maml", ["inner.lr=log(1e-3,1)", "inner.steps=int(1,4)", "inner.method=[maml,anil]"]
    )
    points = Points(space)
    good = {"inner.lr": 0.1, "inner.steps": 2, "inner.method": "anil"}
    assert points.settings(good) == good
    for key, value in (
        ("inner.lr", 7.0),
        ("inner.steps", 9),
        ("inner.method", "os:system"),
        ("inner.lr", "x"),
    ):
        assert points.settings({**good, key: value}) is None
        assert not points.is_asked_for({**good, key: value})
    assert points.is_asked_for({})  # not drawn yet
    assert points.identity(7, good, {"first": "../.."}) == 7
    cell = points.cell(7, good)
    assert cell is not None
    assert cell.label == "0007+lr=0.1+steps=2+method=anil"
    assert (cell.recipe.inner.lr, cell.recipe.inner.steps, cell.recipe.inner.method) == (0.1, 2, "anil")


def test_a_grid_knows_its_cells_by_their_values() -> None:
    cells = make_cells("sine-maml", ["model.hidden=[[4],[4,4]]", "seed=[0,1]"])
    values: dict[str, list[Any]] = {"model.hidden": [[4], [4, 4]], "run.seed": [0, 1]}
    points = Points(make_space("sine-maml", ["inner.lr=[0.1]"])[0]._replace(choices=values), cells)
    for cell in cells:
        told = {"model.hidden": str(cell.settings["model.hidden"]), "run.seed": cell.settings["run.seed"]}
        assert points.cell(points.identity(0, told, {}), told) is cell
    assert not points.is_asked_for({"model.hidden": "[5]", "run.seed": 0})
    assert not points.is_asked_for({})


# ---- together ----


def _work(where: str, out: str, kill_after: int = 0) -> None:
    """One process of a sweep; it is killed, if told so, right after so many checkpoints."""
    if kill_after:
        from innerloop.experiment import run

        save, left = run.save_checkpoint, iter(range(kill_after - 1, -1, -1))

        def saved(*arguments: Any, **named: Any) -> Any:
            done = save(*arguments, **named)
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        run.save_checkpoint = saved
    result = sweep("sine-maml", GRID, jobs=1, progress=False, storage=where)
    Path(out).write_text(json.dumps(result.as_dict()))


def forked(*arguments: Any) -> Any:
    process = multiprocessing.get_context("fork").Process(target=_work, args=arguments)
    process.start()
    return process


@with_optuna
@forks
@pytest.mark.usefixtures("in_process")
def test_processes_join_and_the_run_of_a_killed_one_is_finished_by_another(tmp_path: Path) -> None:
    whole = sweep("sine-maml", GRID, jobs=1, progress=False, storage="alone")
    killed = forked("shared", "none.json", 2)
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    (half,) = list(Path("shared").glob("*/*/*/manifest.json"))
    assert read_manifest(half.parent)["status"] == "running"
    others = [forked("shared", f"{i}.json") for i in range(2)]
    for process in others:
        process.join()
    assert [process.exitcode for process in others] == [0, 0]
    first, second = (json.loads(Path(f"{i}.json").read_text()) for i in range(2))
    assert first == second
    numbers = [(row["settings"], row["mean"], row["ci95"], row["validation"]) for row in first["table"]]
    assert numbers == [(row.settings, row.mean, row.ci95, row.validation) for row in whole.table]
    assert (
        len(list(Path("shared").glob("*/*/*/manifest.json"))) == 3
    )  # the killed run went on in its directory
    assert "execution as before" in (half.parent / "log.txt").read_text()
    study = plain_study(Path("shared"))
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3
    assert sorted(trial.params["inner.lr"] for trial in study.trials) == [0.001, 0.01, 0.02]
    assert study.best_value == min(row["validation"] for row in first["table"])
    assert all(list(trial.intermediate_values) == [2, 4, 6] for trial in study.trials)


@pytest.mark.usefixtures("in_process")
def test_runs_that_were_there_before_are_not_counted_as_done_now(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sweep_module, "run_cell", _run_here)
        sweep("sine-maml", GRID, jobs=1, progress=False)
    sweep("sine-maml", GRID, jobs=1)
    said = capsys.readouterr().err
    assert said.count("finished before") == 3
    assert "3/3" in said
    assert "runs/" not in said.partition("3/3")[2]  # no pace: nothing was run


@with_optuna
@pytest.mark.usefixtures("in_process")
def test_random_draws_depend_on_their_number_and_more_can_be_drawn_later() -> None:
    drawn = ["inner.lr=log(1e-3,0.1)", "inner.method=[maml,fomaml]", *GRID[1:]]
    options: dict[str, Any] = {"sampler": "random", "progress": False}
    two = sweep("sine-maml", drawn, trials=2, storage="here", jobs=2, **options)
    three = sweep("sine-maml", drawn, trials=3, storage="here", jobs=1, **options)
    again = sweep("sine-maml", drawn, trials=3, storage="there", jobs=1, **options)
    assert len(two.runs) == 2
    assert len(three.runs) == 3
    assert set(two.runs) < set(three.runs)
    points = [row.settings for row in three.table]
    assert points == [row.settings for row in again.table]
    assert all(0.001 <= point["inner.lr"] <= 0.1 for point in points)
    validations = [row.validation for row in three.table]
    assert validations == sorted(validations)


@with_optuna
@pytest.mark.usefixtures("in_process")
def test_a_run_that_fails_is_left_to_the_next_that_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(cell: Any, *rest: Any) -> Path:
        if cell.settings["inner.lr"] == 0.01:
            raise sweep_runs.FailedRunError(cell.label, "the disk is \x1b[2J full")
        return _run_here(cell, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(sweep_shared, "run_cell", fails)
        with pytest.raises(UserError, match=r"lr=0.01 failed .*run the same sweep again"):
            sweep("sine-maml", GRID, jobs=1, progress=False, storage="here")
    done = sweep("sine-maml", GRID, jobs=1, progress=False, storage="here")
    assert [row.mean is None for row in done.table] == [False] * 3
    states = [trial.state.name for trial in plain_study(Path("here")).trials]
    assert sorted(states) == ["COMPLETE", "COMPLETE", "COMPLETE", "FAIL"]


# ---- pruning ----


class _Child:
    """A process that remembers how it was ended."""

    ended = ""

    def terminate(self) -> None:
        self.ended = "terminated"

    def kill(self) -> None:
        self.ended = "killed"


@with_optuna
def test_a_run_that_is_clearly_worse_stops_and_says_so(tmp_path: Path) -> None:
    from innerloop.experiment.sweeps.study import BEFORE_PRUNING, SharedStudy

    seeds = list(range(BEFORE_PRUNING + 2))
    cells = make_cells("sine-maml", [f"seed={seeds}", "outer.steps=6"])
    space = make_space("sine-maml", ["inner.lr=[0.1]"])[0]._replace(choices={"run.seed": seeds})
    study = SharedStudy(tmp_path, "s", "mse", Points(space, cells))
    study.fill()
    for _ in range(BEFORE_PRUNING):
        piece = study.take()
        assert piece is not None
        study.report(piece, [Validated(2, 1.0 + piece.number, 0.1)])
        study.end(piece, "there", 0.5)
        piece.claim.release()
    near, far = study.take(), study.take()
    assert near is not None
    assert far is not None
    assert not study.clearly_worse(near, [Validated(2, 3.4, 0.5)])  # the median is 3: its interval holds it
    assert study.clearly_worse(far, [Validated(2, 3.6, 0.5)])
    assert not study.clearly_worse(far, [Validated(4, 9.0, 0.5)])  # nobody was judged at that step
    run = tmp_path / "s" / far.cell.label / "20260102-030405-s0"
    run.mkdir(parents=True)
    start_manifest(run, None, "")
    (run / "metrics.jsonl").write_text(json.dumps({"step": 2, "validation": 3.6, "ci95": 0.5}) + "\n")
    for prune, ended in ((False, ""), (True, "terminated")):
        watch, child = sweep_shared._Watch(study, far, prune), _Child()
        watch(child)  # type: ignore[arg-type]
        watch(child)  # type: ignore[arg-type]
        assert child.ended == ended
    sweep_runs.mark_pruned(run, watch.pruned)
    manifest = read_manifest(run)
    assert manifest["status"] == "pruned"
    assert manifest["ended"]
    assert "pruned at step 2 of 6: validation 3.6 ± 0.5 is worse than the median" in manifest["reason"]
    from innerloop.report import write_page

    assert "finished runs were better" in write_page([run]).read_text()


@with_optuna
def test_a_process_that_lost_its_claim_ends_its_run_at_once(tmp_path: Path) -> None:
    from innerloop.experiment.sweeps.study import SharedStudy

    cells = make_cells("sine-maml", ["seed=[0]"])
    space = make_space("sine-maml", ["inner.lr=[0.1]"])[0]._replace(choices={"run.seed": [0]})
    study = SharedStudy(tmp_path, "s", "mse", Points(space, cells))
    study.fill()
    piece = study.take()
    assert piece is not None
    write_json_atomic(tmp_path / "s" / "claims" / "trial-0~2", {})
    watch, child = sweep_shared._Watch(study, piece, False), _Child()
    watch(child)  # type: ignore[arg-type]
    assert watch.lost
    assert child.ended == "killed"


# ---- damage ----


@with_optuna
def test_half_a_line_at_the_end_of_the_journal_is_cut_off_and_other_damage_is_told(tmp_path: Path) -> None:
    from innerloop.experiment.sweeps.study import SharedStudy

    cells = make_cells("sine-maml", ["seed=[0]"])
    space = make_space("sine-maml", ["inner.lr=[0.1]"])[0]._replace(choices={"run.seed": [0]})
    SharedStudy(tmp_path, "s", "mse", Points(space, cells)).fill()
    file = tmp_path / JOURNAL
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"op_code": 4, "wor')
    study = SharedStudy(tmp_path, "s", "mse", Points(space, cells))
    study.fill()
    assert study.unfinished() == [0]
    assert file.read_bytes().startswith(whole)
    file.write_bytes(b"not a journal\nat all\n")
    with pytest.raises(UserError, match=r"optuna.journal is damaged .*move it away"):
        SharedStudy(tmp_path, "s", "mse", Points(space, cells))


# ---- the command ----


def under_way(folder: str) -> list[Path]:
    files = Path(folder).glob("*/*/*/metrics.jsonl")
    return [file.parent for file in files if file.read_text().count("\n") > 5]


@pytest.mark.slow
@with_optuna
@forks
def test_three_commands_share_a_sweep_and_one_is_killed() -> None:
    from oracles.patience import wait_until

    words = ["sweep", "sine-maml", *GRID, "outer.steps=600", "--jobs", "1"]
    words.remove("outer.steps=6")
    words.remove("eval.every=2")
    first = start(*words, "--storage", "shared", start_new_session=True)
    wait_until(lambda: first.poll() is not None or bool(under_way("shared")))
    (run,) = under_way("shared")
    others = [start(*words, "--storage", "shared", "--json") for _ in range(2)]
    time.sleep(1)
    first.kill()
    first.communicate()
    ended = [finish(process) for process in others]
    assert [code for code, _, _ in ended] == [0, 0], ended[0][2]
    tables = [answer(out)["table"] for _, out, _ in ended]
    assert tables[0] == tables[1]
    assert Path(answer(ended[0][1])["report"]).is_file()
    code, out, err = finish(start(*words, "--storage", "alone", "--json"))
    assert code == 0, err
    assert [row["mean"] for row in answer(out)["table"]] == [row["mean"] for row in tables[0]]
    assert read_manifest(run)["status"] == "finished"


@pytest.mark.slow
@with_optuna
def test_the_command_draws_and_writes_a_page(capfd: pytest.CaptureFixture[str]) -> None:
    few = [item for item in TINY if "outer.steps" not in item]
    words = ["sweep", "sine-maml", *few, "outer.steps=200", "eval.every=50", "inner.steps=int(1,3)"]
    words += ["inner.lr=log(1e-6,0.05)", "--trials", "3", "--prune", "--storage", "here"]
    assert main(words) == 0
    shown = capfd.readouterr()
    assert "best validation first" in shown.out
    (page,) = [line.removeprefix("page: ") for line in shown.out.splitlines() if line.startswith("page: ")]
    assert Path(page).is_file()
    states = [trial.state.name for trial in plain_study(Path("here")).trials]
    assert states == ["COMPLETE"] * 3  # too few are finished for others to be compared with


@pytest.mark.parametrize(("reason", "told"), [("stopped early", False), ("not finite", True)])
def test_only_a_run_that_diverged_has_a_score_that_is_not_finite(
    reason: str, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    from innerloop.cli.sweep import _render

    row = {"settings": {"outer.lr": 0.1}, "score": "mse", "mean": None, "ci95": None, "over": "1 of 1 runs"}
    row |= {"validation": None, "judged_by": "", "reason": reason, "difference": None}
    _render({"table": [row], "runs": ["a"], "folder": "runs", "notes": []})
    assert ("mse is not finite" in capsys.readouterr().out) is told
