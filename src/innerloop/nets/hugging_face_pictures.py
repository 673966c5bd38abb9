"""How a model of ``transformers`` wants its pictures: its ``preprocessor_config.json``, in our words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.importing import Trusted, load_object
from innerloop.core.preprocessing import RESAMPLES, Preprocessing, Resize, Side, check_preprocessing
from innerloop.nets.hugging_face import PREFIX, local_folder

FILES = ("preprocessor_config.json", "processor_config.json")
_CLASS = re.compile(r"(\w+?)(?:ImageProcessor(?:Fast|Pil)?|FeatureExtractor)$")
_SHORT = ("CLIP", "ChineseCLIP", "ConvNext", "Bit", "Levit", "PoolFormer")
"""A single number is the shorter side for these, and both sides for the others."""
_USUAL_FILTER = {"ViT": 2, "DeiT": 3, "Beit": 3, "CLIP": 3, "Bit": 3, "Siglip": 3}
_NO_SUCH_FILE = ("EntryNotFoundError", "RemoteEntryNotFoundError")
_WARPED = 384
"""From this side on ConvNeXt's processor does not cut."""


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
    """The settings of an image processor in our words.

    >>> how = preprocessing_of({
    ...     "image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 256}, "resample": 3,
    ...     "do_center_crop": True, "crop_size": {"height": 224, "width": 224},
    ...     "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})
    >>> how.resize, how.size, how.crop, how.resample
    ('short', (256, 256), (224, 224), 'bicubic')
    """
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
    """Whose processor it is.

    >>> kind_of({"feature_extractor_type": "CLIPFeatureExtractor"}), kind_of({})
    ('CLIP', '')
    """
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
