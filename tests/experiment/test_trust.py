"""Code that a file names is imported only if the user named it too, or trusts the file."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from innerloop.cli.main import main
from innerloop.core.importing import Trusted
from innerloop.experiment.experiment import Experiment
from innerloop.experiment.recipe.library import load_recipe, read_recipe
from innerloop.experiment.recipe.schema import ModelSettings, Recipe
from innerloop.experiment.recipe.settings import recipe_from_toml, recipe_to_toml
from innerloop.experiment.recipe.trust import UntrustedCodeError, foreign_code
from innerloop.experiment.resuming import resume
from innerloop.experiment.run_evaluation import evaluate_run
from innerloop.experiment.sweeps import runs as sweep_module
from innerloop.experiment.sweeps.grid import make_cells
from innerloop.experiment.training import train
from innerloop.runs.manifest import read_manifest, update_manifest
from support.places import ROOT

SOURCES = ROOT / "src" / "innerloop"
TINY = [
    "outer.steps=2",
    "outer.batch=2",
    "eval.episodes=3",
    "eval.validation_episodes=2",
    "run.execution=loop",
    "run.compile=off",
    "run.threads=1",
]
MODULE = """
from pathlib import Path
from torch import nn
from innerloop.tasks.families import sine as lines
Path(__file__).with_name("imported").touch()
def net(width=3):
    return nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))
"""
NAMES = {"model.kind": "foreign_code_here:net", "tasks.family": "foreign_code_here:lines"}


class Foreign:
    """A module that leaves a file when it is imported."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "foreign_code_here.py").write_text(MODULE)
        self.trace = folder / "imported"

    def was_imported(self) -> bool:
        seen = self.trace.exists()
        self.trace.unlink(missing_ok=True)
        sys.modules.pop("foreign_code_here", None)
        return seen


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Foreign]:
    made = Foreign(tmp_path / "path")
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    monkeypatch.chdir(tmp_path)
    yield made
    sys.modules.pop("foreign_code_here", None)


def a_run(tmp_path: Path, *settings: str) -> Path:
    recipe = load_recipe("sine-maml", [*TINY, f"run.folder={tmp_path / 'runs'}", *settings])
    return train(recipe, progress=False).run


def sent(run: Path, key: str) -> Path:
    """The run as somebody might send it: its recipe names code, and its checksums are right."""
    section, _, name = key.partition(".")
    recipe = recipe_from_toml(run / "recipe.toml")
    changed = getattr(recipe, section).model_copy(update={name: NAMES[key]})
    text = recipe_to_toml(recipe.model_copy(update={section: changed}))
    (run / "recipe.toml").write_text(text)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    update_manifest(run, recipe_sha256=sha256, recipe=None, status="interrupted")
    return run


@pytest.mark.parametrize("key", NAMES)
def test_looking_at_a_run_imports_nothing_and_using_it_is_refused(
    tmp_path: Path, foreign: Foreign, capfd: pytest.CaptureFixture[str], key: str
) -> None:
    run = sent(a_run(tmp_path), key)
    file = tmp_path / "mail.toml"
    file.write_text((run / "recipe.toml").read_text())
    for words in (["report", str(run)], ["show", str(run)], ["show", str(file)], ["ls"], ["doctor"]):
        assert main(words) == 0, words
        assert not foreign.was_imported(), words
    said = (run / "report.html").read_text()
    assert f"left out: drawing it would import code that the recipe names, {key}={NAMES[key]}" in said
    (tmp_path / "new").mkdir()
    refused = [
        ["eval", str(run)],
        ["eval", str(run), "eval.episodes=2"],
        ["resume", str(run)],
        ["predict", str(run), "--support", str(tmp_path / "new"), str(tmp_path / "new")],
        ["train", str(run)],
        ["train", str(file)],
        ["train", str(file), "model={last_layer='linear'}", "tasks={noise=0.0}"],
        ["sweep", str(file), "seed=[0,1]"],
        ["analyze", "landscape", str(file)],
        ["analyze", "rate", str(run)],
    ]
    capfd.readouterr()
    for words in refused:
        assert main(words) == 2, words
        assert not foreign.was_imported(), words
        (line,) = capfd.readouterr().err.splitlines()
        assert f"{key}={NAMES[key]} (module foreign_code_here)" in line, words
        assert "add --trust" in line


@pytest.mark.parametrize("key", NAMES)
def test_trust_imports_it_and_names_the_module(
    tmp_path: Path, foreign: Foreign, capfd: pytest.CaptureFixture[str], key: str
) -> None:
    run = sent(a_run(tmp_path), key)
    assert main(["train", str(run), "--trust", "--quiet"]) == 0
    assert foreign.was_imported()
    assert f"trusted: {run} names {key}={NAMES[key]} (module foreign_code_here)" in capfd.readouterr().err
    assert main(["analyze", "rate", str(run), "--trust", "n_tasks=8"]) == 0
    assert foreign.was_imported()
    capfd.readouterr()
    assert main(["train", "sine-maml", "--trust", "--quiet", *TINY]) == 0
    assert "trusted:" not in capfd.readouterr().err  # nothing to trust


@pytest.mark.parametrize("verb", ["train", "eval", "resume"])
def test_the_module_is_named_before_it_is_imported(
    verb: str, tmp_path: Path, foreign: Foreign, capfd: pytest.CaptureFixture[str]
) -> None:
    run = sent(a_run(tmp_path), "tasks.family")
    module = foreign.trace.with_name("foreign_code_here.py")
    module.write_text(f"import os\nos.write(2, b'imported now\\n')\n{MODULE}")
    capfd.readouterr()
    assert main([verb, str(run), "--trust"]) == 0
    assert foreign.was_imported()
    said = capfd.readouterr().err
    named = said.find("names tasks.family=foreign_code_here:lines (module foreign_code_here)")
    assert 0 <= named < said.find("imported now")


def test_what_the_user_names_is_imported_and_later_needs_trust(tmp_path: Path, foreign: Foreign) -> None:
    typed = [f"{key}={name}" for key, name in NAMES.items()]
    assert main(["train", "sine-maml", *typed, *TINY, "--quiet"]) == 0
    assert foreign.was_imported()
    (manifest,) = (tmp_path / "runs").glob("*/*/manifest.json")
    run = str(manifest.parent)
    assert main(["eval", run]) == 2
    assert main(["eval", run, typed[0]]) == 2  # the other one is still the file's
    assert not foreign.was_imported()
    assert main(["eval", run, *typed]) == 0
    assert foreign.was_imported()
    assert main(["eval", run, "--trust"]) == 0
    assert main(["eval", run, "--against", run, "--trust"]) == 0
    assert foreign.was_imported()
    update_manifest(Path(run), status="interrupted")
    assert main(["resume", run]) == 2
    assert main(["resume", run, "--trust", "--quiet"]) == 0
    assert read_manifest(Path(run))["status"] == "finished"


def test_a_recipe_made_in_code_says_what_it_trusts(tmp_path: Path, foreign: Foreign) -> None:
    first = load_recipe("sine-maml", [*TINY, f"run.folder={tmp_path / 'runs'}"])
    text = first.model_copy(update={"model": ModelSettings(kind=NAMES["model.kind"], settings={"width": 4})})
    with pytest.raises(UntrustedCodeError):
        train(text, progress=False)
    with pytest.raises(UntrustedCodeError):
        Experiment(text)
    assert not foreign.was_imported()
    assert isinstance(Experiment(text, trust=True).recipe.model.kind, Trusted)
    trusted = ModelSettings(kind=Trusted(NAMES["model.kind"]), settings={"width": 4})
    own = first.model_copy(update={"model": trusted})
    run = train(own, progress=False).run
    assert foreign.was_imported()
    with pytest.raises(UntrustedCodeError):
        evaluate_run(run, [])
    with pytest.raises(UntrustedCodeError):
        recipe_from_toml(recipe_to_toml(own))
    assert evaluate_run(run, [], trust=True).episodes == 3
    update_manifest(run, status="interrupted")
    assert resume(run, trust=True, progress=False).steps == 2
    assert load_recipe(str(run), trust=True) == read_recipe(str(run)) == own


class Child:
    """In the place of a run's process: keeps its command."""

    commands: list[list[str]] = []  # noqa: RUF012
    returncode = 0

    def __init__(self, command: list[str], **_options: Any) -> None:
        self.commands.append(command)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None: ...

    def communicate(self, timeout: float) -> tuple[str, str]:
        return json.dumps({"run": "nowhere"}), ""


def test_a_sweep_passes_on_the_trust_it_was_given_and_no_more(
    tmp_path: Path, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(cell: sweep_module.Cell) -> list[str]:
        Child.commands.clear()
        with monkeypatch.context() as patch:
            patch.setattr(sweep_module.subprocess, "Popen", Child)
            sweep_module.carry_out(sweep_module.job_of(cell, tmp_path / "sweep", 1))
        return Child.commands[0]

    kind = f"model.kind={NAMES['model.kind']}"
    (plain,) = make_cells("sine-maml", ["seed=[0]"])
    (typed,) = make_cells("sine-maml", ["seed=[0]", kind])
    (swept,) = make_cells("sine-maml", [f"model.kind=['{NAMES['model.kind']}']"])
    assert "--trust" not in started(plain)
    assert "--trust" in started(typed)
    assert "--trust" in started(swept)
    # a run that lies in the folder already may name anything
    run = sent(a_run(tmp_path), "tasks.family")
    (tmp_path / "sweep" / typed.label).mkdir(parents=True)
    run.rename(tmp_path / "sweep" / typed.label / run.name)
    command = started(typed)
    assert "resume" in command
    assert "--trust" not in command
    assert not foreign.was_imported()


@pytest.mark.parametrize(
    ("kind", "settings", "foreign_keys"),
    [
        ("timm:resnet18", {"pretrained": True, "drop_rate": 0.1, "layers": [2, 2]}, set()),
        ("timm:hf-hub:somebody/model", {}, {"model.kind"}),
        ("timm:local-dir:here", {}, {"model.kind"}),
        ("timm:resnet18", {"checkpoint_path": "x.pth"}, {"model.settings.checkpoint_path"}),
        ("timm:resnet18", {"pretrained_cfg": {"file": "x"}}, {"model.settings.pretrained_cfg"}),
        ("timm.models:resnet18", {}, {"model.kind"}),
        ("resnet12", {"anything": "text"}, set()),
    ],
)
def test_models_of_timm_are_foreign_where_they_read_files(
    kind: str, settings: dict[str, Any], foreign_keys: set[str]
) -> None:
    assert set(foreign_code(Recipe(model=ModelSettings(kind=kind, settings=settings)))) == foreign_keys


def test_text_of_a_file_does_not_steer_the_terminal() -> None:
    with pytest.raises(UntrustedCodeError) as error:
        recipe_from_toml('[model]\nkind = "a\\u001b[2J\\nerror:b"\n')
    assert str(error.value).isprintable()


def test_recipes_of_files_have_few_doors() -> None:
    """Whoever reads a recipe without asking for trust must not build it: new places are to be looked at."""
    users = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if any(f"{name}(" in path.read_text() for name in ("read_recipe", "read_toml", "tomllib.load"))
    }
    assert users == {
        "experiment/recipe/settings.py",  # recipe_from_toml asks
        "experiment/recipe/library.py",  # load_recipe asks; read_recipe says that it does not
        "experiment/loading.py",  # compares with what was trained; recipe_of asks
        "experiment/experiment.py",  # shows it
        "experiment/sweeps/grid.py",  # asks for all cells together
        "experiment/backbone_run.py",  # takes pictures and protocol; network and family are its own
        "experiment/sweeps/runs.py",  # compares with a run that lies there already
        "cli/show.py",  # prints
        "cli/train.py",  # looks how many ranks to start; each of them asks
    } | ({"data/catalogue.py"} & users)
    saved = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if "read_described(" in path.read_text()
        and any(f"{name}(" in path.read_text() for name in ("make_recipe", "recipe_with"))
    }
    assert saved == {"classify/files.py"}  # a recipe in a saved classifier: asks
    importers = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if "import_module(" in path.read_text()
    }
    assert importers == {
        "core/lazy.py",  # our own names
        "data/layouts/__init__.py",  # our own loaders, by their names in our catalogue
        "nets/factory.py",  # timm
        "classify/export.py",  # onnx and its runtime
        "classify/backbones.py",  # the same
        "nets/efficientnet_lite.py",  # onnx
        "runs/tracking.py",  # trackio or wandb, the only words that run.track takes
        "core/importing.py",  # model.kind and tasks.family, which experiment/recipe/trust.py knows
    }
