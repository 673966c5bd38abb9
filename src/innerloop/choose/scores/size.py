"""Sizes as scores: the baselines that any other score must beat."""

from __future__ import annotations

from innerloop.choose.architectures.size import count_layers
from innerloop.choose.scores.tell import Score
from innerloop.core.trees import count
from innerloop.core.types import Buffers, Params
from innerloop.nets.network import Network


def parameters(network: Network, params: Params, buffers: Buffers, shape: tuple[int, ...]) -> Score:
    """How many numbers are trained, the last layer's included.

    Args:
        network: not used.
        params: what is counted.
        buffers: not used.
        shape: not used.
    """
    del network, buffers, shape
    return Score(float(count(params)))


def flops(network: Network, params: Params, buffers: Buffers, shape: tuple[int, ...]) -> Score:
    """Floating-point operations of one input's pass: two for every multiply-add of a layer.

    Convolutions and matrix products count; normalisation, ReLU and pooling do not.

    Args:
        network: what is scored.
        params: its parameters.
        buffers: its buffers.
        shape: of one input.
    """
    return Score(2.0 * count_layers(network, params, buffers, shape).multiply_adds)


def layers(network: Network, params: Params, buffers: Buffers, shape: tuple[int, ...]) -> Score:
    """Convolutions and matrix products in one pass, side by side or in a row.

    Args:
        network: what is scored.
        params: its parameters.
        buffers: its buffers.
        shape: of one input.
    """
    return Score(float(count_layers(network, params, buffers, shape).layers))
