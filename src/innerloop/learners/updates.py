"""Inner update rules as pairs of pure functions, safe to differentiate through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.trees import tree_map
from innerloop.core.types import Params


class UpdateRule(NamedTuple):
    """How a gradient becomes a step.

    Attributes:
        name: what reports call it.
        init: ``params -> state``.
        direction: ``(grads, state) -> (direction, state)``; the new parameters are
            ``params − rate · direction``.
    """

    name: str
    init: Callable[[Params], Any]
    direction: Callable[[Params, Any], tuple[Params, Any]]


def sgd() -> UpdateRule:
    """Plain gradient descent."""
    return UpdateRule("sgd", lambda _: (), lambda grads, state: (grads, state))


def momentum(decay: float = 0.9) -> UpdateRule:
    """Heavy ball, as ``torch.optim.SGD(momentum=decay)``: ``v ← decay·v + g``, direction ``v``."""

    def init(params: Params) -> Params:
        """No velocity."""
        return tree_map(torch.zeros_like, params)

    def direction(grads: Params, state: Params) -> tuple[Params, Params]:
        """The velocity after this gradient, which is direction and state at once."""
        velocity = tree_map(lambda v, g: decay * v + g, state, grads)
        return velocity, velocity

    return UpdateRule("momentum", init, direction)


class AdamState(NamedTuple):
    """First and second moments, and how many steps they have seen."""

    step: int
    first: Params
    second: Params


def safe_sqrt(v: Tensor) -> Tensor:
    """The square root with derivative 0 at 0, where an infinite one makes Adam's second derivative NaN."""
    positive = v > 0
    return torch.where(positive, torch.where(positive, v, 1.0).sqrt(), 0.0)


def adam(beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> UpdateRule:
    """Adam, with the same values as ``torch.optim.Adam`` and a second derivative that is never NaN.

    Args:
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        eps: what is added to the root of the second moment.
    """

    def init(params: Params) -> AdamState:
        """No steps, and moments of zero."""
        return AdamState(0, tree_map(torch.zeros_like, params), tree_map(torch.zeros_like, params))

    def direction(grads: Params, state: AdamState) -> tuple[Params, AdamState]:
        """The direction, and the moments after this gradient."""
        step = state.step + 1
        first = tree_map(lambda m, g: beta1 * m + (1 - beta1) * g, state.first, grads)
        second = tree_map(lambda v, g: beta2 * v + (1 - beta2) * g.square(), state.second, grads)
        c1, c2 = 1 - beta1**step, 1 - beta2**step
        moved = tree_map(lambda m, v: (m / c1) / (safe_sqrt(v / c2) + eps), first, second)
        return moved, AdamState(step, first, second)

    return UpdateRule("adam", init, direction)
