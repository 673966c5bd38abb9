"""What ``innerloop predict`` promises: for which classes, from which examples, and against the truth."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from innerloop.classify import FewShotClassifier
from innerloop.classify.results import truth_of
from innerloop.cli.main import main
from innerloop.cli.predict import _said, _truth_lines
from innerloop.core.preprocessing import Preprocessing
from innerloop.data.glyphs import glyphs
from support.picture_runs import random_backbone

pytestmark = pytest.mark.usefixtures("own_folder", "own_data")


@pytest.fixture(autouse=True)
def made(tmp_path: Path, own_folder: None) -> None:
    """A model without classes; one example of an ant, four of others; pictures in folders by class."""
    backbone = random_backbone(tmp_path, Preprocessing((28, 28), "fill", colour="grey"))
    FewShotClassifier(backbone, verbose=False).save("model")
    for i, image in enumerate(glyphs().images[8000:8060]):
        name = ("ant", "bee", "cow")[i // 20]
        examples = 1 if name == "ant" else 4
        place = tmp_path / ("examples" if i % 20 < examples else "new") / name
        if i % 20 < examples + 3:
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[..., 0]).save(place / f"{i:02}.png")


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["predict", "model.safetensors", "--support", "examples", "new", *words, "--quiet"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_class_that_was_not_tested_is_named_before_any_label(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "--json", "--page", "labels.html", "--save", "kept")["expected"]["untested"] == [
        "ant"
    ]
    words = "not tested, for want of a second picture: ant"
    assert words in Path("labels.html").read_text(encoding="utf-8").partition("Pictures, the least")[0]
    assert "for want of a second picture: ant" in Path("kept.safetensors.md").read_text(encoding="utf-8")
    for which in (["model.safetensors", "--support", "examples"], ["--model", "kept.safetensors"]):
        assert main(["predict", *which, "new", "--quiet"]) == 0
        assert words in capsys.readouterr().out.splitlines()[1]


def test_copies_are_named_and_count_once(capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(3):
        shutil.copy("examples/ant/00.png", f"examples/ant/copy{i}.png")
    found = told(capsys, "--json")
    (ants,) = [row for row in found["copies"] if row["label"] == "ant"]
    assert {Path(file).name for file in ants["examples"]} == {"00.png", "copy0.png", "copy1.png", "copy2.png"}
    assert "ant" in found["expected"]["untested"]


def test_the_estimator_warns_of_copies() -> None:
    files = ["examples/ant/00.png"] * 2 + [f"examples/bee/{i}.png" for i in range(20, 24)]
    model = FewShotClassifier.load("model")
    with pytest.warns(UserWarning, match=r"2 examples of a look like copies.*ant/00.png, .*ant/00.png"):
        model.fit(files, ["a", "a", *"bbbb"])


def test_labels_are_compared_with_the_names_of_folders(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("new/cow", "new/owl")
    found = told(capsys, "--json", "--truth")
    rows = [(Path(row["file"]).parent.name, row["label"]) for row in found["predictions"]]
    known = [true == said for true, said in rows if true != "owl"]
    assert found["truth"]["accuracy"] == pytest.approx(sum(known) / len(known))
    assert found["truth"]["pictures"] == len(known) == 9
    assert found["truth"]["other"]["owl"]["pictures"] == 3
    far = [Path(row["file"]).parent.name for row in found["predictions"] if row["unknown"]]
    assert found["truth"]["unknown"] == sum(name != "owl" for name in far)
    Path("new").rename("unsorted")
    shutil.copytree("unsorted/cow", "new/misc")
    assert main(["predict", "model.safetensors", "--support", "examples", "new", "--truth"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "('misc') has the name of one (ant, bee, cow)" in line


def test_pictures_of_known_classes_that_are_called_unknown_are_counted() -> None:
    files = [Path(f"new/{name}/1.jpg") for name in ("ant", "bee", "bee", "owl")]
    truth = truth_of(files, ["ant", "bee", "ant", "ant"], [True, False, True, True], ["ant", "bee"]).as_dict()
    assert truth["unknown"] == 2
    assert _truth_lines(truth)[0].endswith("by the folders of 3 pictures, 2 of them called unknown")


def test_examples_that_are_all_copies_promise_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("ant", "bee", "cow"):
        first, *others = sorted(Path("examples", name).iterdir())
        for file in others:
            shutil.copy(first, file)
    assert main(["predict", "model.safetensors", "--support", "examples", "new", "--quiet"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1] == "how often it is right cannot be told: no class has two different pictures"
    assert said[2].startswith("warning: 4 examples of bee look like copies of one picture")


def test_unknown_pictures_have_no_percentage() -> None:
    row = {"label": "fl77", "probability": 0.999, "unsure": True, "unknown": True}
    assert _said(row) == "unknown? (nearest: fl77)"
    assert _said({**row, "unknown": False}) == "fl77  100 %   unsure"
