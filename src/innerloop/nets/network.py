"""What a network is here: a small tuple of pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from innerloop.core.types import Buffers, Loss, Params, Statistics


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
