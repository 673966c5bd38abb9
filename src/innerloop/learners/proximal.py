"""Learners that move all layers and are held by an l2 penalty: iMAML and Meta-MinibatchProx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

import innerloop.core.autodiff as autodiff
from innerloop.core.arguments import checked
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.trees import add_scaled, detach, dot, select, tree_map
from innerloop.core.types import Buffers, Loss, Params, Task, all_samples
from innerloop.learners.base import REPORT_PREFIX, Adapted, Learner
from innerloop.learners.inner import (
    InnerLoss,
    check_steps,
    moving_names,
    network_loss,
    predictor,
    reattach,
    settled,
)
from innerloop.learners.updates import UpdateRule, sgd
from innerloop.nets.network import Network, apply
from innerloop.solvers.krylov import LinearSolution, conjugate_gradients, relative


def implicit_gradient(
    inner: InnerLoss, at: Params, cotangent: Params, penalty: float, cg_steps: int, damping: float
) -> LinearSolution:
    r""":math:`(I + H/\lambda)^{-1} v`, with :math:`H` the Hessian of ``inner`` at the solution ``at``."""
    curvature = autodiff.hessian_product(inner, at)

    def product(v: Params) -> Params:
        """The product with the matrix ``I + H/λ``."""
        return add_scaled(v, curvature(v), 1 / penalty)

    return conjugate_gradients(product, cotangent, cg_steps, damping)


class Pull(Protocol):
    """``(at, v, buffers, x, y, training) -> solution``: the solution's Jacobian, transposed, times ``v``."""

    def __call__(
        self, at: Params, v: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool
    ) -> LinearSolution:
        """Solves the linear system of the implicit function theorem."""
        ...


def implicitly(
    pull: Pull, start: Params, moved: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool
) -> Params:
    """``moved`` in value, with the derivative with respect to ``start`` that ``pull`` computes."""
    # the backward pass solves the linear system; first derivatives only
    # tensors go in by themselves: under vmap they are not those that the closure of a learner would hold
    fixed = [*moved.values(), *buffers.values(), x, y]
    layout = (pull, tuple(start), tuple(buffers), training)
    solution: tuple[Tensor, ...] = _Implicit.apply(layout, *start.values(), *fixed)
    return dict(zip(start, solution, strict=True))


class _Implicit(torch.autograd.Function):
    """The solution forwards; backwards, the linear system."""

    generate_vmap_rule = True

    @staticmethod
    def forward(layout: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The solution as it is."""
        count = len(layout[1])
        return tuple(value.clone() for value in tensors[count : 2 * count])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keeps the solution and what its conditions depend on."""
        del output
        ctx.layout = inputs[0]
        ctx.save_for_backward(*inputs[1 + len(inputs[0][1]) :])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        """Solves the linear system for the gradient."""
        pull, names, statistics, training = ctx.layout
        saved, count = list(ctx.saved_tensors), len(names)
        x, y = saved[-2:]
        at = dict(zip(names, saved[:count], strict=True))
        buffers = dict(zip(statistics, saved[count:-2], strict=True))
        gradient = pull(at, dict(zip(names, cotangents, strict=True)), buffers, x, y, training)
        return None, *(gradient.x[name] for name in names), *(None for _ in saved)


INNER_RESIDUAL, LINEAR_RESIDUAL = f"{REPORT_PREFIX}inner_residual", f"{REPORT_PREFIX}linear_residual"


class Proximal(NamedTuple):
    r"""How a proximal problem is solved."""

    penalty: float
    lr: float
    steps: int
    rule: UpdateRule


class ProximalSolution(NamedTuple):
    """Where the steps ended, as constants, and the gradient norm there relative to that at the start."""

    moved: Params
    residual: Tensor


def solve(problem: Proximal, inner: InnerLoss, start: Params) -> ProximalSolution:
    """Descends the proximal problem around ``start``; nothing of it is kept for a backward pass."""
    start = detach(start)

    def slope(moving: Params) -> Params:
        """The gradient of the loss with its penalty."""
        pull = tree_map(torch.sub, moving, start)
        return add_scaled(autodiff.gradient(inner, moving, keep_graph=False), pull, problem.penalty)

    moving, state = start, problem.rule.init(start)
    first = grads = slope(start)
    for _ in range(problem.steps):
        direction, state = problem.rule.direction(grads, state)
        moving = add_scaled(moving, direction, -problem.lr)
        grads = slope(moving)
    return ProximalSolution(moving, relative(grads, first))


@checked
def imaml(
    network: Network,
    loss: Loss | str,
    lr: float,
    steps: int = 16,
    *,
    rule: UpdateRule | None = None,
    penalty: float = 2.0,
    cg_steps: int = 5,
    damping: float = 0.0,
) -> Learner:
    r"""Implicit MAML (Rajeswaran et al. 2019): the proximal problem, differentiated at its solution.

    Args:
        network: the network to adapt.
        loss: the support loss.
        lr: rate of the steps that solve the proximal problem; its curvature is that of the loss plus
            ``penalty``.
        steps: how many of them. Memory does not depend on it.
        rule: how a gradient becomes a step; plain gradient descent if omitted.
        penalty: :math:`\lambda`.
        cg_steps: steps of conjugate gradients.
        damping: :math:`\delta` of :math:`((1 + \delta)I + H/\lambda)\,g = \nabla L`, for Hessians with
            negative eigenvalues. It biases the gradient, and the linear residual shows by how much.

    >>> from innerloop import get_loss
    >>> from innerloop import mlp
    >>> net = mlp(1, [], 1, bias=False)                        # y = w x; ½(w − 1)² + ½ w² is least at ½
    >>> learner = imaml(net, get_loss("half-mse"), lr=0.5, steps=20, penalty=1.0)
    >>> params = {"layer0.weight": torch.zeros(1, 1)}
    >>> learner.adapt(params, {}, torch.ones(2, 1), torch.ones(2, 1)).params["layer0.weight"]
    tensor([[0.5000]])
    """
    loss = get_loss(loss)
    _check(penalty, cg_steps, damping)
    problem = _problem(penalty, lr, steps, rule)
    pull, predict = _pull(network, loss, penalty, cg_steps, damping), predictor(network)

    def adapt(params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> Adapted:
        """The solution of the proximal problem, with its implicit derivative."""
        start = select(params, moving_names(network, "all", params))
        inner = network_loss(network, loss, params, buffers, x, y, training)
        moved = implicitly(pull, start, solve(problem, inner, start).moved, buffers, x, y, training)
        return settled(network, {**params, **moved}, buffers, x)

    def outer(
        params: Params, buffers: Buffers, task: Task, loss_out: Loss, split: bool = True
    ) -> tuple[Tensor, Buffers]:
        """The query loss at the solution, whose gradient is the implicit one."""
        x, y = (task.x_support, task.y_support) if split else all_samples(task)
        x_out, y_out = (task.x_query, task.y_query) if split else (x, y)
        start = select(params, moving_names(network, "all", params))
        inner = network_loss(network, loss, detach(params), buffers, x, y, training=True)
        solved = solve(problem, inner, start)

        def query(moving: Params) -> tuple[Tensor, Buffers]:
            """The query loss, and the buffers after this pass."""
            adapted = settled(network, {**detach(params), **moving}, buffers, x)
            outputs, after = predict(adapted, x_out, training=True)
            return loss_out.value(outputs, y_out), after

        value, after, v = autodiff.value_and_gradient(query, solved.moved)
        gradient = pull(solved.moved, v, buffers, x, y, True)
        # the last term is zero; its gradient is the implicit one
        value = value + dot(gradient.x, tree_map(torch.sub, start, detach(start)))
        return value, {**after, INNER_RESIDUAL: solved.residual, LINEAR_RESIDUAL: gradient.residual}

    return Learner(
        "imaml", adapt, predict, init_buffers=_reports(INNER_RESIDUAL, LINEAR_RESIDUAL), outer=outer
    )


def _pull(network: Network, loss: Loss, penalty: float, cg_steps: int, damping: float) -> Pull:
    """How the implicit gradient is found."""

    def pull(at: Params, v: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool) -> LinearSolution:
        """The implicit gradient along ``v``."""
        inner = network_loss(network, loss, at, buffers, x, y, training)
        return implicit_gradient(inner, at, v, penalty, cg_steps, damping)

    return pull


@checked
def minibatchprox(
    network: Network,
    loss: Loss | str,
    lr: float,
    steps: int = 16,
    *,
    rule: UpdateRule | None = None,
    penalty: float = 2.0,
) -> Learner:
    r"""Meta-MinibatchProx (Zhou et al. 2019): training minimises the Moreau envelope of every task's loss.

    .. math:: M(\theta) = \min_\phi\; \ell(\phi) + \tfrac{\lambda}{2}\|\phi-\theta\|^2, \qquad
              \nabla M(\theta) = \lambda\,(\theta - \phi^*)

    on all samples of a task: support and query are not told apart in training, and the loss outside is the
    one inside. Reptile's direction with this learner is the same but for :math:`\lambda`. As a learner at
    test it is iMAML; differentiated through ``adapt`` it is of first order.

    Args:
        network: the network to adapt.
        loss: the loss of a task.
        lr: rate of the steps that solve the proximal problem.
        steps: how many of them. Memory does not depend on it.
        rule: how a gradient becomes a step; plain gradient descent if omitted.
        penalty: :math:`\lambda`.
    """
    loss = get_loss(loss)
    _check(penalty)
    problem = _problem(penalty, lr, steps, rule)

    def solved(
        params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool
    ) -> tuple[Params, ProximalSolution]:
        """Where the descent starts, and the solution of the proximal problem."""
        start = select(params, moving_names(network, "all", params))
        inner = network_loss(network, loss, detach(params), buffers, x, y, training)
        return start, solve(problem, inner, start)

    def adapt(params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> Adapted:
        """The solution of the proximal problem."""
        start, solution = solved(params, buffers, x, y, training)
        return settled(network, {**params, **reattach(start, solution.moved)}, buffers, x)

    def outer(
        params: Params, buffers: Buffers, task: Task, loss_out: Loss, split: bool = True
    ) -> tuple[Tensor, Buffers]:
        """The Moreau envelope of the loss, whose gradient is that of the penalty."""
        del loss_out, split
        x, y = all_samples(task)
        start, solution = solved(params, buffers, x, y, True)
        outputs, after = apply(network, {**detach(params), **solution.moved}, buffers, x, "batch")
        away = tree_map(torch.sub, start, solution.moved)
        value = loss.value(outputs, y) + penalty / 2 * dot(away, away)
        return value, {**after, INNER_RESIDUAL: solution.residual}

    return Learner(
        "minibatchprox", adapt, predictor(network), init_buffers=_reports(INNER_RESIDUAL), outer=outer
    )


def _problem(penalty: float, lr: float, steps: int, rule: UpdateRule | None) -> Proximal:
    check_steps(steps)
    return Proximal(penalty, lr, steps, rule or sgd())


def _reports(*names: str) -> Callable[[Params, Buffers], Buffers]:
    """The ``init_buffers`` of a learner that reports under these names."""

    def init_buffers(params: Params, buffers: Buffers) -> Buffers:
        """Adds zeros under the names of the reports."""
        like = next(iter(params.values()))
        return {**buffers, **{name: like.new_zeros(()) for name in names}}

    return init_buffers


def _check(penalty: float, cg_steps: int = 1, damping: float = 0.0) -> None:
    if not penalty > 0:
        raise UserError(
            "{the learner's penalty} must be above 0, such as 2; a task's parameters are not held otherwise.",
            names=("the learner's penalty",),
        )
    if cg_steps < 1:
        raise UserError(
            "{the learner's cg_steps} must be at least 1, such as 5.", names=("the learner's cg_steps",)
        )
    if damping < 0:
        raise UserError("{the learner's damping} must be 0 (none) or more.", names=("the learner's damping",))
