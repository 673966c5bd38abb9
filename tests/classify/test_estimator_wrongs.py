"""Where ``FewShotClassifier`` and ``innerloop predict`` gave wrong answers without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from innerloop.classify import FewShotClassifier
from innerloop.core.errors import UserError
from innerloop.data.glyphs import glyphs
from innerloop.testing.closeness import SINGLE

QUICK: dict[str, Any] = {"filters": 8, "steps": 2, "batch": 1, "shots": 1, "queries": 2}


@pytest.fixture(scope="module")
def pictures() -> np.ndarray:
    return np.asarray(glyphs().images[8000:8400])


UNLIKE = {"backbone": 0, "calibrate": 0, "verbose": 0}


def fitted(**settings: Any) -> FewShotClassifier:
    training = {name: value for name, value in {**QUICK, **settings}.items() if name != "head"}
    model = FewShotClassifier(head=settings.get("head", "logistic"), verbose=False)
    return model.pretrain(glyphs().images[:400], np.repeat(np.arange(20), 20), **training)


@pytest.fixture(scope="module")
def trained() -> FewShotClassifier:
    return fitted()


LABELS: dict[str, list[Any]] = {
    "whole numbers": [7, 12, 3],
    "text that looks like numbers": ["7", "12", "3"],
    "numpy's numbers": [np.int16(7), np.int16(12), np.int16(3)],
    "numpy's text": [np.str_("a"), np.str_("b"), np.str_("c")],
    "floats": [0.5, 1.5, 2.0],
    "both": ["a", 7, 2.5],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_come_back_as_they_were(
    trained: FewShotClassifier, pictures: np.ndarray, tmp_path: Path, kind: str
) -> None:
    names = LABELS[kind]
    y = [names[i // 20] for i in range(60)]
    trained.fit(pictures[:60:4], y[::4])
    before = trained.score(pictures[:60], y)
    again = FewShotClassifier.load(trained.save(tmp_path / "model"))
    assert again.classes_.tolist() == trained.classes_.tolist()
    assert again.classes_.dtype == trained.classes_.dtype
    kinds = [[type(name) for name in model.predictor_.learned.names] for model in (again, trained)]
    assert kinds[0] == kinds[1]
    assert again.score(pictures[:60], y) == before
    assert before > 0


def test_labels_that_no_file_holds_are_refused(
    trained: FewShotClassifier, pictures: np.ndarray, tmp_path: Path
) -> None:
    trained.fit(pictures[:40:4], [(i // 5, "x") for i in range(10)])
    with pytest.raises(UserError, match="use text or numbers"):
        trained.save(tmp_path / "model")


def test_fitting_again_forgets_the_head(pictures: np.ndarray) -> None:
    model = fitted().fit(pictures[:40:4], ["a"] * 5 + ["b"] * 5)
    model.pretrain(glyphs().images[400:800], np.repeat(np.arange(20), 20), **QUICK)
    with pytest.raises(UserError, match="fit it to examples first"):
        model.predict(pictures[:2])


def test_fitting_leaves_torchs_threads_alone() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        fitted(batch=2)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("where", ["adapt", "predict"])
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda x: x.astype(np.float32), "floats between 0 and 1"),
        (lambda x: x / 127.5 - 1, "undo the normalisation"),
        (lambda x: np.where(np.arange(28)[:, None] == 3, np.nan, x / 255), "hold NaN"),
    ],
)
def test_pictures_whose_white_is_not_known_are_refused(
    trained: FewShotClassifier, pictures: np.ndarray, where: str, spoil: Any, words: str
) -> None:
    trained.fit(pictures[:40:4], ["a"] * 5 + ["b"] * 5)
    bad = spoil(pictures[:40:4])
    with pytest.raises(UserError, match=words):
        trained.fit(bad, ["a"] * 5 + ["b"] * 5) if where == "adapt" else trained.predict(bad)


def test_whole_numbers_of_any_type_are_the_same_pictures(
    trained: FewShotClassifier, pictures: np.ndarray
) -> None:
    trained.fit(pictures[:40:4], ["a"] * 5 + ["b"] * 5)
    assert np.array_equal(trained.predict_proba(pictures.astype(np.int64)), trained.predict_proba(pictures))


def test_transductive_queries_are_judged_together(pictures: np.ndarray) -> None:
    model = fitted(norm="transductive").fit(pictures[:40:4], ["a"] * 5 + ["b"] * 5)
    x = torch.from_numpy(pictures[:300].copy()).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        body, head = model.backbone.backbone, model.predictor_.learned.state
        z = body.network.features(body.params, body.buffers, x, "batch")[0].double()
        z = torch.nn.functional.normalize(z, dim=-1)
        expected = (z @ head.weight.T + head.bias).softmax(-1)
    assert np.abs(model.predict_proba(pictures[:300]) - expected.numpy()).max() < SINGLE


@pytest.mark.parametrize("name", ["nonsense", "logistik"])
def test_a_bad_head_is_refused_before_training(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    import innerloop.classify.few_shot_classifier as module

    monkeypatch.setattr(module, "train", lambda *_, **__: pytest.fail("it trained first"))
    with pytest.raises(UserError, match="unknown head") as caught:
        fitted(head=name)
    assert ("did you mean 'logistic'" in str(caught.value)) == (name == "logistik")


def test_numbers_that_are_none_are_named(trained: FewShotClassifier, pictures: np.ndarray) -> None:
    spoilt = FewShotClassifier(verbose=False)
    params = {name: value.clone() for name, value in trained.backbone.backbone.params.items()}
    params["conv1.weight"][0] = torch.nan
    spoilt.backbone = trained.backbone._replace(backbone=trained.backbone.backbone._replace(params=params))
    with pytest.raises(UserError, match=r"not finite \(conv1.weight\)"):
        spoilt.fit(pictures[:40:4], ["a"] * 5 + ["b"] * 5)
    good = trained.fit(pictures[:40:4], ["a"] * 5 + ["b"] * 5).predictor_
    state = good.learned.state
    classes = good.learned._replace(state=state._replace(bias=state.bias * torch.nan))
    spoilt.predictor_ = good._replace(classes=classes)
    with pytest.raises(UserError, match="gives no number for 2 of 2 pictures"):
        spoilt.predict(pictures[:2])


def test_predict_names_weights_that_are_no_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import innerloop.classify.files as module
    from innerloop.cli.main import main
    from innerloop.experiment.recipe.library import load_recipe
    from innerloop.experiment.training import train

    quick = [
        *("data.name=glyphs", "tasks.ways=2", "tasks.queries=2", "model.filters=4", "outer.steps=1"),
        *("outer.batch=1", "eval.episodes=2", "eval.validation_episodes=1", "run.execution=loop"),
        *("run.compile=off", f"run.folder={tmp_path / 'runs'}"),
    ]
    run = train(load_recipe("omniglot-protonet", quick), progress=False).run
    for c in "ab":
        (tmp_path / "support" / c).mkdir(parents=True)
        Image.fromarray(glyphs().images[20 * ord(c), :, :, 0]).save(tmp_path / "support" / c / "0.png")
    query = str(tmp_path / "support" / "a" / "0.png")
    command = ["predict", str(run), "--support", str(tmp_path / "support"), query, "--json"]
    assert main(command) == 0
    honest = module.for_test

    def spoilt(params: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor]) -> Any:
        params, buffers = honest(params, buffers)
        return {name: value * torch.nan for name, value in params.items()}, buffers

    capsys.readouterr()
    monkeypatch.setattr(module, "for_test", spoilt)
    assert main(command) == 2
    assert "are not finite" in "".join(capsys.readouterr())
    monkeypatch.setattr(module, "for_test", honest)
    capsys.readouterr()
    assert main([*command, "eval.head=finetune", "eval.head_lr=1e38"]) == 2
    assert "gives no number for 1 of 1 pictures" in "".join(capsys.readouterr())


@pytest.mark.parametrize("y", [None, 3, "ants"])
def test_labels_that_are_no_list_are_refused_in_a_sentence(y: Any) -> None:
    with pytest.raises(UserError, match="y must list one label for every picture"):
        FewShotClassifier().fit("support", y)


def test_training_does_not_mind_inference_mode() -> None:
    pictures = np.random.default_rng(0).integers(0, 255, (24, 16, 16), dtype=np.uint8)
    small = {"steps": 2, "filters": 4, "ways": 2, "shots": 1, "queries": 1}
    labels = np.repeat(np.arange(4), 6)
    with torch.inference_mode():
        inside = FewShotClassifier(verbose=False).pretrain(pictures, labels, **small)
    outside = FewShotClassifier(verbose=False).pretrain(pictures, labels, **small)
    first, second = (model.backbone.backbone.params.values() for model in (inside, outside))
    for mine, theirs in zip(first, second, strict=True):
        assert torch.equal(mine, theirs)
