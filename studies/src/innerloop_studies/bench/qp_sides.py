"""The heads of ``bench qp``: one forward and backward pass over a few tasks, by us and by others.

All support vector machines are the same programmes from the same features: ours in one batch, a general
solver's one by one. Gram matrices are taken the same way on all sides. A general solver gives a gradient in
them, from where it takes one more product of that size to the features; ours knows that it is of low rank.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.autodiff import plain_autograd
from innerloop.solvers.problems import one_hot
from innerloop.solvers.products import gram_matrix
from innerloop.solvers.ridge import ridge_closed_form
from innerloop.solvers.svm_dual import svm_coefficients, svm_heads
from innerloop_studies.bench.dense_qp import DenseQP
from innerloop_studies.bench.messages import Spec

C, WAYS, TASKS = 0.1, 5, 8
SPREAD = 0.15  # of class means that overlap, against a spread of one within a class

Call = Callable[[], list[Tensor]]
"""One forward and backward pass; gives the gradients."""
Coefficients = Callable[[Tensor, Tensor], Tensor]
"""Gram matrix ``(n, n)`` and labels to dual coefficients ``(WAYS, n)``."""


class Features(NamedTuple):
    """Support and query features, one tensor per task, and the labels that all tasks share."""

    support: list[Tensor]
    y: Tensor
    query: list[Tensor]
    y_query: Tensor


def drawn(tasks: int, shots: int, queries: int, dimensions: int, spread: float = SPREAD) -> Features:
    """Features like those of a network's last map after a leaky ReLU, around class means.

    The further apart the means are, the more margins are not tight: their coefficients stand at bounds.
    """
    draw = torch.Generator().manual_seed(0)
    y, y_query = (torch.arange(WAYS).repeat(n) for n in (shots, queries))
    means = spread * torch.randn(tasks, WAYS, dimensions, generator=draw)

    def around(labels: Tensor) -> list[Tensor]:
        """Features of samples with these labels, task by task."""
        noise = torch.randn(tasks, len(labels), dimensions, generator=draw)
        return [0.3 * F.leaky_relu(m[labels] + e, 0.1) for m, e in zip(means, noise, strict=True)]

    return Features(around(y), y, around(y_query), y_query)


def build(spec: Spec) -> Call:
    """The side asked for by ``side``, ``part``, ``sizes`` (see :func:`drawn`) and ``threads``."""
    torch.set_num_threads(spec["threads"])
    sides: dict[str, Callable[[Features], Call]] = {
        "head ours": svm_ours,
        "head qpth": lambda data: svm_one_by_one(data, by_qpth()),
        "head dense": lambda data: svm_one_by_one(data, by_dense),
        "programmes ours": programmes_ours,
        "programmes qpth": lambda data: programmes_one_by_one(data, by_qpth()),
        "programmes dense": lambda data: programmes_one_by_one(data, by_dense),
        "ridge ours": ridge_ours,
        "ridge linear": linear,
    }
    side = sides[f"{spec['part']} {spec['side']}"](drawn(**spec["sizes"]))

    def call() -> list[Tensor]:
        """One pass of the side."""
        with plain_autograd():
            return side()

    return call


def leaves(data: Features) -> tuple[list[Tensor], list[Tensor]]:
    """Features to differentiate with respect to."""
    support, query = ([z.detach().requires_grad_() for z in part] for part in (data.support, data.query))
    return support, query


def svm_ours(data: Features) -> Call:
    """All tasks in one call."""

    def call() -> list[Tensor]:
        """Gradients in all features."""
        support, query = leaves(data)
        weights, _ = svm_heads(support, [data.y] * len(support), WAYS, C)
        outputs = torch.cat([q @ w.mT for q, w in zip(query, weights, strict=True)])
        loss = F.cross_entropy(outputs, data.y_query.repeat(len(query)))
        return list(torch.autograd.grad(loss, [*support, *query]))

    return call


def svm_one_by_one(data: Features, solve: Coefficients) -> Call:
    """Task after task, each with a programme of its own."""

    def call() -> list[Tensor]:
        """Gradients in all features, task by task."""
        support, query = leaves(data)
        gradients = []
        for z, q in zip(support, query, strict=True):
            outputs = q @ (solve(gram_matrix(z), data.y).to(z.dtype) @ z).mT
            loss = F.cross_entropy(outputs, data.y_query) / len(support)
            gradients.append(torch.autograd.grad(loss, [z, q]))
        return [z for z, _ in gradients] + [q for _, q in gradients]

    return call


def _grams(data: Features) -> tuple[Tensor, Tensor]:
    """Gram matrices, and what to multiply coefficients with for a gradient of all of them."""
    gram = torch.stack([z @ z.mT for z in data.support])
    draw = torch.Generator().manual_seed(1)
    return gram, torch.randn(len(gram), WAYS, len(data.y), generator=draw, dtype=torch.float64)


def programmes_ours(data: Features) -> Call:
    """The quadratic programmes alone, from Gram matrices to their gradient, all in one call."""
    gram, weight = _grams(data)
    hot = one_hot(data.y.expand(len(gram), -1), WAYS, gram)

    def call() -> list[Tensor]:
        """Gradients in all Gram matrices."""
        at = gram.detach().requires_grad_()
        solution = svm_coefficients(at, hot, C, data.support[0].shape[1])
        return [_symmetric(g) for g in torch.autograd.grad((solution.A * weight).sum(), [at])]

    return call


def programmes_one_by_one(data: Features, solve: Coefficients) -> Call:
    """The same, one after another."""
    gram, weight = _grams(data)

    def call() -> list[Tensor]:
        """Gradients in all Gram matrices, one after another."""
        gradients: list[Tensor] = []
        for one, w in zip(gram, weight, strict=True):
            at = one.detach().requires_grad_()
            gradients += torch.autograd.grad((solve(at, data.y) * w).sum(), [at])
        return [_symmetric(torch.stack(gradients))]

    return call


def _symmetric(gradient: Tensor) -> Tensor:
    """Gram matrices move symmetrically, so only this part of their gradient means anything."""
    return 0.5 * (gradient + gradient.mT)


def as_general(gram: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """The programme in a general solver's form: ½xᵀQx + pᵀx with Gx ≤ h and Ax = b; sample-major.

    The ridge on ``Q`` is that of MetaOptNet's released code in size: without it ``Q`` may be singular.
    """
    n, eye = len(y), torch.eye(WAYS, dtype=torch.float64)
    hot = eye[y].flatten()
    whole = torch.eye(n * WAYS, dtype=torch.float64)
    sums = torch.kron(torch.eye(n, dtype=torch.float64), torch.ones(1, WAYS, dtype=torch.float64))
    Q = torch.kron(gram.double(), eye) + 1e-8 * whole
    return Q, -hot, whole, C * hot, sums, torch.zeros(n, dtype=torch.float64)


def by_dense(gram: Tensor, y: Tensor) -> Tensor:
    """A general dense interior point written for this benchmark."""
    solution: Tensor = DenseQP.apply(*as_general(gram, y))
    return solution.view(len(y), WAYS).mT


def by_qpth() -> Coefficients:
    """MetaOptNet's own solver at its own settings but for float64, in which its answers are right."""
    sys.modules.setdefault("cvxpy", types.ModuleType("cvxpy"))  # imported by qpth, and not used here
    from qpth.qp import QPFunction  # type: ignore[import-not-found,unused-ignore]

    def solve(gram: Tensor, y: Tensor) -> Tensor:
        """Coefficients of one task."""
        solution: Tensor = QPFunction(verbose=-1)(*(part[None] for part in as_general(gram, y)))
        return solution.view(len(y), WAYS).mT

    return solve


def ridge_ours(data: Features) -> Call:
    """R2D2's head: ridge regressions of all tasks in one call, with learned penalty, scale and shift."""
    support, query = torch.stack(data.support), torch.stack(data.query)
    hot = one_hot(data.y.expand(len(support), -1), WAYS, support).mT
    own = [torch.tensor(value) for value in (0.0, 10.0, 0.0)]

    def call() -> list[Tensor]:
        """Gradients in features, penalty, scale and shift."""
        z, q, penalty, scale, shift = at = [t.detach().requires_grad_() for t in (support, query, *own)]
        weights, bias = ridge_closed_form(z, hot, z.shape[1] * penalty.exp(), constant=True)
        outputs = scale * (q @ weights.mT + bias[:, None]) + shift
        loss = F.cross_entropy(outputs.flatten(0, 1), data.y_query.repeat(len(q)))
        return list(torch.autograd.grad(loss, at))

    return call


def linear(data: Features) -> Call:
    """A plain linear head on the same pictures, support and query: what a step without a solver costs."""
    support, query = torch.stack(data.support), torch.stack(data.query)
    draw = torch.Generator().manual_seed(1)
    weights, bias = 0.01 * torch.randn(WAYS, support.shape[2], generator=draw), torch.zeros(WAYS)
    labels = torch.cat([data.y.repeat(len(support)), data.y_query.repeat(len(query))])

    def call() -> list[Tensor]:
        """Gradients in features and weights."""
        z, q, w, b = at = [t.detach().requires_grad_() for t in (support, query, weights, bias)]
        outputs = torch.cat([F.linear(part, w, b).flatten(0, 1) for part in (z, q)])
        return list(torch.autograd.grad(F.cross_entropy(outputs, labels), at))

    return call
