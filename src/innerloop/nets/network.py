"""What a network is here: a small tuple of pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import Buffers, Loss, Params, Statistics

LAST_LAYERS = ("linear", "normalised", "cosine")
SCALE = 10.0  # factor on cosines: without one, no class of many could be predicted with certainty


class Descent(NamedTuple):
    """Inner steps: gradient descent on a loss of a network's outputs.

    Attributes:
        loss: of the outputs; its convention gives rates their meaning.
        moving: the parameters that take steps.
        steps: how many.
        through: how many of the last ones are differentiated through.
        lr: the rate, where none are learned.
        rates: learned ones by parameter; of every weight, or of every step.
        by_step: whether they are of every step.
    """

    loss: Loss
    moving: Sequence[str]
    steps: int
    through: int
    lr: float
    rates: Params
    by_step: bool = False


Descend = Callable[[Params, Buffers, Tensor, Tensor, Statistics, Descent], Params | None]
"""``(params, buffers, x, y, statistics, descent)`` to the parameters that moved."""

Pass: TypeAlias = tuple[Tensor, Buffers]  # what a part of a network gives: values, and the buffers after it


class Network(NamedTuple):
    """A body, a last layer, and how to draw their first parameters.

    Attributes:
        init: ``generator -> (params, buffers)``, float32 on the generator's device.
        features: ``(params, buffers, x, statistics) -> (features, buffers)``; the buffers given back
            hold what the normalisation layers saw, the ones given in are left alone.
        head: ``(params, features) -> outputs``; reads only ``head_names``.
        head_names: the parameters of the last layer, for ANIL, BOIL and per-task heads.
        norm: the norm policy (see :mod:`innerloop.nets.norms`), part of every reported number.
        layered: a promise of its maker, which tests hold it to: every parameter stands in one linear layer,
            convolution or norm layer, and is used there once; the last one is W z + b; and samples never mix.
            Kernels then need not look whether they understand the network, which takes as long as some
            samples.
        noise: whether it has dropout or the like, which training switches on (:mod:`innerloop.nets.noise`).
        descend: inner steps of its parameters in native code, which then computes its features too
            (:mod:`innerloop.nets.ops.engine`); it gives None where it does not suit.
    """

    init: Callable[[torch.Generator], tuple[Params, Buffers]]
    features: Callable[[Params, Buffers, Tensor, Statistics], tuple[Tensor, Buffers]]
    head: Callable[[Params, Tensor], Tensor]
    head_names: tuple[str, ...]
    norm: str = "none"
    layered: bool = False
    noise: bool = False
    descend: Descend | None = None


def apply(
    network: Network, params: Params, buffers: Buffers, x: Tensor, statistics: Statistics = "batch"
) -> tuple[Tensor, Buffers]:
    """The network's outputs, and its buffers after this pass.

    Args:
        network: the network.
        params: its parameters.
        buffers: its buffers.
        x: inputs, samples first.
        statistics: whose statistics normalise: the ``batch``'s own, or those ``stored`` in the buffers.

    >>> from innerloop import mlp
    >>> net = mlp(1, [8], 2)
    >>> params, buffers = net.init(torch.Generator().manual_seed(0))
    >>> apply(net, params, buffers, torch.zeros(3, 1))[0].shape
    torch.Size([3, 2])
    """
    features, buffers = network.features(params, buffers, x, statistics)
    return network.head(params, features), buffers


def with_last_layer(network: Network, kind: str = "linear", scale: float = SCALE) -> Network:
    r"""The network whose last layer reads its features as ``kind`` says.

    With features :math:`z = f_\theta(x)` and a row :math:`w_k` per class:

    ==============  =================================================  =====================================
    name            output of class k                                  used by
    ==============  =================================================  =====================================
    ``linear``      :math:`w_k^\top z + b_k`                           most networks
    ``normalised``  :math:`w_k^\top z/\|z\| + b_k`                     Bridge's multi-task training
    ``cosine``      :math:`s\,w_k^\top z/(\|w_k\|\,\|z\|)`, no bias    Baseline++ (Chen et al. 2019)
    ==============  =================================================  =====================================

    Only the last layer changes: the features that heads at test are fitted to stay as the body gives them.

    Args:
        network: body and last layer ``W z + b``.
        kind: ``linear`` (the network as it is), ``normalised`` or ``cosine``.
        scale: of ``cosine``: the factor :math:`s` on the cosines.

    Raises:
        UserError: there is no such kind, or the last layer has no single matrix to take angles to.

    >>> from innerloop import mlp
    >>> net = with_last_layer(mlp(1, [], 1), "cosine", scale=3.0)
    >>> float(net.head({"layer0.weight": torch.tensor([[2.0, 0.0]])}, torch.tensor([[0.5, 0.0]])))
    3.0
    """
    if kind == "linear":
        return network
    if kind == "normalised":
        return network._replace(head=lambda params, z: network.head(params, F.normalize(z, dim=-1)))
    if kind == "cosine":
        return _cosine(network, scale)
    raise UserError(
        f"unknown last layer '{kind}'{did_you_mean(kind, LAST_LAYERS)}; there are {', '.join(LAST_LAYERS)}."
    )


def _cosine(network: Network, scale: float) -> Network:
    """Cosines in place of products; the bias, if the network has one, is neither drawn nor trained."""
    biases = {name for name in network.head_names if name.endswith("bias")}
    kept = tuple(name for name in network.head_names if name not in biases)
    if len(kept) != 1:
        raise UserError(
            f"a cosine last layer needs one matrix of weights, and this network's has {', '.join(kept)}: "
            "leave {last_layer} at linear.",
            names=("last_layer",),
        )

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """The network's first parameters without the biases of the last layer."""
        params, buffers = network.init(generator)
        return {name: value for name, value in params.items() if name not in biases}, buffers

    def head(params: Params, z: Tensor) -> Tensor:
        """Scaled cosines of the features with the rows of the weights."""
        return scale * F.linear(F.normalize(z, dim=-1), F.normalize(params[kept[0]], dim=-1))

    return network._replace(init=init, head=head, head_names=kept, layered=False)
