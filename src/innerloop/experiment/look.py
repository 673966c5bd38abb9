"""How pictures must look for a trained network: their shape, and how training scaled them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.place import user_path
from innerloop.data.arrays import as_bytes, check_values
from innerloop.data.folder_look import read_files
from innerloop.data.pictures import Colour
from innerloop.tasks.loading import standardiser


class Look(NamedTuple):
    """What pictures must become before the network sees them.

    >>> Look((28, 28, 1), None, None).batch(np.full((2, 28, 28), 255, np.uint8), torch.float64).shape
    torch.Size([2, 1, 28, 28])
    """

    shape: tuple[int, int, int]
    mean: list[float] | None = None
    std: list[float] | None = None

    @property
    def size(self) -> int:
        """The side that picture files are brought to."""
        return self.shape[0]

    @property
    def colour(self) -> Colour:
        """The colour that picture files are brought to."""
        return "grey" if self.shape[2] == 1 else "rgb"

    def batch(self, X: Any, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
        """``(n, C, H, W)`` as training saw them, from whatever :meth:`bright` takes."""
        return self.scale(dtype, device)(self.bright(X, dtype).to(device))

    def scale(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> Callable[[Tensor], Tensor]:
        """The scaling alone: a function of pictures in 0…1."""
        return standardiser(self.mean, self.std, dtype, device)

    def bright(self, X: Any, dtype: torch.dtype) -> Tensor:
        """``(n, C, H, W)`` in 0…1 from arrays, tensors or file names.

        Files are brought to size and colour; arrays are not, because nobody could see it happen.
        """
        array = self._channels_last(X)
        check_values(array)
        floats = np.issubdtype(array.dtype, np.floating)
        x = torch.from_numpy(np.moveaxis(array if floats else as_bytes(array), -1, 1).copy()).to(dtype)
        return x if floats else x / 255

    def _channels_last(self, X: Any) -> NDArray[Any]:
        height, width, channels = self.shape
        if isinstance(X, (list, tuple)) and X and isinstance(X[0], (str, Path)):
            X = read_files([user_path(file) for file in X], height, self.colour)
        array = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asarray(X)
        if array.ndim == 3:
            array = array[..., None]
        if array.ndim == 4 and array.shape[1:] == (channels, height, width) and array.shape[-1] != channels:
            array = np.moveaxis(array, 1, -1)
        if array.ndim != 4 or array.shape[1:] != (height, width, channels):
            raise UserError(
                f"pictures of shape {tuple(array.shape[1:])} do not fit: it was trained on {height}×{width} "
                f"with {channels} channel{'s' * (channels > 1)}, so bring them to that first, or give file "
                "names, which are read so."
            )
        return array
