"""Machines by their bounds, and heads as one operation: against SciPy, slopes and slow twins."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import Tensor

from innerloop.core.autodiff import plain_autograd
from innerloop.solvers import dual as dual_module
from innerloop.solvers.dual import by_faces, derivative, solve_dual
from innerloop.solvers.interior_point import DualSVM, interior_point
from innerloop.solvers.problems import one_hot
from innerloop.solvers.products import BLOCK, LARGE, pulled_back, symmetric_product
from innerloop.solvers.ridge import ridge_closed_form
from innerloop.solvers.svm_dual import svm_heads
from innerloop.testing.closeness import (
    CHAINED,
    CONDITIONED,
    DIFFERENCED,
    MULTIPLIED,
    ROUNDED,
    SOLVED,
    SOLVED_FINELY,
    SOLVED_ROUGHLY,
    SUMMED,
)
from oracles import dual_svm as twin

WAYS = 3
CASES = {  # samples per class, features, C
    "none bound": (2, 400, 10.0),
    "some bound": (4, 20, 1.0),
    "all true classes bound": (4, 20, 0.003),
    "more samples than features": (5, 4, 0.5),
    "many more": (5, 2, 3.0),
}
cases = pytest.mark.parametrize("case", CASES)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def drawn(case: str, count: int = 3) -> tuple[Tensor, DualSVM]:
    shots, d, C = CASES[case]
    y = torch.arange(WAYS).repeat(shots)
    x = normal(count, len(y), d) + 0.5 * normal(count, WAYS, d, seed=1)[:, y]
    return x, DualSVM(x @ x.mT, one_hot(y.expand(count, -1), WAYS, x), C, d)


@cases
def test_solutions_are_scipys(case: str) -> None:
    _, problem = drawn(case)
    solution = solve_dual(problem, 1e-12, 100)
    assert solution.face is not None, "all bounds are settled"
    assert bool((solution.best.gap <= ROUNDED * solution.best.objective).all())
    for i in range(len(problem.gram)):
        expected = twin.coefficients(problem.gram[i], problem.hot[i], problem.C)
        # coefficients need not be unique with more samples than features; scores are
        scores = (solution.best.A[i] @ problem.gram[i], expected @ problem.gram[i])
        torch.testing.assert_close(*scores, rtol=SOLVED_ROUGHLY, atol=SOLVED)
    bound = (solution.face.free == 0) & (problem.hot > 0)
    assert bool(bound.any()) == (case not in ("none bound", "some bound"))


@cases
def test_points_are_feasible_and_both_methods_agree(case: str) -> None:
    _, problem = drawn(case, count=20)
    solution, (best, steps) = solve_dual(problem, 1e-12, 100), interior_point(problem, 1e-12, 100)
    assert float((solution.best.A - problem.C * problem.hot).max()) <= ROUNDED * problem.C
    assert float(solution.best.A.sum(1).abs().max()) < ROUNDED * problem.C
    torch.testing.assert_close(
        solution.best.A @ problem.gram, best.A @ problem.gram, rtol=SOLVED_FINELY, atol=SOLVED_FINELY
    )
    if problem.gram.shape[-1] <= problem.rank:
        assert int(solution.steps.sum()) < int(steps.sum()), "which is what it is for"


def test_what_does_not_settle_is_left_to_the_interior_point(monkeypatch: pytest.MonkeyPatch) -> None:
    _, problem = drawn("some bound")
    assert bool(by_faces(problem, limit=1).best.gap.isinf().any())
    expected = solve_dual(problem, 1e-12, 100)
    monkeypatch.setattr(dual_module, "LIMIT", 1)
    solution = solve_dual(problem, 1e-12, 100)
    assert int(solution.steps.max()) > int(expected.steps.max())
    torch.testing.assert_close(solution.best.A, expected.best.A, rtol=CHAINED, atol=CHAINED)
    assert solution.face is not None, "and settled from there"
    torch.testing.assert_close(solution.face.step(problem.hot), expected.face.step(problem.hot))  # type: ignore[union-attr]


@cases
def test_the_derivative_is_a_slope(case: str) -> None:
    x, problem = drawn(case)
    solution, direction, probe = solve_dual(problem, 1e-12, 100), normal(*x.shape, seed=2), normal(3, WAYS, 1)

    def weights(at: Tensor) -> Tensor:
        return solve_dual(problem._replace(gram=at @ at.mT), 1e-12, 100).best.A @ at

    h = 1e-6
    expected = ((weights(x + h * direction) - weights(x - h * direction)) / (2 * h) * probe).sum((1, 2))
    solve = derivative(problem.gram, solution.best, solution.face, problem.rank, 1e-10)
    grad = probe.expand(-1, -1, x.shape[2])
    adjoint = solve(grad @ x.mT)
    slope = pulled_back(x, solution.best.A, adjoint, solution.best.A @ x, grad)
    torch.testing.assert_close((slope * direction).sum((1, 2)), expected, rtol=DIFFERENCED, atol=CONDITIONED)


def test_interior_weights_stand_in_where_bounds_are_not_settled() -> None:
    for case in ("some bound", "all true classes bound"):
        _, problem = drawn(case)
        best, _ = interior_point(problem, 1e-14, 100)
        solution = solve_dual(problem, 1e-12, 100)
        right = normal(*problem.hot.shape, seed=4)
        weighted = derivative(problem.gram, best, None, problem.rank, 1e-10)(right)
        settled = derivative(problem.gram, solution.best, solution.face, problem.rank, 1e-10)(right)
        torch.testing.assert_close(weighted, settled, rtol=SOLVED, atol=SOLVED_FINELY)


def both_ways(run: object) -> list[list[Tensor]]:
    """Plain operations, and one operation with a derivative of its own."""
    gradients = []
    for way in (contextlib.nullcontext, plain_autograd):
        with way():
            gradients.append(run())  # type: ignore[operator]
    return gradients


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("d", [6, 40])
@pytest.mark.parametrize("C", [0.01, 1.0])
def test_machines_as_one_operation(C: float, d: int, dtype: torch.dtype) -> None:
    y, probe = torch.arange(WAYS).repeat(4), normal(2, WAYS, d).to(dtype)

    def run() -> list[Tensor]:
        z = [normal(12, d, seed=i).to(dtype).requires_grad_() for i in range(2)]
        weights, _ = svm_heads(z, [y, y], WAYS, C)
        loss = sum((w * p).sum() + w.square().sum() for w, p in zip(weights, probe, strict=True))
        return [*weights, *torch.autograd.grad(loss, z)]  # type: ignore[arg-type]

    close = SUMMED if dtype == torch.float64 else 1e-3
    torch.testing.assert_close(*both_ways(run), rtol=close, atol=close)


def test_second_derivatives_of_a_machine_are_refused() -> None:
    z = normal(6, 20).requires_grad_()
    with plain_autograd():
        (weights,), _ = svm_heads([z], [torch.arange(WAYS).repeat(2)], WAYS, 1.0)
        (grad,) = torch.autograd.grad(weights.square().sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("shape", [(2, 6, 20), (2, BLOCK + 5, LARGE // BLOCK), (7, 9)])
def test_ridge_as_one_operation_with_second_derivatives(shape: tuple[int, ...], constant: bool) -> None:
    probe = normal(4, shape[-1], seed=5)

    def run() -> list[Tensor]:
        at = normal(*shape), normal(*shape[:-1], 4, seed=1), torch.tensor(0.3, dtype=torch.float64)
        x, y, log = [t.requires_grad_() for t in at]
        weights, bias = ridge_closed_form(x, y, 7 * log.exp(), constant)
        loss = (weights * probe).sum() + weights.square().sum() + bias.square().sum()
        first = torch.autograd.grad(loss, [x, y, log], retain_graph=True)
        again = torch.autograd.grad(loss, [x, y, log], create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in again), [x, y, log])  # type: ignore[arg-type]
        return [weights, bias, *first, *again, *second]

    torch.testing.assert_close(*both_ways(run), rtol=CHAINED, atol=MULTIPLIED)


def test_half_of_a_symmetric_product_is_enough() -> None:
    for n in (BLOCK, BLOCK + 1, 2 * BLOCK + 11):
        x = normal(2, n, LARGE // BLOCK)
        torch.testing.assert_close(symmetric_product(x), x @ x.mT, rtol=ROUNDED, atol=CHAINED)
