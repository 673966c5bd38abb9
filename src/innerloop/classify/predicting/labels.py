"""Labels: as lists, arrays and places among the classes, and in files without pickle, with their types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.core.errors import UserError

PLAIN: tuple[type, ...] = (str, bool, int, float)


def pack_labels(labels: Sequence[Any]) -> list[list[Any]]:
    """Labels as pairs of type and value that JSON can hold.

    >>> pack_labels([3, "cat", np.int16(7)])
    [['int', 3], ['str', 'cat'], ['int16', 7]]
    """
    return [[_kind(label), label.item() if isinstance(label, np.generic) else label] for label in labels]


def _kind(label: Any) -> str:
    if isinstance(label, np.generic) and type(label.item()) in PLAIN:
        return "numpy.str" if isinstance(label, np.str_) else label.dtype.name
    if type(label) in PLAIN:
        return type(label).__name__
    raise UserError(
        f"the label {label!r} is a {type(label).__name__}, which a file cannot give back as it was: use text "
        "or numbers as labels."
    )


def unpack_labels(packed: Sequence[Any]) -> list[Any]:
    """What :func:`pack_labels` was given; files of older versions hold text.

    >>> unpack_labels([["int", 3], ["str", "cat"], ["int16", 7], "old"])
    [3, 'cat', np.int16(7), 'old']
    """
    return [item if isinstance(item, str) else _restored(*item) for item in packed]


def _restored(kind: str, value: Any) -> Any:
    for plain in PLAIN:
        if kind == plain.__name__:
            return plain(value)
    return np.str_(value) if kind == "numpy.str" else np.dtype(kind).type(value)


def sorted_labels(labels: Sequence[Any]) -> list[Any]:
    """The different labels in order; as text where they are of several types."""
    try:
        return sorted(set(labels))
    except TypeError:
        return sorted(set(labels), key=str)


def label_array(labels: Sequence[Any]) -> NDArray[Any]:
    """Labels as an array that gives each back as it was."""
    kinds = {type(label) for label in labels}
    if len(kinds) == 1 and issubclass(next(iter(kinds)), (str, bool, int, float, np.generic)):
        return np.array(list(labels))
    made = np.empty(len(labels), dtype=object)
    made[:] = list(labels)
    return made


def list_labels(labels: Any) -> list[Any]:
    """Labels as a list of plain values, from a list, an array or a tensor."""
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise UserError(
            f"y must list one label for every picture, such as ['ant', 'bee'], not {labels!r}; a folder with "
            "one folder of pictures per class is read by `innerloop predict --support FOLDER PICTURES`."
        )
    return list(labels.tolist() if hasattr(labels, "tolist") else labels)


def places_of(labels: Sequence[Any], known: Sequence[Any]) -> Tensor:
    """Labels as places in the list of classes.

    >>> places_of(["bee", "ant"], ["ant", "bee"])
    tensor([1, 0])
    """
    place = {name: i for i, name in enumerate(known)}
    if strange := [label for label in labels if label not in place]:
        raise UserError(f"label {strange[0]!r} is none of the classes given: add it to their names.")
    return torch.tensor([place[label] for label in labels])


def check_lengths(pictures: Tensor, labels: Sequence[Any]) -> None:
    """Refuses labels that are not one for each picture."""
    if len(pictures) != len(labels):
        raise UserError(f"adapt got {len(pictures)} pictures but {len(labels)} labels: give one label each.")
