"""Starting from given weights, with every mismatch reported at once."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params

STATISTICS = {"running_mean": "mean", "running_var": "var", "mean": "mean", "var": "var"}
"""What torch's batch norm and ours call their statistics → what ours calls them."""


def load_weights(params: Params, given: Mapping[str, Tensor], source: str = "the given weights") -> Params:
    """``given`` in the place of ``params``, with their dtype and device.

    Args:
        params: the model's.
        given: what is put in their place.
        source: what the message calls ``given``.

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


def load_statistics(
    params: Params, buffers: Buffers, given: Mapping[str, Tensor], source: str = "the given weights"
) -> tuple[dict[str, Tensor], Buffers]:
    """Sets running statistics (torch's names or ours) apart from weights; what nothing keeps is left out."""
    left: dict[str, Tensor] = {}
    merged = dict(buffers)
    for name, value in given.items():
        layer, _, last = name.rpartition(".")
        ours = f"{layer}.{STATISTICS[last]}" if name not in buffers and last in STATISTICS else name
        if name in params or (ours not in buffers and last not in (*STATISTICS, "num_batches_tracked")):
            left[name] = value
        elif ours in buffers:
            wanted = tuple(buffers[ours].shape)
            if tuple(value.shape) != wanted:
                raise UserError(f"{name}: {source} has shape {tuple(value.shape)}, the model {wanted}.")
            merged[ours] = value.to(buffers[ours]).clone()
    return left, merged
