"""Feature spaces in which tasks are looked at: inputs, features of an untrained network, tangent features."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.random import generator
from innerloop.core.types import Batch, TaskBatch
from innerloop.nets.network import Network, apply

PROJECTED = 256  # longer feature vectors are first projected at random to so many entries (scales are kept)


class View(NamedTuple):
    """Tasks in a feature space.

    Attributes:
        z: features ``(tasks, samples, d)`` in float64.
        y: numbers ``(tasks, samples, k)``, or labels ``(tasks, samples)``.
        support: so many of a task's samples, the first, are its support set.
        kept: the share of the features' second moment that these directions keep.
        features: what they are features of: ``raw`` inputs, ``affine`` (the inputs and a constant), an
            untrained ``network``, or ``tangent``.
        linear: whether the network has nothing but its last layer, so that training leaves features alone.
    """

    z: Tensor
    y: Tensor
    support: int
    kept: float
    features: str = "raw"
    linear: bool = True

    def as_dict(self) -> dict[str, Any]:
        """What was looked at, as plain data for JSON."""
        tasks, samples, components = self.z.shape
        plain = {"tasks": tasks, "samples": samples, "components": components, "kept": self.kept}
        return {"source": "tasks", **plain}

    def __str__(self) -> str:
        tasks, samples, components = self.z.shape
        share = f"{100 * self.kept:.1f} % of the features' second moment"
        return f"{tasks} tasks, {samples} samples each, {components} directions ({share})"

    def undecided(self, reason: str) -> list[str]:
        """Lines for people where the closed forms do not speak of these tasks."""
        return [
            "whether MAML is worth it here cannot be told before training; `innerloop advise` measures it",
            f"because: {reason}",
            f"{self}; of a linear model alone:",
        ]


class Step(NamedTuple):
    """The step of adaptation.

    Attributes:
        shots: m, samples of it at test.
        inner_shots: n₂, samples of it in training.
        lr: α; estimated from the features where it is None.
        whose: where the rate is from, in words.
    """

    shots: int
    inner_shots: int
    lr: float | None = None
    whose: str = "given"


def look_at(
    batch: Batch, network: Network, features: str = "raw", components: int = 16, seed: int = 0
) -> View:
    """All samples of the tasks, along the directions in which their features vary most.

    Args:
        batch: the tasks.
        network: untrained.
        features: ``raw``, ``affine``, ``network`` or ``tangent``; see :func:`features_of`.
        components: how many directions.
        seed: of the network and of the projection.

    Raises:
        UserError: for tasks of unequal shapes.

    >>> from innerloop import mlp
    >>> from innerloop import get_family, make_sampler
    >>> tasks = make_sampler(get_family("sine"), seed=0, shots=3, queries=4).episodes(range(5))
    >>> view = look_at(tasks, mlp(1, [8], 1), "network", components=2)
    >>> tuple(view.z.shape), view.support
    ((5, 7, 2), 3)
    """
    if not isinstance(batch, TaskBatch):
        raise UserError(
            "tasks of unequal shapes cannot be compared here: give every kind the same ways and shots."
        )
    x, y = all_samples(batch)
    z, kept = principal(features_of(x, features, network, seed), components)
    return View(z, y, batch.x_support.shape[1], kept, features, is_linear(network))


def is_linear(network: Network) -> bool:
    """Whether a network has no parameters but those of its last layer."""
    params, _ = network.init(generator(0, "init"))
    return set(params) <= set(network.head_names)


def has_constant(network: Network) -> bool:
    """Whether the last layer adds a constant."""
    return any(name.endswith("bias") for name in network.head_names)


def features_of(x: Tensor, kind: str, network: Network, seed: int) -> Tensor:
    """Features ``(T, n, D)`` of inputs ``(T, n, …)`` in float64, at most :data:`PROJECTED` of them."""
    if kind == "raw":
        return _projected(x.flatten(2).double(), seed)
    if kind == "affine":
        return _projected(with_constant(x.flatten(2).double()), seed)
    params, buffers = network.init(generator(seed, "init"))
    params = {name: value.to(x) for name, value in params.items()}
    buffers = {name: value.to(x) if value.is_floating_point() else value for name, value in buffers.items()}
    if kind == "network":
        z = torch.stack(
            [network.features(params, buffers, task, "batch")[0].flatten(1) for task in x]
        ).double()
        if has_constant(network):
            z = with_constant(z)
        return _projected(z, seed)

    def outputs(p: dict[str, Tensor], sample: Tensor) -> Tensor:
        return apply(network, p, buffers, sample[None], "batch")[0][0]

    if outputs(params, x[0, 0]).numel() != 1:
        raise UserError("tangent features need a network with one output: use features=network here.")
    jacobian = torch.func.vmap(torch.func.jacrev(lambda p, s: outputs(p, s)[0]), in_dims=(None, 0))
    rows = []
    for task in x:
        parts = jacobian(params, task)
        rows.append(_projected(torch.cat([v.flatten(1) for v in parts.values()], 1)[None].double(), seed)[0])
    return torch.stack(rows)


def with_constant(z: Tensor) -> Tensor:
    """Features with a column of ones behind them."""
    return torch.cat([z, torch.ones_like(z[..., :1])], -1)


def _projected(z: Tensor, seed: int) -> Tensor:
    if z.shape[-1] <= PROJECTED:
        return z
    g = generator(seed, "projection")
    matrix = torch.randn(z.shape[-1], PROJECTED, generator=g, dtype=z.dtype) / PROJECTED**0.5
    return z @ matrix


def principal(z: Tensor, components: int) -> tuple[Tensor, float]:
    """Coordinates along the directions of largest second moment, and what share of it they keep."""
    moment = torch.einsum("tni,tnj->ij", z, z)
    values, vectors = torch.linalg.eigh(moment)
    # directions without any weight would make every task's moments singular
    useful = int((values > 1e-9 * values[-1]).sum())
    take = min(components, useful)
    return z @ vectors[:, -take:].flip(-1), float(values[-take:].sum() / values.sum())


def all_samples(batch: TaskBatch) -> tuple[Tensor, Tensor]:
    """Support and query of every task together."""
    return torch.cat([batch.x_support, batch.x_query], 1), torch.cat([batch.y_support, batch.y_query], 1)
