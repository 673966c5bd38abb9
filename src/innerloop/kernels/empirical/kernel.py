r"""The tangent kernel of a given network: :math:`\Theta(x,x')=\nabla f(x)\cdot\nabla f(x')`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.kernels.empirical.jacobian import jacobian_ntk, products_ntk
from innerloop.kernels.empirical.layerwise import NotUnderstoodError, layerwise_ntk
from innerloop.kernels.empirical.tangent import (
    MEMORY,
    Output,
    Tangent,
    as_network,
    check_output,
    refuse_mixing,
    tangent,
)
from innerloop.kernels.types import KernelFunction, Kernels
from innerloop.nets.network import Network

Method: TypeAlias = Literal["auto", "jacobian", "products", "layerwise"]
METHODS = ("auto", "jacobian", "products", "layerwise")


def empirical_ntk(
    network: Network | nn.Module,
    params: Params | None,
    x1: Tensor,
    x2: Tensor | None = None,
    *,
    buffers: Buffers | None = None,
    names: Collection[str] | None = None,
    method: Method = "auto",
    output: Output = "sum",
    memory: int = MEMORY,
    statistics: Statistics = "stored",
) -> Tensor:
    r"""Θ between two sets of inputs.

    ``output`` says what to make of k outputs. ``sum``: the kernel of :math:`\sum_o f_o` (``(n, m)``; TE-NAS
    and MetaNTK-NAS use it). ``trace``: :math:`\frac1k\sum_o\nabla f_o\cdot\nabla f_o` (``(n, m)``; what
    analytic kernels are the limit of). ``full``: every pair of outputs (``(n, m, k, k)``). With one output
    all are the same.

    Args:
        network: or any ``nn.Module``, in evaluation mode.
        params: its parameters; a module's own if None.
        x1: ``(n, ...)``.
        x2: ``(m, ...)``; ``x1`` if omitted.
        buffers: the network's buffers.
        names: only these parameters' part of the kernel (``network.head_names`` for the last layer).
        method: ``jacobian`` holds per-sample gradients; ``products`` never does, and takes much longer;
            ``layerwise`` sums the layers' Gram matrices without them; ``auto`` is ``layerwise`` wherever that
            understands the network (it checks itself), else ``jacobian``.
        output: see above.
        memory: bytes that may be used beside inputs and result.
        statistics: where normalisation layers take mean and variance from. With those of the batch, outputs
            depend on all inputs: refused, but for ``method="jacobian"``, which takes each set as one batch.

    >>> from innerloop import mlp
    >>> net = mlp(2, [], 1, bias=False)  # f = w·x, so Θ = x·x'
    >>> params, _ = net.init(torch.Generator().manual_seed(0))
    >>> x = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    >>> empirical_ntk(net, params, x)
    tensor([[5., 2.],
            [2., 1.]])
    """
    check_output(output)
    if method not in METHODS:
        raise UserError(
            f"unknown method '{method}'{did_you_mean(method, METHODS)}; there are {', '.join(METHODS)}."
        )
    with torch.no_grad():
        function = tangent(network, params, x1, buffers, names, statistics)
        return _by_method(
            function, x1.detach(), None if x2 is None or x2 is x1 else x2.detach(), method, output, memory
        )


def _by_method(
    t: Tangent, x1: Tensor, x2: Tensor | None, method: Method, output: Output, memory: int
) -> Tensor:
    if method != "jacobian":
        refuse_mixing(t, method)
    if method == "products":
        return products_ntk(t, x1, x2, output, memory)
    if method == "jacobian":
        return jacobian_ntk(t, x1, x2, output, memory)
    try:
        return layerwise_ntk(t, x1, x2, output, memory)
    except NotUnderstoodError:
        if method == "layerwise":
            raise
        return jacobian_ntk(t, x1, x2, output, memory)


def empirical_nngp(
    network: Network | nn.Module,
    params: Params | None,
    x1: Tensor,
    x2: Tensor | None = None,
    *,
    buffers: Buffers | None = None,
    memory: int = MEMORY,
    statistics: Statistics = "stored",
) -> Tensor:
    r"""The last layer's own tangent kernel, ``(n, m)``, the mean over outputs.

    For a linear readout :math:`\sqrt{\sigma_w^2/l}\,Wh+\sigma_b b` of l features it is
    :math:`\sigma_w^2\,h\cdot h'/l + \sigma_b^2`, whose limit is K.

    Args:
        network: or any ``nn.Module``, in evaluation mode.
        params: its parameters; a module's own if None.
        x1: ``(n, ...)``.
        x2: ``(m, ...)``; ``x1`` if omitted.
        buffers: the network's buffers; none if omitted.
        memory: bytes that may be used beside inputs and result.
        statistics: where normalisation layers take mean and variance from.

    >>> from innerloop import mlp
    >>> net = mlp(1, [2], 3, bias=False)
    >>> params = {"layer0.weight": torch.ones(2, 1), "layer1.weight": torch.zeros(3, 2)}
    >>> empirical_nngp(net, params, torch.tensor([[2.0]]), torch.tensor([[3.0]]))
    tensor([[12.]])
    """
    network, params, buffers = as_network(network, params, buffers)
    return empirical_ntk(
        network,
        params,
        x1,
        x2,
        buffers=buffers,
        names=network.head_names,
        output="trace",
        memory=memory,
        statistics=statistics,
    )


def empirical_kernel(
    network: Network | nn.Module,
    params: Params | None,
    *,
    buffers: Buffers | None = None,
    method: Method = "auto",
    memory: int = MEMORY,
    statistics: Statistics = "stored",
) -> KernelFunction:
    """A given network's K and Θ (the mean over outputs) as a function of inputs, like the analytic ones.

    Args:
        network: or any ``nn.Module``, in evaluation mode.
        params: its parameters; a module's own if None.
        buffers: the network's buffers; none if omitted.
        method: as in :func:`empirical_ntk`.
        memory: bytes that may be used beside inputs and result.
        statistics: where normalisation layers take mean and variance from.

    >>> from innerloop import mlp
    >>> net = mlp(2, [8], 1, parametrisation="ntk")
    >>> kernel = empirical_kernel(net, net.init(torch.Generator().manual_seed(0))[0])
    >>> kernel(torch.ones(3, 2), torch.ones(4, 2)).ntk.shape
    torch.Size([3, 4])
    """
    network, params, buffers = as_network(network, params, buffers)

    def kernel(x1: Tensor, x2: Tensor) -> Kernels:
        """Both kernels between two sets of inputs."""
        second = None if x2 is x1 else x2
        nngp = empirical_nngp(
            network, params, x1, second, buffers=buffers, memory=memory, statistics=statistics
        )
        ntk = empirical_ntk(
            network,
            params,
            x1,
            second,
            buffers=buffers,
            method=method,
            output="trace",
            memory=memory,
            statistics=statistics,
        )
        return Kernels(nngp, ntk)

    return kernel
