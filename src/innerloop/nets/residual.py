r"""Fully connected residual networks, with and without LayerNorm, in the NTK parametrisation.

They are what :func:`innerloop.kernels.residual_kernel` is the limit of (Bridge, Corollary 1.1).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.initial import standard_normal
from innerloop.nets.mlp import ACTIVATIONS, mlp
from innerloop.nets.network import Network, Pass

NORMS = ("none", "branch", "all", "stream")  # where LayerNorm stands; see :func:`residual_mlp`
RESIDUAL = {"residual": "none", "residual-norm": "stream", "residual-prenorm": "branch"}
"""Residual networks by name, with their norms."""
NETWORKS = ("mlp", *RESIDUAL)  # what :func:`wide_network` makes


def residual_mlp(
    inputs: int,
    width: int,
    blocks: int,
    outputs: int,
    activation: str = "relu",
    norm: str = "none",
    weight_var: float | None = None,
) -> Network:
    r"""A residual network of one layer per block, NTK parametrisation, no biases.

    .. math:: h_0 = Dense(x),\quad h_{k+1} = h_k + Dense(\phi(h_k)),\quad f = Dense(\phi(h_{blocks}))

    with :math:`Dense(x) = \sqrt{\sigma_w^2/n_{in}}\,Wx`. Sums are not scaled, so that the variance of ReLU
    networks doubles with every block where there is no LayerNorm on the stream. LayerNorm has no trained
    scale or shift.

    Args:
        inputs: input dimension.
        width: of the stream and of every branch.
        blocks: residual blocks; the network has ``blocks + 2`` layers with weights.
        outputs: output dimension.
        activation: as for :func:`~innerloop.nets.mlp.mlp`.
        norm: where LayerNorm stands: ``none``; ``branch``, before the activation in every block; ``all``,
            before the last activation too; ``stream``, after the first layer and after every sum.
        weight_var: :math:`\sigma_w^2`; 2 for ReLU, else 1.

    >>> net = residual_mlp(3, 8, 2, 1, norm="stream")
    >>> params, _ = net.init(torch.Generator().manual_seed(0))
    >>> list(params), net.head_names
    (['layer0.weight', 'layer1.weight', 'layer2.weight', 'layer3.weight'], ('layer3.weight',))
    """
    if activation not in ACTIVATIONS:
        raise UserError(f"unknown activation '{activation}'{did_you_mean(activation, ACTIVATIONS)}.")
    check_norm(norm)
    act = ACTIVATIONS[activation]
    gain = weight_var if weight_var is not None else (2.0 if "relu" in activation else 1.0)
    sizes = [inputs, *[width] * (blocks + 1), outputs]
    last = f"layer{blocks + 1}.weight"

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """First parameters; there are no buffers."""
        shapes = {f"layer{i}.weight": (sizes[i + 1], sizes[i]) for i in range(blocks + 2)}
        return {name: standard_normal(generator, shape) for name, shape in shapes.items()}, {}

    def dense(params: Params, name: str, x: Tensor) -> Tensor:
        """A layer in the NTK parametrisation."""
        return F.linear(x, params[name] * math.sqrt(gain / x.shape[-1]))

    def normed(x: Tensor, wanted: bool) -> Tensor:
        """LayerNorm, where it is wanted."""
        return F.layer_norm(x, x.shape[-1:], eps=1e-12) if wanted else x

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """What the last layer reads, and the buffers as they were."""
        del statistics  # LayerNorm looks at single samples
        h = normed(dense(params, "layer0.weight", x.flatten(1)), norm == "stream")
        for i in range(blocks):
            branch = dense(params, f"layer{i + 1}.weight", act(normed(h, norm in ("branch", "all"))))
            h = normed(h + branch, norm == "stream")
        return act(normed(h, norm == "all")), buffers

    return Network(init, features, lambda params, z: dense(params, last, z), (last,), "none")


def check_norm(norm: str) -> None:
    """Refuses a place for LayerNorm that there is not."""
    if norm not in NORMS:
        raise UserError(f"unknown norm '{norm}'{did_you_mean(norm, NORMS)}; there are {', '.join(NORMS)}.")


def check_network(network: str, depth: int) -> None:
    """Refuses a name that there is not, and residual networks of one layer."""
    if network not in NETWORKS:
        raise UserError(
            f"unknown network '{network}'{did_you_mean(network, NETWORKS)}; there are {', '.join(NETWORKS)}."
        )
    if network in RESIDUAL and depth < 2:
        raise UserError(
            f"depth={depth}: a {network} network has at least two layers with weights: give depth=2."
        )


def wide_network(
    network: str, inputs: int, width: int, depth: int, outputs: int = 1, activation: str = "relu"
) -> Network:
    """A network of ``depth`` layers with weights (the readout included), NTK parametrisation, by name.

    Args:
        network: ``mlp``, ``residual``, ``residual-norm`` (LayerNorm on the stream) or ``residual-prenorm``
            (LayerNorm in every branch).
        inputs: input dimension.
        width: of hidden layers.
        depth: L; a residual network has ``depth - 2`` blocks.
        outputs: output dimension.
        activation: of hidden layers.

    >>> len(wide_network("residual", 3, 8, 5).init(torch.Generator())[0])
    5
    """
    check_network(network, depth)
    if network == "mlp":
        return mlp(inputs, [width] * (depth - 1), outputs, activation=activation, parametrisation="ntk")
    return residual_mlp(inputs, width, depth - 2, outputs, activation, RESIDUAL[network])
