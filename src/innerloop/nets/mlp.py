r"""Fully connected networks, in the standard and in the NTK parametrisation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.nets.ops.dense as native
from innerloop.core.arguments import checked
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.trees import select
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.initial import he_normal, standard_normal
from innerloop.nets.network import Descent, Network, Pass

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "linear": lambda x: x,
}


SLOPES = {"relu": 0.0, "leaky_relu": 0.1, "linear": 1.0}
"""Below zero, of activations that native code has."""


@checked
def mlp(
    inputs: int,
    hidden: Sequence[int] | int,
    outputs: int,
    activation: str = "relu",
    parametrisation: str = "standard",
    bias: bool = True,
    weight_var: float | None = None,
    bias_var: float = 0.0,
) -> Network:
    r"""A fully connected network with ``len(hidden)`` hidden layers and a linear readout.

    ``standard``: :math:`h = W x + b` with :math:`W_{ij}\sim N(0, \sigma_w^2/n_{in})`.
    ``ntk``: :math:`h = \sqrt{\sigma_w^2/n_{in}}\,W x + \sigma_b\,b` with :math:`W_{ij}, b_i \sim N(0, 1)`:
    the same function at the start, another learning rate for each layer afterwards.
    :math:`\sigma_w^2` is 2 for ReLU (He) and 1 otherwise unless given. In the standard parametrisation the
    readout starts with variance :math:`1/n_{in}` and biases start at :math:`\sigma_b` times a normal.

    Args:
        inputs: input dimension.
        hidden: width of every hidden layer; a number is one layer.
        outputs: output dimension.
        activation: one of ``relu leaky_relu tanh erf sigmoid softplus linear``.
        parametrisation: ``standard`` or ``ntk``.
        bias: whether layers have biases.
        weight_var: :math:`\sigma_w^2`.
        bias_var: :math:`\sigma_b^2`.

    >>> net = mlp(3, [16, 16], 2)
    >>> params, _ = net.init(torch.Generator().manual_seed(0))
    >>> list(params)[-2:], net.head_names
    (['layer2.weight', 'layer2.bias'], ('layer2.weight', 'layer2.bias'))
    """
    hidden = _widths(hidden)
    _check(activation, parametrisation)
    sizes = [inputs, *hidden, outputs]
    last = len(sizes) - 2
    gain = weight_var if weight_var is not None else (2.0 if "relu" in activation else 1.0)
    # the readout feeds no ReLU, so its standard variance is 1/n
    gains = [gain] * last + [1.0 if weight_var is None else gain]
    act, ntk = ACTIVATIONS[activation], parametrisation == "ntk"
    sigma_b = math.sqrt(bias_var)
    has_bias = bias and (sigma_b > 0 or not ntk)  # with sigma_b = 0 an NTK bias would act on nothing

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """First parameters; there are no buffers."""
        return _draw(generator, sizes, gains, sigma_b if has_bias else None, ntk), {}

    def layer(params: Params, i: int, x: Tensor) -> Tensor:
        """Layer ``i`` without its activation."""
        weight, shift = params[f"layer{i}.weight"], params.get(f"layer{i}.bias")
        if ntk:
            weight = weight * math.sqrt(gain / sizes[i])
            shift = None if shift is None else shift * sigma_b
        return F.linear(x, weight, shift)

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """The last hidden layer, and the buffers as they were."""
        del statistics  # no normalisation layers
        x = x.flatten(1)
        if has_native and last and native.has_features(hidden_params := select(params, every[:-2]), x):
            return native.features(hidden_params, sizes[:-1], SLOPES[activation], x), buffers
        for i in range(last):
            x = act(layer(params, i, x))
        return x, buffers

    def head(params: Params, features: Tensor) -> Tensor:
        """The linear readout."""
        return layer(params, last, features)

    names = (f"layer{last}.weight", f"layer{last}.bias") if has_bias else (f"layer{last}.weight",)
    every = [f"layer{i}.{name}" for i in range(last + 1) for name in ("weight", "bias")]
    has_native = has_bias and not ntk and activation in SLOPES
    if not has_native:
        return Network(init, features, head, names, "none", layered=True)

    def descend(
        params: Params, buffers: Buffers, x: Tensor, y: Tensor, statistics: Statistics, descent: Descent
    ) -> Params | None:
        """Inner steps in native code."""
        del buffers, statistics
        x = x.flatten(1)
        if not native.suits(descent, every, outputs, x, y):
            return None
        return native.descend(descent, sizes, SLOPES[activation], x, y, select(params, every))

    return Network(init, features, head, names, "none", layered=True, descend=descend)


def _widths(hidden: Sequence[int] | int) -> list[int]:
    """Widths as a list, refused where they are no whole numbers."""
    given = list(hidden) if isinstance(hidden, Sequence) else [hidden]
    if any(isinstance(width, bool) or not isinstance(width, int) or width < 1 for width in given):
        raise UserError(f"mlp: hidden={hidden!r} must be widths of hidden layers, such as [40, 40].")
    return given


def _check(activation: str, parametrisation: str) -> None:
    if activation not in ACTIVATIONS:
        raise UserError(f"unknown activation '{activation}'{did_you_mean(activation, ACTIVATIONS)}.")
    if parametrisation not in ("standard", "ntk"):
        raise UserError(f"unknown parametrisation '{parametrisation}'; there are standard and ntk.")


def _draw(
    generator: torch.Generator, sizes: Sequence[int], gains: Sequence[float], sigma_b: float | None, ntk: bool
) -> Params:
    """Weights and, unless ``sigma_b`` is none, biases of every layer; all standard normal for ``ntk``."""
    params: Params = {}
    for i, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
        shape = (n_out, n_in)
        params[f"layer{i}.weight"] = (
            standard_normal(generator, shape) if ntk else he_normal(generator, shape, gains[i])
        )
        if sigma_b is not None:
            draw = standard_normal(generator, (n_out,))
            params[f"layer{i}.bias"] = draw if ntk else draw * sigma_b
    return params
