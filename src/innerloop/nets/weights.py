"""Starting from given weights, with every mismatch reported at once."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Params


def load_weights(params: Params, given: Mapping[str, Tensor], source: str = "the given weights") -> Params:
    """``given`` in the place of ``params``, with their dtype and device.

    Raises:
        UserError: one line for every name that is missing, unknown or of another shape.

    >>> import torch
    >>> load_weights({"w": torch.zeros(1)}, {"w": torch.ones(1, dtype=torch.float64)})
    {'w': tensor([1.])}
    """
    problems = [f"{name}: missing in {source}" for name in params if name not in given]
    problems += [f"{name}: in {source} but not in the model" for name in given if name not in params]
    problems += [
        f"{name}: {source} has shape {tuple(given[name].shape)}, the model {tuple(value.shape)}"
        for name, value in params.items()
        if name in given and given[name].shape != value.shape
    ]
    if problems:
        head = f"{source} does not fit the model ({len(problems)} mismatches); set model.* as it was trained:"
        raise UserError("\n  ".join([head, *problems]))
    return {name: given[name].to(value).clone() for name, value in params.items()}
