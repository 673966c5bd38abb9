"""The practitioner's front: scikit-learn's manners, new classes from few pictures, no pickle."""

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from innerloop.classify import FewShotClassifier
from innerloop.core.errors import UserError
from innerloop.data.glyphs import glyphs
from innerloop.testing.closeness import SINGLE, SINGLE_SUMMED, SOLVED_ROUGHLY


@pytest.fixture(scope="module")
def pictures():
    return glyphs().images


@pytest.fixture(scope="module")
def trained(pictures):
    labels = np.repeat(np.arange(200), 20)
    training = {"filters": 16, "steps": 60, "batch": 4, "shots": 1, "queries": 5}
    return FewShotClassifier(verbose=False).pretrain(pictures[:4000], labels, **training)


@pytest.fixture
def adapted(trained, pictures):
    new = pictures[9600:9700]
    return trained.fit(new[::4], np.repeat(list("abcde"), 5)), new, np.repeat(list("abcde"), 20)


def test_it_learns_new_classes_from_five_pictures_each(adapted):
    model, new, labels = adapted
    rest = [i for i in range(100) if i % 4]
    assert model.score(new[rest], labels[rest]) > 0.5  # chance is 0.2


def test_manners(trained):
    other = clone(trained)
    assert {**other.get_params(), "backbone": 0} == {**trained.get_params(), "backbone": 0}
    assert other.set_params(C=3.0).C == 3.0
    with pytest.raises(ValueError, match="filter"):
        trained.set_params(filter=3)
    assert repr(FewShotClassifier(C=2.0)) == "FewShotClassifier(C=2.0)"
    assert repr(trained) == "FewShotClassifier(backbone=<network of this FewShotClassifier>, verbose=False)"


def test_probabilities_are_scikit_learns_on_the_same_features(adapted):
    model, new, labels = adapted
    model = clone(model).set_params(calibrate=False).fit(new[::4], labels[::4])
    with torch.no_grad():
        x = torch.from_numpy(new.copy()).permute(0, 3, 1, 2).float() / 255
        body = model.backbone.backbone
        z = body.network.features(body.params, body.buffers, x, "stored")[0]
    z = torch.nn.functional.normalize(z, dim=-1).double().numpy()
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(z[::4], labels[::4])
    assert np.abs(model.predict_proba(new) - theirs.predict_proba(z)).max() < SOLVED_ROUGHLY


def test_each_picture_is_judged_alone(adapted):
    model, new, _ = adapted
    together = model.predict_proba(new[:6])
    alone = np.concatenate([model.predict_proba(new[i : i + 1]) for i in range(6)])
    assert np.abs(together - alone).max() < SINGLE_SUMMED


def test_it_says_when_it_is_unsure(adapted):
    model, new, _ = adapted
    prediction = model.set_params(unsure_below=0.99).predict_sure(new)
    model.set_params(unsure_below=0.5)
    assert all(prediction.unsure)
    sure = model.predict_sure(new)
    assert [p < 0.5 or u for p, u in zip(sure.confidence, sure.unknown, strict=True)] == sure.unsure


def test_what_is_saved_and_loaded_agrees(adapted, tmp_path):
    model, new, _ = adapted
    expected = model.predict_proba(new)
    again = FewShotClassifier.load(model.save(tmp_path / "model"))
    assert np.array_equal(again.predict_proba(new), expected)
    assert again.predict(new).tolist() == model.predict(new).tolist()
    assert again.expected_ == model.expected_


def test_files_arrays_and_layouts_are_alike(adapted, tmp_path):
    model, new, _ = adapted
    expected = model.predict_proba(new[:2])
    for i in range(2):
        Image.fromarray(new[i, ..., 0]).save(tmp_path / f"{i}.png")
    files = [str(tmp_path / f"{i}.png") for i in range(2)]
    for given in (files, new[:2, ..., 0], np.moveaxis(new[:2], -1, 1), torch.from_numpy(new[:2] / 255)):
        assert np.abs(model.predict_proba(given) - expected).max() < SINGLE


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda m, x: FewShotClassifier().predict(x), "fit it to examples first"),
        (lambda m, x: m.fit(x, ["a"] * len(x)), "at least two classes"),
        (lambda m, x: m.fit(x[:3], ["a", "b"]), "3 pictures but 2 labels"),
        (lambda m, x: m.fit(x[:, :20, :20], list(range(len(x)))), "28×28"),
        (lambda m, x: FewShotClassifier.load("nowhere"), "no model file nowhere.safetensors, and no run"),
    ],
)
def test_mistakes_get_one_sentence(trained, pictures, use, message):
    with pytest.raises(UserError, match=message):
        use(trained, pictures[:4])
