r"""Condition numbers of tangent kernels: TE-NAS's of the NTK, and MetaNTK-NAS's of MAML's or ANIL's kernel.

All need first-order gradients only: the kernels of meta-learners are built from the network's own NTK by
:mod:`innerloop.kernels.meta.kernel`. Kernels are those of the sum of the outputs, as in both released codes.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.trees import select
from innerloop.core.types import Buffers, Params, TaskBatch
from innerloop.kernels.empirical.kernel import empirical_ntk
from innerloop.kernels.meta.descent import Descent
from innerloop.kernels.meta.kernel import anil_kernel, maml_kernel, stack
from innerloop.nets.initial import uniform
from innerloop.nets.network import Network
from innerloop.theory.kernels import condition, spectrum

Method = Literal["maml", "anil"]
Which = Literal["weights", "all"]
"""Whose gradients make the kernel: matrices and convolution kernels (as released), or every parameter."""
Degenerate = Literal["told", "released"]
"""A kernel without a condition number: infinity with the reason, or what the released code gives."""

RELEASED = 1e5
"""What both released codes put for a condition number that is not a number."""

SCORE_MEMORY = 2**31
"""Bytes that a kernel may use: a supernet of 48 channels then passes 30 pictures at once."""

PUBLISHED = Descent(math.inf, ridge=1e-3)
"""MetaNTK-NAS for 5 cells: adapted to convergence, with a ridge of 1e-3 in the inner solve."""


class ConditionNumber(NamedTuple):
    """A condition number.

    Attributes:
        value: the largest eigenvalue over the smallest; lower is better.
        largest: the largest eigenvalue.
        smallest: the smallest one.
        reason: why the value is infinite, or stands for one that is none; empty if it is as it should be.
    """

    value: float
    largest: float
    smallest: float
    reason: str = ""


def kernel_names(params: Params, which: Which = "weights") -> list[str]:
    """The parameters whose gradients make the kernel; ``weights`` have two axes: no biases, no scales."""
    if which not in ("weights", "all"):
        raise UserError(f"which='{which}' is unknown: give weights or all.")
    return [name for name, p in params.items() if which == "all" or p.ndim >= 2]


def fresh_head(
    network: Network, params: Params, generator: torch.Generator, ways: int | None = None
) -> Params:
    r"""The parameters with a new last layer, drawn as ``nn.Linear`` starts: :math:`U(\pm 1/\sqrt{n_{in}})`.

    MetaNTK-NAS draws one for every kernel, with as many outputs as a task has classes.

    Args:
        network: whose last layer is :math:`Wz+b`.
        params: its parameters; left alone.
        generator: draws.
        ways: outputs of the new one; as many as before if omitted.

    >>> from innerloop import mlp
    >>> net = mlp(2, [4], 64)
    >>> params, _ = net.init(torch.Generator().manual_seed(0))
    >>> fresh_head(net, params, torch.Generator().manual_seed(1), ways=5)["layer1.weight"].shape
    torch.Size([5, 4])
    """
    own = select(params, network.head_names)
    matrices = [p for p in own.values() if p.ndim == 2]
    if len(matrices) != 1 or any(p.ndim > 2 for p in own.values()):
        raise UserError("the last layer is not of the form W z + b: draw its new parameters yourself.")
    outputs, inputs = matrices[0].shape
    drawn = {}
    for name, p in own.items():
        shape = (ways or outputs, *p.shape[1:])
        drawn[name] = uniform(generator, shape, inputs).to(p.device, p.dtype)
    return {**params, **drawn}


def condition_number(
    kernel: Tensor, precision: torch.dtype | None = None, degenerate: Degenerate = "told"
) -> ConditionNumber:
    r""":math:`\lambda_{max}/\lambda_{min}` of a symmetric kernel, without a ridge."""
    if degenerate not in ("told", "released"):
        raise UserError(f"degenerate='{degenerate}' is unknown: give told or released.")
    stand_in = math.inf if degenerate == "told" else RELEASED
    if not bool(kernel.isfinite().all()):
        return ConditionNumber(
            stand_in, math.nan, math.nan, "the kernel has entries that are no finite numbers"
        )
    if not bool(kernel.any()):
        return ConditionNumber(stand_in, 0.0, 0.0, "the kernel is zero: no gradient reaches the parameters")
    values = spectrum(kernel.double())
    largest, smallest = float(values[0]), float(values[-1])
    value = condition(values.to(precision or kernel.dtype))
    reason = "" if math.isfinite(value) else "the kernel is singular to working precision"
    if degenerate == "released":
        value = largest / smallest if smallest else torch.finfo(torch.float64).max
    elif not reason:
        value = largest / smallest
    return ConditionNumber(value, largest, smallest, reason)


def ntk_condition(
    network: Network,
    params: Params,
    buffers: Buffers,
    x: Tensor,
    *,
    which: Which = "weights",
    degenerate: Degenerate = "told",
    memory: int = SCORE_MEMORY,
) -> ConditionNumber:
    r"""TE-NAS (Chen et al. 2021): the condition number of the empirical NTK of a batch.

    Args:
        network: normalised by the policy ``group``, ``none`` or by stored statistics, so that samples do not
            mix.
        params: its parameters.
        buffers: its buffers.
        x: inputs.
        which: whose gradients make the kernel.
        degenerate: see :func:`condition_number`.
        memory: bytes that may be used beside inputs and result.

    >>> from innerloop import mlp
    >>> net = mlp(2, [], 1, bias=False)  # f = w·x, so Θ = x·x'
    >>> params, _ = net.init(torch.Generator().manual_seed(0))
    >>> ntk_condition(net, params, {}, torch.tensor([[2.0, 0.0], [0.0, 1.0]])).value
    4.0
    """
    names = kernel_names(params, which)
    theta = empirical_ntk(network, params, x, buffers=buffers, names=names, output="sum", memory=memory)
    return condition_number(theta, None, degenerate)


def metantk(
    network: Network,
    params: Params,
    buffers: Buffers,
    tasks: TaskBatch,
    *,
    method: Method = "maml",
    inner: Descent = PUBLISHED,
    which: Which = "weights",
    memory: int = SCORE_MEMORY,
) -> Tensor:
    r"""The kernel of MAML (MetaNTK, eq. 106) or ANIL (eq. 112) from the network's own NTK, in float64.

    :math:`\Phi = M\,\Theta\,M^\top` with :math:`M=[I,-\mathrm{blockdiag}(A_i)]` over all queries, then all
    supports. What adapts is Θ for MAML and, for ANIL, K: the Gram matrix of the last layer's gradients.

    Args:
        network: normalised so that samples do not mix.
        params: its parameters; see :func:`fresh_head`.
        buffers: its buffers.
        tasks: their inputs count, labels do not.
        method: ``maml`` or ``anil``.
        inner: :math:`s = \lambda\tau` and the ridge of the inner solve.
        which: whose gradients make the kernel.
        memory: bytes that may be used beside inputs and result.

    Returns:
        ``(tasks · queries, tasks · queries)``.
    """
    if method not in ("maml", "anil"):
        raise UserError(f"method='{method}' is unknown: give maml or anil.")
    queries, names = tasks.x_query.shape[1], kernel_names(params, which)
    x = torch.cat([stack(tasks.x_query), stack(tasks.x_support)])

    def gram(names: list[str]) -> Tensor:
        """The kernel of these parameters, over all queries, then all supports."""
        kernel = empirical_ntk(network, params, x, buffers=buffers, names=names, output="sum", memory=memory)
        return kernel.double()  # what follows subtracts numbers of equal size

    ntk = gram(names)
    if method == "maml":
        return maml_kernel(ntk, tasks.size, queries, inner)
    nngp = gram([name for name in names if name in network.head_names])
    return anil_kernel(ntk, nngp, tasks.size, queries, inner)


def metantk_condition(
    network: Network,
    params: Params,
    buffers: Buffers,
    tasks: TaskBatch,
    *,
    method: Method = "maml",
    inner: Descent = PUBLISHED,
    which: Which = "weights",
    degenerate: Degenerate = "told",
    memory: int = SCORE_MEMORY,
) -> ConditionNumber:
    r"""MetaNTK-NAS (Wang et al. 2022): the condition number of :func:`metantk`.

    The ridge belongs to the inner solve: none is added to the kernel whose condition number it is.

    Args:
        network: normalised so that samples do not mix.
        params: its parameters; see :func:`fresh_head`.
        buffers: its buffers.
        tasks: their inputs count, labels do not.
        method: ``maml`` or ``anil``.
        inner: :math:`s = \lambda\tau` and the ridge of the inner solve.
        which: whose gradients make the kernel.
        degenerate: see :func:`condition_number`.
        memory: bytes that may be used beside inputs and result.

    >>> from innerloop import mlp
    >>> net = mlp(2, [16], 5)
    >>> params, _ = net.init(torch.Generator().manual_seed(0))
    >>> x = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(1))
    >>> tasks = TaskBatch(x[:, :1], torch.zeros(3, 1), x[:, 1:], torch.zeros(3, 1), torch.arange(3))
    >>> metantk_condition(net, params, {}, tasks).value > 1
    True
    """
    kernel = metantk(network, params, buffers, tasks, method=method, inner=inner, which=which, memory=memory)
    return condition_number(kernel, next(iter(params.values())).dtype, degenerate)
