r"""Kernels of infinitely wide networks, from layers.

NTK parametrisation, every layer trained. ``depth`` = L counts layers with weights, **the readout included**:
a fully connected network of depth L has L - 1 hidden layers, and depth 1 is linear regression. Then

.. math:: \Sigma^1 = \sigma_w^2\,\frac{x\cdot x'}{d} + \sigma_b^2,\quad
          \Sigma^{l+1} = \sigma_w^2 E[\phi\phi'] + \sigma_b^2,\quad
          \Theta^{l+1} = \Sigma^{l+1} + \sigma_w^2 E[\dot\phi\dot\phi']\,\Theta^l,\quad \Theta^1=\Sigma^1

and the kernels are :math:`K=\Sigma^L` (the covariance of the outputs, σ_w² and σ_b² of the readout included)
and :math:`\Theta=\Theta^L`. They are the limits of :func:`innerloop.nets.mlp` with ``parametrisation="ntk"``
and ``len(hidden) == L - 1``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.kernels.analytic.activations import activation as activation_layer
from innerloop.kernels.analytic.activations import default_weight_var
from innerloop.kernels.analytic.layers import (
    conv,
    dense,
    flatten,
    global_average_pool,
    layer_norm,
    residual,
    serial,
)
from innerloop.kernels.analytic.state import Layer, Pixels, initial_state
from innerloop.kernels.types import KernelFunction, Kernels, Progress
from innerloop.nets.residual import RESIDUAL, check_network, check_norm

BLOCK_BYTES = 2**20
"""About the size of one tensor of a block if ``block`` is not given: it should stay in the cache."""


def analytic_kernel(
    *layers: Layer, block: int | None = None, progress: Progress | None = None
) -> KernelFunction:
    """The kernels of an infinitely wide network made of these layers.

    Differentiable in the inputs; float32 or float64, as these are.

    Args:
        layers: first to last, from :mod:`~innerloop.kernels.analytic.layers` and
            :mod:`~innerloop.kernels.analytic.activations`.
        block: most inputs on either side at a time; chosen by size if omitted.
        progress: told ``(blocks done, blocks in all)``.

    >>> import torch
    >>> from innerloop.kernels.analytic import relu
    >>> x = torch.eye(2, dtype=torch.float64) * 2**0.5  # ‖x‖² = d
    >>> analytic_kernel(dense(), relu(), dense())(x, x).ntk  # 2·‖x‖²/d·L on the diagonal, and 2/π
    tensor([[4.0000, 0.6366],
            [0.6366, 4.0000]], dtype=torch.float64)
    """
    whole = serial(*layers)

    def kernel(x1: Tensor, x2: Tensor) -> Kernels:
        """Both kernels between two sets of inputs, in one piece."""
        state = whole.apply(initial_state(x1, x2, whole.pixels))
        if state.nngp.ndim != 2:
            raise UserError("the kernel still has pixels: end it with flatten or global average pooling.")
        return Kernels(state.nngp, state.ntk)

    return blockwise(kernel, block if block is not None else lambda x: _block_for(x, whole.pixels), progress)


def blockwise(
    kernel: KernelFunction,
    block: int | Callable[[Tensor], int],
    progress: Progress | None = None,
) -> KernelFunction:
    """``kernel`` in square blocks of at most ``block`` inputs; a symmetric one is computed once and mirrored.

    Args:
        kernel: what to compute.
        block: most rows and columns at a time, or a function of the inputs that says so.
        progress: told ``(blocks done, blocks in all)``.

    >>> x = torch.arange(5.0)[:, None]
    >>> product = blockwise(lambda a, b: Kernels(a @ b.T, a @ b.T), 2)
    >>> bool((product(x, x).ntk == x @ x.T).all())
    True
    """
    if isinstance(block, int) and block < 1:
        raise UserError(f"block={block}: a block has at least one row.")

    def apply(x1: Tensor, x2: Tensor) -> Kernels:
        """The kernel of all inputs, put together from blocks."""
        size = block if isinstance(block, int) else block(x1)
        rows = x1.split(size)
        if len(rows) == 1 and len(x2) <= size:
            return kernel(x1, x2)
        columns = rows if x1 is x2 else x2.split(size)
        mirrored = x1 is x2
        total = len(rows) * (len(rows) + 1) // 2 if mirrored else len(rows) * len(columns)
        parts: dict[tuple[int, int], Kernels] = {}
        for i, a in enumerate(rows):
            for j, b in enumerate(columns):
                if mirrored and j < i:
                    parts[i, j] = Kernels(*(t.mT for t in parts[j, i]))
                    continue
                parts[i, j] = kernel(a, b)
                if progress is not None:
                    done = sum(1 for r, c in parts if not mirrored or r <= c)
                    progress(done, total)
        table = [[parts[i, j] for j in range(len(columns))] for i in range(len(rows))]
        return Kernels(*(torch.cat([torch.cat([k[f] for k in row], 1) for row in table]) for f in range(2)))

    return apply


def _block_for(x: Tensor, pixels: Pixels) -> int:
    places = x[0, 0].numel() if x.ndim == 4 and pixels != "none" else 1
    per_pair = x.element_size() * (places**2 if pixels == "full" else places)
    return max(1, int((BLOCK_BYTES / per_pair) ** 0.5))


def mlp_kernel(
    depth: int,
    activation: str = "relu",
    weight_var: float | None = None,
    bias_var: float = 0.0,
    block: int | None = None,
    progress: Progress | None = None,
) -> KernelFunction:
    r"""A fully connected network of ``depth`` layers: ``depth - 1`` hidden ones and the readout.

    Args:
        depth: L, layers with weights, the readout included.
        activation: ``relu``, ``leaky_relu`` (slope 0.1), ``erf`` or ``linear``.
        weight_var: :math:`\sigma_w^2` of every layer; 2 for ReLU and leaky ReLU, else 1.
        bias_var: :math:`\sigma_b^2` of every layer.
        block: most inputs on either side at a time.
        progress: told ``(blocks done, blocks in all)``.

    >>> import torch
    >>> x = torch.ones(1, 3)  # ‖x‖² = d: with σ_w² = 2, Σ = 2 at every layer and Θ = 2L
    >>> [mlp_kernel(depth)(x, x).ntk.item() for depth in (1, 2, 5)]
    [2.0, 4.0, 10.0]
    """
    check_depth(depth, 1)
    var = default_weight_var(activation) if weight_var is None else weight_var
    layers = [dense(var, bias_var)]
    for _ in range(depth - 1):
        layers += [activation_layer(activation), dense(var, bias_var)]
    return analytic_kernel(*layers, block=block, progress=progress)


def residual_kernel(
    blocks: int,
    activation: str = "relu",
    weight_var: float | None = None,
    bias_var: float = 0.0,
    norm: str = "none",
    block: int | None = None,
    progress: Progress | None = None,
) -> KernelFunction:
    r"""A residual network with ``blocks`` blocks.

    .. math:: h_0 = Dense(x),\quad h_{k+1} = h_k + Dense(\phi(h_k)),\quad f = Dense(\phi(h_{blocks}))

    It has ``blocks + 2`` layers with weights; sums are not scaled. At finite width it is
    :func:`innerloop.nets.residual.residual_mlp`.

    Args:
        blocks: residual blocks.
        activation: as for :func:`mlp_kernel`.
        weight_var: :math:`\sigma_w^2` of every layer.
        bias_var: :math:`\sigma_b^2` of every layer.
        norm: ``none``; ``branch`` for LayerNorm before the activation in every block; ``all`` for one before
            the last activation too; ``stream`` for one after the first layer and after every sum.
        block: most inputs on either side at a time.
        progress: told ``(blocks done, blocks in all)``.

    >>> import torch
    >>> x = torch.ones(1, 3, dtype=torch.float64)
    >>> round(residual_kernel(2)(x, x).nngp.item(), 12)  # doubles with every block
    8.0
    """
    check_depth(blocks, 0, "blocks")
    check_norm(norm)
    var = default_weight_var(activation) if weight_var is None else weight_var

    def activated(normed: bool) -> list[Layer]:
        """An activation and the layer after it, behind LayerNorm if it is wanted."""
        return [*([layer_norm()] if normed else []), activation_layer(activation), dense(var, bias_var)]

    after = [layer_norm()] if norm == "stream" else []
    layers = [dense(var, bias_var), *after]
    for _ in range(blocks):
        layers += [residual(*activated(norm in ("branch", "all"))), *after]
    layers += activated(norm == "all")
    return analytic_kernel(*layers, block=block, progress=progress)


def conv_kernel(
    depth: int,
    readout: str = "gap",
    activation: str = "relu",
    weight_var: float | None = None,
    bias_var: float = 0.0,
    size: int = 3,
    stride: int = 1,
    block: int | None = None,
    progress: Progress | None = None,
) -> KernelFunction:
    r"""A convolutional network: ``depth - 1`` convolutions and a dense readout.

    Pictures are ``(samples, channels, height, width)``. Every convolution is followed by the activation; then
    comes ``gap`` (the mean over all pixels) or ``flatten``. Pooling needs all pairs of pixels, so its cost
    grows with (height × width)²; flattening needs equal places only.

    Args:
        depth: L, layers with weights, the readout included (at least 2).
        readout: ``gap`` or ``flatten``.
        activation: as for :func:`mlp_kernel`.
        weight_var: :math:`\sigma_w^2` of every layer; a convolution's fan-in is ``size² × channels``.
        bias_var: :math:`\sigma_b^2` of every layer; a convolution's bias is shared by all pixels.
        size: side of the filters; pictures are padded by ``size // 2`` zeros.
        stride: of every convolution.
        block: most inputs on either side at a time.
        progress: told ``(blocks done, blocks in all)``.

    >>> import torch
    >>> x = torch.ones(1, 1, 1, 1)  # one pixel: eight of nine places of a window are padding
    >>> round(9 * conv_kernel(2, "flatten")(x, x).nngp.item(), 5)
    2.0
    """
    check_depth(depth, 2)
    ends = {"gap": global_average_pool, "flatten": flatten}
    if readout not in ends:
        raise UserError(f"unknown readout '{readout}'; there are gap and flatten.")
    var = default_weight_var(activation) if weight_var is None else weight_var
    layers: list[Layer] = []
    for _ in range(depth - 1):
        layers += [conv(var, bias_var, size, stride), activation_layer(activation)]
    layers += [ends[readout](), dense(var, bias_var)]
    return analytic_kernel(*layers, block=block, progress=progress)


def check_depth(depth: int, least: int, name: str = "depth") -> None:
    """Refuses networks that cannot be."""
    if depth < least:
        raise UserError(f"{name}={depth}: give at least {least} (depth counts the readout).")


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
