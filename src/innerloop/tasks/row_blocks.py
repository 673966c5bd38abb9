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
    """One episode: rows of its pictures, support first, and labels that are its own to change."""

    rows: NDArray[np.int64]
    support: int
    y_support: Tensor
    y_query: Tensor
    id: Tensor


class _Block(NamedTuple):
    """Episodes side by side: their rows, and per episode all pictures and all numbers in one line."""

    rows: EpisodeRows
    pictures: NDArray[np.int64]
    numbers: NDArray[np.int64]


class RowBlocks:
    """Rows of episodes of one kind.

    Drawing the rows of one episode costs many small operations, most of them per call and not per episode.
    Blocks change no result: rows are a pure function of the episode's number, and what is given out is a
    copy, so that writing into it changes no later episode.
    """

    SIZE, KEPT = 128, 8

    def __init__(
        self,
        rows: Callable[[NDArray[np.int64]], EpisodeRows],
        number: NDArray[np.int64],
        device: torch.device | str = "cpu",
    ) -> None:
        self._rows, self._number, self._device = rows, number, device
        self._blocks: dict[int, _Block] = {}

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
        return EpisodeRows(*(field[place : place + n].copy() for field in self._block(block).rows))

    def episode(self, i: int) -> Drawn:
        """The ``i``-th episode alone."""
        block, place = divmod(i, self.SIZE)
        whole = self._block(block)
        support, query = whole.rows.support.shape[1], whole.rows.query.shape[1]
        numbers = torch.from_numpy(whole.numbers[place].copy()).to(self._device)
        y_support, y_query, ids = numbers.split_with_sizes([support, query, len(numbers) - support - query])
        return Drawn(whole.pictures[place], support, y_support, y_query, ids)

    def _block(self, block: int) -> _Block:
        whole = self._blocks.get(block)
        if whole is None:
            rows = self._rows(np.arange(block * self.SIZE, (block + 1) * self.SIZE))
            numbers = (rows.support_labels, rows.query_labels, self._number[rows.classes])
            whole = _Block(rows, np.concatenate([rows.support, rows.query], 1), np.concatenate(numbers, 1))
            self._blocks[block] = whole
            if len(self._blocks) > self.KEPT:
                self._blocks.pop(next(iter(self._blocks)), None)
        return whole
