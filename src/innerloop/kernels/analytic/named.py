"""Kernels by the name of a network, and kernels kept for given inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.kernels.analytic.networks import mlp_kernel, residual_kernel
from innerloop.kernels.types import KernelFunction, Kernels
from innerloop.nets.residual import RESIDUAL, check_network


def network_kernel(network: str, depth: int, activation: str = "relu") -> KernelFunction:
    """The limit of :func:`innerloop.nets.residual.wide_network` as its width grows.

    Args:
        network: ``mlp``, ``residual``, ``residual-norm`` or ``residual-prenorm``.
        depth: L, layers with weights, the readout included; a residual network has ``depth - 2`` blocks.
        activation: of hidden layers.

    >>> x = torch.ones(1, 3, dtype=torch.float64)
    >>> [round(network_kernel(name, 6)(x, x).nngp.item(), 9) for name in ("mlp", "residual", "residual-norm")]
    [2.0, 32.0, 1.0]
    """
    check_network(network, depth)
    if network == "mlp":
        return mlp_kernel(depth, activation)
    return residual_kernel(depth - 2, activation, norm=RESIDUAL[network])


def tabulated(kernel: KernelFunction, x: Tensor) -> KernelFunction:
    """The same kernel between any of these inputs, computed once: for empirical kernels asked for often.

    Inputs are known again by their bits.

    Args:
        kernel: what to keep.
        x: ``(n, ...)``: all inputs that will be asked for.

    >>> kept = tabulated(lambda a, b: Kernels(a @ b.mT, a @ b.mT), torch.eye(3))
    >>> kept(torch.eye(3)[2:], torch.eye(3)).ntk
    tensor([[0., 0., 1.]])
    """
    whole = kernel(x, x)
    places = {row: i for i, row in enumerate(_rows(x))}

    def find(inputs: Tensor) -> Tensor:
        """The places of inputs among those that are kept."""
        try:
            return torch.tensor([places[row] for row in _rows(inputs)], device=x.device)
        except KeyError:
            raise UserError(
                "the kernel was kept for other inputs: give tabulated all that it will be asked for."
            ) from None

    def lookup(x1: Tensor, x2: Tensor) -> Kernels:
        """The kept kernels between two sets of inputs."""
        rows, columns = find(x1), find(x2)
        return Kernels(*(one[rows][:, columns] for one in whole))

    return lookup


def _rows(x: Tensor) -> list[bytes]:
    return [row.tobytes() for row in x.detach().cpu().flatten(1).contiguous().numpy()]
