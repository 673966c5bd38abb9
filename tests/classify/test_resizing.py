"""Resizing on tensors beside Pillow itself: the same bits, for pictures of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from innerloop.classify.graph import FILTERS, can_resize, resized
from innerloop.core.preprocessing import Preprocessing
from innerloop.data.pictures import fit_picture, prepare

SIZES = [(1, 1), (3, 50), (16, 16), (17, 23), (40, 31), (97, 64), (8, 301), (90, 25), (280, 5)]
WAYS: dict[str, dict[str, Any]] = {
    "exact": {},
    "wide": {"size": (12, 20)},
    "share": {"resize": "share", "share": 0.875},
    "small share": {"resize": "share", "share": 0.3},
    "short": {"resize": "short", "crop": (16, 16)},
    "short, cut": {"resize": "short", "size": (20, 20), "crop": (15, 18)},
    "short, zeros around": {"resize": "short", "size": (14, 14), "crop": (17, 33)},
    "fill": {"resize": "fill"},
    "fill, wide": {"resize": "fill", "size": (10, 24)},
}


def noise(height: int, width: int, channels: int) -> np.ndarray:
    return np.random.default_rng(height * width).integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize("way", WAYS)
def test_it_is_what_pillow_does(way: str, resample: Any) -> None:
    how = Preprocessing(**{"size": (16, 16), "resample": resample, **WAYS[way]})
    for height, width in SIZES:
        picture = noise(height, width, 3)
        expected = prepare(Image.fromarray(picture), how)
        ours = resized(torch.from_numpy(picture)[None], how)[0].permute(1, 2, 0).numpy()
        assert np.array_equal(ours, expected), (height, width)


def test_several_pictures_and_grey_ones() -> None:
    how = Preprocessing((9, 9), "fill", resample="lanczos", colour="grey")
    pictures = np.stack([noise(21, 34, 1), noise(21, 34, 1)[::-1]])
    resized_together = resized(torch.from_numpy(pictures), how)
    for picture, made in zip(pictures, resized_together, strict=True):
        expected = fit_picture(Image.fromarray(picture[..., 0]), 9, "grey")  # as runs read their files
        assert np.array_equal(made.permute(1, 2, 0).numpy(), expected)


def test_what_is_another_algorithm_is_told() -> None:
    assert not can_resize(Preprocessing((8, 8), resample="nearest"))
    assert not can_resize(Preprocessing((8, 8), resample="box"))
