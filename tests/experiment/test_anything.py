"""Anything is evaluated on anything: backbones without a run, runs on other pictures, the same episodes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import innerloop as il
from innerloop.classify import Backbone, evaluate_backbone, extract
from innerloop.classify import backbones as opening
from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.core.files import read_json
from innerloop.core.preprocessing import Preprocessing
from innerloop.data.glyphs import glyphs
from innerloop.data.pictures import prepare
from innerloop.evaluation import Protocol, evaluate_features, evaluate_head
from innerloop.experiment.loading import load_run
from innerloop.experiment.recipe.judging import backbone_recipe
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.protocols import brief
from innerloop.experiment.run_data import seen_word
from innerloop.experiment.run_evaluation import before_training
from innerloop.nets import backbone, conv4, pretrained
from innerloop.nets.pretrained import PRETRAINED
from innerloop.runs.manifest import read_manifest, update_manifest
from support.picture_runs import draw_splits

KIND = "efficientnet-lite0"
PROTOCOL = Protocol(ways=3, shots=2, queries=3, episodes=6, norm="running", head="logistic")
SMALL = [
    *("data.name=glyphs", "model.filters=2", "outer.steps=1", "outer.batch=1", "tasks.ways=3", "eval.ways=3"),
    *("tasks.queries=2", "eval.queries=2", "eval.episodes=5", "eval.validation_episodes=2"),
    *("run.execution=loop", "run.threads=1", "data.standardise=true"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the user's is read or written."""
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights as they are drawn stand for the published ones, and pictures of 32 pixels for those of 224."""
    params, buffers = backbone(KIND, 3, 32, 1000, norm="running").init(torch.Generator().manual_seed(7))
    entry = PRETRAINED[KIND]
    look = entry.preprocessing._replace(size=(32, 32))
    monkeypatch.setitem(PRETRAINED, KIND, entry._replace(preprocessing=look))
    monkeypatch.setattr(opening, "published_weights", lambda _: {**params, **buffers})


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert main(["train", "omniglot-protonet", *SMALL, f"run.folder={folder}"]) == 0
    return next(path.parent for path in folder.glob("*/*/recipe.toml"))


@pytest.fixture
def run(trained_once: Path, place: Path) -> Path:
    """A run of one step on glyphs, for every test anew."""
    return Path(shutil.copytree(trained_once, place / "runs" / "omniglot-protonet" / trained_once.name))


def call(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_features_from_elsewhere_are_judged_on_the_same_episodes() -> None:
    source, net = glyphs(), conv4(1, 28, 3, filters=4, norm="running")
    params, buffers = net.init(torch.Generator().manual_seed(0))

    def embed(rows: np.ndarray) -> torch.Tensor:
        assert (np.diff(rows) > 0).all()
        x = torch.from_numpy(source.images[rows]).permute(0, 3, 1, 2).float() / 255
        with torch.no_grad():
            return net.features(params, buffers, x, "stored")[0]

    ours = evaluate_features(embed, source, PROTOCOL)
    assert ours.scores == evaluate_head(net, params, buffers, source, PROTOCOL).scores
    with pytest.raises(UserError, match="have no copies"):
        evaluate_features(embed, source, PROTOCOL._replace(copies=2))


def test_a_backbone_sees_pictures_as_its_weights_want_them(tmp_path: Path) -> None:
    net = conv4(3, 16, 5, filters=4, norm="running")
    params, buffers = net.init(torch.Generator().manual_seed(0))
    look = Preprocessing((16, 16), "fill", mean=(0.5,) * 3, std=(0.25,) * 3)
    own = Backbone("conv4", net, params, buffers, look, "drawn here")
    source = glyphs()
    told: list[tuple[int, int]] = []
    evaluation = evaluate_backbone(
        own, source, PROTOCOL, cache=tmp_path, progress=lambda _, done, total: told.append((done, total))
    )

    def by_hand(rows: np.ndarray) -> torch.Tensor:
        made = [prepare(Image.fromarray(source.images[row][:, :, 0]), look) for row in rows]
        x = (torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
        with torch.no_grad():
            return net.features(params, buffers, x, "stored")[0]

    assert evaluation.scores == evaluate_features(by_hand, source, PROTOCOL).scores
    assert told[-1][0] == told[-1][1] > 10
    with pytest.raises(UserError, match="norm=none"):
        evaluate_backbone(own, source, PROTOCOL._replace(norm="none"))


@pytest.mark.usefixtures("weights")
def test_a_backbone_beside_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = read_json(next((run / "eval").iterdir()))
    told = call(capsys, "eval", "--backbone", KIND, "--against", str(run))
    assert told["drawn"] == own["drawn"]
    assert told["comparison"]["episodes"] == 5
    assert told["comparison"]["second"] == own["mean"]
    assert (told["protocol"]["backbone"]["name"], told["protocol"]["head"]) == (KIND, "logistic")
    assert [row["name"] for row in told["baselines"]] == ["pixels", "colours"]
    judged = Path(told["run"])
    assert read_manifest(judged)["status"] == "finished"
    assert main(["eval", str(run), "--against", str(judged)]) == 0  # a run like any other from here on
    assert "task by task" in capsys.readouterr().out
    more = call(capsys, "eval", str(judged), "eval.shots=3", "eval.head=cosine")
    assert more["changed"] == {"eval.shots": 3, "eval.head": "cosine"}
    assert main(["report", str(judged)]) == 0
    assert main(["ls", "runs"]) == 0
    with pytest.raises(UserError, match=f"give --backbone {KIND} in its place"):
        load_run(judged)
    with pytest.raises(UserError, match="judge another one with --backbone"):
        il.load(judged).evaluate("model.kind=efficientnet-lite1")
    manifest = read_manifest(judged)
    update_manifest(judged, backbone={**manifest["backbone"], "fingerprint": "other"})
    with pytest.raises(UserError, match="are not those that"):
        il.load(judged).evaluate()


@pytest.mark.usefixtures("weights")
def test_the_same_in_python_and_by_recipe(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "overlap", lambda seen, name: f"{seen} has seen {name}.")
    run = il.judge_backbone(KIND, "glyphs", ways=3, queries=2, episodes=4, baselines=False, progress=False)
    assert run.result is not None
    assert run.result.notes == ["ImageNet-1k has seen glyphs."]
    settings = [
        "data.name=glyphs",
        "eval.ways=3",
        "eval.queries=2",
        "eval.episodes=4",
        "data.rotations=false",
    ]
    other = il.Experiment("omniglot-pretrained", *settings).fit(progress=False)
    assert other.result is not None
    assert run.result.scores == other.result.scores
    assert run.compare(other).difference.mean == 0
    log = (other.path / "log.txt").read_text(encoding="utf-8")
    assert "nothing is trained: efficientnet-lite0 is judged as it is" in log
    assert "warning: ImageNet-1k has seen glyphs." in log
    update_manifest(other.path, status="interrupted")
    assert other.resume(progress=False).status == "finished"
    assert (place / "runs").is_dir()


@pytest.mark.usefixtures("weights")
def test_files_of_a_folder_are_read_in_their_own_size(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = draw_splits(place / "mine", [(30, 40), (31, 40), (32, 40)])
    seen: list[Any] = []
    real = extract

    def watched(net: Backbone, given: list[Any], **more: Any) -> Any:
        seen.extend(given)
        return real(net, given, **more)

    monkeypatch.setattr("innerloop.classify.backbone_evaluation.extract", watched)
    told = call(capsys, "eval", "--backbone", KIND, str(folder), "eval.episodes=2")
    assert [told["protocol"][name] for name in ("ways", "shots", "queries")] == [2, 1, 2]
    assert {path.parent.parent.parent for path in seen} == {folder}


def test_a_run_on_other_pictures(run: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other size, other channels, other proportions: shown as in training, and at the scale of training."""
    folder = draw_splits(place / "mine", [(30, 40), (31, 40), (32, 40)])
    told = call(capsys, "eval", str(run), f"data.name={folder}", "eval.ways=2", "eval.queries=1")
    assert told["changed"]["data.name"] == str(folder)
    assert told["notes"] == [
        f"pictures of {folder} are shown as those that the run was trained on, 28×28 pixels, grey."
    ]
    loaded = load_run(run, [f"data.name={folder}", "eval.ways=2", "eval.queries=1"])
    assert loaded.parts.data.pictures.images.shape[1:] == (28, 28, 1)
    assert list(loaded.parts.data.scale) == [read_manifest(run)["data"][name] for name in ("mean", "std")]
    assert not loaded.parts.by_recipe
    plain = load_run(run)
    assert plain.unread == []
    assert plain.parts.by_recipe
    with pytest.raises(UserError, match="takes pictures of 28×28"):
        il.load(run).evaluate(f"data.name={folder}", "data.size=16", "eval.ways=2", "eval.queries=1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--backbone", "conv4", "data.name=glyphs"], "model.kind=conv4 comes without weights"),
        (["--backbone", KIND], "which pictures is efficientnet-lite0 to be judged on"),
        (["data.name=glyphs"], "what is to be judged"),
        ([], "what is to be judged"),
        (["last", "--backbone", KIND], "compare with a run by --against last"),
        (["--backbone", KIND, "data.name=glyphs", "eval.head=finetune"], "fits heads on features"),
        (["--backbone", KIND, "data.name=glyphs", "eval.copies=5"], "leave eval.copies at 0"),
        (["--backbone", KIND, "data.name=glyphs", "run.ranks=2"], "leave run.ranks at 1"),
        (["--backbone", KIND, "data.name=nosuch"], "nosuch"),
        (["--backbone", "efficientnet-lite9", "data.name=glyphs"], "unknown backbone 'efficientnet-lite9'"),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    words: list[str], said: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert not list(place.glob("runs/*/*"))


def test_the_tasks_of_another_recipe() -> None:
    like = load_recipe("cifar-fs-metaoptnet-cpu")
    made = backbone_recipe(KIND, ["eval.seed=3"], like)
    for name in ("episodes", "ways", "shots", "queries"):
        assert getattr(made.eval, name) == getattr(like.eval, name)
    assert (made.eval.seed, made.data.name, made.data.augment) == (3, "cifar-fs", "none")
    assert made.name == "cifar-fs-efficientnet-lite0"


def test_a_network_of_transformers_never_is_untrained(run: Path) -> None:
    parts = load_run(run).parts
    assert before_training(parts, parts.params).name == "untrained"
    parts.recipe = parts.recipe.model_copy(
        update={"model": parts.recipe.model.model_copy(update={"kind": "hf:somewhere"})}
    )
    assert before_training(parts, parts.params).name == "pretrained"


def test_tables_say_that_classes_were_seen() -> None:
    def words(name: str, kind: str) -> str:
        recipe = backbone_recipe(kind, [f"data.name={name}"])
        return brief(
            {"protocol": {"data": name, "ways": 5, "shots": 1, "head": "logistic", **seen_word(recipe)}}
        )

    assert words("cifar-fs", KIND) == "logistic head, 5-way 1-shot, cifar-fs, classes seen in pretraining"
    assert "perhaps seen" in words("cub", "hf:somebody/model")
    assert "seen" not in words("omniglot", KIND)
    conv = load_recipe("cifar-fs-protonet")
    assert seen_word(conv) == {}
    tuned = load_recipe("cifar-fs-protonet", [f"model.kind={KIND}", "model.init=pretrained"])
    assert seen_word(conv, tuned) == {"seen": "yes"}
