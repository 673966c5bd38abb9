"""Learners that adapt by gradient steps: MAML and its family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint as recompute

import innerloop.core.autodiff as autodiff
from innerloop.core.arguments import checked
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.losses import get_loss
from innerloop.core.trees import select
from innerloop.core.types import Buffers, Loss, Params
from innerloop.learners.base import RATE_PREFIX, Adapted, Learner
from innerloop.learners.inner import (
    Adapts,
    InnerLoss,
    check_steps,
    head_loss,
    moving_names,
    network_loss,
    predictor,
    reattach,
    settled,
)
from innerloop.learners.online import Online, online_anil, refuse_options
from innerloop.learners.updates import UpdateRule, sgd
from innerloop.nets.network import Descent, Network
from innerloop.nets.norms import statistics_for

HeadStart = Literal["learned", "frozen", "one-vector", "zero"]
STARTS = ("learned", "frozen", "one-vector", "zero")
SYMMETRIC = ("one-vector", "zero")
"""Starts that do not depend on the labels' order."""


def check_start(start: HeadStart, head_moves: bool) -> None:
    """Refuses starts that there are not, and equal rows where the last layer does not move."""
    if start not in STARTS:
        raise UserError(
            f"unknown {{head_start}} '{start}'{did_you_mean(start, STARTS)}; there are {', '.join(STARTS)}.",
            names=("head_start",),
        )
    if start in SYMMETRIC and not head_moves:
        raise UserError(
            f"{{head_start}}={start} gives all classes the same output, and here the last layer never moves: "
            "set {head_start}=frozen, or average over label orders ({label_orders}).",
            names=("head_start", "label_orders"),
        )


def started(network: Network, start: HeadStart, params: Params) -> Params:
    """The parameters before the first inner step, as a differentiable function of the meta-parameters."""
    if start == "learned":
        return params
    head = select(params, network.head_names)
    if start == "frozen":
        return {**params, **{name: value.detach() for name, value in head.items()}}
    if start == "zero":
        return {**params, **{name: torch.zeros_like(value) for name, value in head.items()}}
    check_rows(head)
    return {**params, **{n: v.mean(0, keepdim=True).expand_as(v).contiguous() for n, v in head.items()}}


def untrained_names(network: Network, start: HeadStart) -> tuple[str, ...]:
    """Parameters that the outer loop never updates."""
    return tuple(network.head_names) if start in ("frozen", "zero") else ()


def check_rows(head: Params) -> None:
    """Refuses a last layer that has not one row per output in each of its parameters."""
    rows = {name: value.shape[0] if value.ndim else 0 for name, value in head.items()}
    outputs = max(rows.values())
    wrong = next((name for name, count in rows.items() if count != outputs), None)
    if wrong is not None:
        raise UserError(
            f"{{head_start}}=one-vector needs a last layer with one row per output, and '{wrong}' has "
            f"{rows[wrong]} for {outputs}: use {{head_start}}=zero or frozen.",
            names=("head_start",),
        )


Rates = Literal["fixed", "per-weight", "per-layer-and-step"]


@checked
def gradient_learner(
    name: str,
    network: Network,
    loss: Loss | str,
    *,
    lr: float,
    steps: int,
    adapts: Adapts = "all",
    rule: UpdateRule | None = None,
    first_order: bool = False,
    truncate: int | None = None,
    checkpoint: bool = False,
    rates: Rates = "fixed",
    head_start: HeadStart = "learned",
) -> Learner:
    """The general form; :func:`maml`, :func:`anil`, … are its named cases.

    Args:
        name: what reports call it.
        network: the network to adapt.
        loss: the support loss. Its convention gives ``lr`` its meaning.
        lr: inner learning rate, or the initial value of learned ones.
        steps: number of inner steps.
        adapts: which parameters move.
        rule: how a gradient becomes a step; plain gradient descent if omitted.
        first_order: treat inner gradients as constants; no second-order graph is built.
        truncate: differentiate through only this many of the last steps (0 is ``first_order``).
        checkpoint: keep no graph of inner steps and recompute them in the backward pass: memory of one
            step instead of ``steps``, about a third more time. Execution modes ``loop`` and ``threads`` only.
        rates: fixed, or learned.
        head_start: where the last layer starts (:mod:`innerloop.learners.gradient`).
    """
    loss = get_loss(loss)
    check_steps(steps)
    check_start(head_start, head_moves=adapts != "body")
    rule = rule or sgd()
    through = 0 if first_order else steps if truncate is None else min(truncate, steps)

    def init(params: Params) -> Params:
        """Puts the last layer where it starts, and adds the learned rates."""
        first = started(network, head_start, params)
        moving = select(first, moving_names(network, adapts, first))
        shared = network.head_names if head_start in SYMMETRIC else ()
        return {**first, **_initial_rates(rates, lr, steps, moving, shared)}

    def step(t: int, moving: Params, state: Any, params: Params, inner: InnerLoss) -> tuple[Params, Any]:
        """Inner step ``t``: the parameters that move, and the state of the rule, after it."""
        grads = autodiff.gradient(inner, moving, keep_graph=t >= steps - through)
        direction, state = rule.direction(grads, state)
        return {n: p - _rate(rates, lr, params, n, t) * direction[n] for n, p in moving.items()}, state

    def adapt(params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> Adapted:
        """The network after all inner steps on the support set."""
        statistics = statistics_for(network.norm, "support", training)
        params = started(network, head_start, params)
        moving = select(params, moving_names(network, adapts, params))
        if network.descend and adapts != "head" and rule.name == "sgd" and not checkpoint:
            learned = {n: params[RATE_PREFIX + n] for n in moving if rates != "fixed"}
            by_step = rates == "per-layer-and-step"
            descent = Descent(loss, list(moving), steps, through, lr, learned, by_step)
            moved = network.descend(params, buffers, x, y, statistics, descent)
            if moved is not None:
                return settled(network, {**params, **moved}, buffers, x)
        if adapts == "head":
            # the body does not move: its features are computed once
            z, buffers = network.features(params, buffers, x, statistics)
            inner = head_loss(network, loss, z, y)
        else:
            inner = network_loss(network, loss, params, buffers, x, y, training)
        cut = rates == "fixed"
        adapted = _descend(step, moving, rule.init(moving), params, inner, steps, through, checkpoint, cut)
        after = {**params, **adapted}
        return Adapted(after, buffers) if adapts == "head" else settled(network, after, buffers, x)

    untrained = untrained_names(network, head_start)
    return Learner(name, adapt, predictor(network), init, untrained=untrained)


def _initial_rates(rates: Rates, lr: float, steps: int, moving: Params, shared: Sequence[str]) -> Params:
    """Learned rates before training; those per weight are the same for all rows of what is ``shared``."""
    # rates of their own for the rows of a last layer would let the order of the labels matter again
    if rates == "fixed":
        return {}

    def shape(name: str, value: Tensor) -> tuple[int, ...]:
        """The shape of one parameter's rates."""
        if rates == "per-layer-and-step":
            return (max(steps, 1),)
        return (1, *value.shape[1:]) if name in shared else tuple(value.shape)

    return {RATE_PREFIX + n: value.new_full(shape(n, value), lr) for n, value in moving.items()}


def _rate(rates: Rates, lr: float, params: Params, name: str, t: int) -> float | Tensor:
    """The rate of one parameter at inner step ``t``; steps beyond those trained use the last one's."""
    if rates == "fixed":
        return lr
    learned = params[RATE_PREFIX + name]
    return learned if rates == "per-weight" else learned[min(t, learned.shape[0] - 1)]


def _descend(
    step: Callable[[int, Params, Any, Params, InnerLoss], tuple[Params, Any]],
    moving: Params,
    state: Any,
    params: Params,
    inner: InnerLoss,
    steps: int,
    through: int,
    checkpoint: bool,
    cut: bool,
) -> Params:
    """Runs the inner steps; only the last ``through`` of them are differentiated through."""
    # ``cut`` leaves no graph of the others at all, which learned rates forbid: they act on those steps too
    start, constant = moving, steps - through
    cut = cut and constant > 0
    if cut:
        moving = {n: p.detach() for n, p in moving.items()}
    for t in range(steps):
        if cut and t == constant:
            moving = reattach(start, moving)
        if checkpoint and t >= constant and torch.is_grad_enabled():
            if not autodiff.is_plain():
                raise UserError(
                    "{checkpoint}=true needs {execution}=threads or {execution}=loop.",
                    names=("checkpoint", "execution"),
                )
            moving, state = recompute(step, t, moving, state, params, inner, use_reentrant=False)
        else:
            moving, state = step(t, moving, state, params, inner)
    return reattach(start, moving) if cut and constant == steps else moving


@checked
def maml(
    network: Network,
    loss: Loss | str,
    lr: float,
    steps: int = 1,
    *,
    first_order: bool = False,
    truncate: int | None = None,
    checkpoint: bool = False,
    rule: UpdateRule | None = None,
    head_start: HeadStart = "learned",
) -> Learner:
    """Model-agnostic meta-learning (Finn et al. 2017): all parameters take ``steps`` steps of size ``lr``.

    Args:
        network: the network to adapt.
        loss: the support loss. Its convention gives ``lr`` its meaning.
        lr: inner learning rate.
        steps: number of inner steps.
        first_order: whether to treat inner gradients as constants (FOMAML).
        truncate: differentiate through this many of the last steps only; through all by default.
        checkpoint: whether to recompute inner steps in the backward pass instead of keeping their graph.
        rule: how a gradient becomes a step; plain gradient descent if omitted.
        head_start: where the last layer starts (:mod:`innerloop.learners.gradient`).

    >>> from innerloop import get_loss
    >>> from innerloop import mlp
    >>> net = mlp(1, [], 1)                       # y = w x + b
    >>> learner = maml(net, get_loss("half-mse"), lr=0.5)
    >>> params = {"layer0.weight": torch.zeros(1, 1), "layer0.bias": torch.zeros(1)}
    >>> adapted = learner.adapt(params, {}, torch.ones(2, 1), torch.ones(2, 1))
    >>> adapted.params["layer0.weight"]           # w − ½ ∂/∂w ½(w + b − 1)² = ½
    tensor([[0.5000]])
    """
    return gradient_learner(
        "fomaml" if first_order else "maml",
        network,
        loss,
        lr=lr,
        steps=steps,
        first_order=first_order,
        truncate=truncate,
        checkpoint=checkpoint,
        rule=rule,
        head_start=head_start,
    )


@checked
def anil(
    network: Network, loss: Loss | str, lr: float, steps: int = 1, *, online: Online = "off", **options: Any
) -> Learner:
    """Almost no inner loop (Raghu et al. 2020): only the last layer moves, on features computed once.

    ``online`` lets the rate follow the features while they are trained (:mod:`innerloop.learners.online`).

    Args:
        network: the network whose last layer is adapted.
        loss: the support loss. Its convention gives ``lr`` its meaning.
        lr: inner learning rate, or where it starts if it is ``online``.
        steps: number of inner steps.
        online: the rule by which the rate follows the features; ``off`` keeps it.
        **options: further arguments of :func:`gradient_learner`.
    """
    if online != "off":
        refuse_options(**options)
        return online_anil(network, loss, lr, steps, online)
    return gradient_learner("anil", network, loss, lr=lr, steps=steps, adapts="head", **options)


@checked
def boil(network: Network, loss: Loss | str, lr: float, steps: int = 1, **options: Any) -> Learner:
    """Body only update in inner loop (Oh et al. 2021): all but the last layer move.

    Args:
        network: the network to adapt.
        loss: the support loss. Its convention gives ``lr`` its meaning.
        lr: inner learning rate.
        steps: number of inner steps.
        **options: further arguments of :func:`gradient_learner`.
    """
    return gradient_learner("boil", network, loss, lr=lr, steps=steps, adapts="body", **options)


@checked
def meta_sgd(network: Network, loss: Loss | str, lr: float, steps: int = 1, **options: Any) -> Learner:
    """Meta-SGD (Li et al. 2017): a learned rate for every weight, starting at ``lr``.

    Args:
        network: the network to adapt.
        loss: the support loss. Its convention gives ``lr`` its meaning.
        lr: where all rates start.
        steps: number of inner steps.
        **options: further arguments of :func:`gradient_learner`.
    """
    return gradient_learner("meta-sgd", network, loss, lr=lr, steps=steps, rates="per-weight", **options)


@checked
def maml_lslr(network: Network, loss: Loss | str, lr: float, steps: int = 1, **options: Any) -> Learner:
    """MAML++'s learned rates (Antoniou et al. 2019): one for every layer and step, starting at ``lr``.

    Asked for more steps than it was trained with, it repeats the last step's rates.

    Args:
        network: the network to adapt.
        loss: the support loss. Its convention gives ``lr`` its meaning.
        lr: where all rates start.
        steps: number of inner steps.
        **options: further arguments of :func:`gradient_learner`.
    """
    return gradient_learner(
        "maml-lslr", network, loss, lr=lr, steps=steps, rates="per-layer-and-step", **options
    )


@checked
def non_adaptive(network: Network) -> Learner:
    """Predicts without looking at the labels of the support set (its statistics may still normalise)."""

    def adapt(params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> Adapted:
        """The parameters as they are; the support set gives its statistics where the norm policy says so."""
        del y
        if network.norm == "support":
            _, buffers = network.features(params, buffers, x, statistics_for("support", "support", training))
        return Adapted(params, buffers)

    return Learner("none", adapt, predictor(network))
