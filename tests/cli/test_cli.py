"""The command: JSON contract, exit codes, help without torch, and one clear sentence for every mistake."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from innerloop import __version__
from innerloop.cli.main import VERBS, main
from innerloop.core.statistics import paired_difference
from innerloop.experiment.recipe.library import load_recipe, shipped_names, shipped_text
from innerloop.experiment.recipe.problems import known_settings
from innerloop.runs.checkpoints import checkpoint_step
from innerloop.runs.manifest import read_manifest, update_manifest
from oracles.patience import PATIENCE, wait_until
from support.commands import TINY, answer, finish, start

pytestmark = pytest.mark.usefixtures("own_folder")


# ---- starting ----


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["ls"],
        ["train", "--help"],
        ["show", "--schema"],
        ["train", "sine-maml", "typo"],
        ["analyze", "rate", "sine-maml", "stpes=3", "shots=5"],
    ],
)
def test_starting_does_not_import_torch(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom innerloop.cli.main import main\n"
        f"main({arguments!r})\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'sklearn'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train typo", b"called 'typo'"),
        ("analyze landscape linear-maml --page x.html", b"leave out the recipe"),
        ("analyze landscape --page a.pdf", b"must end in .html"),
        ("advise glyphs --page a.pdf", b"must end in .html"),
    ],
)
def test_what_cannot_be_is_refused_without_torch(words: str, said: bytes) -> None:
    code = (
        "import sys\nfrom innerloop.cli.main import main\n"
        f"main({words.split()})\nsys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, timeout=PATIENCE)
    assert (done.returncode, said in done.stderr) == (0, True)


def test_version_and_module() -> None:
    assert finish(start("--version")) == (0, f"innerloop {__version__}\n", "")


def test_no_arguments_give_help(call: Any) -> None:
    code, out, _ = call()
    assert code == 0
    assert "innerloop train sine-maml" in out
    assert all(verb in out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(verb: str, call: Any) -> None:
    code, out, _ = call(verb, "--help")
    assert code == 0
    assert "--json" in out
    assert "JSON:" in out
    assert "\\b" not in out


def test_a_page_is_a_file_for_every_verb(call: Any) -> None:
    """``--page`` means the same wherever it is; a name that no page can have is refused before any work."""
    from typer.main import get_command

    from innerloop.cli.main import app

    pages = {
        name: option
        for name, command in get_command(app).commands.items()  # type: ignore[attr-defined]
        for option in command.params
        if "--page" in option.opts
    }
    assert {"predict", "advise", "analyze", "report"} <= pages.keys()
    assert {(page.metavar, page.is_flag) for page in pages.values()} == {("FILE.html", False)}
    for words in (["advise", "glyphs"], ["analyze", "landscape"], ["report", "last"]):
        code, _, err = call(*words, "--page", "a.pdf")
        assert (code, "--page a.pdf must end in .html" in err or "no run" in err) == (2, True), err
    assert list(Path().iterdir()) == []


def test_what_is_hinted_at_is_accepted(call: Any) -> None:
    """An option that a verb does not have is not suggested as a setting that it does not have either."""
    code, _, err = call("search", "glyphs", "--page", "search.html")
    assert code == 2
    assert "there is no such option" in err
    assert "page=" not in err
    code, _, err = call("advise", "glyphs", "page=my advice.html")
    assert (code, err) == (2, "error: 'page' is an option: write --page 'my advice.html'\n")


def test_train_help_points_to_the_schema(call: Any) -> None:
    _, out, _ = call("train", "--help")
    assert "innerloop show sine-maml --schema" in " ".join(out.split()).replace("sine- maml", "sine-maml")


# ---- mistakes ----


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["trian"], "there is no verb 'trian' (did you mean 'train'?)"),
        (["sine-maml"], "'sine-maml' is a recipe: `innerloop train sine-maml` trains it"),
        (["train"], "missing argument 'RECIPE'; `innerloop train --help`"),
        (["train", "mini-protonet"], "(did you mean 'mini-imagenet-protonet'?)"),
        (["train", "./nofolder/"], "there is no folder ./nofolder/."),
        (["advise", "my/pictures"], "there is no folder my/pictures."),
        (["search", "cifar"], "(did you mean 'cifar-fs'?)"),
        (["eval", "--backbone", "resnet50", "data.name=glyphs"], "(did you mean 'timm:resnet50'?)"),
        (["train", "sine-mam"], "called 'sine-mam' (did you mean 'sine-maml'?)"),
        (["train", "inner.lr=1", "sine-maml"], "the recipe comes first"),
        (
            ["train", "sine-maml", "--steps", "5"],
            "'--steps 5': there is no such option, and settings have no dashes (did you",
        ),
        (["train", "sine-maml", "--outer.steps=5"], "settings have no dashes, write outer.steps=5"),
        (["train", "sine-maml", "--jsn"], "there is no option --jsn (did you mean '--json'?)"),
        (
            ["train", "sine-maml", "inner.stps=5"],
            "unknown setting 'inner.stps' (did you mean 'inner.steps'?)",
        ),
        (["train", "sine-maml", "tasks.settings.amplitud=[1,2]"], "tasks.settings.amplitud is not a setting"),
        (["train", "sine-maml", "tasks.family=sin"], "unknown task family 'sin' (did you mean 'sine'?)"),
        (["train", "sine-maml", "outer.optimiser=adm"], "adm"),
        (["train", "sine-maml", "run.device=gpu"], "gpu"),
        (["resume", "last"], "there are none under runs/ yet"),
        (["resume", "last", "seed=1"], "resume takes a run and nothing else"),
        (["eval", "nothing"], "no run 'nothing'"),
        (["report", "nothing"], "no run 'nothing'"),
        (["report"], "missing argument"),
        (["show"], "show what?"),
        (["show", "sine-mamm"], "'sine-mamm' is neither a recipe (did you mean 'sine-maml'?) nor a run"),
        (["show", "last", "seed=1"], "a run has its settings"),
        (["ls", "recipe"], "ls knows recipes, runs, benchmarks, not 'recipe' (did you mean 'recipes'?)"),
        (["doctor", "--foo"], "no such option: --foo; `innerloop doctor --help`"),
        (["sweep", "sine-maml"], "a sweep needs at least one list"),
        (["sweep", "sine-maml", "seed=[0,1]", "--jobs", "0"], "--jobs"),
    ],
)
def test_mistakes_get_a_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, call: Any, tmp_path: Path
) -> None:
    code, out, err = call(*arguments)
    assert code == 2
    assert sentence in err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []  # and nothing was made


def test_four_mistakes_four_lines(call: Any) -> None:
    code, _, err = call("train", "sine-maml", "inner.stps=1", "inner.steps=x", "outer.lr=-1", "zebra=1")
    assert code == 2
    assert len(err.splitlines()) == 4
    assert all(line.startswith("error: ") for line in err.splitlines())


MANY = ["inner.stpes=3", "inner.steps=-1", "outer.lr=0", "tasks.shots=x"]
TOLD = [
    "unknown setting 'inner.stpes' (did you mean 'inner.steps'?)",
    "tasks.shots must be a whole number of at least 1, not 'x'",
    "inner.steps must be a whole number of at least 0, not -1",
    "outer.lr must be a number above 0, not 0",
]


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (["train", "sine-maml"], []),
        (["show", "sine-maml"], []),
        (["train", "nosuch"], ["there is no recipe, dataset, folder or family of tasks called 'nosuch'"]),
        (["train", "sine-maml", "--jsn"], ["there is no option --jsn (did you mean '--json'?)"]),
        (["sweep", "sine-maml"], ["a sweep needs at least one list"]),
        (["sweep", "sine-maml", "seed=[0,1]"], []),
        (["sweep", "sine-maml", "seed=[]", "run.chunk=[1,2]"], ["run.seed=[] sweeps over nothing"]),
        (["eval", "nosuch"], ["no run 'nosuch'"]),
        (["eval", "nosuch", "--against", "neither"], ["no run 'nosuch'", "no run 'neither'"]),
        (["analyze", "rate", "sine-maml"], []),
    ],
)
def test_no_mistake_hides_another(words: list[str], first: list[str], call: Any) -> None:
    code, _, shown = call(*words, *MANY)
    lines = [line.removeprefix("error: ") for line in shown.splitlines()]
    assert code == 2
    assert lines[len(first) :] == TOLD
    assert all(text in line for text, line in zip(first, lines, strict=False))


def test_one_bad_cell_of_a_sweep_is_told_with_the_rest(call: Any) -> None:
    _, _, shown = call("sweep", "sine-maml", "inner.lr=[0.1,fast]", "outer.objective=[erm,multitask]", "word")
    assert shown.splitlines() == [
        "error: 'word' is not a setting: write key=value without spaces, such as inner.steps=3",
        "error: outer.objective=multitask keeps one head per task: set tasks.n_tasks, for example 100.",
        "error: inner.lr must be a number, or auto, not 'fast'",
    ]


def test_mistakes_that_only_the_parts_know_are_told_at_once(call: Any) -> None:
    items = ["model.kind=mpl", "model.outputs=7", "outer.optimiser=adamm", "inner.loss=cross-entropy"]
    code, _, shown = call("train", "sine-maml", *items, "outer.loss=cross-entropy", "run.device=nowhere")
    starts = [
        "run.device=nowhere does",
        "unknown model.kind 'mpl'",
        "tasks.family=sine has numbers as targets",
    ]
    starts += ["tasks.family=sine has numbers as targets", "model.outputs=7 does", "unknown outer.optimiser"]
    assert code == 2
    for words, line in zip(starts, shown.splitlines(), strict=True):
        assert line.startswith(f"error: {words}")
    _, _, shown = call("train", "sine-maml", "tasks.settings.a=1", "tasks.settings.b=1", "outer.options.c=1")
    for words, line in zip(
        ("tasks.settings.a", "tasks.settings.b", "outer.options"), shown.splitlines(), strict=True
    ):
        assert line.startswith(f"error: {words}")
    assert not Path("runs").exists()


def test_a_doubtful_setting_is_named_beside_the_mistakes(call: Any) -> None:
    code, out, shown = call("train", "sine-maml", "inner.stpes=3", "inner.lr=-1", "--json")
    assert code == 2
    mistake, doubt = shown.splitlines()
    assert mistake == "error: unknown setting 'inner.stpes' (did you mean 'inner.steps'?)"
    assert doubt.startswith("warning: inner.lr=-1 is negative")
    assert answer(out)["notes"] == [doubt.removeprefix("warning: ")]


def test_a_recipe_behind_the_settings_of_an_analysis(call: Any) -> None:
    _, _, shown = call("analyze", "rate", "shtos=3", "sine-maml")
    assert shown.splitlines() == [
        "error: the recipe comes first, then settings: `innerloop analyze rate sine-maml …`.",
        "error: unknown setting 'shtos' (did you mean 'shots'?)",
    ]


def test_mistakes_in_json(call: Any) -> None:
    code, out, err = call("train", "sine-mam", "--json")
    assert code == 2
    assert answer(out)["exit_code"] == 2
    assert "did you mean 'sine-maml'" in answer(out)["error"]
    assert "error: " in err


def test_a_crash_is_exit_code_1_with_a_traceback(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("innerloop.cli.ls._recipes", broken)
    assert main(["ls", "--json"]) == 1
    out, err = capfd.readouterr()
    assert "Traceback" in err
    assert "this is a bug in innerloop" in err
    assert answer(out) == {"error": "RuntimeError: broken", "exit_code": 1}


def test_a_reader_that_stops_reading_is_no_error() -> None:
    process = start("show", "--schema")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=PATIENCE) in (0, 1)
    assert "Traceback" not in err


# ---- looking ----


def test_ls(call: Any) -> None:
    code, out, _ = call("ls", "--json")
    printed = answer(out)
    assert code == 0
    assert [recipe["name"] for recipe in printed["recipes"]] == shipped_names()
    assert printed["runs"] == []
    assert {recipe["dataset"] for recipe in printed["recipes"] if recipe["name"] == "sine-maml"} == {"sine"}
    _, out, _ = call("ls")
    assert all(name in out for name in shipped_names())


def test_recipes_are_listed_by_dataset_method_and_time(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {recipe["name"]: recipe for recipe in answer(call("ls", "recipes", "--json")[1])["recipes"]}
    for name, dataset, method in (
        ("mini-imagenet-protonet-cpu", "mini-imagenet", "protonet"),
        ("cifar-fs-cells-cpu", "cifar-fs", "supervised"),
        ("cifar-fs-pretrained", "cifar-fs", "pretrained"),
        ("pictures-maml", "your own pictures", "maml"),
        ("sine-reptile", "sine", "reptile"),
        ("sine-erm", "sine", "erm"),
    ):
        assert [listed[name][key] for key in ("dataset", "method")] == [dataset, method], name
    unknown = [name for name, recipe in listed.items() if recipe["minutes"] is None]
    assert [name for name in unknown if not re.search("^pictures-|pretrained|distilled", name)] == []
    assert listed["sine-maml"]["minutes"] < 5 < 600 < listed["mini-imagenet-maml"]["minutes"]
    monkeypatch.setattr("innerloop.cli.output.PIPE_WIDTH", 80)
    lines = call("ls", "recipes")[1].splitlines()
    assert max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines if line.startswith("  ") and line.split()]
    assert names == sorted(listed, key=lambda n: (listed[n]["dataset"], listed[n]["method"], n))


def test_show_prints_a_recipe_that_trains(call: Any) -> None:
    _, out, _ = call("show", "sine-maml")
    assert out == shipped_text("sine-maml")
    Path("mine.toml").write_text(out)
    assert load_recipe("mine.toml") == load_recipe("sine-maml")
    _, out, _ = call("show", "mine.toml", "inner.lr=0.5")
    Path("other.toml").write_text(out)
    assert load_recipe("other.toml") == load_recipe("sine-maml", ["inner.lr=0.5"])
    _, out, _ = call("show", "sine-maml", "seed=3", "--json")
    assert answer(out)["recipe"]["run"]["seed"] == 3


def test_show_schema_lists_every_setting(call: Any) -> None:
    _, out, _ = call("show", "sine-erm", "--schema")
    assert all(key in out for key in known_settings())
    _, out, _ = call("show", "sine-erm", "--schema", "--json")
    rows = {row["key"]: row for row in answer(out)["settings"]}
    assert rows.keys() == known_settings().keys()
    assert rows["outer.objective"]["value"] == "erm"
    assert rows["outer.objective"]["default"] == "episodic"
    assert all(row["takes"] and row["description"] for row in rows.values())


def test_doctor(call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    code, out, _ = call("doctor", "--json")
    printed = answer(out)
    assert code == 0
    assert printed["versions"]["innerloop"] == __version__
    assert printed["torch"]["works"]
    assert printed["cores"] >= 1
    assert printed["data"]["folder"] == str(tmp_path / "data")
    assert printed["compiler"] is None
    assert any("C++ compiler" in tip for tip in printed["tips"])
    _, out, _ = call("doctor")
    assert "no C++ compiler" in out


# ---- running ----


def test_train_eval_show_report(call: Any) -> None:
    code, out, err = call("train", "sine-maml", *TINY, "--json")
    assert code == 0
    assert len(out.splitlines()) == 1
    result = answer(out)
    assert result["steps"] == 3
    assert {"run", "metrics", "tasks_per_second"} <= result.keys()
    assert "run: " in err
    assert read_manifest(Path(result["run"]))["argv"][0] == "innerloop"

    code, out, _ = call("eval", "last", "inner.test_steps=2", "--json")
    judged = answer(out)
    assert code == 0
    assert {"mse", "ci95", "episodes", "protocol"} <= judged.keys()
    assert judged["protocol"]["inner_steps"] == 2
    assert len(json.loads(Path(judged["file"]).read_text())["scores"]) == judged["episodes"] == 4

    code, out, _ = call("eval", "last")
    assert code == 0
    assert "95 % CI, 4 tasks, maml, 5 inner steps, 10 shots, sine" in out

    _, out, _ = call("ls", "runs", "--json")
    assert [(row["run"], row["status"], row["steps"]) for row in answer(out)["runs"]] == [
        (result["run"], "finished", 3)
    ]
    _, out, _ = call("show", "last", "--json")
    assert answer(out)["status"] == "finished"
    assert len(answer(out)["evaluations"]) == 3
    _, out, _ = call("show", "last")
    assert "finished" in out

    code, out, _ = call("report", "last", "--page", "page.html", "--json")
    assert code == 0
    assert answer(out)["report"] == "page.html"
    assert "<html" in Path("page.html").read_text()

    code, _, err = call("resume", "last")
    assert code == 2
    assert "finished" in err
    code, _, err = call("eval", "last", "model.hidden=[9]")
    assert code == 2


def test_train_for_people(call: Any) -> None:
    code, out, err = call("train", "sine-maml", *TINY, "--quiet")
    assert code == 0
    assert err == ""
    assert "mse" in out
    assert "innerloop report runs/sine-maml/" in out


def test_a_recipe_of_a_run_repeats_it(call: Any) -> None:
    _, first, _ = call("train", "sine-erm", *TINY, "seed=7", "--json")
    _, second, _ = call("train", "last", "--json")
    assert answer(first)["run"] != answer(second)["run"]
    assert answer(first)["metrics"]["mean"] == answer(second)["metrics"]["mean"]


def test_a_diverging_run_is_a_user_error(call: Any) -> None:
    code, _, err = call("train", "sine-maml", *TINY, "inner.lr=1e30", "inner.steps=5")
    assert code == 2
    assert "not finite" in err
    assert "Traceback" not in err
    _, out, _ = call("ls", "runs", "--json")
    assert answer(out)["runs"][0]["status"] == "failed"


def under_way(where: str) -> list[Path]:
    """The metrics of runs that have taken some steps."""
    files = Path("runs").glob(f"{where}/metrics.jsonl")
    return [file for file in files if file.read_text().count("\n") > 5]


@pytest.mark.parametrize("kind", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_interrupting_saves_a_checkpoint_and_resume_goes_on(kind: signal.Signals, call: Any) -> None:
    tiny = [item for item in TINY if not item.startswith("outer.steps")] + ["eval.every=100000"]
    process = start("train", "sine-maml", *tiny, "outer.steps=100000", "run.log_every=1", "--json")
    wait_until(lambda: process.poll() is not None or under_way("*/*"))
    metrics = under_way("*/*")
    process.send_signal(kind)
    code, out, err = finish(process)
    assert code == 130
    assert "Traceback" not in err
    assert answer(out)["exit_code"] == 130
    run = metrics[0].parent
    assert read_manifest(run)["status"] == "interrupted"
    saved = checkpoint_step(run)
    assert saved is not None
    assert saved >= 5
    text = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(text.replace("steps = 100000", f"steps = {saved + 2}"))
    code, out, err = call("resume", "last", "--json")
    assert code == 2
    assert f"outer.steps was 100000, now it is {saved + 2}" in err
    update_manifest(run, recipe_sha256=None)  # as runs have it that kept no checksum
    code, out, _ = call("resume", "last", "--json")
    assert code == 0
    assert answer(out)["steps"] == saved + 2


def test_json_is_alone_on_standard_output_whatever_libraries_print(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noisy() -> list[dict[str, str]]:
        sys.stdout.write("a library speaks\n")
        os.write(1, b"its C code too\n")
        subprocess.run(["echo", "and a child"], check=True)
        return []

    monkeypatch.setattr("innerloop.cli.ls._recipes", noisy)
    code, out, err = call("ls", "--json")
    assert code == 0
    assert len(out.splitlines()) == 1
    assert all(text in err for text in ("a library speaks", "its C code too", "and a child"))


@pytest.fixture
def short_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demonstration that shows nothing, in seconds."""
    for module in ("race", "method_race"):
        monkeypatch.setattr(f"innerloop.choose.{module}.LEAST_STEPS", 2)
    for name in ("LEAST_EPISODES", "MOST_EPISODES"):
        monkeypatch.setattr(f"innerloop.choose.race.{name}", 4)
    settings = {"BUDGET": "40s", "SECONDS": 0.1, "LEAST_STEPS": 2, "TASKS": 4, "METHODS": "protonet,r2d2"}
    for name, value in settings.items():
        monkeypatch.setattr(f"innerloop.cli.demo.{name}", value)


@pytest.mark.slow  # a race and two trainings
def test_demo(call: Any, short_demo: None) -> None:
    code, out, _ = call("demo", "--json")
    assert code == 0
    printed = answer(out)
    assert {"report", "accuracy", "ci95", "seconds", "other", "advice", "lead"} <= printed.keys()
    shown = [json.loads(next((Path(run) / "eval").glob("*.json")).read_text()) for run in printed["runs"]]
    difference = paired_difference(*(each["scores"] for each in shown))
    assert printed["lead"] == pytest.approx({"mean": difference.mean, "ci95": difference.ci95})
    assert printed["report"] == "innerloop-demo/report.html"
    page = Path(printed["report"]).read_text()
    assert all(f"glyphs-{name}" in page for name in ("protonet", "r2d2"))
    assert printed["advice"]["method"] in ("protonet", "r2d2", "pixels", "untrained", "colours")
    assert (Path(printed["advice"]["run"]) / "report.html").is_file()


@pytest.mark.slow
def test_the_demo_in_words(call: Any, short_demo: None) -> None:
    code, out, err = call("demo", "--quiet")
    assert code == 0
    assert "letters that were not trained on" in out
    assert "nearest mean of pixels" in out
    assert "Learnt: " in out
    assert err == ""


def test_a_demo_without_time_for_a_race_is_a_sentence(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("innerloop.cli.demo._give_advice", lambda _: SimpleNamespace(rows=()))
    code, _, err = call("demo", "--quiet")
    assert (code, "too busy for the demo: 0 of two methods" in err) == (2, True)


@pytest.mark.parametrize(("verb", "keeps"), [("train", True), ("eval", True), ("ls", False)])
def test_verbs_that_labour_keep_the_memory_that_steps_free(
    verb: str, keeps: bool, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bool] = []
    monkeypatch.setattr("innerloop.core.resources.keep_freed_memory", lambda: kept.append(True))
    call(verb, "--help")
    assert kept == [True] * keeps


@pytest.mark.slow
def test_a_sweep_that_is_terminated_ends_its_runs_with_a_checkpoint() -> None:
    tiny = [item for item in TINY if not item.startswith("outer.steps")] + ["eval.every=100000"]
    both = ("outer.steps=100000", "run.log_every=1", "--jobs", "2")  # at once, also on a single core
    process = start("sweep", "sine-maml", "seed=[0,1]", *tiny, *both)
    wait_until(lambda: process.poll() is not None or len(under_way("*/*/*")) == 2)
    started = under_way("*/*/*")
    process.send_signal(signal.SIGTERM)  # to the parent alone
    code, _, err = finish(process)
    assert code == 130, err
    assert len(started) == 2
    for file in started:
        assert read_manifest(file.parent)["status"] == "interrupted"
        assert (checkpoint_step(file.parent) or 0) >= 5


@pytest.mark.slow
def test_sweep(call: Any) -> None:
    arguments = ["sweep", "sine-maml", "inner.method=[maml,fomaml]", *TINY, "--jobs", "2"]
    code, out, err = call(*arguments, "--json")
    assert code == 0, err
    printed = answer(out)
    assert len(printed["runs"]) == 2
    assert len(printed["table"]) == 2
    code, out, err = call(*arguments)
    assert code == 0
    assert "finished before" in err
    assert "inner.method=" in out
