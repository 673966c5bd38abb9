"""Backbones: networks with given weights, opened by name, kept in files, and what their weights have seen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.core.autodiff import plain_autograd
from innerloop.core.errors import UserError
from innerloop.core.files import plain
from innerloop.core.formatting import printable
from innerloop.core.importing import check_trust
from innerloop.core.paths import user_path
from innerloop.core.preprocessing import Preprocessing, check_preprocessing, preprocessing_from
from innerloop.core.stderr import tell
from innerloop.core.tensors import read_described, read_tensors, write_described
from innerloop.core.types import Buffers, Params
from innerloop.nets.efficientnet_lite import NAMES, folded_efficientnet_lite, onnx_efficientnet_lite
from innerloop.nets.factory import BACKBONES, backbone_hint, build_backbone
from innerloop.nets.hugging_face import PREFIX, config_of, is_hugging_face, read_preprocessing
from innerloop.nets.network import Network
from innerloop.nets.pretrained import PRETRAINED, UNKNOWN, our_names, published_weights, timm_preprocessing
from innerloop.nets.weights import load_statistics, load_weights

VERSION = 1
"""Of the way from a picture to its features. Raised when the same weights would give other numbers."""

Forward = Callable[[Tensor], Tensor]


class Backbone(NamedTuple):
    """A frozen network for features of pictures.

    Attributes:
        name: as :func:`innerloop.classify.open_backbone` takes it.
        network: its features are used; its last layer is not.
        params: its weights.
        buffers: its statistics.
        preprocessing: what pictures go through before; it belongs to the weights.
        weights: where these come from, in words.
        seen: the data that they were trained on, or ``unknown``.
        licence: of the weights, as their source states it.
        settings: further arguments of the network.
    """

    name: str
    network: Network
    params: Params
    buffers: Buffers
    preprocessing: Preprocessing
    weights: str = UNKNOWN
    seen: str = UNKNOWN
    licence: str = UNKNOWN
    settings: dict[str, Any] = {}  # noqa: RUF012

    def __repr__(self) -> str:
        return f"<backbone {self.name}>"

    @property
    def dimension(self) -> int:
        """How many features a picture has."""
        return int(self.params[self.network.head_names[0]].shape[-1])

    @property
    def fingerprint(self) -> str:
        """Stands for everything that decides the features: network, weights and preprocessing.

        The last layer has no part in them, and none in this.
        """
        settings = {
            name: value for name, value in self.settings.items() if name != "config"
        }  # in the weights
        about = [VERSION, self.name, settings, self.network.norm, self.preprocessing.as_dict()]
        digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
        for name, value in sorted({**self.params, **self.buffers}.items()):
            if name not in self.network.head_names:
                digest.update(f"\0{name} {value.dtype} {tuple(value.shape)}\0".encode())
                digest.update(_bytes_of(value))
        return digest.hexdigest()

    def about(self) -> dict[str, Any]:
        """What a file, a page or a model card says of it."""
        return {
            "name": self.name,
            "weights": self.weights,
            "seen": self.seen,
            "licence": self.licence,
            "features": self.dimension,
            "preprocessing": self.preprocessing.as_dict(),
        }

    def forward(self, device: torch.device | str = "cpu") -> Forward:
        """Standardised pictures ``(n, C, H, W)`` → features ``(n, d)``, the quickest way that is known.

        Norm layers are folded into the convolutions where the network is one of ours that allows it.
        """
        params = {name: value.to(device) for name, value in self.params.items()}
        buffers = {name: value.to(device) for name, value in self.buffers.items()}
        if self.name in NAMES:
            return folded_efficientnet_lite(NAMES.index(self.name), params, buffers)

        def features(x: Tensor) -> Tensor:
            """Features of standardised pictures, with the norm layers' stored statistics."""
            with plain_autograd():
                return self.network.features(params, buffers, x, "stored")[0].flatten(1)

        return features

    def standardised(
        self,
        pictures: NDArray[np.uint8],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Prepared pictures ``(n, H, W, C)`` as the network sees them: ``(n, C, H, W)``, channels last.

        Args:
            pictures: prepared pictures, one byte for every channel of a pixel.
            dtype: what the network computes in.
            device: where it computes.
        """
        how = self.preprocessing
        pixels = torch.from_numpy(np.require(pictures, requirements=["C", "W"]))
        x = pixels.permute(0, 3, 1, 2).to(device, dtype)
        if how.factor != 1:
            x *= how.factor
        for numbers, apply in ((how.mean, Tensor.sub_), (how.std, Tensor.div_)):
            if numbers is not None:
                apply(x, torch.tensor(numbers, dtype=dtype, device=device).view(1, -1, 1, 1))
        return x


ALIKE = 1e-5
"""Of their length: how far features by another library may be from those by torch."""


def onnxruntime_forward(backbone: Backbone, say: Callable[[str], object] = tell) -> Forward | None:
    """Features of EfficientNet-Lite by onnxruntime, on the caller's thread; ``say`` is told of a failure."""
    if backbone.name not in NAMES or not all(map(find_spec, ("onnx", "onnxruntime"))):
        return None
    try:
        runtime = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3  # 3: errors only
        model = onnx_efficientnet_lite(NAMES.index(backbone.name), backbone.params, backbone.buffers)
        session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

        def features(x: Tensor) -> Tensor:
            """Features of standardised pictures."""
            each = [session.run(None, {"pictures": one.numpy()})[0] for one in x.contiguous().split(1)]
            return torch.from_numpy(np.concatenate(each))

        height, width, channels = backbone.preprocessing.shape
        x = torch.rand(1, channels, height, width, generator=torch.Generator().manual_seed(0))
        with torch.inference_mode():
            right = backbone.forward()(x)
            off = float((features(x) - right).norm() / right.norm())
        if not off <= ALIKE:
            raise ArithmeticError(f"its features differ by {off:.1g}")
    except Exception as error:  # of a library that we only wish to be quicker with
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        say(f"torch computes the features, since onnxruntime cannot: {reason}")
        return None
    return features


def _bytes_of(value: Tensor) -> bytes:
    """The bytes of a tensor, whatever its type."""
    flat = value.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


NORM = "running"  # each picture is judged on its own, by the statistics that come with the weights
TIMM = "timm:"
BACKBONE = "efficientnet-lite0"  # where nobody names a network


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


FORMAT = "innerloop-backbone-1"
GROUP = "backbone/"  # before the names of its tensors, so that a file may hold other things beside


def pack_backbone(backbone: Backbone) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A backbone as plain words and tensors, for a file of one's own; see :func:`unpack_backbone`."""
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
    return plain(about), {n: v.detach().cpu() for n, v in tensors.items()}


def unpack_backbone(
    about: Mapping[str, Any], tensors: Mapping[str, Tensor], source: str, *, trust: bool = False
) -> Backbone:
    """What :func:`pack_backbone` gave; its last layer is zero, since features do without."""
    if about.get("format") != FORMAT:
        raise UserError(f"{source} holds no backbone that innerloop wrote.")
    try:
        if about["name"] not in BACKBONES and not is_hugging_face(about["name"]):
            raise UserError(
                f"{source} names the backbone '{printable(about['name'])}', which a file may not: one with "
                "its weights is one of innerloop's own or of transformers."
            )
        if is_hugging_face(about["name"]) and not trust:
            check_trust({"backbone": about["name"]}, source, trust=False)
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
    about, tensors = pack_backbone(backbone)
    write_described(path, tensors, about)
    return path


def read_backbone(path: Path, *, trust: bool = False) -> Backbone:
    """What :func:`write_backbone` wrote.

    Args:
        path: the file.
        trust: whether it may name an ``hf:`` model.

    Raises:
        UserError: there is no such file, or it holds something else.
    """
    if not path.is_file():
        raise UserError(f"there is no file {path}.")
    return unpack_backbone(*read_described(path), str(path), trust=trust)
