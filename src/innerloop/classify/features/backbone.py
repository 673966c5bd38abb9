"""A network with given weights, and all that is needed to compute features with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.core.autodiff import plain_autograd
from innerloop.core.preprocessing import Preprocessing
from innerloop.core.types import Buffers, Params
from innerloop.nets.efficientnet_lite import NAMES, folded_efficientnet_lite
from innerloop.nets.network import Network
from innerloop.nets.pretrained import UNKNOWN

VERSION = 1
"""Of the way from a picture to its features. Raised when the same weights would give other numbers."""

Forward = Callable[[Tensor], Tensor]


class Backbone(NamedTuple):
    """A frozen network for features of pictures.

    Attributes:
        name: as :func:`innerloop.classify.features.open_backbone` takes it.
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


def _bytes_of(value: Tensor) -> bytes:
    """The bytes of a tensor, whatever its type."""
    flat = value.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
