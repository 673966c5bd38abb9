"""Backbones by name. A literal dict: no registration magic."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from innerloop.core.arguments import checked
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.importing import Trusted, check_trust, foreign_parts, load_object
from innerloop.nets.cells.network import cell_network
from innerloop.nets.convolutional import conv4, convnet, r2d2_conv
from innerloop.nets.efficientnet_lite import NAMES, efficientnet_lite
from innerloop.nets.hugging_face import hugging_face, is_hugging_face
from innerloop.nets.module import from_module
from innerloop.nets.network import Network
from innerloop.nets.resnet12 import THIN, resnet12
from innerloop.nets.wide_resnet import wide_resnet

BACKBONES: dict[str, Callable[..., Network]] = {
    "conv4": conv4,
    "convnet": convnet,
    "cells": cell_network,
    "r2d2-conv": r2d2_conv,
    "resnet12": resnet12,
    "resnet12-thin": functools.partial(resnet12, widths=THIN),
    "wrn-28-10": functools.partial(wide_resnet, depth=28, widen=10),
    **{name: functools.partial(efficientnet_lite, version=number) for number, name in enumerate(NAMES)},
}
"""Networks for pictures, by their names in ``model.kind``."""
_GIVEN = 3  # backbones begin with the pictures' channels and side, and the outputs
_PLAIN_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@checked
def backbone(
    name: str,
    channels: int,
    size: int,
    outputs: int,
    norm: str = "transductive",
    head: str | None = None,
    **settings: Any,
) -> Network:
    """A network for square pictures.

    Args:
        name: ``conv4``, ``convnet``, ``cells``, ``r2d2-conv``, ``resnet12``, ``resnet12-thin``,
            ``wrn-28-10``, ``efficientnet-lite0`` … ``efficientnet-lite4``; ``timm:<name>`` for a model of the
            timm library; ``hf:<name or folder>`` for a vision model of transformers; or
            ``package.module:factory`` for a function that returns a torch module.
        channels: image channels.
        size: image side.
        outputs: output dimension.
        norm: the norm policy.
        head: of models of other libraries and own modules: the name of the last layer (the last
            ``nn.Linear`` if omitted).
        settings: further arguments of the backbone, of ``timm.create_model`` or of the factory.

    Raises:
        UserError: for unknown names and settings, and for what cannot be loaded.

    >>> net = backbone("resnet12", 3, 32, 5, widths=(4, 8, 8, 16))
    >>> net.norm, net.head_names
    ('transductive', ('head.weight', 'head.bias'))
    """
    return build_backbone(name, (channels, size, outputs), norm, head, settings)


def build_backbone(
    name: str, sizes: tuple[int, int, int], norm: str, head: str | None, settings: Mapping[str, Any]
) -> Network:
    """As :func:`backbone`, with settings of any name (those of cells have ``channels`` among them)."""
    if ":" in name:
        library, _, model = name.partition(":")
        if library == "timm":
            if not isinstance(name, Trusted):
                check_trust(foreign_parts(name, settings), "a plain string", trust=False)
            return from_module(lambda: _timm(model, sizes, settings), head, norm)
        if is_hugging_face(name):
            return from_module(lambda: hugging_face(model, sizes[2], settings), head or "head", norm)
        return from_module(lambda: _own(name, settings), head, norm)
    if name not in BACKBONES:
        raise UserError(
            f"unknown backbone '{name}'{backbone_hint(name)}; there are {', '.join(BACKBONES)}, "
            "timm:<model>, hf:<name or folder>, or your own as package.module:factory."
        )
    if head is not None:
        raise UserError(f"{name} knows its last layer: head is for timm models and your own modules only.")
    build = BACKBONES[name]
    known = [p for p in list(inspect.signature(build).parameters)[_GIVEN:] if p != "norm"]
    if isinstance(build, functools.partial):
        known = [p for p in known if p not in build.keywords or p == "widths"]
    unknown = [s for s in settings if s not in known]
    if unknown:
        hint = did_you_mean(unknown[0], known)
        raise UserError(f"{name} has no setting '{unknown[0]}'{hint}; it has {', '.join(known)}.")
    return build(*sizes, norm=norm, **settings)


def backbone_hint(name: str) -> str:
    """What an unknown name may have meant: ours, or one of timm's (without timm: ours with another depth)."""
    try:
        theirs = bool(importlib.import_module("timm").is_model(name))
    except ModuleNotFoundError:
        depth = r"\d\d+$"
        bare = {re.sub(depth, "", known) for known in BACKBONES if re.search(depth, known)}
        theirs = "-" not in name and re.search(depth, name) is not None and re.sub(depth, "", name) in bare
    return did_you_mean(name, [f"timm:{name}"] if theirs else BACKBONES)


def _timm(model: str, sizes: tuple[int, int, int], settings: Mapping[str, Any]) -> nn.Module:
    try:
        timm = importlib.import_module("timm")
    except ModuleNotFoundError:
        raise UserError(f"timm:{model} needs timm: pip install 'innerloop[timm]'.") from None
    options = {"pretrained": False, **settings, "in_chans": sizes[0], "num_classes": sizes[2]}
    try:
        made = timm.create_model(model, **options)
    except (RuntimeError, TypeError) as error:
        line = (str(error).splitlines() or ["no reason given"])[0]
        raise UserError(f"timm could not make '{model}' ({line}): see timm.list_models().") from None
    return _checked(made, f"timm:{model}")


def _own(path: str, settings: Mapping[str, Any]) -> nn.Module:
    make = load_object(path)
    if not callable(make):
        raise UserError(f"{path} is a {type(make).__name__}, not a function that returns a torch module.")
    try:
        inspect.signature(make).bind(**settings)
    except TypeError as error:
        raise UserError(
            f"{path} cannot be called with its settings ({error}): give what it needs there, or name a "
            "function of your own that takes no more."
        ) from None
    except ValueError:  # made in C, and does not say what it takes
        pass
    return _checked(make(**settings), path)


def _checked(module: object, source: str) -> nn.Module:
    """A module whose batch-norm layers do nothing but normalise, so that they can be replaced."""
    if not isinstance(module, nn.Module):
        raise UserError(f"{source} gave a {type(module).__name__}, not a torch module.")
    for name, child in module.named_modules():
        if isinstance(child, nn.modules.batchnorm._BatchNorm) and type(child) not in _PLAIN_NORMS:
            raise UserError(
                f"{source}: layer '{name}' is a {type(child).__name__}, which may do more than normalise and "
                "cannot be put under a norm policy: use a model with plain batch norm or without any."
            )
    return module
