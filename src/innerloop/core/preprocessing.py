"""What pictures must go through before a network with given weights sees them. Plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from innerloop.core.errors import UserError

Resize = Literal["exact", "short", "share", "fill"]
Resample = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
RESAMPLES: tuple[Resample, ...] = get_args(Resample)
"""In the order of Pillow's numbers, which other libraries write into their files."""
Side = tuple[int, int]
_WHITE = 255


class Preprocessing(NamedTuple):
    r"""From a decoded 8-bit picture to the numbers that a network was trained on.

    A pixel :math:`p` in 0…255 becomes :math:`(f p - \mu_c)/\sigma_c` in channel :math:`c`, after the picture
    was brought to its size. It belongs to the weights, so it is kept with them.

    Attributes:
        size: ``(height, width)`` that pictures are resized to.
        resize: ``exact``, without keeping the proportions; ``short``, the shorter side becomes the smaller
            number of ``size`` and the proportions are kept; ``share``, a square of ``share`` of the shorter
            side is cut out of the middle and resized; ``fill``, as much as fits is cut out of the middle, to
            parts of a pixel.
        share: of ``share``.
        crop: ``(height, width)`` cut out of the middle after that; zeros stand where there is no picture.
        resample: the filter, by Pillow's name.
        factor: :math:`f`.
        mean: :math:`\mu`, of each channel; ``None`` subtracts nothing.
        std: :math:`\sigma`, of each channel; ``None`` divides by nothing.
        colour: ``rgb`` or ``grey``.

    >>> how = Preprocessing((256, 256), "short", crop=(224, 224))
    >>> how.shape
    (224, 224, 3)
    """

    size: Side
    resize: Resize = "exact"
    share: float = 1.0
    crop: Side | None = None
    resample: Resample = "bicubic"
    factor: float = 1 / _WHITE
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    colour: Literal["rgb", "grey"] = "rgb"

    @property
    def channels(self) -> int:
        """Three, or one for grey pictures."""
        return 3 if self.colour == "rgb" else 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(height, width, channels)`` of what the network sees."""
        return (*(self.crop or self.size), self.channels)

    def scale(self) -> tuple[list[float], list[float]]:
        """Mean and deviation of each channel for pictures whose white is 1, as stores of pictures have it.

        >>> how = Preprocessing((8, 8), mean=(127.0,) * 3, std=(128.0,) * 3, factor=1.0)
        >>> mean, std = how.scale()
        >>> mean[0] == 127 / 255, std[0] == 128 / 255
        (True, True)
        """
        white = self.factor * _WHITE
        mean, std = self.mean or (0.0,) * self.channels, self.std or (1.0,) * self.channels
        return [value / white for value in mean], [value / white for value in std]

    def as_dict(self) -> dict[str, Any]:
        """For files; :func:`preprocessing_from` reads it again."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in self._asdict().items()
        }

    def __str__(self) -> str:
        height, width = self.size
        ways = {
            "exact": f"resized to {width}×{height}",
            "short": f"the shorter side resized to {min(self.size)}",
            "share": f"the middle {100 * self.share:.4g} % resized to {width}×{height}",
            "fill": f"the middle resized to {width}×{height}",
        }
        parts = [f"{ways[self.resize]} ({self.resample})"]
        if self.crop is not None:
            parts.append(f"the middle {self.crop[1]}×{self.crop[0]}")
        if self.mean is not None or self.std is not None:
            mean, std = (", ".join(f"{value:.4g}" for value in numbers) for numbers in self.scale())
            parts.append(f"minus ({mean}), divided by ({std})")
        return ", ".join(parts)


def check_preprocessing(how: Preprocessing) -> Preprocessing:
    """The same, if pictures can be treated so."""
    for name, side in (("size", how.size), ("crop", how.crop)):
        if side is not None and (len(side) != 2 or not all(isinstance(n, int) and n > 0 for n in side)):
            raise UserError(f"preprocessing: {name}={side} must be two positive whole numbers.")
    if how.resize not in get_args(Resize) or how.resample not in RESAMPLES:
        raise UserError(
            f"preprocessing: resize={how.resize!r} with resample={how.resample!r} is unknown; there are "
            f"{', '.join(get_args(Resize))}, and {', '.join(RESAMPLES)}."
        )
    if how.resize == "short" and how.crop is None:
        raise UserError(
            "preprocessing: resize='short' leaves pictures of unequal widths: give crop=(height, width)."
        )
    if not 0 < how.share <= 1:
        raise UserError(f"preprocessing: share={how.share} must lie between 0 and 1.")
    if how.colour not in ("rgb", "grey"):
        raise UserError(f"preprocessing: colour={how.colour!r} must be 'rgb' or 'grey'.")
    _check_numbers(how)
    return how


def _check_numbers(how: Preprocessing) -> None:
    for name, numbers in (("mean", how.mean), ("std", how.std)):
        if numbers is not None and (len(numbers) != how.channels or not all(map(math.isfinite, numbers))):
            raise UserError(
                f"preprocessing: {name}={list(numbers)} must be {how.channels} finite number(s), one per "
                "channel."
            )
    if not (math.isfinite(how.factor) and how.factor > 0) or (how.std and min(how.std) <= 0):
        raise UserError("preprocessing: factor and std must be above 0.")


def preprocessing_from(record: Mapping[str, Any]) -> Preprocessing:
    """What :meth:`Preprocessing.as_dict` gave."""
    try:
        values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in record.items()}
        return check_preprocessing(Preprocessing(**values))
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"the record of the preprocessing is damaged ({error}).") from None
