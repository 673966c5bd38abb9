"""What solvers say about the weights they return, on features that are not kind: scikit-learn is the judge.

A problem that is called converged is within 1e-6 of scikit-learn's minimum, or of a better one. Any other is
finite; and heads are solved in float64 before anything is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from innerloop import solvers
from innerloop.core.errors import UserError
from innerloop.evaluation import HEADS, fit_heads, head_scores
from innerloop.testing.closeness import CHAINED, SINGLE
from oracles import solvers_sklearn as twin

PROMISE = 1e-6
"""What a solver says when it says that a problem has converged: no tolerance of a comparison."""
SHAPES = {
    "5-way 1-shot": (5, 1, 24),
    "10-way 5-shot": (10, 5, 16),
    "5-way 5-shot": (5, 5, 40),
    "20-way": (20, 1, 30),
}
CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "as drawn": lambda x: x,
    "offset 100": lambda x: x + 100,
    "offset 300": lambda x: x + 300,
    "long": lambda x: 1e3 * x,
    "short": lambda x: 1e-3 * x,
    "unit length": lambda x: torch.nn.functional.normalize(x, dim=-1),
}
changes = pytest.mark.parametrize("change", CHANGES)
shapes = pytest.mark.parametrize("shape", SHAPES)


def drawn(shape: str, change: str, seed: int = 0, repeated: bool = False) -> tuple[Tensor, Tensor, int]:
    ways, shots, d = SHAPES[shape]
    g = torch.Generator().manual_seed(seed)
    x = CHANGES[change](torch.randn(2, ways * shots, d, generator=g))
    y = torch.arange(ways).repeat(shots).expand(2, -1)
    if repeated:  # the same sample twice, and once with another label
        x, y = torch.cat([x, x[:, :ways]], 1), torch.cat([y, y[:, :ways].roll(1, 1) * 0 + y[:, :ways]], 1)
    return x, y.contiguous(), ways


def best_logistic(x: Tensor, y: Tensor, C: float) -> Tensor:
    """scikit-learn's minimum. Its intercept is free, so centring changes nothing but its digits."""
    centred = x.double() - x.double().mean(1, keepdim=True)
    return twin.logistic_objective(centred, y, twin.logistic(centred, y, C, solver="newton-cholesky"), C)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "C", [pytest.param(0.01, marks=pytest.mark.slow), 1.0, pytest.param(20.0, marks=pytest.mark.slow), 100.0]
)
@changes
@pytest.mark.one_in(3)
def test_logistic_keeps_what_it_says(change: str, C: float, dtype: torch.dtype) -> None:
    for seed, shape in enumerate(SHAPES):
        x, y, ways = drawn(shape, change, seed, repeated=seed % 2 == 0)
        solution = solvers.logistic(x.to(dtype), y, ways, C=C)
        excess = twin.logistic_objective(x, y, solution, C) / best_logistic(x, y, C) - 1
        assert bool(torch.isfinite(solution.weights).all())
        assert bool((excess[solution.converged] <= PROMISE).all())
        # and it is not bought by saying no: only features that are long for C may be left unproven
        assert bool(solution.converged.all()) or change == "long"
        assert bool((excess <= PROMISE).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("C", [pytest.param(0.01, marks=pytest.mark.slow), 1.0, 100.0])
@changes
@pytest.mark.one_in(3)
def test_linear_svm_keeps_what_it_says(change: str, C: float, dtype: torch.dtype) -> None:
    for seed, shape in enumerate(SHAPES):
        x, y, ways = drawn(shape, change, seed, repeated=seed % 2 == 0)
        solution = solvers.linear_svm(x.to(dtype), y, ways, C=C)
        # liblinear's coordinate descent does not end on long features; float64 with a proof stands in for it
        exact = solvers.linear_svm(x.double(), y, ways, C=C)
        lower = exact.objective - exact.gap
        if change in ("unit length", "short") and shape == "5-way 5-shot":
            theirs = twin.hinge_objective(x, y, twin.svc(x.double(), y, C), C)
            assert bool((lower <= theirs * (1 + CHAINED)).all())
            assert bool((exact.objective <= theirs * (1 + CHAINED)).all())
        reached = twin.hinge_objective(x, y, solution, C)
        assert bool(((reached / lower - 1)[solution.converged] <= PROMISE).all())
        assert bool(((reached - exact.objective) <= solution.gap + CHAINED * reached).all())
        if change != "long":
            assert bool(solution.converged.all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("C", [0.1, 100.0])
@changes
@pytest.mark.one_in(3)
def test_crammer_singer_keeps_what_it_says(change: str, C: float, dtype: torch.dtype) -> None:
    x, y, ways = drawn("10-way 5-shot", change)
    solution = solvers.crammer_singer(x.to(dtype), y, ways, C=C)
    exact = solvers.crammer_singer(x.double(), y, ways, C=C)
    reached = twin.crammer_singer_objective(x, y, solution, C)
    lower = exact.objective - exact.gap
    assert bool(((reached - lower) <= solution.gap + exact.gap + CHAINED * reached).all())
    assert bool(
        (
            (reached - exact.objective)[solution.converged] <= PROMISE * exact.objective[solution.converged]
        ).all()
    )


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@changes
def test_ridge_keeps_what_it_says(change: str, C: float, intercept: bool) -> None:
    for seed, shape in enumerate(SHAPES):
        x, y, ways = drawn(shape, change, seed, repeated=seed % 2 == 0)
        targets = 2 * torch.nn.functional.one_hot(y, ways).float() - 1
        solution = solvers.ridge(x, targets, 1 / (2 * C), intercept)
        wide = x.double()
        if intercept:
            wide = wide - wide.mean(1, keepdim=True)
        theirs = twin.ridge(wide, targets.double(), 1 / (2 * C), intercept)

        def value(x: Tensor, fit: Any, targets: Tensor = targets) -> Tensor:
            off = x.double() @ fit[0].double().mT + fit[1].double()[:, None] - targets
            return off.square().sum((1, 2)) + fit[0].double().square().sum((1, 2)) / (2 * C)

        excess = value(x, solution) / value(wide, theirs) - 1
        assert bool((excess[solution.converged] <= PROMISE).all())
        assert bool(torch.isfinite(solution.weights).all())
        lengthy = change == "long" or (change.startswith("offset") and not intercept)
        assert bool(solution.converged.all()) or lengthy


def test_gradients_are_of_the_weights_that_are_returned() -> None:
    x, y, ways = drawn("10-way 5-shot", "offset 100")
    plain = solvers.logistic(x, y, ways, C=20.0)
    solution = solvers.logistic(x.clone().requires_grad_(), y, ways, C=20.0)
    excess = twin.logistic_objective(x, y, [f.detach() for f in solution[:2]], 20.0) / plain.objective - 1  # type: ignore[arg-type]
    assert float(excess.abs().max()) < PROMISE
    assert solution.weights.requires_grad


def test_labels_do_not_depend_on_an_offset() -> None:
    """An unpenalised intercept takes an offset away; queries in float32 are not spoilt either."""
    x, y, ways = drawn("10-way 5-shot", "as drawn")
    queries = torch.randn(2, 500, 16, generator=torch.Generator().manual_seed(5))
    for offset in (100.0, 300.0):
        z, q = (
            x + offset,
            queries + offset,
        )  # rounded: the truth is that of what was rounded
        exact = fit_heads(z.double() - offset, y, ways, "logistic", 20.0, normalise=False)
        expected = head_scores(exact, q.double() - offset, normalise=False).argmax(-1)
        scores = head_scores(fit_heads(z, y, ways, "logistic", 20.0, normalise=False), q, normalise=False)
        assert float((scores.argmax(-1) == expected).double().mean()) >= 0.999


@pytest.mark.parametrize("head", ["logistic", "svm", "ridge"])
@pytest.mark.parametrize("scale", [1e3, 1e5])
def test_badly_scaled_features_get_a_head_or_a_sentence(head: str, scale: float) -> None:
    x, y, ways = drawn("10-way 5-shot", "as drawn")
    for offset in (0.0, 1e3):
        try:
            heads = fit_heads(scale * x + offset, y, ways, head, 1.0, normalise=False)
        except UserError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert bool(torch.isfinite(heads.weights).all())
            assert heads.converged is not None


def test_the_machine_that_ended_in_a_raw_error() -> None:
    y = torch.arange(10).repeat(5)[None]
    for seed in range(3):
        x = 1e3 * torch.randn(1, 50, 16, generator=torch.Generator().manual_seed(seed))
        exact = solvers.linear_svm(x.double(), y, 10)
        solution = solvers.linear_svm(x, y, 10)
        assert bool(exact.converged.all())
        excess = twin.hinge_objective(x, y, solution, 1.0) / exact.objective - 1
        assert not bool(solution.converged) or float(excess) <= PROMISE


def test_heads_that_float32_cannot_hold_come_back_in_float64() -> None:
    x, y, ways = drawn("5-way 1-shot", "long")
    x = x + 1e5
    single = solvers.linear_svm(x, y, ways, C=1.0)
    assert not bool(single.converged.all())
    heads = fit_heads(x, y, ways, "svm", 1.0, normalise=False)
    assert heads.weights.dtype == torch.float64
    assert heads.converged is not None
    assert bool(heads.converged.all())


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("head", HEADS)
def test_features_that_are_no_numbers_are_refused(head: str, normalise: bool, value: float) -> None:
    x, y, ways = drawn("5-way 5-shot", "as drawn")
    x[1, 3, 2] = value
    with pytest.raises(UserError, match="problem 1"):
        fit_heads(x, y, ways, head, 1.0, normalise)


def test_rounding_is_seen_where_it_counts() -> None:
    from innerloop.solvers.problems import rounded, rounding

    x, _, ways = drawn("10-way 5-shot", "unit length")
    A = torch.randn(2, ways, 50, generator=torch.Generator().manual_seed(0))
    small, large = (rounding(A, z.square().sum(-1), 2 * A.abs()) for z in (x, 300 + x))
    assert bool((large > 1e6 * small).all())
    weights, mean = torch.randn(1, 2, 3, dtype=torch.float64), torch.full((1, 1, 3), 1e4, dtype=torch.float64)
    short, bias = rounded(weights, torch.zeros(1, 2, dtype=torch.float64), mean, torch.float32)
    kept = short.double() @ mean.mT + bias.double()[..., None]
    assert float((kept - weights @ mean.mT).abs().max()) < SINGLE
