"""A learner of one's own: named by its code, trained, swept, raced, judged again and reported."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import innerloop as il
from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.core.importing import Trusted, UntrustedCodeError
from innerloop.learners.table import entry_of

MODULE = """
from innerloop.learners.gradient import maml
def tiny(network, loss, lr, steps, scale: float = 1.0):
    return maml(network, loss=loss, lr=lr * scale, steps=steps)
"""
NAME = "learner_of_mine:tiny"
SMALL = ["outer.steps=2", "outer.batch=2", "eval.episodes=3", "eval.validation_episodes=2", "run.threads=1"]
SMALL += ["run.execution=loop", "run.compile=off", "model.hidden=[8]"]


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "learner_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "code"), prepend=":")
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("learner_of_mine", None)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return told


def means(run: str) -> set[float]:
    return {json.loads(file.read_text())["mean"] for file in (Path(run) / "eval").glob("*.json")}


def test_it_is_trained_judged_again_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    trained = answer(capsys, "train", "sine-maml", f"inner.method={NAME}", *SMALL)
    maml = answer(capsys, "train", "sine-maml", *SMALL)
    assert means(trained["run"]) == means(maml["run"])  # it is MAML by another name
    run = trained["run"]
    assert f'method = "{NAME}"' in (Path(run) / "recipe.toml").read_text()
    assert main(["eval", run]) == 2  # a file names it
    assert "inner.method=learner_of_mine:tiny (module learner_of_mine)" in capsys.readouterr().err
    answer(capsys, "eval", run, "inner.settings.scale=0.0", "--trust")
    assert len(means(run)) == 2
    page = Path(answer(capsys, "report", run)["report"]).read_text()
    assert NAME in page


def test_it_is_swept(capsys: pytest.CaptureFixture[str]) -> None:
    result = answer(capsys, "sweep", "sine-maml", f"inner.method=[maml,{NAME}]", *SMALL)
    assert NAME in json.dumps(result)
    page = Path(result["report"]).read_text() if "report" in result else json.dumps(result)
    assert NAME in page


def test_python_takes_it_and_files_need_trust(tmp_path: Path) -> None:
    experiment = il.Experiment("sine-maml", *SMALL, inner={"method": NAME, "settings": {"scale": 0.5}})
    assert isinstance(experiment.recipe.inner.method, Trusted)
    assert experiment.fit(progress=False).evaluate().score == "mse"
    file = tmp_path / "mine.toml"
    file.write_text(f'extends = "sine-maml"\n[inner]\nmethod = "{NAME}"\n')
    with pytest.raises(UntrustedCodeError, match=r"inner.method=learner_of_mine:tiny"):
        il.load_recipe(str(file))
    assert il.load_recipe(str(file), trust=True).inner.method == NAME


def test_mistakes_are_told_before_anything_is_written(tmp_path: Path) -> None:
    for settings, words in (
        ({"method": NAME, "settings": {"scael": 1.0}}, "cannot be called with its settings"),
        ({"method": "learner_of_mine:tny"}, "has no 'tny' .did you mean 'tiny'"),
        ({"method": "nowhere_at_all:tiny"}, "there is no module 'nowhere_at_all'"),
    ):
        with pytest.raises(UserError, match=words):
            il.Experiment("sine-maml", *SMALL, inner=settings).fit(progress=False)
    assert not (tmp_path / "runs").exists()


def test_its_arguments_say_what_it_reads() -> None:
    assert entry_of(Trusted(NAME)).reads == ("loss", "lr", "steps")
    assert entry_of(NAME).title == "a learner of your own"  # not trusted: not imported
