"""Pictures as users have them → a batch of tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.data import read_picture
from innerloop.data.arrays import as_bytes, check_values
from innerloop.data.pictures import Colour


def as_batch(X: Any, shape: tuple[int, ...]) -> Tensor:
    """``(n, C, H, W)`` in 0…1 from arrays, tensors or file names, fitted to the shape that training saw.

    Args:
        X: ``(n, H, W)``, ``(n, H, W, C)`` or ``(n, C, H, W)``, uint8 or floats in 0…1; or a list of files.
        shape: ``(H, W, C)``.

    Raises:
        UserError: other sizes than in training, or numbers whose black and white are not known.
    """
    height, width, channels = shape
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], (str, Path)):
        colour: Colour = "grey" if channels == 1 else "rgb"
        X = np.stack([read_picture(Path(file), height, colour) for file in X])
    array = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asarray(X)
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim == 4 and array.shape[1:] == (channels, height, width) and array.shape[-1] != channels:
        array = np.moveaxis(array, 1, -1)
    if array.ndim != 4 or array.shape[1:] != (height, width, channels):
        raise UserError(
            f"pictures of shape {tuple(array.shape[1:])} do not fit: it was trained on {height}×{width} with "
            f"{channels} channel{'s' * (channels > 1)}."
        )
    check_values(array)
    floats = np.issubdtype(array.dtype, np.floating)
    x = torch.from_numpy(np.moveaxis(array if floats else as_bytes(array), -1, 1).copy()).float()
    return x if floats else x / 255
