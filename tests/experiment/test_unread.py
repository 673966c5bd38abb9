"""Nothing that was given is ignored silently: settings that nothing reads are warned about or refused."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from innerloop.cli.analyses import ANALYSES, find
from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.core.files import read_json
from innerloop.experiment.experiment import Experiment
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.problems import kind, known_settings
from innerloop.experiment.recipe.rules import JUDGED, UNUSED, unread, unread_keys
from innerloop.experiment.recipe.schema import UNIONS, Recipe, absent
from innerloop.experiment.recipe.settings import make_recipe, recipe_from_toml, recipe_to_toml
from innerloop.experiment.results import Judged
from innerloop.experiment.run_evaluation import evaluate_run
from innerloop.experiment.sweeps.grid import make_cells, unread_in
from innerloop.experiment.training import train
from innerloop.runs.directory import RECIPE

TINY = {
    "tasks": {"shots": 2, "queries": 2},
    "outer": {"steps": 2, "batch": 2, "lr": 0.01},
    "eval": {"episodes": 3, "validation_episodes": 2, "every": 1},
    "run": {"execution": "loop", "compile": "off", "threads": 1, "dtype": "float64"},
}
PICTURES = {
    "tasks": {"family": "few-shot", "ways": 2},
    "model": {"kind": "conv4", "filters": 2},
    "inner": {"method": "protonet", "loss": "cross-entropy"},
}
SUPERVISED = {
    "tasks": {"family": "supervised", "ways": 2, "minibatch": 4},
    "model": {"kind": "resnet12-thin", "settings": {"drop_rate": 0.0}},
    "inner": {"loss": "cross-entropy", "test_steps": 1},
    "outer": {"objective": "erm", "schedule": "step"},
    "eval": {"head": "centroid"},
}


STEPS = (
    "inner.method=maml or fomaml or anil or boil or meta-sgd or maml-lslr or imaml or minibatchprox, and own "
    "code"
)
TAGS = ("outer.objective", "outer.schedule", "run.track")  # another value has other settings


def recipe(folder: Path, *others: dict[str, Any]) -> Recipe:
    data: dict[str, Any] = {"run": {}}
    for other in (TINY, *others):
        for section, values in other.items():
            data[section] = {**data.get(section, {}), **values}
    data["run"]["folder"] = str(folder)
    return make_recipe(data)


def another(key: str, value: Any) -> Any:
    """Some other value that a setting takes."""
    core, _ = kind(known_settings()[key])
    if get_origin(core) is Literal:
        return next(word for word in get_args(core) if word != value)
    given = {
        "data.name": "no-such-folder",
        "data.size": 16,
        "tasks.mixture": [{"ways": 3}],
        "tasks.groups": ["Greek"],
        "tasks.hard_groups": ["Greek"],
        "model.init": "no-such-run",
    }
    if key in given or get_origin(core) in (list, dict):
        return given.get(key, {} if get_origin(core) is dict else [3, 3])
    return {bool: not value, int: 7, str: "another"}.get(core, 0.25)


def with_unread_changed(plain: Recipe, keys: list[str]) -> Recipe:
    data = plain.model_dump()
    for key in keys:
        section, _, name = key.partition(".")
        data[section][name] = another(key, data[section][name])
    return make_recipe(data)


def numbers(evaluation: Judged) -> tuple[Any, ...]:
    return read_json(evaluation.file)["scores"], evaluation.by_step


@pytest.mark.parametrize(
    "others",
    [(), (PICTURES,), pytest.param((SUPERVISED,), marks=pytest.mark.slow)],
    ids=["sine", "protonet", "supervised"],
)
def test_what_is_called_unread_changes_no_number(others: tuple[Any, ...], tmp_path: Path) -> None:
    plain = recipe(tmp_path / "plain", *others)
    there = [key for key in known_settings() if key not in absent(plain, [key])]
    keys = list(unread_keys(UNUSED, there, plain))
    assert len(there) < len(known_settings()) - 15
    assert keys
    changed = with_unread_changed(plain, keys)
    assert set(unread_keys(UNUSED, keys, changed)) == set(keys)
    first, second = (train(each, progress=False) for each in (plain, changed))
    assert numbers(first.evaluation) == numbers(second.evaluation)


def test_what_judging_is_said_not_to_read_changes_no_number(tmp_path: Path) -> None:
    plain = recipe(tmp_path, {"inner": {"test_steps": 2}, "eval": {"shots": 3}})
    run = train(plain, progress=False).run
    trained = load_recipe(str(run))
    there = [key for key in known_settings() if not absent(trained, [key])]
    keys = [k for k in there if unread(trained, [k], judging=True) and k not in TAGS]
    assert {"outer.lr", "inner.steps", "tasks.shots", "run.seed"} <= set(keys)
    changed = with_unread_changed(trained, keys).model_dump(exclude_none=True)
    split = [(key, *key.split(".")) for key in keys if key != "tasks.mixture"]
    typed = [f"{key}={json.dumps(changed[section][name])}" for key, section, name in split]
    own, other = evaluate_run(run, []), evaluate_run(run, typed)
    assert numbers(own) == numbers(other)
    assert len([note for note in other.notes if "is not read" in note]) == len(typed)
    assert not own.notes


def test_learned_rates_are_not_set_by_judging() -> None:
    for method in ("meta-sgd", "maml-lslr"):
        learned = make_recipe({"inner": {"method": method}})
        assert unread(learned, ["inner.lr"], judging=True) == [
            "inner.lr is not read: it is for learners whose rate is not learned."
        ]
        assert not unread(learned, ["inner.lr"])


@pytest.mark.parametrize(
    ("items", "key", "words"),
    [
        ([], "model.filters", "model.kind=conv4"),
        (["model.kind=conv4"], "model.hidden", "model.kind=mlp"),
        ([], "tasks.ways", "tasks.family=few-shot or supervised"),
        ([], "data.rotations", "tasks.family=few-shot or supervised"),
        (["inner.method=protonet"], "inner.lr", STEPS),
        ([], "outer.heads", "outer.objective=multitask"),
        ([], "outer.milestones", "outer.schedule=step"),
        (
            ["tasks.family=few-shot", "eval.head=centroid"],
            "eval.C",
            "eval.head=logistic or svm or svc or ridge",
        ),
        ([], "inner.momentum", "inner.optimiser=momentum"),
        ([], "tasks.minibatch", "tasks.family=supervised"),
        (["tasks.family=few-shot"], "tasks.noise", "families of functions"),
        (["model.kind=mlp"], "model.norm", "model.kind=conv4, and other networks"),
        ([], "tasks.resample", "a given tasks.n_tasks"),
        (
            ["inner.method=minibatchprox", "inner.loss=cross-entropy"],
            "outer.label_smoothing",
            "learners that are judged on queries in training",
        ),
    ],
)
def test_typed_settings_that_are_not_read_are_named(items: list[str], key: str, words: str) -> None:
    assert unread(make_recipe({}, items), [key, "inner.steps"])[0] == f"{key} is not read: it is for {words}."


def test_every_table_names_settings_that_exist() -> None:
    listed = [key for values in UNIONS.values() for keys in values.values() for key in keys.split()]
    assert {*UNUSED, *JUDGED, *UNIONS, *listed} <= set(known_settings())
    for name in ANALYSES:
        settings = find(name).settings
        assert {*settings.READERS, *settings.OF_RECIPES} <= set(settings.model_fields)
        own = [key for key in settings.OF_RECIPES.values() if not key.startswith("tasks.settings.")]
        assert set(own) <= set(known_settings())


def test_shipped_recipes_are_not_warned_about() -> None:
    assert load_recipe("sine-maml").data.name  # written out or not: only what is typed counts
    assert unread(load_recipe("sine-maml"), []) == []


# ---- the commands ----


def command(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[Any, list[str]]:
    assert main([*words, "--json"]) == code
    said = capsys.readouterr()
    return json.loads(said.out.splitlines()[-1]), said.err.splitlines()


SMALL = ["outer.steps=1", "outer.batch=2", "eval.episodes=2", "eval.validation_episodes=2"]
SMALL += ["run.execution=loop", "run.compile=off", "run.threads=1"]


def test_settings_of_another_method_are_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "unknown setting 'model.filters' with model.kind=mlp: it is for model.kind=conv4."
    result, said = command(capsys, "train", "sine-maml", *SMALL, "model.filters=8", "data.size=8", code=2)
    assert result["error"].splitlines() == [
        "unknown setting 'data.size' with tasks.family=sine: it is for tasks.family=few-shot or supervised.",
        line,
    ]
    assert len(said) == 2
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match=re.escape(line)):
        Experiment("sine-maml", *SMALL, model={"filters": 8})
    (tmp_path / "mine.toml").write_text("[model]\nfilters = 8\n")
    with pytest.raises(UserError, match=re.escape(f"{line} (in mine.toml)")):
        load_recipe("mine.toml")
    with pytest.raises(ValueError, match=re.escape(line)):
        Recipe.model_validate({"model": {"filters": 8}})
    hinted = "unknown setting 'inner.lr' with inner.method=protonet (did you mean 'outer.lr'?): it is for "
    with pytest.raises(UserError, match=re.escape(hinted)):
        load_recipe("omniglot-protonet", ["inner.lr=0.1"])


def test_what_is_inherited_may_be_of_another_method() -> None:
    other = load_recipe("sine-maml", ["inner.method=none", "model.kind=conv4"])
    assert "lr" not in other.model_dump()["inner"]
    assert "hidden" not in other.model_dump()["model"]
    assert other.model.hidden == [40, 40]  # who asks anyway gets the default
    ridge = load_recipe("sine-imaml", ["inner.method=r2d2"])
    assert "cg_steps" not in ridge.inner.settings
    assert recipe_from_toml(recipe_to_toml(other)) == other
    again = pickle.loads(pickle.dumps(other))
    assert (again, type(again.inner)) == (other, type(other.inner))


def test_train_and_eval_tell_what_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    note = "tasks.resample is not read: it is for a given tasks.n_tasks."
    result, said = command(capsys, "train", "sine-maml", *SMALL, "tasks.resample=false")
    assert result["notes"] == [note]
    assert f"warning: {note}" in said
    assert f"warning: {note}" in (Path(result["run"]) / "log.txt").read_text(encoding="utf-8")
    judged, _ = command(capsys, "eval", result["run"], "outer.lr=1", "tasks.shots=3")
    assert judged["notes"] == ["outer.lr is not read: it is for training."]
    run = Experiment("sine-maml", *SMALL, tasks={"resample": False}).fit(progress=False)
    assert f"warning: {note}" in (run.path / "log.txt").read_text(encoding="utf-8")
    text = (run.path / RECIPE).read_text(encoding="utf-8")
    assert "resample = false" in text  # it has that setting
    assert "filters" not in text


def test_sweeps_share_settings_and_refuse_what_no_run_has() -> None:
    items = ["inner.method=[maml,protonet]", "inner.lr=[0.1,0.2]", "inner.steps=2", "tasks.resample=false"]
    cells = make_cells("sine-maml", items)
    assert unread_in(cells, items) == [
        f"in 2 of 4 runs inner.lr is not read: it is for {STEPS}.",
        "tasks.resample is not read: it is for a given tasks.n_tasks.",
    ]
    with pytest.raises(UserError, match=r"unknown setting 'outer.heads' with outer.objective=episodic"):
        make_cells("sine-maml", [*items, "outer.heads=shared"])


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("model.settings.depth=3", "unknown setting 'model.settings' with model.kind=mlp"),
        ("tasks={family='few-shot', settings={dim=3}}", "unknown setting 'tasks.settings' with tasks.family"),
        ("inner.settings.penalty=3", "unknown setting 'inner.settings' with inner.method=maml"),
    ],
)
def test_tables_that_nothing_reads_are_refused(typed: str, text: str) -> None:
    with pytest.raises(UserError, match=text):
        make_recipe({}, [typed])


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("rate sine-maml loss=mse shots=5 seed=1", ("inner.loss=mse", "tasks.shots=5", "run.seed=1")),
        ("rate sine-maml data=uniform kind=bracket", ("data is for", "kind is for drawn data")),
        ("rate data=normal low=1 high=2", ("low is for data=uniform", "high is for data=uniform")),
        ("rate mean=1 scale=2", ("mean is for data=normal", "scale is for data=normal or exponential")),
        ("rate width=2 queries=3", ("features=gaussian", "queries is for forms with query samples")),
        ("rate dim=200 optima=2", ("optima is for drawn data, with kind=gradient",)),
        ("rate sine dim=4 loss=mse", ("dim is for drawn data", "loss is for drawn data")),
        ("landscape linear-maml dim=3 noise=1", ("tasks.settings.dim=3 where", "own setting, tasks.noise=1")),
        ("landscape components=3 seed=1", ("components is for the tasks of a recipe", "seed is for")),
        ("landscape omniglot-maml samples=9", ("samples is for recipes with a squared error",)),
        ("kernels relative=true", ("relative is for a ridge above 0",)),
    ],
)
def test_analyses_refuse_what_they_would_not_read(
    words: str, refused: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    result, said = command(capsys, "analyze", *words.split(), code=2)
    assert len(said) == len(result["error"].splitlines()) == len(refused)
    for text, line in zip(refused, result["error"].splitlines(), strict=True):
        assert "is not read here" in line
        assert text in line


def test_settings_of_the_recipe_reach_its_analysis(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("analyze", "rate", "sine-maml", "inner.method=anil", "model.hidden=[8]", "n_tasks=8")
    plain, _ = command(capsys, *words)
    more, said = command(capsys, *words, "tasks.shots=5", "inner.steps=9", "tasks.resample=true")
    assert more["alpha"] != plain["alpha"]
    assert any("9 inner steps" in reason or "√9" in reason for reason in more["reasons"])
    note = "tasks.resample is not read: it is for a given tasks.n_tasks."
    assert more["notes"] == [note]
    assert f"warning: {note}" in said


def test_the_schema_marks_what_a_recipe_does_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    result, _ = command(capsys, "show", "sine-maml", "--schema")
    rows = {row["key"]: row["unread"] for row in result["settings"]}
    assert rows["model.filters"] == "model.kind=conv4"
    assert rows["inner.lr"] is None
