"""Linear support vector machines with hinge, one against one: ``SVC(kernel="linear")``, batched."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.solvers.inverse import spd_factor, times
from innerloop.solvers.problems import (
    LinearResult,
    check_finite,
    check_positive,
    check_problems,
    in_chunks,
    measured_scores,
    rounded,
)

KEEP = 0.995  # how far towards the boundary a step may go
PATIENCE = 4  # steps without a smaller gap
FLOOR = 1e-12  # under the weights of the box, in units of the mean squared length of a sample


class Boxed(NamedTuple):
    """``M`` programmes: Gram matrices ``(M, n, n)``, labels ``(M, n)`` of −1, 0 and 1, and the box."""

    gram: Tensor
    sign: Tensor
    C: float


class Point(NamedTuple):
    """Coefficients, their room below ``C``, multipliers of both bounds ``(M, n)``, and the equation's."""

    alpha: Tensor
    room: Tensor
    lower: Tensor
    upper: Tensor
    shift: Tensor


class BoxedSolution(NamedTuple):
    """The best that was found, programme by programme."""

    beta: Tensor
    bias: Tensor
    objective: Tensor
    gap: Tensor


def middle_intercept(scores: Tensor, sign: Tensor) -> Tensor:
    """The best intercept ``(M,)`` for given scores ``w·x``; of several the middle one, as in libsvm."""
    # the sum of hinges is piecewise linear in it and bends by one at y − w·x of every sample, from a slope of
    # minus the number of positive ones; with a sample on its margin the best one is unique
    bends = torch.where(sign != 0, sign - scores, torch.inf).sort(-1).values
    positive = (sign > 0).sum(-1, keepdim=True)
    return (0.5 * (bends.gather(-1, positive - 1) + bends.gather(-1, positive))).squeeze(-1)


def solve_boxed(problem: Boxed, tol: float, max_steps: int) -> tuple[BoxedSolution, Tensor]:
    """Best solutions, and steps until every gap is at most ``tol`` times the objective or rounding rules."""
    state, best = _start(problem), _corner(problem)
    steps = torch.zeros(len(problem.sign), dtype=torch.int64, device=problem.sign.device)
    idle = torch.zeros_like(steps)  # steps in a row that brought nothing
    # of the steps alone: the corner may be nearly the solution, and is passed only by the last few of them
    least = torch.full_like(best.gap, torch.inf)
    for _ in range(max_steps):
        left = ((best.gap > tol * best.objective) & (idle < PATIENCE)).nonzero().flatten()
        if not len(left):
            break
        part = Boxed(problem.gram[left], problem.sign[left], problem.C)
        moved = _move(part, Point(*(field[left] for field in state)))
        verdict = _judged(part, moved)
        better = verdict.gap < best.gap[left]
        for all_of, new in zip(state, moved, strict=True):
            all_of[left] = new
        for all_of, new in zip(best, verdict, strict=True):
            all_of[left[better]] = new[better]
        steps[left] += 1
        idle[left] = torch.where(verdict.gap < least[left], 0, idle[left] + 1)
        least[left] = torch.minimum(least[left], verdict.gap)
    return best, steps


def _start(problem: Boxed) -> Point:
    """Inside the box and on the equation, with multipliers of one and more."""
    sign, C = problem.sign, problem.C
    positive, negative = ((sign == s).sum(-1, keepdim=True).to(sign.dtype) for s in (1, -1))
    total = 0.5 * C * torch.minimum(positive, negative)
    alpha = torch.where(sign > 0, total / positive, torch.where(sign < 0, total / negative, C / 2))
    slope = _slope(problem, alpha)
    return Point(
        alpha, C - alpha, 1 + slope.clamp_min(0), 1 + (-slope).clamp_min(0), torch.zeros_like(positive)
    )


def _corner(problem: Boxed) -> BoxedSolution:
    """All samples at ``C``: the solution where no margin is reached, as for few samples and small ``C``."""
    even = problem.sign.sum(-1) == 0
    full = torch.full_like(problem.sign, problem.C)
    nothing = torch.zeros_like(full)
    corner = _judged(problem, Point(full, nothing, nothing, nothing, nothing[:, :1]))
    return corner._replace(gap=torch.where(even, corner.gap, torch.inf))


def _slope(problem: Boxed, alpha: Tensor) -> Tensor:
    """Gradient of the dual objective."""
    sign = problem.sign
    return sign * times(problem.gram, sign * alpha) - sign.abs()


def _judged(problem: Boxed, at: Point) -> BoxedSolution:
    sign = problem.sign
    beta = sign * at.alpha
    scores = times(problem.gram, beta)
    bias = middle_intercept(scores, sign)
    margin = sign.abs() - sign * (scores + bias[:, None])  # positive where there is a loss
    objective = 0.5 * (beta * scores).sum(-1) + problem.C * margin.clamp_min(0).sum(-1)
    # primal minus dual objective, term by term non-negative; and what rounding left of the equation
    terms = at.room * margin.clamp_min(0) + at.alpha * (-margin).clamp_min(0)
    gap = terms.sum(-1) + (bias * beta.sum(-1)).abs()
    return BoxedSolution(beta, bias, objective, gap)


def _system(problem: Boxed, weight: Tensor) -> Callable[[Tensor], Tensor]:
    """``(YKY + diag(weight))⁻¹``, scaled to a diagonal of ones: weights run over many magnitudes."""
    gram, sign = problem.gram, problem.sign
    least = FLOOR * gram.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
    matrix = sign[:, :, None] * gram * sign[:, None, :]
    matrix.diagonal(dim1=-2, dim2=-1).add_(weight + least)
    scale = matrix.diagonal(dim1=-2, dim2=-1).rsqrt()
    factor, _ = spd_factor(scale[:, :, None] * matrix * scale[:, None, :])
    return lambda right: scale * torch.cholesky_solve((scale * right)[..., None], factor).squeeze(-1)


def _move(problem: Boxed, at: Point) -> Point:
    """One predictor-corrector step."""
    sign = problem.sign
    alpha, room, lower, upper, shift = at
    solve = _system(problem, lower / alpha + upper / room)
    along = solve(sign)  # how the coefficients answer to the intercept
    answer = (sign * along).sum(-1, keepdim=True)
    off = (sign * alpha).sum(-1, keepdim=True)
    stationarity = _slope(problem, alpha) - shift * sign - lower + upper
    size = 2 * sign.shape[-1]

    def direction(low: Tensor, high: Tensor) -> Point:
        """The change of every variable that makes the products of bounds and multipliers change as asked."""
        plain = solve(low / alpha - high / room - stationarity)
        d_shift = -(off + (sign * plain).sum(-1, keepdim=True)) / answer
        d_alpha = plain + d_shift * along
        return Point(
            d_alpha, -d_alpha, (low - lower * d_alpha) / alpha, (high + upper * d_alpha) / room, d_shift
        )

    mean = (alpha * lower + room * upper).sum(-1, keepdim=True) / size
    guess = direction(-alpha * lower, -room * upper)
    there = _along(at, guess, _longest(at, guess).clamp_max(1.0))
    ahead = (there.alpha * there.lower + there.room * there.upper).sum(-1, keepdim=True) / size
    centre = (ahead / mean) ** 3 * mean
    change = direction(
        centre - alpha * lower - guess.alpha * guess.lower, centre - room * upper - guess.room * guess.upper
    )
    return _along(at, change, (KEEP * _longest(at, change)).clamp_max(1.0))


def _along(at: Point, change: Point, length: Tensor) -> Point:
    return Point(*(value + length * step for value, step in zip(at, change, strict=True)))


def _longest(at: Point, change: Point) -> Tensor:
    """The longest step that keeps everything but the equation's multiplier non-negative."""
    limits = [
        torch.where(step < 0, -value / step, torch.inf).amin(-1, keepdim=True)
        for value, step in zip(at[:4], change[:4], strict=True)
    ]
    return torch.stack(limits).amin(0)


TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-8}
AIM = {torch.float32: 1e-11, torch.float64: 1e-15}
"""Relative gap at which the steps end: a decision may be off by the root of it."""


def pairs(ways: int, device: torch.device | str = "cpu") -> Tensor:
    """The classes of every pair, ``(2, pairs)``, in libsvm's order."""
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
