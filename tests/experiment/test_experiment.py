"""An experiment from Python, and runs that are complete in themselves."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import innerloop as il
from innerloop.core.errors import UserError
from innerloop.experiment import pictures
from innerloop.experiment.data import Sizes, build_data
from innerloop.experiment.loading import load_run
from innerloop.experiment.model import build_model
from innerloop.experiment.parts import build
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.run_evaluation import evaluate_run
from innerloop.experiment.training import train
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.manifest import read_manifest
from innerloop.testing.closeness import ROUNDED
from innerloop.training import Plan
from support.picture_runs import draw_noise, forget_pictures, run_on_folder

SOURCES = Path(il.__file__).parent
QUICK = {
    "model": {"hidden": [8]},
    "outer": {"steps": 4, "batch": 2},
    "eval": {"episodes": 6, "validation_episodes": 3},
    "run": {"execution": "loop", "compile": "off", "threads": 1, "seed": 1},
}


def names_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


# ---- from Python ----


def test_three_statements_train_and_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = il.Experiment("sine-maml", **QUICK).fit(progress=False)
    judged = run.evaluate(episodes=5)
    assert (judged.score, judged.episodes, len(judged.scores)) == ("mse", 5, 5)
    assert judged.mean == pytest.approx(np.mean(judged.scores))
    assert str(judged).startswith(f"mse {judged.mean:.4g} ± {judged.ci95:.2g} (95 % CI, 5 tasks")
    assert "; without adapting: mse " in str(judged)
    assert il.load("last").path == run.path
    assert "sine-maml" in run.report().read_text()


def test_the_run_is_the_one_that_the_command_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from innerloop.cli.main import main

    monkeypatch.chdir(tmp_path)
    items = ["model.hidden=[8]", "outer.steps=4", "outer.batch=2", "eval.episodes=6", "seed=1"]
    items += ["eval.validation_episodes=3", "run.execution=loop", "run.compile=off", "run.threads=1"]
    assert main(["train", "sine-maml", *items, "--quiet"]) == 0
    typed = il.load("last").path
    made = il.Experiment("sine-maml", **QUICK).fit(progress=False).path
    assert made != typed
    assert names_in(made) == names_in(typed)
    assert (made / "recipe.toml").read_text() == (typed / "recipe.toml").read_text()
    one, two = load_checkpoint(made, "last"), load_checkpoint(typed, "last")
    assert one is not None
    assert two is not None
    assert all(torch.equal(value, two[0][name]) for name, value in one[0].items())


def test_an_experiment_takes_names_files_recipes_runs_and_texts(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[inner]\nsteps = 3\n")
    assert il.Experiment(file).recipe.inner.steps == 3
    assert il.Experiment(str(file), "inner.steps=4").recipe.inner.steps == 4
    recipe = load_recipe("sine-maml")
    assert il.Experiment(recipe).recipe == recipe
    assert il.Experiment(recipe, inner={"lr": 0.5}, seed=3).recipe.inner.lr == 0.5
    run = train(make_recipe({**QUICK, "name": "x", "run": {**QUICK["run"], "folder": str(tmp_path)}})).run
    assert il.Experiment(run).recipe == il.load(run).recipe


def test_all_mistakes_in_python_settings_are_told_at_once() -> None:
    with pytest.raises(UserError) as error:
        il.Experiment("sine-maml", inner={"stpes": 3, "steps": -1}, outer={"lr": 0}, sede=1)
    text = str(error.value)
    for part in ("inner.stpes", "inner.steps", "outer.lr", "sede"):
        assert part in text


def test_python_values_reach_the_recipe_as_they_are() -> None:
    recipe = il.Experiment(
        "sine-maml",
        tasks={"settings": {"amplitude": [0.5, 2.0]}, "noise": np.float64(0.25)},
        model={"hidden": (8, 8), "weight_var": None, "init": Path("some/where")},
        outer={"options": {"weight_decay": 0.1}},
        description='a "quoted" line # not a comment',
    ).recipe
    assert recipe.tasks.settings == {"amplitude": [0.5, 2.0]}
    assert recipe.tasks.noise == 0.25
    assert recipe.model.hidden == [8, 8]
    assert recipe.model.weight_var is None
    assert recipe.outer.options == {"weight_decay": 0.1}
    assert recipe.model.init == "some/where"
    assert recipe.description == 'a "quoted" line # not a comment'


def test_two_runs_are_compared_task_by_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = (
        il.Experiment("sine-maml", **QUICK, inner={"lr": lr}).fit(progress=False) for lr in (0.01, 0.02)
    )
    comparison = one.compare(two, episodes=5)
    assert comparison.difference.n == 5
    assert comparison.difference.mean == pytest.approx(comparison.first.mean - comparison.second.mean)
    assert two.compare(str(one.path), episodes=5).difference.mean == -comparison.difference.mean
    with pytest.raises(UserError, match="the same episodes"):
        il.compare(one.evaluate(seed=1), two.evaluate(seed=2))


def test_a_run_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": "analyze"}))
    with pytest.raises(UserError, match="not a run of training"):
        il.load(tmp_path)


# ---- parts apart from each other ----


def test_a_model_needs_no_data_and_data_need_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe("cifar-fs-protonet", ["data.name=nowhere/at/all"])
    model = build_model(recipe, Sizes((3, 32, 32), 5, 5, 64, labels=True))
    assert "head.weight" in model.network.init(torch.Generator())[0]
    monkeypatch.setattr("innerloop.experiment.parts.build_model", lambda *_: pytest.fail("built a model"))
    drawn = build_data(load_recipe("omniglot-maml", ["data.name=glyphs"])).test.episode(0)
    assert drawn.x_support.shape[1:] == (1, 28, 28)


def test_sizes_are_what_the_tasks_ask_for() -> None:
    assert build_data(load_recipe("sine-maml")).sizes == Sizes((1,), 1, 1, 1, labels=False)
    recipe = load_recipe("omniglot-maml", ["data.name=glyphs", "tasks.ways=3", "eval.ways=7"])
    sizes = build_data(recipe).sizes
    assert sizes[:3] == ((1, 28, 28), 7, 7)
    classes = len(pictures.plain_source(recipe.data).splits["train"])
    assert sizes.rows == classes * (4 if recipe.data.rotations else 1)


def test_the_training_loop_is_assembled_in_one_place() -> None:
    """Others ask :func:`innerloop.experiment.fitting.fit_parts`; benchmarks time the loop itself."""
    callers = set()
    for path in SOURCES.rglob("*.py"):
        place = path.relative_to(SOURCES).as_posix()
        if place.startswith(("training/", "bench/")) or place == "__init__.py":
            continue
        tree = ast.parse(path.read_text())
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("innerloop.training")
            for alias in node.names
        }
        if "fit" in imported:
            callers.add(place)
    assert callers == {"experiment/fitting.py"}


@pytest.mark.parametrize("plan", [Plan("threads", 2), Plan("loop", 1), Plan("vmap", 3)])
def test_training_and_judging_give_torch_back_its_threads(plan: Plan) -> None:
    from innerloop.experiment.fitting import fit_parts, judge
    from innerloop.training.loop import Validation

    parts = build(make_recipe(QUICK))
    seen: list[int] = []

    def score(*_: Any) -> Any:
        seen.append(torch.get_num_threads())
        return il.evaluate(parts.learner_after(1), *_, parts.data.test, parts.loss, 2, plan).interval

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        state = fit_parts(parts, plan=plan, validation=Validation(score, 2))
        assert torch.get_num_threads() == 2
        judge(parts, state.params, state.buffers, "test", 2, plan)
        assert torch.get_num_threads() == 2
        with pytest.raises(ZeroDivisionError):
            fit_parts(parts, plan=plan, log=lambda record: 1 // 0)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {plan.intra_op}


# ---- a run is complete in itself ----


@pytest.fixture
def letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "store"))
    for name in "abcdefghijklmnop":
        draw_noise(tmp_path / "letters", name)
    forget_pictures()
    return tmp_path / "letters"


def trained(folder: Path, **sections: Any) -> Path:
    return run_on_folder(folder, 2, **sections)


SUPERVISED = {"tasks": {"family": "supervised", "minibatch": 4}, "outer": {"objective": "erm"}}


@pytest.mark.parametrize("sections", [{}, {"inner": {"method": "maml"}}, SUPERVISED], ids=str)
@pytest.mark.one_in(3)
def test_predict_and_report_do_without_the_training_data(
    letters: Path, capsys: pytest.CaptureFixture[str], sections: dict[str, Any]
) -> None:
    from innerloop.cli.main import main

    run = trained(letters, **sections)
    for name in "xy":
        draw_noise(letters.parent / "support", name)
    words = ["predict", str(run), "--support", str(letters.parent / "support")]
    words += [str(letters.parent / "support" / "x" / "0.png"), "--json"]
    assert main(words) == 0
    before = json.loads(capsys.readouterr().out.splitlines()[-1])["predictions"]
    shutil.rmtree(letters)
    shutil.rmtree(letters.parent / "store", ignore_errors=True)
    forget_pictures()
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["predictions"] == before
    assert main(["report", str(run)]) == 0
    assert load_run(run).parts.sizes.inputs == (1, 16, 16)
    assert main(["eval", str(run)]) == 2
    assert str(letters) in capsys.readouterr().err


def test_a_loaded_run_labels_pictures_as_the_command_does(
    letters: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from innerloop.cli.main import main

    run, support = trained(letters), letters.parent / "support"
    for name in "xy":
        draw_noise(support, name)
    words = ["predict", str(run), "--support", str(support), str(support / "x" / "0.png"), "--json"]
    assert main(words) == 0
    (told,) = json.loads(capsys.readouterr().out.splitlines()[-1])["predictions"]
    files = sorted(support.glob("*/*.png"))
    pixels = np.stack([np.asarray(Image.open(file)) for file in files])
    prediction = il.load(run).predict(pixels, [file.parent.name for file in files], pixels[:1])
    assert prediction.labels == [told["label"]]
    assert prediction.probabilities[0].tolist() == pytest.approx(
        list(told["probabilities"].values()), abs=ROUNDED
    )


def test_judging_needs_the_test_pictures_only(letters: Path) -> None:
    run = trained(letters, **SUPERVISED, eval={"head": "logistic"})
    before = il.load(run).evaluate()
    splits = json.loads((run / "data.json").read_text())["splits"]
    for name in [*splits["train"], *splits["validation"]]:
        shutil.rmtree(letters / name)
    shutil.rmtree(letters.parent / "store", ignore_errors=True)
    forget_pictures()
    assert il.load(run).evaluate().scores == before.scores


def test_weights_that_training_began_with_are_not_needed_again(letters: Path) -> None:
    first = trained(letters)
    second = trained(letters, model={"init": str(first)})
    before = il.load(second).evaluate()
    shutil.rmtree(first)
    assert il.load(second).evaluate().scores == before.scores


def test_a_head_that_is_not_used_does_not_stop_a_cross_domain_evaluation(letters: Path) -> None:
    """Fewer training classes here than there: the outputs differed, and the run was refused."""
    run = trained(letters, **SUPERVISED)
    other = letters.parent / "signs"
    for name in "ABCDEFGHIJKLMNOPQR":
        draw_noise(other, name)
    evaluation = evaluate_run(run, [f"data.name={other}", "eval.head=logistic", "eval.ways=3"])
    assert (evaluation.protocol["ways"], evaluation.protocol["data"]) == (3, str(other))


def test_prototypes_tell_any_number_of_classes_apart_and_a_trained_head_does_not(letters: Path) -> None:
    assert evaluate_run(trained(letters), ["eval.ways=3"]).protocol["ways"] == 3
    run = trained(letters, inner={"method": "maml"})
    with pytest.raises(
        UserError, match=r"tells 2 classes apart, and these tasks have 3.*eval.ways=2.*logistic"
    ):
        evaluate_run(run, ["eval.ways=3"])
    assert evaluate_run(run, ["eval.ways=3", "eval.head=ridge"]).protocol["ways"] == 3


def test_pictures_of_another_size_are_resized_to_what_the_network_was_trained_on(letters: Path) -> None:
    run = trained(letters)
    large = letters.parent / "large"
    for name in "ABCDEFGHIJKL":
        draw_noise(large, name, side=20)
    evaluation, asked = (evaluate_run(run, [f"data.name={large}", *more]) for more in ([], ["data.size=16"]))
    assert evaluation.episodes == 8
    assert evaluation.mean == asked.mean
    refused = r"16×16 pixels in 1 channel\(s\), these have 20×20 in 1: set data.size=16"
    with pytest.raises(UserError, match=refused):
        evaluate_run(run, [f"data.name={large}", "data.size=20"])


def test_tasks_of_other_dimensions_are_refused(tmp_path: Path) -> None:
    folder = {"run": {**QUICK["run"], "folder": str(tmp_path)}}
    run = train(make_recipe({**QUICK, **folder, "name": "x"}), progress=False).run
    with pytest.raises(UserError, match=r"takes inputs of shape \(1,\).*leave tasks\.\* as they were"):
        evaluate_run(run, ["tasks.family=linear", "tasks.settings.dim=3"])


def test_a_run_records_what_its_network_was_sized_to(letters: Path) -> None:
    run = trained(letters, **SUPERVISED)
    classes = len(json.loads((run / "data.json").read_text())["splits"]["train"])
    recorded = read_manifest(run)["sizes"]
    assert recorded == {"inputs": [1, 16, 16], "outputs": classes, "ways": 2, "rows": classes, "labels": True}
