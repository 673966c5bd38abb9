"""A backbone in one ``.safetensors`` file: weights, preprocessing and what builds its network. No pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from innerloop.classify.features.backbone import Backbone
from innerloop.classify.features.opening import NORM
from innerloop.core.errors import UserError
from innerloop.core.faults import in_words, printable
from innerloop.core.files import plain
from innerloop.core.importing import let_in
from innerloop.core.preprocessing import preprocessing_from
from innerloop.core.tensors import read_tensors, write_tensors
from innerloop.core.types import Params
from innerloop.nets.factory import BACKBONES, build_backbone
from innerloop.nets.hugging_face import PREFIX, config_of, is_hugging_face
from innerloop.nets.weights import load_weights

FORMAT = "innerloop-backbone-1"
GROUP = "backbone/"
"""Before the names of its tensors, so that a file may hold other things beside."""


def packed_backbone(backbone: Backbone) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A backbone as plain words and tensors, for a file of one's own.

    :func:`unpacked_backbone` reads them.
    """
    name = backbone.name
    if not (name in BACKBONES or is_hugging_face(name)):
        raise UserError(f"{name} is code that a file cannot hold: keep its name and its weights instead.")
    settings = dict(backbone.settings)
    if is_hugging_face(name) and "config" not in settings:
        settings["config"] = config_of(name.removeprefix(PREFIX))
    heads = {n: list(backbone.params[n].shape) for n in backbone.network.head_names}
    tensors = {f"{GROUP}params/{n}": v for n, v in backbone.params.items() if n not in heads}
    tensors |= {f"{GROUP}buffers/{n}": v for n, v in backbone.buffers.items()}
    about = {"format": FORMAT, **backbone.about(), "settings": settings, "heads": heads}
    return plain(about), {n: v.detach().cpu().contiguous().clone() for n, v in tensors.items()}


def unpacked_backbone(
    about: Mapping[str, Any], tensors: Mapping[str, Tensor], source: str, *, trust: bool = False
) -> Backbone:
    """What :func:`packed_backbone` gave; its last layer is zero, since features do without."""
    if about.get("format") != FORMAT:
        raise UserError(f"{source} holds no backbone that innerloop wrote.")
    try:
        if about["name"] not in BACKBONES and not is_hugging_face(about["name"]):
            raise UserError(
                f"{source} names the backbone '{printable(about['name'])}', which a file may not: one with "
                "its weights is one of innerloop's own or of transformers."
            )
        if is_hugging_face(about["name"]) and not trust:
            let_in({"backbone": about["name"]}, source, trust=False)
        how = preprocessing_from(about["preprocessing"])
        height, _, channels = how.shape
        heads = {name: torch.zeros(shape) for name, shape in about["heads"].items()}
        outputs = next(iter(heads.values())).shape[0]
        network = build_backbone(about["name"], (channels, height, outputs), NORM, None, about["settings"])
        params, buffers = network.init(torch.Generator().manual_seed(0))
        given = {**_group(tensors, "params"), **heads}
        return Backbone(
            about["name"],
            network,
            load_weights(params, given, source),
            load_weights(buffers, _group(tensors, "buffers"), source),
            how,
            *(about[word] for word in ("weights", "seen", "licence", "settings")),
        )
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration, RuntimeError) as error:
        raise UserError(f"{source} is damaged ({type(error).__name__}: {error}): save it again.") from None


def _group(tensors: Mapping[str, Tensor], which: str) -> Params:
    start = f"{GROUP}{which}/"
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}


def write_backbone(path: Path, backbone: Backbone) -> Path:
    """Writes a backbone, so that features can be computed where it came from is not.

    Raises:
        UserError: no file can hold it, or the place cannot be written to.
    """
    about, tensors = packed_backbone(backbone)
    half = path.with_name(f".{path.name}-{os.getpid()}.tmp")  # what is there stays until the new one is whole
    try:
        write_tensors(half, tensors, {"innerloop": json.dumps(about)})
        os.replace(half, path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {in_words(error) or error}") from None
    return path


def read_backbone(path: Path, *, trust: bool = False) -> Backbone:
    """What :func:`write_backbone` wrote.

    Args:
        path: the file.
        trust: whether it may name an ``hf:`` model.

    Raises:
        UserError: there is no such file, or it holds something else.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(f"there is no file {path}.")
    tensors = read_tensors(path)
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {}).get("innerloop", "{}"))
    except (OSError, SafetensorError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}.") from None
    return unpacked_backbone(about if isinstance(about, dict) else {}, tensors, str(path), trust=trust)
