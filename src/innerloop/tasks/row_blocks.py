"""Single episodes, looked up in blocks that were drawn together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.tasks.episodes import EpisodeRows


class Drawn(NamedTuple):
    """One episode, or (with a leading axis) a block of them: rows of pictures, support first, and labels."""

    rows: NDArray[np.int64]
    support: int
    y_support: Tensor
    y_query: Tensor
    id: Tensor


class RowBlocks:
    """Rows of episodes of one kind.

    Drawing the rows of one episode costs many small operations, most of them per call and not per episode.
    Blocks change no result: rows are a pure function of the episode's number.

    Args:
        rows: episode numbers → their rows.
        number: class → what a task's ``id`` calls it.
        device: where labels are put.
    """

    SIZE, KEPT = 128, 8

    def __init__(
        self,
        rows: Callable[[NDArray[np.int64]], EpisodeRows],
        number: NDArray[np.int64],
        device: torch.device | str = "cpu",
    ) -> None:
        self._rows, self._number, self._device = rows, number, device
        self._blocks: dict[int, tuple[EpisodeRows, Drawn]] = {}

    def __call__(self, index: NDArray[np.int64]) -> EpisodeRows:
        """The rows of those episodes."""
        first, n = int(index[0]), len(index)
        block, place = divmod(first, self.SIZE)
        if (
            place + n > self.SIZE
            or int(index[-1]) != first + n - 1
            or (n > 2 and (np.diff(index) != 1).any())
        ):
            return self._rows(index)
        return EpisodeRows(*(field[place : place + n] for field in self._block(block)[0]))

    def episode(self, i: int) -> Drawn:
        """The ``i``-th episode alone."""
        block, place = divmod(i, self.SIZE)
        whole = self._block(block)[1]
        return Drawn(
            whole.rows[place],
            whole.support,
            whole.y_support[place],
            whole.y_query[place],
            whole.id[place],
        )

    def _block(self, block: int) -> tuple[EpisodeRows, Drawn]:
        whole = self._blocks.get(block)
        if whole is None:
            rows = self._rows(np.arange(block * self.SIZE, (block + 1) * self.SIZE))
            whole = self._blocks[block] = rows, self._together(rows)
            if len(self._blocks) > self.KEPT:
                self._blocks.pop(next(iter(self._blocks)), None)
        return whole

    def _together(self, rows: EpisodeRows) -> Drawn:
        labels = (rows.support_labels, rows.query_labels, self._number[rows.classes])
        y_support, y_query, ids = (torch.from_numpy(part).to(self._device) for part in labels)
        both = np.concatenate([rows.support, rows.query], 1)
        return Drawn(both, rows.support.shape[1], y_support, y_query, ids)
