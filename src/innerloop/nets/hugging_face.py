"""Vision models of the ``transformers`` library as modules with a last layer of ours: ``hf:NAME-or-FOLDER``.

Weights are read from ``.safetensors`` only, and no code that comes with a model is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor, nn

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.importing import Trusted, load_object
from innerloop.core.place import user_path

PREFIX = "hf:"
Pooling = Literal["class", "pooled", "mean", "projected"]
CLASS_TOKEN = (
    *(
        "vit",
        "deit",
        "dinov2",
        "dinov2_with_registers",
        "dinov3_vit",
        "vit_msn",
        "vit_mae",
        "data2vec-vision",
    ),
)
POOLED = (
    *("convnext", "convnextv2", "dinov3_convnext", "resnet", "regnet", "swin", "swinv2", "beit", "bit"),
    *("efficientnet", "mobilenet_v1", "mobilenet_v2", "focalnet", "poolformer", "van", "cvt", "levit"),
    *("siglip", "siglip2", "siglip_vision_model", "siglip2_vision_model", "pvt_v2", "hiera"),
)
PROJECTED = ("clip", "chinese_clip", "metaclip_2", "altclip")
MEAN = ("ijepa",)
KINDS: dict[str, Pooling] = {
    **dict.fromkeys(CLASS_TOKEN, "class"),
    **dict.fromkeys(POOLED, "pooled"),
    **dict.fromkeys(PROJECTED, "projected"),
    **dict.fromkeys(MEAN, "mean"),
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
    """What stands for a picture.

    >>> pooling_of("x", "dinov2"), pooling_of("x", "dinov2", "mean")
    ('class', 'mean')
    """
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
    """Whether a backbone's name means a model of transformers.

    >>> is_hugging_face("hf:facebook/dinov2-small"), is_hugging_face("hfx:net")
    (True, False)
    """
    return name.startswith(PREFIX)
