"""What a learner is: a small tuple of pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from innerloop.core.types import Buffers, Loss, Params, Task

RATE_PREFIX, ONLINE_PREFIX, OWN_PREFIX = "inner_lr.", "online.", "learner."
"""How the names of a learner's own parameters and buffers begin; ``learner.`` serves any new learner."""

REPORT_PREFIX = f"{OWN_PREFIX}reported."
"""How the names of those scalar buffers begin that a learner writes for people, and never reads."""


def is_own(name: str) -> bool:
    """Whether a parameter or buffer is the learner's, and not the network's."""
    return name.startswith((RATE_PREFIX, ONLINE_PREFIX, OWN_PREFIX))


def reported(buffers: Buffers) -> dict[str, float]:
    """What a learner reports of the last step of training, averaged over its tasks, as metrics name it."""
    reports = {name: value for name, value in buffers.items() if name.startswith(REPORT_PREFIX)}
    return {OWN_PREFIX + name.removeprefix(REPORT_PREFIX): float(value) for name, value in reports.items()}


class Adapted(NamedTuple):
    """A network after adaptation: its parameters, and the statistics its normalisation layers keep."""

    params: Params
    buffers: Buffers


class Adapt(Protocol):
    """``(params, buffers, x, y, training=False) -> adapted``; what it returns only ``predict`` looks into."""

    def __call__(self, params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> Any:
        """Adapts to one support set."""


class Predict(Protocol):
    """``(adapted, x, training=False) -> (outputs, buffers)``."""

    def __call__(self, adapted: Any, x: Tensor, training: bool = False) -> tuple[Tensor, Buffers]:
        """Predicts for inputs of the same task."""
        ...


class Together(Protocol):
    """``(params, buffers, x, y, query) -> (outputs, buffers)``: adapts and predicts in one pass."""

    def __call__(
        self, params: Params, buffers: Buffers, x: Tensor, y: Tensor, query: Tensor
    ) -> tuple[Tensor, Buffers]:
        """Predicts for the queries after adapting to ``x`` and ``y``."""
        ...


class OuterLoss(Protocol):
    """``(params, buffers, task, loss, split) -> (value, buffers)``: what training minimises on one task."""

    def __call__(
        self, params: Params, buffers: Buffers, task: Task, loss: Loss, split: bool = True, /
    ) -> tuple[Tensor, Buffers]:
        """A scalar whose gradient is the one to train by, and buffers with what is to be reported."""
        ...


def no_extra_params(params: Params) -> Params:
    """The ``init`` of learners that own no parameters."""
    return dict(params)


def no_extra_buffers(params: Params, buffers: Buffers) -> Buffers:
    """The ``init_buffers`` of learners that carry nothing from task to task."""
    del params
    return dict(buffers)


class Learner(NamedTuple):
    """A way to learn from a support set.

    Attributes:
        name: what reports call it.
        adapt: ``(params, buffers, x, y, training=False) -> adapted``: pure, differentiable with respect to
            ``params``. ``training`` matters to the norm policy ``running`` only.
        predict: ``(adapted, x, training=False) -> (outputs, buffers)``.
        init: ``network params -> meta-parameters``: adds what the learner owns, such as learned rates.
        init_buffers: ``(network params, buffers) -> buffers``: adds what the learner carries from step to
            step without training it by gradients.
        together: how training adapts and predicts where both sets are normalised as one batch; ``None``
            where it calls ``adapt`` and ``predict``.
        converged: ``adapted -> ()``: whether the problem that ``adapt`` solved, not in training, is proven to
            be solved; ``None`` where there is nothing to prove. Evaluations count those that are not.
        outer: what training minimises, for learners whose gradient is not got by differentiating the query
            loss through ``adapt`` and ``predict``, or whose outer loss is another; ``None`` for all others.
        untrained: meta-parameters that are never updated, not by weight decay either.
    """

    name: str
    adapt: Adapt
    predict: Predict
    init: Callable[[Params], Params] = no_extra_params
    init_buffers: Callable[[Params, Buffers], Buffers] = no_extra_buffers
    together: Together | None = None
    converged: Callable[[Any], Tensor] | None = None
    outer: OuterLoss | None = None
    untrained: tuple[str, ...] = ()
