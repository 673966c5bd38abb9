"""A predictor with its classes as one module: from decoded pictures to probabilities."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from innerloop.classify.predictor import Predictor
from innerloop.classify.resizing import can_resize, resized
from innerloop.classify.sureness import Sureness
from innerloop.core.errors import UserError
from innerloop.evaluation.heads import unit

LARGEST = 1 << 15
"""Pixels of a side, at most."""
_WHITE = 255
_MOST = 2**31 - 1  # pictures at once; torch 2.6 refuses a dimension that has no end
_EXAMPLE = (37, 53)
"""Height and width while it is captured: unlike each other, and unlike what a network has."""

Stage = Callable[[Tensor], Tensor]
Judge = Callable[[Tensor], tuple[Tensor, Tensor]]
"""What the network sees → logits ``(n, ways)``, and which pictures are far from every class ``(n,)``."""


class Graph(nn.Module):
    """Resizing, scaling, network, head, temperature and threshold.

    All that predicting does after decoding.
    """

    def __init__(self, predictor: Predictor, unsure_below: float, fixed: bool = False) -> None:
        super().__init__()
        self.preparation = predictor.backbone.preprocessing
        height, width, _ = self.shape = self.preparation.shape
        square = predictor.recipe is None or height == width  # as files are read
        if not fixed and not (square and can_resize(self.preparation)):
            raise UserError(
                "pictures for this network are resized in a way that a graph cannot repeat to the bit: "
                "export it for pictures of its own size (--fixed; in Python: fixed=True)."
            )
        self.fixed = fixed
        self._scale, self._judge = _scaling(predictor), _judging(predictor)
        self._temperature = predictor.temperature
        self._unsure_below = unsure_below

    def forward(self, pictures: Tensor) -> dict[str, Tensor]:
        """What is said of pictures ``(n, H, W, C)`` of 8 bits."""
        pixels = pictures.permute(0, 3, 1, 2) if self.fixed else resized(pictures, self.preparation)
        logits, unknown = self._judge(self._scale(pixels))
        probabilities = (logits / self._temperature).softmax(-1)
        improbable = probabilities.amax(-1) < self._unsure_below
        return {
            "logits": logits.float(),
            "probabilities": probabilities.float(),
            "unknown": unknown,
            "unsure": improbable | unknown,
        }

    def capture(self) -> ExportedProgram:
        """The module as a program for any number of pictures and, unless it is fixed, any size."""
        height, width, channels = self.shape
        sizes: dict[int, Dim] = {0: Dim("batch", min=1, max=_MOST)}
        if not self.fixed:
            height, width = _EXAMPLE
            sizes |= {1: Dim("height", min=1, max=LARGEST), 2: Dim("width", min=1, max=LARGEST)}
        example = torch.zeros(2, height, width, channels, dtype=torch.uint8)
        try:
            with torch.no_grad():
                self(example)  # a module that looks at its first pass does so here
                return export(self, (example,), dynamic_shapes=({**sizes},), strict=False)
        except UserError:
            raise
        except Exception as error:  # whatever a network of somebody's own may do
            line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise UserError(
                f"torch.export cannot capture this model ({type(error).__name__}: {line}): a "
                "head on features of one of our networks can be exported (eval.head=logistic; in Python: "
                "head='logistic')."
            ) from None


def _scaling(predictor: Predictor) -> Stage:
    """``(n, C, H, W)`` in 0…255 → what the network sees, computed in the same order as for predicting."""
    if predictor.recipe is not None:
        dtype, scale = predictor.dtype, predictor.scale()
        return lambda pixels: scale(pixels.to(dtype) / _WHITE)
    how = predictor.backbone.preprocessing
    mean, std = (None if v is None else torch.tensor(v).view(1, -1, 1, 1) for v in (how.mean, how.std))

    def scaled(pixels: Tensor) -> Tensor:
        """Pixels as the backbone's weights want them."""
        x = pixels.float()
        x = x * how.factor if how.factor != 1 else x
        x = x if mean is None else x - mean
        return x if std is None else x / std

    return scaled


def _judging(predictor: Predictor) -> Judge:
    classes, method = predictor.learned, predictor.learned_by
    if method.head and predictor.alone:
        features = predictor.forward()

        def by_head(x: Tensor) -> tuple[Tensor, Tensor]:
            """Logits and distances from a head on features."""
            z = features(x)
            logits = predictor.logits(z)
            return logits, _far(classes.sureness, z, logits)

        return by_head

    def by_learner(x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of an adapted learner, which knows of no distances."""
        logits = method.learner.predict(classes.state, x)[0][:, : len(classes.names)].double()
        return logits, _far(None, x, logits)

    return by_learner


def _far(sure: Sureness | None, z: Tensor, logits: Tensor) -> Tensor:
    """As :meth:`Sureness.far`, from products: those of every class with every picture need no cube."""
    if sure is None or sure.novelty is None:
        return torch.zeros_like(logits[:, 0], dtype=torch.bool)
    x, means = unit(z.double()), sure.means
    squares = x.square().sum(-1, keepdim=True) + means.square().sum(-1) - 2.0 * (x @ means.mT)
    return squares.clamp(min=0.0).sqrt().amin(-1) > sure.novelty.threshold
