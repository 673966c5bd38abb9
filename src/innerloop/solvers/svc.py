r"""Linear support vector machines with hinge, one class against one other: ``SVC(kernel="linear")``, batched.

For every pair of classes :math:`a < b`, with :math:`y_i = 1` on samples of ``a`` and :math:`-1` on those of
``b``, and an intercept that is not penalised,

.. math:: \min_{w,b}\; \tfrac12\|w\|^2 + C\sum_i\max\big(0, 1 - y_i(w\cdot x_i + b)\big) .

All pairs of all problems are one batch of small quadratic programmes in float64
(:mod:`innerloop.solvers.boxed`). A sample is given to the class that wins most of its pairs, and of several
such to the first, as in libsvm.
"""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.solvers.boxed import Boxed, solve_boxed
from innerloop.solvers.problems import check_finite, check_positive, check_problems, in_chunks
from innerloop.solvers.returned import LinearResult, measured_scores, rounded

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-8}
AIM = {torch.float32: 1e-11, torch.float64: 1e-15}
"""Relative gap at which the steps end: a decision may be off by the root of it."""


def pairs(ways: int, device: torch.device | str = "cpu") -> Tensor:
    """The classes of every pair, ``(2, pairs)``, in libsvm's order.

    >>> pairs(3)
    tensor([[0, 0, 1],
            [1, 2, 2]])
    """
    return torch.triu_indices(ways, ways, 1, device=device)


def votes(decisions: Tensor) -> Tensor:
    """How many of its pairs every class wins, ``(…, ways)``, from decisions ``(…, pairs)``.

    A positive decision is for the first class of a pair, any other number for the second; what is no number
    is no vote but nan.

    >>> votes(torch.tensor([[0.3, -1.0, -0.2]]))  # 0 beats 1, 2 beats 0 and 1
    tensor([[1., 0., 2.]])
    """
    ways = (1 + isqrt(1 + 8 * decisions.shape[-1])) // 2
    first, second = pairs(ways, decisions.device)
    winner = torch.where(decisions > 0, first, second)
    counts = decisions.new_zeros(*decisions.shape[:-1], ways)
    return counts.scatter_add_(
        -1, winner, torch.where(decisions.isfinite(), 1.0, torch.nan).to(decisions.dtype)
    )


def svc(
    features: Tensor,
    labels: Tensor,
    ways: int,
    C: float = 1.0,
    tol: float | None = None,
    max_steps: int = 100,
    threads: int | None = None,
) -> LinearResult:
    """Fits one hinge-loss machine per pair of classes and problem.

    Args:
        features: ``(B, n, d)``; results have the same dtype, the work is done in float64.
        labels: ``(B, n)``, from 0 to ``ways − 1``; every class needs an example.
        ways: number of classes.
        C: inverse penalty, per sample.
        tol: relative distance from the minimum, summed over pairs, at which a problem counts as converged;
            1e-6 in float32 (this loss has kinks, so that rounding of the weights counts in full) and 1e-8 in
            float64 if omitted. The returned weights have to keep it.
        max_steps: interior-point steps at most.
        threads: cores to use; all if omitted.

    Returns:
        Weights ``(B, pairs, d)`` and intercepts ``(B, pairs)`` in the order of :func:`pairs`, and how well
        they are solved. Where an intercept is not unique it is the middle one, as in libsvm. :func:`votes`
        makes scores of classes from their decisions.

    >>> x, y = torch.tensor([[[-1.0], [1.0]]]), torch.tensor([[0, 1]])
    >>> svc(x, y, ways=2, C=10.0).weights.flatten()  # positive for the first class
    tensor([-1.])
    """
    check_positive("C", C)
    check_problems(features, labels, ways, every_class=True)
    tol = TOLERANCE[features.dtype] if tol is None else tol
    most = _largest_class(labels, ways)

    def solve(span: slice) -> LinearResult:
        """Solves the problems of one chunk."""
        x = features[span].detach().double()
        mean = x.mean(1, keepdim=True)
        centred = x - mean
        check_finite(features[span], centred.square().sum(-1, keepdim=True), span.start)
        samples = _samples(labels[span].long(), ways, most)
        machines = _solved(centred, mean, samples, C, AIM[features.dtype], max_steps, features.dtype)
        return machines._replace(converged=machines.gap <= tol * machines.objective)

    number = ways * (ways - 1) // 2
    chunk = max(1, min(100, 2_000_000 // (number * 4 * most * most)))
    return in_chunks(solve, len(features), chunk, threads, features.device)


def _largest_class(labels: Tensor, ways: int) -> int:
    hot = torch.nn.functional.one_hot(labels.long(), ways)
    return int(hot.sum(1).max())


class _Samples(NamedTuple):
    """Which samples stand where in a pair's programme, ``(B, pairs, m)``, with their signs; 0 is none."""

    place: Tensor
    sign: Tensor


def _samples(labels: Tensor, ways: int, most: int) -> _Samples:
    hot = torch.nn.functional.one_hot(labels, ways)
    counts = hot.sum(1)
    starts = counts.cumsum(1) - counts
    number = torch.arange(most, device=labels.device)
    there = number < counts[..., None]
    order = torch.argsort(labels, dim=1, stable=True)
    slot = torch.where(there, starts[..., None] + number, 0)
    place = torch.where(there, order.gather(1, slot.flatten(1)).view_as(slot), 0)
    first, second = pairs(ways, labels.device)
    sign = there.double()
    return _Samples(
        torch.cat([place[:, first], place[:, second]], -1), torch.cat([sign[:, first], -sign[:, second]], -1)
    )


def _solved(
    centred: Tensor, mean: Tensor, samples: _Samples, C: float, aim: float, max_steps: int, dtype: torch.dtype
) -> LinearResult:
    """Machines of all pairs of a chunk; what is said of them is of the weights in the precision asked for."""
    place, sign = samples
    shape, count = sign.shape[:2], len(centred)
    gram = torch.bmm(centred, centred.mT)
    batch = torch.arange(count, device=gram.device)[:, None, None, None]
    blocks = gram[batch, place[..., :, None], place[..., None, :]]
    solution, steps = solve_boxed(Boxed(blocks.flatten(0, 1), sign.flatten(0, 1), C), aim, max_steps)
    nothing = gram.new_zeros(*shape, gram.shape[-1])
    signs = nothing.scatter_add(2, place, sign)
    exact = nothing.scatter_add(2, place, solution.beta.view_as(sign)) @ centred
    shift = solution.bias.view(shape) - (exact @ mean.mT).squeeze(-1)
    weights, bias = rounded(exact, shift, mean, dtype)
    loss = (signs.abs() - signs * measured_scores(weights, bias, centred, mean)).clamp_min(0).sum((1, 2))
    value = 0.5 * weights.double().square().sum((1, 2)) + C * loss
    gap = (value - (solution.objective - solution.gap).view(shape).sum(1)).clamp_min(0)
    return LinearResult(weights, bias, value, gap, gap <= 0, steps.view(shape).amax(1))
