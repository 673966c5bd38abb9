"""From frozen features of a few labelled pictures to a linear classifier."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.evaluation.heads import HEADS, fit_heads
from innerloop.evaluation.labelling import labelled


class LinearHead(NamedTuple):
    """Logits are ``normalised(z) @ weightᵀ + bias`` in the head's precision; normalised if fitted so."""

    weight: Tensor
    bias: Tensor
    normalise: bool

    def logits(self, z: Tensor) -> Tensor:
        """One row of logits per feature row."""
        z = z.to(self.weight.dtype)
        z = F.normalize(z, dim=-1) if self.normalise else z
        return z @ self.weight.T + self.bias


class Prediction(NamedTuple):
    """Labels with how sure the classifier is of each, and where it is not sure enough to be believed."""

    labels: list[object]
    confidence: list[float]
    unsure: list[bool]


def fit_head(z: Tensor, y: Tensor, ways: int, head: str, C: float, normalise: bool) -> LinearHead:
    """Fits one of :data:`innerloop.evaluation.heads.HEADS` on features ``(n, d)``, labels ``0 … ways − 1``.

    Its logits carry the head's temperature, so that a softmax makes probabilities of them.
    """
    found = fit_heads(z[None].double(), y[None], ways, head, C, normalise)
    factor = HEADS[head].temperature
    return LinearHead(factor * found.weights[0], factor * found.bias[0], normalise)


def confident(probabilities: Tensor, names: list[object], unsure_below: float) -> Prediction:
    """The most probable label of each row, its probability, and whether that is below the limit."""
    places, confidence, unsure = labelled(probabilities, unsure_below)
    return Prediction([names[i] for i in places], confidence, unsure)


class AdaptedModule(torch.nn.Module):
    """Body and head as one module without arguments but pictures, for ``torch.export``."""

    def __init__(
        self, features: object, params: dict[str, Tensor], buffers: dict[str, Tensor], head: LinearHead
    ):
        super().__init__()
        self._features, self._names = features, (list(params), list(buffers))
        for i, value in enumerate([*params.values(), *buffers.values()]):
            self.register_buffer(f"tensor{i}", value)
        self.register_buffer("weight", head.weight)
        self.register_buffer("bias", head.bias)
        self._normalise = head.normalise

    def forward(self, x: Tensor) -> Tensor:
        """Probabilities of the adapted classes for pictures in 0…1."""
        tensors = [getattr(self, f"tensor{i}") for i in range(sum(map(len, self._names)))]
        params = dict(zip(self._names[0], tensors, strict=False))
        buffers = dict(zip(self._names[1], tensors[len(params) :], strict=True))
        z, _ = self._features(params, buffers, x, "stored")  # type: ignore[operator]
        z = z.to(self.weight.dtype)
        z = F.normalize(z, dim=-1) if self._normalise else z
        return (z @ self.weight.T + self.bias).softmax(-1).to(x.dtype)  # type: ignore[operator]
