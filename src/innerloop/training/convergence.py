"""Does training stay under its bound? The theorem's constants for a meta-learner on its tasks.

For the summed loss ½‖f − y‖² and fully connected networks in the NTK parametrisation (MetaNTK, Theorem 1;
Bridge, Theorem 3).
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from innerloop.core.random import derive_seed
from innerloop.core.types import TaskBatch
from innerloop.kernels.analytic.networks import mlp_kernel
from innerloop.kernels.meta.descent import Descent
from innerloop.kernels.meta.kernel import Heads, adaptation_of, mtl_kernel, split_kernel, stack, times_rows
from innerloop.nets.mlp import mlp
from innerloop.theory.convergence import linear_distance, linear_loss, loss_bound, rates
from innerloop.theory.kernels import spectrum
from innerloop.training.wide import watch_method


class MetaMethod(NamedTuple):
    """Whose training.

    Attributes:
        name: of the learner.
        inner_time: λτ, rate × steps of the inner loop (``maml`` and ``anil``).
        inner_steps: τ.
        heads: whether the heads of ``mtl`` are one draw.
    """

    name: Literal["maml", "anil", "mtl"] = "maml"
    inner_time: float = 0.05
    inner_steps: int = 1
    heads: Heads = "shared"


class WideNetwork(NamedTuple):
    """A fully connected network.

    Attributes:
        depth: L, layers with weights, the readout included.
        width: of hidden layers; infinity is the limit.
        activation: ``relu``, ``erf`` or ``linear``.
    """

    depth: int = 3
    width: float = math.inf
    activation: str = "relu"


class FiniteWidthEffects(NamedTuple):
    """A trained network beside its limit.

    Attributes:
        movement: the length of the parameters' path over √width.
        distance: of the last parameters from the first.
        kernel_drift: the largest distance of the network's kernel from its first one.
        kernel_drift_relative: the same in units of the first kernel's norm.
        kernel_error: relative distance of the first kernel from the limit's.
    """

    movement: float
    distance: float
    kernel_drift: float
    kernel_drift_relative: float
    kernel_error: float


class Convergence(NamedTuple):
    """The constants of the theorem, and the loss along training beside its bound.

    Attributes:
        sigma_min: the kernel's smallest eigenvalue.
        sigma_max: its largest.
        condition: their ratio.
        eigenvalues: all, the largest first.
        eta0: the largest outer rate of the theorem.
        eta: the outer rate of this training.
        rate: what ‖F − Y‖ shrinks by at least, per step.
        steps: outer steps.
        linear_distance: how far the parameters of a linear network that starts at zero would go.
        loss: before every step and after the last.
        bound: on each of these.
        holds: whether no loss exceeds its bound.
        trained: what else a network of finite width shows; None for the kernel's own course.
    """

    sigma_min: float
    sigma_max: float
    condition: float
    eigenvalues: list[float]
    eta0: float
    eta: float
    rate: float
    steps: int
    linear_distance: float
    loss: list[float]
    bound: list[float]
    holds: bool
    trained: FiniteWidthEffects | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        plain = self._asdict()
        trained: FiniteWidthEffects | None = plain.pop("trained")
        return plain if trained is None else {**plain, **trained._asdict()}

    def __str__(self) -> str:
        loss, bound, trained = self.loss, self.bound, self.trained
        lines = [
            f"σ_min {self.sigma_min:.4g}, σ_max {self.sigma_max:.4g}, condition {self.condition:.4g}",
            f"η₀ = {self.eta0:.4g}, trained with η = {self.eta:.4g}",
            f"loss {loss[0]:.4g} → {loss[-1]:.4g} after {self.steps} steps; bound {bound[-1]:.4g}: "
            f"{'holds at every step' if self.holds else 'does NOT hold at every step'}",
        ]
        if trained is not None:
            lines.append(
                f"parameters moved {trained.movement:.3g} (way/√width); distance {trained.distance:.3g}, "
                f"of a linear network that starts at zero {self.linear_distance:.3g}; kernel drifted "
                f"{100 * trained.kernel_drift_relative:.2g} %; Φ̂₀ differs from Φ by "
                f"{100 * trained.kernel_error:.2g} %"
            )
        return "\n".join(lines)


def follow_bound(
    tasks: TaskBatch,
    method: MetaMethod,
    network: WideNetwork,
    *,
    eta: float = 0.5,
    steps: int = 100,
    seed: int = 0,
) -> Convergence:
    r"""The course of a training loss beside :math:`(1-\eta\sigma_{min}/3)^{2t}L_0`.

    Args:
        tasks: to train on; ``mtl`` uses all samples of a task, the others judge on its queries.
        method: whose training.
        network: at finite width it is trained; in the limit the kernel itself tells the course.
        eta: the outer rate in units of :math:`\eta_0 = 2/(\sigma_{min}+\sigma_{max})`.
        steps: outer steps.
        seed: of the network.

    >>> from innerloop import get_family, make_sampler
    >>> family = get_family("bridge-quadratic")
    >>> sampler = make_sampler(family, seed=0, shots=2, queries=2, dtype=torch.float64)
    >>> course = follow_bound(sampler.episodes(range(2)), MetaMethod("maml"), WideNetwork(depth=2), steps=3)
    >>> len(course.loss), course.holds, course.trained
    (4, True, None)
    """
    phi, left = _limit(tasks, method, network)
    constants = rates(phi)
    rate = eta * constants.eta0
    times = torch.arange(steps + 1, dtype=torch.float64)
    if math.isinf(network.width):
        loss, trained = linear_loss(phi, left, rate, times), None
    else:
        loss, trained = _train(tasks, method, network, phi, rate, steps, seed)
    bound = loss_bound(times, rate, constants.smallest, float(loss[0]))
    return Convergence(
        sigma_min=constants.smallest,
        sigma_max=constants.largest,
        condition=constants.condition,
        eigenvalues=spectrum(phi).tolist(),
        eta0=constants.eta0,
        eta=rate,
        rate=1 - rate * constants.smallest / 3,
        steps=steps,
        linear_distance=float(linear_distance(phi, left, rate, times[-1:])),
        loss=loss.tolist(),
        bound=bound.tolist(),
        holds=bool((loss <= bound * (1 + 1e-9)).all()),
        trained=trained,
    )


def _limit(tasks: TaskBatch, method: MetaMethod, network: WideNetwork) -> tuple[Tensor, Tensor]:
    """The infinitely wide network's meta-kernel, and the residual it starts from."""
    kernel = mlp_kernel(network.depth, network.activation)
    if method.name == "mtl":
        x, y = (
            stack(torch.cat(pair, 1))
            for pair in ((tasks.x_support, tasks.x_query), (tasks.y_support, tasks.y_query))
        )
        base = kernel(x, x)
        return mtl_kernel(base.ntk, base.nngp, tasks.size, method.heads), -y
    x = torch.cat([stack(tasks.x_query), stack(tasks.x_support)])
    base = kernel(x, x)
    inner = base.ntk if method.name == "maml" else base.nngp
    queries = tasks.x_query.shape[1]
    blocks = adaptation_of(inner, tasks.size, queries, Descent(method.inner_time, method.inner_steps))
    left = times_rows(blocks, stack(tasks.y_support)) - stack(tasks.y_query)
    return split_kernel(base.ntk, blocks), left


def _train(
    tasks: TaskBatch, method: MetaMethod, network: WideNetwork, phi: Tensor, eta: float, steps: int, seed: int
) -> tuple[Tensor, FiniteWidthEffects]:
    width = int(network.width)
    inputs, outputs = tasks.x_support.shape[-1], tasks.y_support.shape[-1]
    hidden = [width] * (network.depth - 1)
    net = mlp(inputs, hidden, outputs, activation=network.activation, parametrisation="ntk")
    params, _ = net.init(torch.Generator().manual_seed(derive_seed(seed, "network") % 2**63))
    params = {name: value.double() for name, value in params.items()}
    inner = (method.inner_time / method.inner_steps, method.inner_steps)
    course = watch_method(method.name, net, params, tasks, eta, steps, inner=inner, heads=method.heads)
    if outputs > 1:  # the network's kernel has every output; the limit is the same for each
        phi = torch.kron(phi, torch.eye(outputs, dtype=phi.dtype))
    trained = FiniteWidthEffects(
        movement=course.path / width**0.5,
        distance=course.distance,
        kernel_drift=course.drift,
        kernel_drift_relative=course.drift / float(course.first.norm()),
        kernel_error=float((course.first - phi).norm() / phi.norm()),
    )
    return torch.tensor(course.losses, dtype=torch.float64), trained
