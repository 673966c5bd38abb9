r"""A predictor with its classes as one module: from decoded pictures to probabilities.

Resizing is Pillow's, as operations on tensors, to the same bits. Pillow resizes one axis after the other.
Along an axis an output pixel is a sum of input pixels with weights that are whole numbers over
:math:`2^{22}`, rounded to a whole number again:

.. math:: y_o = \mathrm{clip}_{0}^{255} \lfloor (2^{21} + \textstyle\sum_i k_{oi}\, p_i) / 2^{22} \rfloor .

All of these numbers are far below :math:`2^{53}`, so float64 computes them without rounding, in any order.
The pictures' height and width may be symbols: weights are computed from them, in the graph.

Width comes before height, but since its version 13 Pillow begins with the height where that is reduced by
more than twice as many pixels. The version that is installed decides: a graph says what innerloop says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import PIL
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export
from torch.nn.functional import linear

from innerloop.classify.predictor import Predictor
from innerloop.classify.sureness import Sureness
from innerloop.core.errors import UserError
from innerloop.core.preprocessing import Preprocessing, Resample
from innerloop.evaluation.heads import unit

FORMAT = "innerloop-export-1"
LARGEST = 1 << 15  # pixels of a side, at most
_MOST = 2**31 - 1  # pictures at once; torch 2.6 refuses a dimension that has no end
_EXAMPLE = (37, 53)  # height and width while it is captured: unlike each other, and unlike what a network has

Stage = Callable[[Tensor], Tensor]
Judge = Callable[[Tensor], tuple[Tensor, Tensor]]
"""What the network sees → logits ``(n, ways)``, and which pictures are far from every class ``(n,)``."""


class Graph(nn.Module):
    """Resizing, scaling, network, head, temperature, threshold: all that predicting does after decoding."""

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

    def about(self) -> dict[str, Any]:
        """What goes into a graph, what comes out of it, and what is left to the caller."""
        height, width, channels = self.shape
        sides: list[int | str] = [height, width] if self.fixed else ["height", "width"]
        return {
            "format": FORMAT,
            "input": {
                "name": "pictures",
                "type": "uint8",
                "shape": ["batch", *sides, channels],
                "colour": "rgb" if channels == 3 else "grey",
                "resized": not self.fixed,
                "how": str(self.preparation._replace(mean=None, std=None)),
            },
            "outputs": {
                "logits": "float32 (batch, classes): scores before the temperature",
                "probabilities": "float32 (batch, classes): a softmax of the scores over the temperature",
                "unknown": "bool (batch): farther from every class than examples are from theirs",
                "unsure": "bool (batch): less probable than unsure_below, or unknown",
            },
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
            raise UserError(
                f"torch.export cannot capture this model ({type(error).__name__}: {first_line(error)}): a "
                "head on features of one of our networks can be exported (eval.head=logistic; in Python: "
                "head='logistic')."
            ) from None


def first_line(error: Exception) -> str:
    """What an exporter says first, shortened."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


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


HEIGHT_FIRST = int(PIL.__version__.partition(".")[0]) >= 13
"""Whether this Pillow begins with the height of pictures that lose much of it."""
UNIT = 1 << 22  # Pillow's weights are multiples of one over this
_WHITE = 255.0


class Filter(NamedTuple):
    """A filter of Pillow: how far it reaches, and its value at distances (not negative)."""

    reach: float
    value: Callable[[Tensor], Tensor]


def _bicubic(x: Tensor) -> Tensor:
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, torch.zeros_like(x)))


def _bilinear(x: Tensor) -> Tensor:
    return torch.where(x < 1.0, 1.0 - x, torch.zeros_like(x))


def _sinc(x: Tensor) -> Tensor:
    zero = x == 0.0
    angle = math.pi * torch.where(zero, torch.ones_like(x), x)
    return torch.where(zero, torch.ones_like(x), torch.sin(angle) / angle)


def _lanczos(x: Tensor) -> Tensor:
    return torch.where(x < 3.0, _sinc(x) * _sinc(x / 3.0), torch.zeros_like(x))


def _hamming(x: Tensor) -> Tensor:
    window = 0.54 + 0.46 * torch.sin(math.pi * (x + 0.5))  # a cosine
    return torch.where(x < 1.0, _sinc(x) * window, torch.zeros_like(x))


FILTERS: dict[Resample, Filter] = {
    "bicubic": Filter(2.0, _bicubic),
    "bilinear": Filter(1.0, _bilinear),
    "lanczos": Filter(3.0, _lanczos),
    "hamming": Filter(1.0, _hamming),
}
"""Those that are the same here; ``box`` has an open end on one side, and ``nearest`` is another algorithm."""


class Axis(NamedTuple):
    """What becomes of one axis; numbers are float64 scalars, or plain ones where they are known before."""

    start: Tensor | float
    length: Tensor
    low: Tensor | float
    span: Tensor
    size: Tensor | float
    kept: int


def can_resize(how: Preprocessing) -> bool:
    """Whether :func:`resized` does what Pillow does for this preprocessing."""
    return how.resample in FILTERS


def resized(pictures: Tensor, how: Preprocessing) -> Tensor:
    """As ``pictures.prepare``: ``(n, H, W, C)`` of 8 bits → ``(n, C, height, width)``, float64."""
    rows, columns = (torch.arange(pictures.shape[axis], device=pictures.device).double() for axis in (1, 2))
    high, wide = axes(rows[-1] + 1.0, columns[-1] + 1.0, how)
    kind = FILTERS[how.resample]
    across, down = weights(columns, wide, kind), weights(rows, high, kind)
    x = pictures.permute(0, 3, 1, 2).double()
    usual = _along(_along(x, across).mT, down).mT
    square = how.resize == "share" and how.size[0] == how.size[1]  # loses as much on both axes
    if square or not HEIGHT_FIRST:
        return usual
    lost = high.length - high.size
    turned = (lost > 0.0) & (lost > 2.0 * (wide.length - wide.size))
    return torch.where(turned, _along(_along(x.mT, down).mT, across), usual)


def _along(x: Tensor, kernel: Tensor) -> Tensor:
    """The last axis, summed with whole weights and rounded as Pillow rounds."""
    return torch.floor((linear(x, kernel) + UNIT / 2) / UNIT).clamp(0.0, _WHITE)


def axes(height: Tensor, width: Tensor, how: Preprocessing) -> tuple[Axis, Axis]:
    """What becomes of the two axes of pictures of that height and width, as ``how`` says."""
    tall, broad = how.size
    keep_tall, keep_broad = how.crop or how.size
    if how.resize == "share":
        side = torch.floor(how.share * torch.minimum(height, width)).clamp(min=1.0)
        return _cut(height, side, tall, keep_tall), _cut(width, side, broad, keep_broad)
    if how.resize == "short":
        short, least = float(min(how.size)), torch.minimum(height, width)
        one, other = (torch.floor(short * length / least).clamp(min=1.0) for length in (height, width))
        return _whole(height, one, keep_tall), _whole(width, other, keep_broad)
    if how.resize == "fill":
        return _fill(height, width, how)
    return _whole(height, float(tall), keep_tall), _whole(width, float(broad), keep_broad)


def _whole(length: Tensor, size: Tensor | float, kept: int) -> Axis:
    return Axis(0.0, length, 0.0, length, size, kept)


def _cut(length: Tensor, side: Tensor, size: int, kept: int) -> Axis:
    return Axis(torch.floor((length - side + 1.0) / 2.0), side, 0.0, side, float(size), kept)


def _fill(height: Tensor, width: Tensor, how: Preprocessing) -> tuple[Axis, Axis]:
    """As ``ImageOps.fit``: parts of a pixel are cut off of what is too long. Pillow's box is float32."""
    tall, broad = how.size
    keep_tall, keep_broad = how.crop or how.size
    wanted, given = broad / tall, width / height
    part_wide = torch.where(given > wanted, wanted * height, width)
    part_high = torch.where(given < wanted, width / wanted, height)
    return _part(height, part_high, tall, keep_tall), _part(width, part_wide, broad, keep_broad)


def _part(length: Tensor, part: Tensor, size: int, kept: int) -> Axis:
    low = (length - part) * 0.5
    begin, end = low.float(), (low + part).float()
    return Axis(0.0, length, begin.double(), (end - begin).double(), float(size), kept)


def weights(places: Tensor, axis: Axis, kind: Filter) -> Tensor:
    """Pillow's whole weights ``(kept, length of the axis)`` from every pixel to every one that is kept."""
    scale = axis.span / axis.size
    wide = scale.clamp(min=1.0)
    reach = kind.reach * wide
    row = torch.arange(axis.kept, device=places.device).double()
    spare = (axis.size - axis.kept) / 2.0  # of pixels that are there, or missing; rounded down
    row = row + (torch.floor(spare) if isinstance(spare, Tensor) else float(math.floor(spare)))
    centre = (axis.low + (row + 0.5) * scale)[:, None]
    first = torch.floor(centre - reach + 0.5).clamp(min=0.0)
    last = torch.minimum(torch.floor(centre + reach + 0.5), axis.length)
    place = (places - axis.start)[None, :]
    inside = (place >= first) & (place < last) & (row >= 0.0)[:, None] & (row < axis.size)[:, None]
    value = kind.value(((place - centre + 0.5) * (1.0 / wide)).abs())
    value = torch.where(inside, value, torch.zeros_like(value))
    total = value.sum(-1, keepdim=True)
    share = value / torch.where(total == 0.0, torch.ones_like(total), total) * UNIT
    return torch.sign(share) * torch.floor(share.abs() + 0.5)
