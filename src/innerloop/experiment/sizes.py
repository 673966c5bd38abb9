"""What a network must fit: all that a model needs to know of its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from innerloop.core.types import Task


class Sizes(NamedTuple):
    """What tasks ask of a network. A run keeps it, so that its network can be rebuilt without its data."""

    inputs: tuple[int, ...]
    outputs: int
    ways: int
    rows: int
    labels: bool

    def as_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return {**self._asdict(), "inputs": list(self.inputs)}


def sizes_from(record: Mapping[str, Any]) -> Sizes:
    """What :meth:`Sizes.as_dict` gave.

    >>> sizes = Sizes((1, 28, 28), 5, 5, 800, True)
    >>> sizes_from(sizes.as_dict()) == sizes
    True
    """
    return Sizes(**{**record, "inputs": tuple(record["inputs"])})


def sizes_of_task(example: Task, rows: int) -> Sizes:
    """Sizes from one training task: outputs that tell all its labels apart, or one per column."""
    y = example.y_support
    labels = not y.is_floating_point()
    needed = int(torch.cat([y, example.y_query]).max()) + 1 if labels else y.shape[-1]
    return Sizes(tuple(example.x_support.shape[1:]), needed, needed, rows, labels)
