"""Vision models of the ``transformers`` library as modules with a last layer of ours: ``hf:NAME-or-FOLDER``.

Weights are read from ``.safetensors`` only, and no code that comes with a model is run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor, nn

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.importing import Trusted, load_object
from innerloop.core.paths import user_path
from innerloop.core.preprocessing import RESAMPLES, Preprocessing, Resize, Side, check_preprocessing

PREFIX = "hf:"
Pooling = Literal["class", "pooled", "mean", "projected"]
_CLASS_TOKEN = "vit deit dinov2 dinov2_with_registers dinov3_vit vit_msn vit_mae data2vec-vision"
_POOLED = (
    "convnext convnextv2 dinov3_convnext resnet regnet swin swinv2 beit bit efficientnet mobilenet_v1 "
    "mobilenet_v2 focalnet poolformer van cvt levit siglip siglip2 siglip_vision_model siglip2_vision_model "
    "pvt_v2 hiera"
)
KINDS: dict[str, Pooling] = {
    **dict.fromkeys(_CLASS_TOKEN.split(), "class"),
    **dict.fromkeys(_POOLED.split(), "pooled"),
    **dict.fromkeys(("clip", "chinese_clip", "metaclip_2", "altclip"), "projected"),
    "ijepa": "mean",
    "clip_vision_model": "pooled",
}
"""What stands for a picture, by ``model_type``: the class token, what the model pools itself, that
through the projection that was trained against texts, or the mean of all tokens."""
_SPARE_POOLER = ("vit", "deit", "data2vec-vision")
"""Their pooling layer is untrained in most files, and the class token does without it."""


class PooledVision(nn.Module):
    """A vision model, what stands for a picture, and a linear layer."""

    def __init__(self, model: nn.Module, pooling: Pooling, dimension: int, outputs: int) -> None:
        super().__init__()
        towers = hasattr(model, "vision_model") and hasattr(model, "text_model")
        self.body = model.get_submodule("vision_model") if towers else model
        projects = pooling == "projected"
        self.projection = model.get_submodule("visual_projection") if projects else nn.Identity()
        self.pooling = pooling
        self.head = nn.Linear(dimension, outputs)

    def embed(self, x: Tensor) -> Tensor:
        """Features ``(n, d)`` of pictures ``(n, C, H, W)``."""
        outputs = self.body(pixel_values=x)
        if self.pooling in ("class", "mean"):
            tokens = outputs.last_hidden_state
            return tokens[:, 0] if self.pooling == "class" else tokens.mean(1)
        return self.projection(outputs.pooler_output.flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        """The last layer on the features."""
        return self.head(self.embed(x))


def hugging_face(name: str, outputs: int, settings: Mapping[str, Any]) -> nn.Module:
    """A pretrained vision model with a new last layer."""
    if unknown := [key for key in settings if key not in ("pooling", "config")]:
        hint = did_you_mean(unknown[0], ["pooling"])
        raise UserError(f"{PREFIX}{name} has no setting '{unknown[0]}'{hint}; it has pooling.")
    kept = settings.get("config")
    config = _calling(name, "AutoConfig", {}) if kept is None else _rebuilt(name, kept)
    kind = str(config.model_type)
    pooling = pooling_of(name, kind, settings.get("pooling"))
    options = {"add_pooling_layer": False} if kind in _SPARE_POOLER and pooling != "pooled" else {}
    if kept is None:
        model = _calling(name, "AutoModel", {"use_safetensors": True, "config": config, **options})
    else:
        model = _library(name, "AutoModel").from_config(config, trust_remote_code=False, **options)
    return PooledVision(model, pooling, _dimension(config, pooling), outputs).eval()


def pooling_of(name: str, kind: str, asked: object = None) -> Pooling:
    """What stands for a picture."""
    if asked is not None:
        for known in get_args(Pooling):
            if asked == known:
                return known
        raise UserError(f"pooling={asked!r} is unknown; there are {', '.join(get_args(Pooling))}.")
    if kind not in KINDS:
        raise UserError(
            f"{PREFIX}{name} is of the kind '{kind}', and what stands for a picture is not known for it: "
            "give the setting pooling, class, pooled or mean, as its authors say."
        )
    return KINDS[kind]


def _dimension(config: Any, pooling: Pooling) -> int:
    if pooling == "projected":
        return int(config.projection_dim)
    own = getattr(config, "vision_config", config)
    for attribute in ("hidden_size", "hidden_dim", "num_features"):
        if getattr(own, attribute, None):
            return int(getattr(own, attribute))
    return int(own.hidden_sizes[-1])


def config_of(name: str) -> dict[str, Any]:
    """The configuration of a model as plain values: with it and its weights a file needs no folder."""
    config: dict[str, Any] = _calling(name, "AutoConfig", {}).to_dict()
    return config


def _rebuilt(name: str, config: Mapping[str, Any]) -> Any:
    kind = config.get("model_type")
    try:
        return _library(name, "AutoConfig").for_model(**config)
    except (ValueError, KeyError, TypeError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UserError(f"{PREFIX}{name}: no model of the kind '{kind}' can be built ({line}).") from None


def _library(name: str, attribute: str) -> Any:
    """A class of transformers."""
    try:
        return load_object(Trusted(f"transformers:{attribute}"))
    except UserError:
        raise UserError(f"{PREFIX}{name} needs transformers: pip install 'innerloop[hf]'.") from None


def _calling(name: str, attribute: str, options: Mapping[str, Any]) -> Any:
    """``from_pretrained`` of a class of transformers; its errors in a sentence."""
    source = local_folder(name)
    make: Callable[..., Any] = _library(name, attribute).from_pretrained
    try:
        return make(name if source is None else str(source), trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        where = "that folder" if source is not None else "the hub (a name needs a network; a folder does not)"
        raise UserError(f"{PREFIX}{name} cannot be read from {where}: {line}") from None


def local_folder(name: str) -> Path | None:
    """The folder that a name means, or None for a name on the hub."""
    if not name:
        raise UserError(f"{PREFIX} needs a folder, or a name on the Hugging Face hub, behind it.")
    path = user_path(name)
    if path.is_dir():
        return path
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise UserError(f"{PREFIX}{name}: there is no folder '{name}'.")
    return None


def is_hugging_face(name: str) -> bool:
    """Whether a backbone's name means a model of transformers."""
    return name.startswith(PREFIX)


FILES = ("preprocessor_config.json", "processor_config.json")
_CLASS = re.compile(r"(\w+?)(?:ImageProcessor(?:Fast|Pil)?|FeatureExtractor)$")
_SHORT = ("CLIP", "ChineseCLIP", "ConvNext", "Bit", "Levit", "PoolFormer")
"""A single number is the shorter side for these, and both sides for the others."""
_USUAL_FILTER = {"ViT": 2, "DeiT": 3, "Beit": 3, "CLIP": 3, "Bit": 3, "Siglip": 3}
_NO_SUCH_FILE = ("EntryNotFoundError", "RemoteEntryNotFoundError")
_WARPED = 384  # from this side on ConvNeXt's processor does not cut


def read_preprocessing(name: str) -> Preprocessing:
    """What the files of a model say."""
    for file in FILES:
        text = _text(name, file)
        if text is not None:
            break
    else:
        raise UserError(
            f"{PREFIX}{name} has no {FILES[0]}, so how pictures must look for it is not known: save its "
            "image processor beside it, or give preprocessing=Preprocessing(…)."
        )
    try:
        record = json.loads(text)
    except ValueError:
        raise UserError(f"{PREFIX}{name}: {file} is not JSON.") from None
    if isinstance(record, dict):
        record = record.get("image_processor", record)
    if not isinstance(record, dict):
        raise UserError(f"{PREFIX}{name}: {file} holds no settings.")
    try:
        return preprocessing_of(record)
    except UserError as error:
        raise UserError(f"{PREFIX}{name}: {error}") from None
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise UserError(f"{PREFIX}{name}: {file} is not understood ({error}).") from None


def _text(name: str, file: str) -> str | None:
    folder = local_folder(name)
    if folder is not None:
        path = folder / file
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    try:
        download = load_object(Trusted("huggingface_hub:hf_hub_download"))(name, file)
    except UserError:
        raise UserError(f"{PREFIX}{name} needs transformers: pip install 'innerloop[hf]'.") from None
    except Exception as error:  # of several libraries: no network, no such name, no such file
        if type(error).__name__ in _NO_SUCH_FILE:
            return None
        line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        where = "the hub (a name needs a network; a folder does not)"
        raise UserError(f"{PREFIX}{name} cannot be read from {where}: {line}") from None
    return Path(download).read_text(encoding="utf-8", errors="replace")


def preprocessing_of(record: Mapping[str, Any]) -> Preprocessing:
    """The settings of an image processor in our words."""
    kind = kind_of(record)
    if not _wanted(record, "do_resize"):
        raise UserError("its processor does not resize pictures, so that they would not fit together.")
    if record.get("do_pad"):
        raise UserError("its processor pads pictures, which is not known here.")
    crop = _side(record["crop_size"]) if record.get("do_center_crop") else None
    resize, size, crop = _sizes(record, kind, crop)
    normal = _wanted(record, "do_normalize")
    factor = record.get("rescale_factor")
    number = record.get("resample", _USUAL_FILTER.get(kind))
    if number is None:
        raise UserError("its file does not say by which filter pictures are resized (resample).")
    return check_preprocessing(
        Preprocessing(
            size,
            resize,
            crop=crop,
            resample=RESAMPLES[int(number)],
            factor=(1 / 255 if factor is None else float(factor)) if _wanted(record, "do_rescale") else 1.0,
            mean=_three(record["image_mean"]) if normal else None,
            std=_three(record["image_std"]) if normal else None,
        )
    )


def kind_of(record: Mapping[str, Any]) -> str:
    """Whose processor it is."""
    name = record.get("image_processor_type") or record.get("feature_extractor_type") or ""
    match = _CLASS.fullmatch(str(name))
    return match[1] if match else ""


def _sizes(record: Mapping[str, Any], kind: str, crop: Side | None) -> tuple[Resize, Side, Side | None]:
    size = record["size"]
    short = size.get("shortest_edge") if isinstance(size, dict) else size if kind in _SHORT else None
    if isinstance(size, dict) and (size.get("longest_edge") or size.get("max_height")):
        raise UserError("its processor bounds the longer side, so that pictures would not fit together.")
    if short is None:
        return "exact", _side(size), crop
    short = int(short)
    if kind != "ConvNext":
        return "short", (short, short), crop
    if short >= _WARPED:
        return "exact", (short, short), crop
    share = record.get("crop_pct") or 224 / 256
    before = int(short / share)
    return "short", (before, before), crop or (short, short)


def _side(size: Any) -> Side:
    if isinstance(size, dict):
        return int(size["height"]), int(size["width"])
    if isinstance(size, (list, tuple)):
        return int(size[0]), int(size[-1])
    return int(size), int(size)


def _three(numbers: Any) -> tuple[float, ...]:
    if isinstance(numbers, (int, float)):
        return (float(numbers),) * 3
    return tuple(float(number) for number in numbers)


def _wanted(record: Mapping[str, Any], key: str) -> bool:
    """All of these are done where a file says nothing, as its first versions did not."""
    value = record.get(key)
    return True if value is None else bool(value)
