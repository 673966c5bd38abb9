r"""Learners that fit a small head of their own on features, and let the body alone.

With features :math:`z = f_\theta(x)`, a head is fitted to those of the support set and scores those of the
query set. What is fitted is all that tells prototypes, matching, ridge regression and support vector
machines apart, so each is two pure functions here, handed to :func:`embedding_learner`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params
from innerloop.learners.base import Learner, no_extra_params
from innerloop.nets.network import Network
from innerloop.nets.norms import statistics_for


class FitHead(Protocol):
    """``(params, z, y, training) -> head``: fits a head to the features of a support set."""

    def __call__(self, params: Params, z: Tensor, y: Tensor, training: bool) -> Any:
        """Fits it; tensors in tuples and dicts."""


class ScoreHead(Protocol):
    """``(params, head, z) -> outputs``: what a head says of features of the same task."""

    def __call__(self, params: Params, head: Any, z: Tensor) -> Tensor:
        """One row per sample."""
        ...


class Embedded(NamedTuple):
    """A head fitted to a support set, and the body whose features it reads."""

    head: Any
    params: Params
    buffers: Buffers


def embedding_learner(
    name: str,
    network: Network,
    fit: FitHead,
    score: ScoreHead,
    init: Callable[[Params], Params] = no_extra_params,
    solved: Callable[[Any], Tensor] | None = None,
) -> Learner:
    """A learner from a head: ``fit`` it to the support set's features, and ``score`` the query set's.

    In training under the norm policy ``running`` support and query go through the body together, as one
    batch with one mean and variance, which is how prototypical networks and R2D2 were trained.

    Args:
        name: what reports call it.
        network: supplies the features; its last layer is not used.
        fit: ``(params, z, y, training) -> head``; ``params`` holds what the learner owns.
        score: ``(params, head, z) -> outputs``.
        init: adds what the learner owns to the parameters.
        solved: ``head -> ()``: whether what ``fit`` solved, not in training, is a proven solution.
    """

    def adapt(params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> Embedded:
        """The head that fits the support set."""
        statistics = statistics_for(network.norm, "support", training)
        z, buffers = network.features(params, buffers, x, statistics)
        return Embedded(fit(params, z, y, training), params, buffers)

    def predict(adapted: Embedded, x: Tensor, training: bool = False) -> tuple[Tensor, Buffers]:
        """What the head says of queries, and the buffers after this pass."""
        statistics = statistics_for(network.norm, "query", training)
        z, buffers = network.features(adapted.params, adapted.buffers, x, statistics)
        return score(adapted.params, adapted.head, z), buffers

    def together(
        params: Params, buffers: Buffers, x: Tensor, y: Tensor, query: Tensor
    ) -> tuple[Tensor, Buffers]:
        """Outputs for queries that go through the body in one batch with the support set."""
        z, buffers = network.features(params, buffers, torch.cat([x, query]), "batch")
        head = fit(params, z[: len(x)], y, True)
        return score(params, head, z[len(x) :]), buffers

    def converged(adapted: Embedded) -> Tensor:
        """Whether the head is a proven solution."""
        assert solved is not None
        return solved(adapted.head)

    return Learner(
        name,
        adapt,
        predict,
        init,
        together=together if network.norm == "running" else None,
        converged=converged if solved else None,
    )


def class_means(z: Tensor, y: Tensor, ways: int) -> tuple[Tensor, Tensor]:
    """Means of the features of each label, and their counts; no loop, so that it runs under ``vmap``."""
    member = indicators(y, ways, z)
    counts = member.sum(0)
    return (member.T @ z) / counts.clamp(min=1)[:, None], counts


def indicators(y: Tensor, ways: int, like: Tensor) -> Tensor:
    """Labels as rows ``(n, ways)`` of zeros and a one."""
    return (y[:, None] == torch.arange(ways, device=y.device)).to(like.dtype)


def only_seen(outputs: Tensor, counts: Tensor) -> Tensor:
    """Outputs ``(n, ways)`` with minus infinity for classes that have no support sample."""
    return torch.where(counts > 0, outputs, -torch.inf)


def check_positive_setting(name: str, value: float) -> None:
    """Refuses a learner's own setting that is not positive and finite."""
    if not 0 < value < float("inf"):
        raise UserError(
            f"{{the learner's {name}}}={value:g}: it must be positive and finite.",
            names=("the learner's C", "the learner's penalty", "the learner's scale"),
        )
