"""Scores from gradients of a loss: gradient norm, SynFlow and ZiCo. Only weights count, as published."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.choose.scores.conditions import kernel_names
from innerloop.choose.scores.scoring import Score
from innerloop.core.autodiff import gradient, plain_autograd
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import Buffers, Loss, Params
from innerloop.nets.network import Network, apply

NORMALISED = ("transductive", "group")
"""Policies whose statistics always come from the data: they undo the products that SynFlow is made of."""


def weight_gradients(
    network: Network, params: Params, buffers: Buffers, x: Tensor, y: Tensor, loss: Loss
) -> Params:
    """The gradient of a batch's loss by every weight; normalisation layers use the batch's statistics."""
    weights = {name: params[name].detach() for name in kernel_names(params)}
    rest = {name: p.detach() for name, p in params.items() if name not in weights}

    def value(part: Params) -> Tensor:
        """The loss as a function of the weights."""
        return loss.value(apply(network, {**rest, **part}, buffers, x, "batch")[0], y)

    with plain_autograd():
        return gradient(value, weights, keep_graph=False)


def gradient_norm(
    network: Network, params: Params, buffers: Buffers, x: Tensor, y: Tensor, loss: Loss | None = None
) -> Score:
    r"""The sum over layers of :math:`\|\nabla_{W_l} L\|_2` on one batch (Abdelfattah et al. 2021).

    Args:
        network: any.
        params: its parameters.
        buffers: its buffers.
        x: inputs.
        y: their labels, or targets with ``loss="mse"`` and its like.
        loss: cross-entropy if omitted.

    >>> from innerloop import mlp
    >>> net = mlp(1, [], 1, bias=False)
    >>> params, x, y = {"layer0.weight": torch.tensor([[2.0]])}, torch.tensor([[3.0]]), torch.zeros(1, 1)
    >>> gradient_norm(net, params, {}, x, y, get_loss("mse")).value  # 2 · w·x · x
    36.0
    """
    grads = weight_gradients(network, params, buffers, x, y, loss or get_loss("cross-entropy"))
    return _finite(sum(float(g.double().norm()) for g in grads.values()))


class _Moments(NamedTuple):
    """Of gradients seen so far (Welford): mean, sum of squared deviations, sum of absolute values."""

    mean: Tensor
    squares: Tensor
    absolute: Tensor


def zico(
    network: Network,
    params: Params,
    buffers: Buffers,
    batches: Iterable[tuple[Tensor, Tensor]],
    loss: Loss | None = None,
) -> Score:
    r"""ZiCo (Li et al. 2023): large gradients that agree between batches.

    .. math:: \sum_l \log \sum_{w\in l} \frac{E\,|\nabla_w L|}{\sqrt{\mathrm{Var}\,\nabla_w L}}

    Mean and variance are over batches; weights of zero variance, and layers of nothing else, are left out.
    The deviation is that of the gradient, as in the released code; the paper prints that of its absolute
    value.

    Args:
        network: any.
        params: its parameters.
        buffers: its buffers.
        batches: at least two pairs of inputs and labels.
        loss: cross-entropy if omitted.
    """
    chosen, moments, count = loss or get_loss("cross-entropy"), dict[str, _Moments](), 0
    for x, y in batches:
        count += 1
        for name, g in weight_gradients(network, params, buffers, x, y, chosen).items():
            moments[name] = _updated(moments.get(name), g.double(), count)
    if count < 2:
        raise UserError(f"ZiCo compares gradients of different batches: give at least two, not {count}.")
    total = 0.0
    for seen in moments.values():
        moves = seen.squares > 0
        ratios = (seen.absolute[moves] / count) / (seen.squares[moves] / count).sqrt()
        if ratios.numel() and float(ratios.sum()) > 0:
            total += math.log(float(ratios.sum()))
    return _finite(total)


def _updated(seen: _Moments | None, g: Tensor, count: int) -> _Moments:
    """With one gradient more. Equal gradients leave the squares at exactly zero."""
    if seen is None:
        return _Moments(g, torch.zeros_like(g), g.abs())
    away = g - seen.mean
    mean = seen.mean + away / count
    return _Moments(mean, seen.squares + away * (g - mean), seen.absolute + g.abs())


def synflow(network: Network, params: Params, buffers: Buffers, shape: tuple[int, ...]) -> Score:
    r"""SynFlow (Tanaka et al. 2020): :math:`\sum_w w\,\partial R/\partial w` with all weights positive.

    :math:`R = 1^\top f_{|\theta|}(1)`: every parameter is replaced by its absolute value, the input is one
    picture of ones, and the outputs are summed; in float64, because R is a product over all layers. Without
    biases each of L layers in a row contributes R.

    Normalisation would undo those products. So the network has none (``norm="none"``: the same parameters
    serve, scales and shifts are not read), or has stored statistics (``running``, ``support``), at first a
    mean of 0 and a variance of 1: batch normalisation in evaluation mode, as in the paper.

    Args:
        network: of the policy ``none``, ``running`` or ``support``.
        params: its parameters.
        buffers: its buffers.
        shape: of one input.

    >>> from innerloop import mlp
    >>> net = mlp(1, [1], 1, bias=False)
    >>> params = {"layer0.weight": torch.tensor([[-2.0]]), "layer1.weight": torch.tensor([[3.0]])}
    >>> synflow(net, params, {}, (1,)).value  # two layers of R = 2 · 3
    12.0
    """
    if network.norm in NORMALISED:
        raise UserError(
            f"SynFlow multiplies weights, and norm='{network.norm}' divides by what they make: give the same "
            "network with norm='none'."
        )
    positive = {name: p.detach().double().abs() for name, p in params.items()}
    stored = {name: b.double().abs() if b.is_floating_point() else b for name, b in buffers.items()}
    ones = torch.ones(1, *shape, dtype=torch.float64, device=next(iter(positive.values())).device)
    weights = {name: positive[name] for name in kernel_names(positive)}

    def flow(part: Params) -> Tensor:
        """The sum of the outputs for a picture of ones."""
        return apply(network, {**positive, **part}, stored, ones, "stored")[0].sum()

    with plain_autograd():
        grads = gradient(flow, weights, keep_graph=False)
    return _finite(sum(float((weights[name] * g).sum()) for name, g in grads.items()))


def _finite(value: float) -> Score:
    return Score(value, "" if math.isfinite(value) else "the gradients are no finite numbers")
