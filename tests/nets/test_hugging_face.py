"""Vision models of transformers: tiny ones of three kinds, made here, beside the library's own way."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.core.preprocessing import Preprocessing
from innerloop.nets.hugging_face import local_folder, pooling_of, preprocessing_of, read_preprocessing
from innerloop.testing.closeness import SINGLE, SINGLE_CHAINED, SINGLE_SUMMED

os.environ.setdefault("HF_HUB_OFFLINE", "1")
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.5, 0.5]}
FILES: dict[str, tuple[dict[str, Any], Preprocessing]] = {
    "vit of the first days": (
        {
            "do_normalize": True,
            "do_resize": True,
            "size": 224,
            "feature_extractor_type": "ViTFeatureExtractor",
        },
        Preprocessing((224, 224), resample="bilinear"),
    ),
    "clip of the first days": (
        {
            "feature_extractor_type": "CLIPFeatureExtractor",
            "crop_size": 224,
            "do_center_crop": True,
            "resample": 3,
            "size": 224,
        },
        Preprocessing((224, 224), "short", crop=(224, 224)),
    ),
    "convnext": (
        {"feature_extractor_type": "ConvNextFeatureExtractor", "crop_pct": 0.875, "resample": 3, "size": 224},
        Preprocessing((256, 256), "short", crop=(224, 224)),
    ),
    "convnext at 384": (
        {"image_processor_type": "ConvNextImageProcessor", "resample": 3, "size": {"shortest_edge": 384}},
        Preprocessing((384, 384)),
    ),
    "dinov2": (
        {
            "image_processor_type": "BitImageProcessor",
            "crop_size": {"height": 224, "width": 224},
            "do_center_crop": True,
            "resample": 3,
            "size": {"shortest_edge": 256},
            "rescale_factor": 0.00392156862745098,
        },
        Preprocessing((256, 256), "short", crop=(224, 224)),
    ),
    "dinov3": (
        {
            "image_processor_type": "DINOv3ViTImageProcessorFast",
            "crop_size": None,
            "do_center_crop": None,
            "resample": 2,
            "size": {"height": 224, "width": 224},
        },
        Preprocessing((224, 224), resample="bilinear"),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_known_models_are_understood(name: str) -> None:
    record, expected = FILES[name]
    mean, std = tuple(HALF["image_mean"]), tuple(HALF["image_std"])
    preprocessing = preprocessing_of({**record, **HALF})
    assert preprocessing.factor == pytest.approx(1 / 255)
    assert preprocessing._replace(factor=1 / 255) == expected._replace(mean=mean, std=std)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"do_resize": False}, "does not resize"),
        ({"size": {"longest_edge": 224}}, "longer side"),
        ({"size": {"shortest_edge": 224}, "resample": 3}, "unequal widths"),
        ({"size": {"height": 8, "width": 8}}, "by which filter"),
        ({"size": {"height": 8, "width": 8}, "resample": 3, "do_pad": True}, "pads"),
        ({"resample": 3}, "size"),
        ({"size": {"height": 8, "width": 8}, "resample": 9}, "not understood"),
        ([], "holds no settings"),
    ],
)
def test_files_that_ask_for_more_are_refused(record: Any, said: str, tmp_path: Path) -> None:
    content = {**record, **HALF} if isinstance(record, dict) else record
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=said):
        read_preprocessing(str(tmp_path))


def test_a_folder_without_a_processor_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no preprocessor_config\.json"):
        read_preprocessing(str(tmp_path))
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        read_preprocessing(str(tmp_path))
    with pytest.raises(UserError, match="there is no folder"):
        local_folder(str(tmp_path / "nothing"))
    assert local_folder("somebody/model") is None
    with pytest.raises(UserError, match="needs a folder"):
        local_folder("")


def test_names_on_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By a stand-in: there is no network here."""
    hub = ModuleType("huggingface_hub")
    missing = type("EntryNotFoundError", (Exception,), {})

    def download(name: str, file: str) -> str:
        if name == "far/away":
            raise OSError("no route to the hub")
        if file == "preprocessor_config.json":
            raise missing("no such file")
        content = {"image_processor": {**FILES["dinov3"][0], **HALF}}
        (tmp_path / file).write_text(json.dumps(content))
        return str(tmp_path / file)

    hub.hf_hub_download = download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert read_preprocessing("some/model").size == (224, 224)
    with pytest.raises(UserError, match="a name needs a network; a folder does not"):
        read_preprocessing("far/away")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"pip install 'innerloop\[hf\]'"):
        read_preprocessing("some/model")


def test_what_stands_for_a_picture() -> None:
    assert pooling_of("x", "siglip") == "pooled"
    with pytest.raises(UserError, match="kind 'bert'"):
        pooling_of("x", "bert")
    with pytest.raises(UserError, match="unknown; there are class"):
        pooling_of("x", "vit", "best")


def photograph(width: int = 50, height: int = 40) -> Image.Image:
    coarse = np.random.default_rng(0).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def with_pillow(library: Any, name: str) -> Any:
    """The processor that resizes with Pillow: newer versions of transformers have two of each."""
    return getattr(library, f"{name}Pil", None) or getattr(library, name)


def dinov2(library: Any) -> tuple[Any, Any]:
    config = library.Dinov2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14, mlp_ratio=2
    )
    processor = with_pillow(library, "BitImageProcessor")
    sizes = {"size": {"shortest_edge": 32}, "crop_size": {"height": 28, "width": 28}}
    return library.Dinov2Model(config), processor(**sizes)


def clip(library: Any) -> tuple[Any, Any]:
    text = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {**text, "hidden_size": 16, "num_hidden_layers": 2, "image_size": 24, "patch_size": 8}
    config = library.CLIPConfig(
        text_config={**text, "vocab_size": 20}, vision_config=vision, projection_dim=6
    )
    processor = with_pillow(library, "CLIPImageProcessor")
    sizes = {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}}
    return library.CLIPModel(config), processor(**sizes)


def convnext(library: Any) -> tuple[Any, Any]:
    config = library.ConvNextConfig(hidden_sizes=[4, 6, 8, 10], depths=[1, 1, 1, 1], image_size=32)
    processor = with_pillow(library, "ConvNextImageProcessor")
    return library.ConvNextModel(config), processor(size={"shortest_edge": 32}, crop_pct=0.8)


KINDS = {"dinov2": (dinov2, 16), "clip": (clip, 6), "convnext": (convnext, 10)}


def expected(kind: str, model: Any, x: torch.Tensor) -> torch.Tensor:
    """What stands for a picture, by the library's own outputs."""
    if kind == "dinov2":
        return model(pixel_values=x).last_hidden_state[:, 0]
    if kind == "clip":
        return model.visual_projection(model.vision_model(pixel_values=x).pooler_output)
    return model(pixel_values=x).pooler_output.flatten(1)


@pytest.mark.parametrize("kind", KINDS)
def test_it_agrees_with_the_library(kind: str, tmp_path: Path) -> None:
    library = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install innerloop[hf]"
    )
    from innerloop.classify import extract, open_backbone
    from innerloop.classify.backbones import read_backbone, write_backbone
    from innerloop.data.pictures import prepare

    make, dimension = KINDS[kind]
    torch.manual_seed(0)
    model, processor = make(library)
    model = model.eval()
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    picture = photograph()
    theirs = processor(picture, return_tensors="pt")["pixel_values"]
    net = open_backbone(f"hf:{tmp_path}")
    ours = net.standardised(prepare(picture, net.preprocessing)[None])
    torch.testing.assert_close(ours.contiguous(), theirs.contiguous(), rtol=0, atol=SINGLE)
    with torch.no_grad():
        wanted = expected(kind, model, theirs)
    features = extract(net, [picture, photograph(30, 60)], cache=tmp_path / "cache")
    assert features.values.shape == (2, dimension) == (2, net.dimension)
    np.testing.assert_allclose(features.values[:1], wanted.numpy(), rtol=SINGLE_CHAINED, atol=SINGLE_SUMMED)
    again = open_backbone(f"hf:{tmp_path}")
    assert again.fingerprint == net.fingerprint
    assert extract(again, [picture], cache=tmp_path / "cache").computed == 0
    file = write_backbone(tmp_path / "mine.safetensors", net)
    for name in ("config.json", "model.safetensors", "preprocessor_config.json"):
        (tmp_path / name).unlink()
    taken = extract(read_backbone(file), [picture], cache=False)  # the folder is not needed any more
    np.testing.assert_allclose(taken.values, features.values[:1], rtol=SINGLE_SUMMED, atol=SINGLE_SUMMED)


def test_without_transformers_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from innerloop.nets import backbone

    monkeypatch.setitem(sys.modules, "transformers", None)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"pip install 'innerloop\[hf\]'"):
        backbone(f"hf:{tmp_path}", 3, 32, 5)
