"""One way to predict: ``innerloop predict`` and ``FewShotClassifier`` read the same files, say the same."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

import innerloop.experiment.pictures as picture_data
from innerloop.classify import FewShotClassifier
from innerloop.classify.card import card_file
from innerloop.classify.files import predictor_from
from innerloop.classify.heads import pack_state, unpack_state
from innerloop.classify.pretraining import recipe_for
from innerloop.cli.main import main
from innerloop.cli.predict import names_a_model
from innerloop.core.errors import UserError
from innerloop.data.glyphs import glyphs
from innerloop.experiment.parts import build
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.trust import UntrustedCodeError
from innerloop.experiment.training import train
from innerloop.testing.closeness import ROUNDED, SINGLE

TINY = [
    *(
        "data.name=glyphs",
        "tasks.ways=3",
        "tasks.shots=1",
        "tasks.queries=2",
        "outer.steps=2",
        "eval.episodes=2",
    ),
    *(
        "outer.batch=1",
        "eval.validation_episodes=1",
        "run.execution=loop",
        "run.compile=off",
        "run.threads=1",
    ),
    "run.dtype=float64",
]
RUNS = {
    "protonet": ("omniglot-protonet", ["model.filters=4"]),
    "maml": ("omniglot-maml", ["model.filters=4", "inner.test_steps=2"]),
    "anil, standardised": ("cifar-fs-anil", ["model.filters=4", "data.standardise=true"]),
    "supervised resnet12": (
        "cifar-fs-supervised-thin",
        [
            "model.kind=resnet12",
            "model.settings.widths=[2, 2, 4, 4]",
            "data.augment=none",
            "tasks.minibatch=8",
        ],
    ),
}
NAMES = ["ant", "bee", "cat"]
Run = Callable[[str], Path]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trained once, when first asked for."""
    made: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in made:
            recipe, settings = RUNS[kind]
            folder = tmp_path_factory.mktemp("runs")
            chosen = load_recipe(recipe, [*TINY, *settings, f"run.folder={folder}"])
            made[kind] = train(chosen, progress=False).run
        return made[kind]

    return get


@pytest.fixture(scope="module")
def trained() -> FewShotClassifier:
    return fitted()


def fitted(**settings: Any) -> FewShotClassifier:
    quick = {"filters": 4, "steps": 2, "batch": 1, "ways": 3, "shots": 1, "queries": 2, **settings}
    own = {name: quick.pop(name) for name in ("head", "C", "normalise") if name in quick}
    model = FewShotClassifier(verbose=False, **own)
    return model.pretrain(glyphs().images[:400], np.repeat(np.arange(20), 20), **quick)


@pytest.fixture(scope="module")
def pictures() -> np.ndarray:
    """Three new classes of twenty."""
    return np.asarray(glyphs().images[8000:8060])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, pictures: np.ndarray) -> Path:
    """The same as files: ``support/`` with three of each class, ``queries/`` with all."""
    place = tmp_path_factory.mktemp("pictures")
    (place / "queries").mkdir()
    for i, picture in enumerate(pictures):
        Image.fromarray(picture[..., 0]).save(place / "queries" / f"{i:02}.png")
        if i % 20 < 3:
            (place / "support" / NAMES[i // 20]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture[..., 0]).save(place / "support" / NAMES[i // 20] / f"{i:02}.png")
    return place


def support(pictures: np.ndarray) -> tuple[np.ndarray, list[str]]:
    rows = [i for i in range(60) if i % 20 < 3]
    return pictures[rows], [NAMES[i // 20] for i in rows]


def told(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    """What ``innerloop predict`` says as JSON."""
    capsys.readouterr()
    assert main(["predict", *map(str, words), "--json"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return said


def table(result: dict[str, Any]) -> np.ndarray:
    names = [str(name) for name in result["classes"]]
    return np.array([[row["probabilities"][name] for name in names] for row in result["predictions"]])


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert main(["predict", *map(str, words)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("kind", "head"),
    [*((kind, "learner") for kind in RUNS), ("anil, standardised", "svm"), ("maml", "finetune")],
)
@pytest.mark.one_in(3)
def test_a_run_predicts_alike_from_the_command_from_python_and_from_a_file(
    run: Run, kind: str, head: str, folder: Path, pictures: np.ndarray, tmp_path: Path, capsys: Any
) -> None:
    command = [run(kind), "--support", folder / "support", folder / "queries", f"eval.head={head}"]
    by_command = told(capsys, *command)
    threads = torch.get_num_threads()
    model = FewShotClassifier.load(run(kind)).set_params(head=head)
    assert torch.get_num_threads() == threads
    by_python = model.fit(*support(pictures)).predict_proba(pictures)
    assert by_python.dtype == np.float64
    assert np.array_equal(by_python, table(by_command))
    assert model.predict(pictures).tolist() == [row["label"] for row in by_command["predictions"]]
    # saved adapted: no support folder is needed; with one, it adapts again as it did
    path = model.save(tmp_path / "model")
    without = told(capsys, path, folder / "queries")
    assert np.array_equal(table(without), by_python)
    assert without["method"] == by_command["method"]
    assert without["support"] == by_command["support"]
    again = told(capsys, path, "--support", folder / "support", folder / "queries")
    assert np.array_equal(table(again), by_python)
    assert np.array_equal(FewShotClassifier.load(path).predict_proba(pictures), by_python)


def test_a_run_adapts_as_it_was_trained_to(run: Run, folder: Path, pictures: np.ndarray, capsys: Any) -> None:
    for kind, method in (
        ("protonet", "protonet"),
        ("maml", "maml"),
        ("supervised resnet12", "logistic head"),
    ):
        model = FewShotClassifier.load(run(kind))
        assert model.fit(*support(pictures)).predictor_.learned_by.words.startswith(method)
        plain = told(capsys, run(kind), "--support", folder / "support", folder / "queries")
        assert np.array_equal(model.predict_proba(pictures), table(plain))
    assert FewShotClassifier.load(run("maml")).head == "learner"


@pytest.mark.parametrize("norm", ["running", "support", "transductive", "group"])
def test_a_fitted_classifier_predicts_alike_under_every_norm_policy(
    norm: str, folder: Path, pictures: np.ndarray, tmp_path: Path, capsys: Any
) -> None:
    model = fitted(norm=norm)
    unadapted = model.save(tmp_path / "unadapted")
    by_command = told(
        capsys, unadapted, "--support", folder / "support", folder / "queries", folder / "queries"
    )
    twice = np.concatenate([pictures, pictures])  # more than are judged at once, if each is on its own
    by_python = model.fit(*support(pictures)).predict_proba(twice)
    assert np.array_equal(by_python, table(by_command))
    first = model.predict_proba(pictures[:7])
    assert np.allclose(first, by_python[:7], rtol=0, atol=SINGLE) == (norm != "transductive")


def test_neither_a_run_nor_its_saved_file_needs_the_training_data(
    run: Run, pictures: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run("supervised resnet12")
    for name in ("_source", "_opened", "plain_source"):
        monkeypatch.setattr(picture_data, name, lambda _: pytest.fail("it looked for its training pictures"))
    model = FewShotClassifier.load(made).fit(*support(pictures))
    again = FewShotClassifier.load(model.save(tmp_path / "model"))
    assert np.array_equal(again.predict_proba(pictures), model.predict_proba(pictures))


@pytest.mark.parametrize("word", ["last", "birds.safetensors", "sine-maml/2026"])
def test_a_word_names_a_model_unless_it_looks_like_pictures(word: str) -> None:
    assert names_a_model(word)
    assert not names_a_model(f"{word}/")
    assert not names_a_model(f"{word}.jpg")


def test_what_is_missing_or_in_vain_is_said_in_one_sentence(
    run: Run, trained: FewShotClassifier, folder: Path, pictures: np.ndarray, tmp_path: Path, capsys: Any
) -> None:
    queries, maml = folder / "queries", run("maml")
    unadapted = trained.save(tmp_path / "unadapted")
    assert "is a run, which has not learned your classes: add --support DIR" in refused(capsys, maml, queries)
    assert "has not learned your classes yet: add --support DIR" in refused(capsys, unadapted, queries)
    adapted = fitted().fit(*support(pictures)).save(tmp_path / "adapted")
    line = refused(capsys, adapted, queries, "eval.head=svm")
    assert "so eval.head=svm would change nothing: leave it out, or add --support" in line
    line = refused(capsys, tmp_path / "none.safetensors", queries)
    assert f"there is no model file {tmp_path / 'none.safetensors'}" in line
    assert "there is no folder 'unsorted'" in refused(
        capsys, "--run", maml, "--support", folder / "support", "unsorted/"
    )
    (weights,) = maml.glob("checkpoints/*2/*.safetensors")
    line = refused(capsys, weights, queries)
    assert "is not a model that FewShotClassifier.save wrote: for a run, give its directory" in line
    line = refused(capsys, unadapted, queries, "--support", folder / "support", "model.filters=5")
    assert "do not fit its network (conv0.weight, conv0.bias, norm0.weight): leave model.*" in line


def test_more_classes_than_a_last_layer_has_outputs(
    run: Run, folder: Path, tmp_path: Path, pictures: np.ndarray, capsys: Any
) -> None:
    four = [NAMES[i % 3] + "s" * (i == 3) for i in range(4)]
    with pytest.raises(UserError, match=r"tells 3 classes apart, and here are 4.*head='logistic'"):
        FewShotClassifier.load(run("maml")).fit(pictures[:4], four)
    for name, picture in zip(four, pictures, strict=False):
        (tmp_path / name).mkdir()
        Image.fromarray(picture[..., 0]).save(tmp_path / name / "0.png")
    command = [run("maml"), "--support", tmp_path, folder / "queries"]
    assert "tells 3 classes apart, and here are 4: give fewer classes" in refused(capsys, *command)
    assert len(told(capsys, *command, "eval.head=logistic")["classes"]) == 4
    assert len(told(capsys, run("protonet"), *command[1:])["classes"]) == 4


def test_how_sure_a_saved_classifier_must_be_travels_with_it(
    trained: FewShotClassifier, folder: Path, pictures: np.ndarray, tmp_path: Path, capsys: Any
) -> None:
    model = copy.copy(trained).set_params(unsure_below=0.99).fit(*support(pictures))
    path = model.save(tmp_path / "model")
    marked = [row["unsure"] for row in told(capsys, path, folder / "queries")["predictions"]]
    assert marked == model.predict_sure(pictures).unsure
    assert any(marked)
    sure = told(capsys, path, folder / "queries", "--unsure-below", "0")
    assert all(row["unsure"] == row["unknown"] for row in sure["predictions"])


def test_a_head_that_was_set_after_adapting_does_not_change_what_was_adapted(
    pictures: np.ndarray, tmp_path: Path
) -> None:
    model = fitted().fit(*support(pictures))
    before = model.predict_proba(pictures)
    again = FewShotClassifier.load(model.set_params(head="centroid", normalise=False).save(tmp_path / "m"))
    assert np.array_equal(again.predict_proba(pictures), before)
    assert again.get_params() | {"backbone": 0} == model.get_params() | {"backbone": 0}
    assert not np.array_equal(again.fit(*support(pictures)).predict_proba(pictures), before)


def test_arrays_are_labelled_by_any_predictor(run: Run, pictures: np.ndarray) -> None:
    predictor = predictor_from(run("anil, standardised"))
    examples, labels = support(pictures)
    by_model = FewShotClassifier.load(run("anil, standardised")).fit(examples, labels)
    fitted = predictor.fit(examples, labels)
    made = fitted.predict(pictures, unsure_below=0.9)
    assert np.array_equal(made.probabilities, by_model.predict_proba(pictures))
    assert made.labels == by_model.predict(pictures).tolist()
    assert made.unsure == [p < 0.9 for p in made.confidence]
    floats = predictor.fit(examples / 255, labels).predict(torch.from_numpy(pictures / 255))
    assert np.abs(floats.probabilities - made.probabilities).max() < ROUNDED
    with pytest.raises(UserError, match=r"trained on 28×28 with 1 channel, so bring them to that first"):
        fitted.predict(pictures[:, :20])
    with pytest.raises(UserError, match="class 'dog' has no picture to learn from"):
        predictor.fit(examples, labels, [*NAMES, "dog"])
    with pytest.raises(UserError, match="label 'cat' is none of the classes given"):
        predictor.fit(examples, labels, NAMES[:2])


def test_copies_and_pickles_predict_alike(
    trained: FewShotClassifier, pictures: np.ndarray, tmp_path: Path
) -> None:
    model = trained.fit(*support(pictures))
    loaded = FewShotClassifier.load(model.save(tmp_path / "model"))
    for again in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        pickle.loads(pickle.dumps(loaded)),
    ):
        assert np.array_equal(again.predict_proba(pictures), model.predict_proba(pictures))


def check_export(model: FewShotClassifier, pictures: np.ndarray, file: Path) -> None:
    program = torch.export.load(model.export(file, fixed=True)).module()
    probabilities = program(torch.from_numpy(pictures.copy()))["probabilities"].detach().numpy()
    assert np.abs(probabilities - model.predict_proba(pictures)).max() < SINGLE
    assert card_file(file).is_file()


def test_what_is_exported_agrees(run: Run, pictures: np.ndarray, tmp_path: Path) -> None:
    model = FewShotClassifier.load(run("anil, standardised")).fit(*support(pictures))
    check_export(model, pictures, tmp_path / "model-1.5.pt2")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("kind", RUNS)
def test_every_run_can_be_exported(
    kind: str, suffix: str, run: Run, pictures: np.ndarray, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / f"model{suffix}"
    words = ["export", str(run(kind)), str(file), "--support", str(folder / "support")]
    code = main(words)
    assert code == (0 if suffix == ".pt2" else 2)  # these runs are in float64, which onnxruntime has not
    assert file.exists() == (code == 0)
    if suffix == ".pt2":
        model = FewShotClassifier.load(run(kind)).fit(*support(pictures))
        check_export(model, pictures, tmp_path / "again.pt2")


def test_a_classifier_is_a_recipe_that_builds_its_network(trained: FewShotClassifier) -> None:
    recipe = recipe_for(
        {**trained.get_params(), "filters": 4, "ways": 3, "norm": "running", "augment": True}, 28
    )
    assert (recipe.inner.method, recipe.model.norm, recipe.data.augment) == ("protonet", "running", "lee2019")
    parts = build(recipe.model_copy(update={"data": recipe.data.model_copy(update={"name": "glyphs"})}))
    ours = trained.backbone.backbone.params
    assert {n: p.shape for n, p in parts.params.items()} == {n: p.shape for n, p in ours.items()}
    assert recipe_for({}, 12).model.pooling == "stride"


class Learned(NamedTuple):
    """What a learner that nobody here knows may hand on."""

    weights: torch.Tensor
    params: dict[str, torch.Tensor]
    rates: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]


def test_what_any_learner_adapts_can_be_kept() -> None:
    params, buffers = {"w": torch.zeros(1), "v": torch.ones(1)}, {"m": torch.ones(2)}
    state = Learned(torch.ones(3), {**params, "w": torch.ones(1)}, {}, buffers)
    fields, tensors = pack_state(state, params, buffers)
    assert set(tensors) == {"weights", "params/w"}  # the rest is the network's own
    again = unpack_state(fields, tensors, params, buffers)
    assert again._fields == state._fields
    assert again == state
    with pytest.raises(UserError, match="not made of tensors alone"):
        pack_state(state._replace(weights=3), params, buffers)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="save it before it is adapted"):
        pack_state([1], params, buffers)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"filters": 0, "lr": -1.0}, "^filters must be a whole number of at least 1, not 0\nlr must be"),
        ({"C": -1.0}, "^C must be a number above 0"),
        ({"ways": 1}, "^ways must be a whole number of at least 2"),
    ],
)
def test_mistakes_are_called_by_the_names_of_arguments(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        fitted(**settings)


FOREIGN = """
from pathlib import Path
from torch import nn
Path(__file__).with_name("imported").touch()
def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 5), nn.ReLU(), nn.Linear(5, 3))
"""


def test_a_file_does_not_decide_what_is_imported(
    folder: Path, pictures: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "foreign_net_here.py").write_text(FOREIGN)
    trace = tmp_path / "code" / "imported"
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    settings = ["model.kind=foreign_net_here:net", "model.norm=none", f"run.folder={tmp_path / 'runs'}"]
    made = train(load_recipe("omniglot-maml", [*TINY, *settings]), progress=False).run
    model = FewShotClassifier.load(made, trust=True).fit(*support(pictures))
    expected = model.predict_proba(pictures)
    path = model.save(tmp_path / "model")
    monkeypatch.delitem(sys.modules, "foreign_net_here")
    trace.unlink()
    for source in (made, path):
        with pytest.raises(UntrustedCodeError, match=r"module foreign_net_here.*trust=True"):
            FewShotClassifier.load(source)
        with pytest.raises(UntrustedCodeError):
            predictor_from(source)
    assert "add --trust" in refused(capsys, path, folder / "queries")
    assert not trace.exists()
    assert np.array_equal(table(told(capsys, path, folder / "queries", "--trust")), expected)
    assert trace.exists()
    monkeypatch.delitem(sys.modules, "foreign_net_here")


def test_a_damaged_file_is_named(trained: FewShotClassifier, tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    path = trained.save(tmp_path / "model")
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["innerloop"])
        # copies: some versions hand out parts of the file, which is written anew below
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    for broken in ({**about, "preprocessing": None}, {**about, "recipe": 3}, {"format": about["format"]}):
        save_file(tensors, path, {"innerloop": json.dumps(broken)})
        with pytest.raises(UserError, match="is damaged"):
            FewShotClassifier.load(path)
    save_file(tensors, path, {"innerloop": json.dumps({**about, "arguments": {"wings": 2}})})
    with pytest.raises(UserError, match="no argument 'wings'"):
        FewShotClassifier.load(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="cannot read"):
        FewShotClassifier.load(path)


def test_heads_are_kept_as_named_tuples() -> None:
    class Head(NamedTuple):
        means: torch.Tensor
        counts: torch.Tensor

    class Embedded(NamedTuple):
        head: Head
        params: dict[str, torch.Tensor]
        buffers: dict[str, torch.Tensor]

    params, means, counts = {"w": torch.ones(1)}, torch.eye(2), torch.tensor([1.0, 2.0])
    fields, tensors = pack_state(Embedded(Head(means, counts), params, {}), params, {})
    assert sorted(tensors) == ["head/counts", "head/means"]
    state = unpack_state(fields, tensors, params, {})
    assert torch.equal(state.head.means, means)
    assert torch.equal(state.head.counts, counts)
    assert state.params == params
