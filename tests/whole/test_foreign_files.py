"""Files of somebody else: whatever their strings say, reading them imports and runs nothing."""

from __future__ import annotations

import ast
import contextlib
import copy
import hashlib
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

import innerloop as il
from innerloop.choose.session import reopen
from innerloop.classify import extract, read_backbone
from innerloop.classify.backbones import write_backbone
from innerloop.classify.cache import features_folder
from innerloop.classify.files import load_model
from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.core.importing import Trusted, UntrustedCodeError, load_object
from innerloop.core.preprocessing import Preprocessing
from innerloop.core.tensors import read_tensors, write_tensors
from innerloop.experiment.loading import load_run
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.sweeps.grid import make_space
from innerloop.experiment.sweeps.study import DRAWS, keep_draws, kept_draws
from innerloop.training.execution import probes
from support.picture_runs import draw_noise, random_backbone
from support.places import ROOT

SOURCES = ROOT / "src" / "innerloop"
MODULE = "code_of_somebody_else"
NAMES = ("os:system", f"{MODULE}:run", "hf:somewhere")
Read = Callable[[Path], object]


class Ran:
    """Whether anything of another's choice was imported or called."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def anything(self) -> bool:
        return bool(self.calls) or MODULE in sys.modules


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ran]:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / f"{MODULE}.py").write_text("def run(*_, **__): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    monkeypatch.chdir(tmp_path)
    made = Ran()
    monkeypatch.setattr(os, "system", lambda *given, **named: made.calls.append((given, named)))
    transformers = type("Transformers", (), {"__getattr__": lambda _, name: made.calls.append(name)})()
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    yield made
    sys.modules.pop(MODULE, None)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in nested data there is text; a table that is empty may get settings of any name."""
    if isinstance(value, str) or value is None:
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
        if path and path[-1] == "settings":
            yield (*path, "command")
    elif isinstance(value, list):
        for place, item in enumerate(value[:3]):
            yield from places(item, (*path, place))


def changed(value: Any, path: tuple[Any, ...], text: str) -> Any:
    """A copy with other text at one place; for a backbone also with settings that its code would take."""
    made = copy.deepcopy(value)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = text
    if path[-1] in ("name", "kind") and isinstance(inner.get("settings"), dict):
        inner["settings"] = {"command": "true"} if text == NAMES[0] else {}
    return made


def walk(content: Any, write: Callable[[Any], None], read: Callable[[], object], ran: Ran) -> int:
    """Reads a file with every name of code at every place for text in turn; gives how often."""
    count = 0
    for path in places(content):
        for name in NAMES:
            write(changed(content, path, name))
            with contextlib.suppress(Exception):  # refused, or damaged: other tests ask for the sentence
                read()
            assert not ran.anything(), (path, name, ran.calls)
            count += 1
    return count


def metadata(file: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        about: dict[str, Any] = json.loads(opened.metadata()["innerloop"])
    return about


def with_metadata(file: Path) -> Callable[[Any], None]:
    tensors = read_tensors(file)
    return lambda about: write_tensors(file, tensors, {"innerloop": json.dumps(about)})


@pytest.fixture
def backbone(tmp_path: Path) -> il.Backbone:
    return random_backbone(tmp_path, Preprocessing((16, 16)), channels=3)


def saved_model(backbone: il.Backbone) -> Path:
    pictures = [torch.rand(16, 16, 3).numpy() for _ in range(6)]
    return il.FewShotClassifier(backbone, verbose=False).fit(pictures, list("aabbcc")).save("model")


@pytest.mark.slow
def test_saved_models(ran: Ran, backbone: il.Backbone) -> None:
    file = saved_model(backbone)
    assert walk(metadata(file), with_metadata(file), lambda: load_model(file), ran) > 40
    pictures = torch.rand(8, 16, 16, 3).numpy()
    model = il.FewShotClassifier(verbose=False).pretrain(
        pictures, list("aabbccdd"), filters=2, ways=2, shots=1, queries=1, steps=1, batch=1
    )
    file = model.fit(pictures[:4], list("aabb")).save("trained")
    assert walk(metadata(file), with_metadata(file), lambda: load_model(file), ran) > 100


def test_a_saved_model_cannot_name_a_function_as_its_backbone(ran: Ran, backbone: il.Backbone) -> None:
    file = saved_model(backbone)
    about = metadata(file)
    assert about["backbone"]["name"] == "conv4"
    evil = changed(about, ("backbone", "name"), "os:system")
    with_metadata(file)(evil)
    for trust in (False, True):
        with pytest.raises(UserError, match="names the backbone 'os:system', which a file may not"):
            il.FewShotClassifier.load(file, trust=trust)
    draw_noise(Path("new"), "a", 1)
    assert main(["predict", "--model", str(file), "new"]) == 2
    assert main(["export", str(file), "out.onnx"]) == 2
    assert not ran.anything()


def test_backbones_and_features(ran: Ran, backbone: il.Backbone, tmp_path: Path) -> None:
    file = write_backbone(tmp_path / "net.safetensors", backbone)
    about = metadata(file)
    assert walk(about, with_metadata(file), lambda: read_backbone(file), ran) > 10
    with_metadata(file)(changed(about, ("name",), "hf:somewhere"))
    with pytest.raises(UntrustedCodeError):
        read_backbone(file)
    draw_noise(tmp_path, "pictures", 2)
    files = sorted((tmp_path / "pictures").iterdir())
    extract(backbone, files)
    (said,) = features_folder().rglob(f"*{backbone.fingerprint[:12]}*/about.json")
    content = json.loads(said.read_text())
    walk(content, lambda new: said.write_text(json.dumps(new)), lambda: extract(backbone, files), ran)


def by_json(file: Path) -> Callable[[Any], None]:
    def write(content: Any) -> None:
        file.write_text(json.dumps(content))

    return write


@pytest.mark.slow
def test_runs_and_recipes(ran: Ran, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(ROOT / "tests" / "fixtures" / "runs" / "sine-maml", run)
    if not (run / "manifest.json").is_file():
        (run,) = (file.parent for file in run.rglob("manifest.json"))
    read = load_run(run)
    assert read.parts.recipe.tasks.family == "sine"
    manifest = json.loads((run / "manifest.json").read_text())

    def write_recipe(content: Any) -> None:
        text = tomli_w.dumps(content)
        (run / "recipe.toml").write_text(text)
        told = {**manifest, "recipe_sha256": hashlib.sha256(text.encode()).hexdigest(), "recipe": None}
        (run / "manifest.json").write_text(json.dumps(told))

    recipe = tomllib.loads((run / "recipe.toml").read_text())
    recipe["model"].setdefault("settings", {})
    recipe["tasks"].setdefault("settings", {})
    assert walk(recipe, write_recipe, lambda: load_run(run), ran) > 50
    own = run / "own.toml"
    walk(
        recipe,
        lambda new: own.write_text(tomli_w.dumps(new)) and None,
        lambda: Parts(load_recipe(str(own))).model,
        ran,
    )
    write_recipe(recipe)
    for file in sorted(run.rglob("*.json")):
        text = file.read_text()
        walk(json.loads(text), by_json(file), lambda: load_run(run), ran)
        file.write_text(text)
    everything = json.loads(text := (run / "manifest.json").read_text())
    for path in places(everything):
        everything = changed(everything, path, NAMES[0]) if path[-1] != "status" else everything
    (run / "manifest.json").write_text(json.dumps(everything))
    main(["report", str(run)])
    main(["ls"])
    (run / "manifest.json").write_text(text)
    assert not ran.anything()


def test_searches_advice_and_journals(ran: Ran, tmp_path: Path) -> None:
    recipe = load_recipe("sine-maml").model_dump(exclude_none=True)
    search = {"source": "sine", "settings": {"space": {"name": "conv"}}, "free": [], "validate": False}
    advice = {"source": "sine", "settings": {}, "named": True}
    for kind, kept in (("search", search), ("advise", advice)):
        manifest = {"status": "interrupted", "kind": kind, "asked": {**kept, "recipe": recipe}}
        write = by_json(tmp_path / "manifest.json")

        def build() -> None:
            Parts(reopen(tmp_path, alone=True).recipe).model  # noqa: B018

        write(manifest)
        assert walk(manifest, write, build, ran) > 50


def test_draws_of_sweeps(ran: Ran, tmp_path: Path) -> None:
    """Whatever they say, only values that the command asks for become runs, and code that it names."""
    space, _ = make_space("sine-maml", ["tasks.family=[sine,linear]", "inner.lr=log(1e-3,1)"])
    keep_draws(
        tmp_path, [{"tasks.family": "sine", "inner.lr": 0.1}, {"tasks.family": "linear", "inner.lr": 1}]
    )
    draws = json.loads((tmp_path / DRAWS).read_text())
    made: list[str] = []

    def read() -> None:
        for number, settings in enumerate(kept_draws(tmp_path, space)):
            cell = space.cell(number, settings)
            made.append(cell.recipe.tasks.family)
            Parts(cell.recipe).model  # noqa: B018

    read()
    assert made == ["sine", "linear"]
    assert walk(draws, by_json(tmp_path / DRAWS), read, ran) == 6
    assert {*made} == {"sine", "linear"}


def test_the_gate_asks_for_a_token(ran: Ran) -> None:
    for use in (load_object, il.get_family, lambda name: il.backbone(name, 3, 16, 5)):
        with pytest.raises(UntrustedCodeError, match=MODULE):
            use(f"{MODULE}:run")
    assert not ran.anything()
    assert load_object(Trusted(f"{MODULE}:run")).__name__ == "run"


def test_only_the_gate_makes_tokens_of_text_that_it_was_given() -> None:
    """Elsewhere a token is made of a name that our own source spells out, or of a row of our own tables."""
    made = set()
    for file in SOURCES.rglob("*.py"):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "Trusted(" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Trusted":
                (name,) = node.args
                spelled = name.values[0] if isinstance(name, ast.JoinedStr) else name
                if not (isinstance(spelled, ast.Constant) and re.match(r"\w+[.:]", spelled.value)):
                    made.add((file.relative_to(SOURCES).as_posix(), ast.unparse(name)))
    assert made == {
        ("experiment/recipe/trust.py", "getattr(part, name)"),  # the gate
        ("choose/request.py", "what.name"),  # a word of the command
        ("experiment/learner.py", "entry.factory"),
        ("choose/scores/scoring.py", "entry.function"),
    }


def test_memories_and_exports(ran: Ran, tmp_path: Path) -> None:
    file, key = tmp_path / "trial.json", json.dumps({"machine": "x"})
    probes.remember(file, key, probes.Outcome(False, "no"))
    assert walk(json.loads(file.read_text()), by_json(file), lambda: probes._remembered(file, key), ran)
    for suffix in (".onnx", ".pt2"):  # are written, and never read
        (tmp_path / f"model{suffix}").write_bytes(b"os:system")
        with pytest.raises(UserError):
            load_model(tmp_path / f"model{suffix}")
