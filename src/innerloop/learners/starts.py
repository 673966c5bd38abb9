r"""Where the last layer starts in the inner loop.

A learned last layer has a row for every *place* of a label, so the same task under other label numbers is
another problem, and is solved worse or better. What does not depend on the labels' order is one vector
:math:`w` for all rows (UNICORN-MAML, Ye & Chao 2021), or zero (Kao et al. 2022): renumbering the labels then
renumbers the outputs, and nothing else.

Under cross-entropy the two are one and the same: a softmax does not see what all its logits share, so
:math:`w` changes no prediction, at no step, and its gradient is zero. Under squared errors they differ.
"""

from __future__ import annotations

from typing import Literal

import torch

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.trees import select
from innerloop.core.types import Params
from innerloop.nets.network import Network

HeadStart = Literal["learned", "frozen", "one-vector", "zero"]
STARTS = ("learned", "frozen", "one-vector", "zero")
SYMMETRIC = ("one-vector", "zero")
"""Starts that do not depend on the labels' order."""


def check_start(start: HeadStart, head_moves: bool) -> None:
    """Refuses starts that there are not, and equal rows where the last layer does not move."""
    if start not in STARTS:
        raise UserError(
            f"unknown {{head_start}} '{start}'{did_you_mean(start, STARTS)}; there are {', '.join(STARTS)}.",
            names=("head_start",),
        )
    if start in SYMMETRIC and not head_moves:
        raise UserError(
            f"{{head_start}}={start} gives all classes the same output, and here the last layer never moves: "
            "set {head_start}=frozen, or average over label orders ({label_orders}).",
            names=("head_start", "label_orders"),
        )


def started(network: Network, start: HeadStart, params: Params) -> Params:
    """The parameters before the first inner step, as a differentiable function of the meta-parameters.

    >>> from innerloop import mlp
    >>> params = {"layer0.weight": torch.tensor([[1.0], [3.0]]), "layer0.bias": torch.tensor([0.0, 1.0])}
    >>> started(mlp(1, [], 2), "one-vector", params)["layer0.weight"]
    tensor([[2.],
            [2.]])
    """
    if start == "learned":
        return params
    head = select(params, network.head_names)
    if start == "frozen":
        return {**params, **{name: value.detach() for name, value in head.items()}}
    if start == "zero":
        return {**params, **{name: torch.zeros_like(value) for name, value in head.items()}}
    check_rows(head)
    return {**params, **{n: v.mean(0, keepdim=True).expand_as(v).contiguous() for n, v in head.items()}}


def untrained_names(network: Network, start: HeadStart) -> tuple[str, ...]:
    """Parameters that the outer loop never updates."""
    return tuple(network.head_names) if start in ("frozen", "zero") else ()


def check_rows(head: Params) -> None:
    """Refuses a last layer that has not one row per output in each of its parameters."""
    rows = {name: value.shape[0] if value.ndim else 0 for name, value in head.items()}
    outputs = max(rows.values())
    wrong = next((name for name, count in rows.items() if count != outputs), None)
    if wrong is not None:
        raise UserError(
            f"{{head_start}}=one-vector needs a last layer with one row per output, and '{wrong}' has "
            f"{rows[wrong]} for {outputs}: use {{head_start}}=zero or frozen.",
            names=("head_start",),
        )
