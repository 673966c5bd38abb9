"""Backbones by name, with their weights and their preprocessing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from innerloop.classify.features.backbone import Backbone
from innerloop.core.errors import UserError
from innerloop.core.place import user_path
from innerloop.core.preprocessing import Preprocessing, check_preprocessing
from innerloop.core.tensors import read_tensors
from innerloop.core.types import Buffers, Params
from innerloop.nets.factory import BACKBONES, backbone_hint, build_backbone
from innerloop.nets.hugging_face import PREFIX, is_hugging_face, read_preprocessing
from innerloop.nets.network import Network
from innerloop.nets.pretrained import PRETRAINED, UNKNOWN, our_names, published_weights, timm_preprocessing
from innerloop.nets.weights import load_statistics, load_weights

NORM = "running"
"""Each picture is judged on its own, by the statistics that come with the weights."""
TIMM = "timm:"


def open_backbone(
    name: str,
    *,
    weights: str | Path | None = None,
    preprocessing: Preprocessing | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Backbone:
    """A network with pretrained weights, and how pictures must look for it.

    Args:
        name: ``efficientnet-lite0`` … ``efficientnet-lite4`` (weights from a package of their own);
            ``hf:NAME`` or ``hf:FOLDER``, a vision model of transformers; ``timm:NAME``; a network of our own
            with ``weights``; or ``package.module:factory`` for a function that returns a torch module.
        weights: a ``.safetensors`` file, in place of the published weights.
        preprocessing: in place of the backbone's own; needed where it has none.
        settings: further arguments of the network.

    Raises:
        UserError: there is no such backbone, or its weights or its preprocessing cannot be found.
    """
    if not isinstance(name, str):
        raise UserError(f"a backbone is opened by its name, such as 'efficientnet-lite0', not {name!r}.")
    if ":" not in name and name not in BACKBONES:
        raise UserError(
            f"unknown backbone '{name}'{backbone_hint(name)}; there are {', '.join(PRETRAINED)}, "
            f"{PREFIX}NAME-or-FOLDER, timm:NAME, package.module:factory, and other networks with weights of "
            "your own."
        )
    given = None if weights is None else _read(Path(weights))
    how = check_preprocessing(preprocessing or _own_preprocessing(name))
    network, options = _network(name, how, given, dict(settings or {}))
    params, buffers = network.init(torch.Generator().manual_seed(0))
    if given is None and name in PRETRAINED:
        given = published_weights(name)
    if given is not None:
        params, buffers = _filled(network, params, buffers, given, str(weights or name))
    entry = PRETRAINED.get(name) if weights is None else None
    return Backbone(
        name,
        network,
        params,
        buffers,
        how,
        str(weights) if weights is not None else entry.package if entry else name,
        entry.seen if entry else UNKNOWN,
        entry.licence if entry else UNKNOWN,
        options,
    )


def _read(path: Path) -> dict[str, Tensor]:
    path = user_path(path)
    if path.suffix != ".safetensors" or not path.is_file():
        raise UserError(
            f"weights={path} is not a .safetensors file: convert them with safetensors.torch.save_file."
        )
    return our_names(read_tensors(path))


def _own_preprocessing(name: str) -> Preprocessing:
    if name in PRETRAINED:
        return PRETRAINED[name].preprocessing
    if is_hugging_face(name):
        return read_preprocessing(name.removeprefix(PREFIX))
    if name.startswith(TIMM):
        return timm_preprocessing(name.removeprefix(TIMM))
    raise UserError(
        f"how pictures must look for {name} is not known: give preprocessing=Preprocessing((224, 224), …)."
    )


def _network(
    name: str, how: Preprocessing, given: Mapping[str, Tensor] | None, settings: dict[str, Any]
) -> tuple[Network, dict[str, Any]]:
    """The network for pictures of that look, and its settings; as many outputs as the weights have."""
    height, width, channels = how.shape
    if name.startswith(TIMM):
        settings = {"pretrained": given is None, **settings}
    elif ":" not in name and name not in PRETRAINED and given is None:
        raise UserError(f"{name} has no published weights: give weights=FILE.safetensors.")
    if ":" not in name and height != width:
        raise UserError(f"{name} wants square pictures, and its preprocessing gives {height}×{width}.")
    head = (given or {}).get("head.weight")
    outputs = int(head.shape[0]) if head is not None else 1000 if name in PRETRAINED else 1
    return build_backbone(name, (channels, height, outputs), NORM, None, settings), settings


def _filled(
    network: Network, params: Params, buffers: Buffers, given: dict[str, Tensor], source: str
) -> tuple[Params, Buffers]:
    """The weights as given; a last layer that they lack stays as it was drawn, since features do without."""
    left, buffers = load_statistics(params, buffers, given, source)
    spare = {name: params[name] for name in network.head_names if name not in left}
    missing = [name for name in buffers if name not in given and _torch_name(name) not in given]
    if missing:
        raise UserError(
            f"{source} has no statistics for {missing[0]}, so that pictures cannot be judged one by one: "
            "give weights that were trained with running statistics."
        )
    return load_weights(params, {**left, **spare}, source), buffers


def _torch_name(name: str) -> str:
    layer, _, leaf = name.rpartition(".")
    return f"{layer}.running_{leaf}"
