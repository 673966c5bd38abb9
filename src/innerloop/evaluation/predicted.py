"""What was said of single queries: the labels behind an accuracy, for looking at them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Predicted(NamedTuple):
    """What was said of the queries of one episode, in their order.

    Attributes:
        episode: its number.
        labels: the true labels, which count within the episode.
        said: the labels that were given.
        probability: how probable these were called: the largest entry of a softmax of the outputs.
    """

    episode: int
    labels: list[int]
    said: list[int]
    probability: list[float]

    @property
    def accuracy(self) -> float:
        """The share of queries whose label is right."""
        return sum(a == b for a, b in zip(self.labels, self.said, strict=True)) / len(self.labels)


def marks(outputs: Tensor, labels: Tensor, widest: int | None = None) -> Tensor:
    """``(…, 3, widest)``: of every query its true label, the label it is given, and how probable that is.

    Tasks of unequal size have tables of equal size then: what is missing is nan.

    >>> marks(torch.tensor([[0.0, 0.0], [-99.0, 99.0]]), torch.tensor([0, 0]), widest=3)
    tensor([[0.0000, 0.0000,    nan],
            [0.0000, 1.0000,    nan],
            [0.5000, 1.0000,    nan]])
    """
    sure, said = outputs.float().softmax(-1).max(-1)
    table = torch.stack([labels.float(), said.float(), sure], -2)
    missing = 0 if widest is None else widest - labels.shape[-1]
    return F.pad(table, (0, missing), value=torch.nan) if missing else table


def predicted(tables: Iterable[Tensor], episodes: Sequence[int]) -> list[Predicted]:
    """Reads the tables of :func:`marks`; an episode with outputs that are no numbers is left out.

    >>> predicted([marks(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), widest=2)], [7])
    [Predicted(episode=7, labels=[1], said=[0], probability=[0.5])]
    """
    given = []
    for table, episode in zip(tables, episodes, strict=True):
        labels, said, sure = table[:, table[0].isfinite()].tolist()
        if labels and all(p == p for p in sure):
            told = [round(p, 4) for p in sure]
            given.append(Predicted(int(episode), [int(i) for i in labels], [int(i) for i in said], told))
    return given
