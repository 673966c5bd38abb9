"""Machines of pairs of classes against scikit-learn's ``SVC(kernel="linear")``, and what is proven of them.

libsvm keeps kernels in single precision. Samples here have few binary digits, so that their products fit into
it: only then is it exact enough to be compared with.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.svm import SVC
from torch import Tensor

from innerloop import solvers
from innerloop.core.errors import UserError
from innerloop.evaluation import fit_heads, head_scores
from innerloop.solvers.svc import Boxed, middle_intercept, pairs, solve_boxed
from innerloop.testing.closeness import (
    CHAINED,
    CONDITIONED,
    DEEP,
    MULTIPLIED,
    ROUNDED,
    SOLVED_FINELY,
    SOLVED_ROUGHLY,
)
from oracles import solvers_sklearn as twin

PUBLISHED = [0.2, 0.35, 0.75]  # values of C that MetaNTK-NAS gives


def few_digits(x: Tensor) -> Tensor:
    return (16 * x).round() / 16


def drawn(ways: int, shots: int, d: int, apart: float, count: int = 3, seed: int = 0) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    means = apart * torch.randn(count, ways, d, generator=g, dtype=torch.float64)
    y = torch.arange(ways).repeat(shots).expand(count, -1).contiguous()
    asked = torch.arange(ways).repeat(20).expand(count, -1)

    def around(labels: Tensor) -> Tensor:
        centre = means.gather(1, labels[..., None].expand(-1, -1, d))
        return few_digits(centre + torch.randn(centre.shape, generator=g, dtype=torch.float64))

    return around(y), y, around(asked)


def repeated(x: Tensor, y: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    """Samples twice, and some once more with the label of another class."""
    return torch.cat([x, x, x[:, :2]], 1), torch.cat([y, y, y[:, :2].flip(1)], 1), q


CASES: dict[str, Callable[[], tuple[Tensor, ...]]] = {
    "overlapping": lambda: drawn(5, 5, 12, 0.4),
    "separable": lambda: drawn(4, 4, 40, 2.0),
    "1-shot": lambda: drawn(5, 1, 30, 1.0),
    "more samples than dimensions": lambda: drawn(3, 20, 4, 0.7),
    "repeated": lambda: repeated(*drawn(4, 3, 20, 0.5)),
    "ill-conditioned": lambda: tuple(  # type: ignore[arg-type]
        t if t.dtype == torch.int64 else (t * 2).round() + 60 for t in drawn(4, 4, 20, 0.7)
    ),
    "two classes": lambda: drawn(2, 5, 10, 0.5),
    "20 classes": lambda: drawn(20, 2, 16, 0.8, count=1),
    "unequal classes": lambda: uneven(*drawn(4, 5, 12, 0.6)),
}
cases = pytest.mark.parametrize("case", CASES)


def uneven(x: Tensor, y: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    """Other class counts in every problem, in no order."""
    y = y.clone()
    for i, row in enumerate(y):
        row[4 : 8 + i] = i
    return x, y[:, torch.randperm(y.shape[1], generator=torch.Generator().manual_seed(0))], q


@pytest.mark.parametrize("C", [0.01, *PUBLISHED, 10.0])
@cases
def test_decisions_and_predictions_are_those_of_scikit_learn(case: str, C: float) -> None:
    x, y, q = CASES[case]()
    ways = int(y.max()) + 1
    solution = solvers.svc(x, y, ways, C=C)
    decisions = solvers.scores(solution, q)
    theirs = solvers.scores(twin.svc_pairs(x, y, C), q)
    assert bool(solution.converged.all())
    assert float((decisions - theirs).abs().max()) < SOLVED_FINELY * max(1.0, float(theirs.abs().max()))
    for i in range(len(x)):
        model = SVC(kernel="linear", C=C, tol=1e-10).fit(x[i].numpy(), y[i].numpy())
        sure = (decisions[i].abs() > 1e-9).all(-1).numpy()  # the sign of nothing is anybody's
        assert sure.mean() > 0.9
        mine = solvers.votes(decisions[i]).argmax(-1).numpy()
        assert np.array_equal(mine[sure], model.predict(q[i].numpy())[sure])


def test_ties_go_to_the_first_of_the_best_as_in_libsvm() -> None:
    """Classes on a plane that overlap: on parts of it several win as many pairs as any other."""
    q = 2 * torch.randn(1, 4000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x, y, _ = drawn(5, 3, 2, 0.8, count=1, seed=4)
    decisions = solvers.scores(solvers.svc(x, y, 5, C=0.2), q)
    counted = solvers.votes(decisions)[0]
    best = counted == counted.amax(-1, keepdim=True)
    tied = best.sum(-1) > 1
    assert int(tied.sum()) > 20
    expected = SVC(kernel="linear", C=0.2, tol=1e-10).fit(x[0].numpy(), y[0].numpy()).predict(q[0].numpy())
    assert np.array_equal(counted.argmax(-1).numpy(), expected)
    assert bool((counted.sum(-1) == 10).all())


@cases
def test_objectives_and_gaps_are_what_they_are_called(case: str) -> None:
    x, y, _ = CASES[case]()
    ways = int(y.max()) + 1
    for dtype in (torch.float32, torch.float64):
        solution = solvers.svc(x.to(dtype), y, ways, C=0.7)
        assert solution.weights.dtype == dtype
        reached = twin.pairs_objective(x, y, solution, 0.7)
        torch.testing.assert_close(solution.objective, reached, rtol=CHAINED, atol=0)
        best = twin.pairs_objective(x, y, twin.svc_pairs(x, y, 0.7), 0.7)
        assert bool((solution.objective - solution.gap <= best * (1 + ROUNDED)).all())
        proven = solution.converged
        assert bool(proven.all()) or dtype == torch.float32
        limit = 1e-6 if dtype == torch.float32 else 1e-9
        assert bool((reached[proven] <= best[proven] * (1 + limit)).all())


def test_the_gap_holds_half_way_and_is_told() -> None:
    x, y, _ = drawn(4, 8, 10, 0.3)
    done = solvers.svc(x, y, 4, C=3.0)
    for steps in (1, 3, 6):
        few = solvers.svc(x, y, 4, C=3.0, max_steps=steps)
        assert not bool(few.converged.any())
        assert few.iterations.tolist() == [steps] * 3
        assert bool((few.objective - few.gap <= done.objective).all())
        assert bool((few.objective >= done.objective - done.gap).all())


def test_a_corner_that_is_nearly_the_solution_ends_nothing() -> None:
    """With all coefficients at C almost right, the first steps are worse than where one starts."""
    x, y, _ = drawn(5, 5, 640, 0.3, count=60)
    x = torch.nn.functional.normalize(x.clamp_min(0), dim=-1)
    assert bool(solvers.svc(x, y, 5, C=1.0).converged.all())


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_badly_scaled_features_are_solved_or_counted(scale: float, offset: float) -> None:
    x, y, _ = drawn(5, 5, 16, 0.5)
    for dtype in (torch.float32, torch.float64):
        z = (scale * x + offset).to(dtype)
        solution = solvers.svc(z, y, 5, C=1.0)
        exact = solvers.svc(z.double(), y, 5, C=1.0)
        assert bool(exact.converged.all())
        excess = (twin.pairs_objective(z, y, solution, 1.0) - exact.objective) / exact.objective
        assert bool((excess[solution.converged] <= SOLVED_FINELY).all())
        head = fit_heads(z, y, 5, "svc", 1.0, normalise=False)
        assert head.converged is not None
        assert bool(head.converged.all())
        assert head.pairs


def test_an_intercept_that_is_not_unique_is_the_middle_one() -> None:
    """By a fine grid: all intercepts that are best, and their middle."""
    g = torch.Generator().manual_seed(0)
    sign = torch.tensor([[1.0, 1, 1, -1, -1, -1, 0]], dtype=torch.float64).expand(6, -1)
    scores = torch.randn(6, 7, generator=g, dtype=torch.float64)
    grid = torch.linspace(-8, 8, 160_001, dtype=torch.float64)
    loss = (1 - sign[..., None] * (scores[..., None] + grid)).clamp_min(0) * sign[..., None].abs()
    total = loss.sum(1)
    for row, intercept in zip(total, middle_intercept(scores, sign), strict=True):
        best = grid[row <= row.min() + CHAINED]
        assert abs(float(intercept) - float(best.min() + best.max()) / 2) < 2 * SOLVED_ROUGHLY


def test_samples_that_are_not_there_change_nothing() -> None:
    x, y, _ = drawn(2, 6, 5, 0.3, count=4)
    sign = 1 - 2 * y.double()
    gram = x @ x.mT
    wide = torch.zeros(4, 15, 15, dtype=torch.float64)
    wide[:, :12, :12] = gram
    filled = torch.cat([sign, sign.new_zeros(4, 3)], 1)
    a, b = (solve_boxed(Boxed(k, s, 0.9), 1e-15, 60)[0] for k, s in ((gram, sign), (wide, filled)))
    torch.testing.assert_close(a.objective, b.objective, rtol=ROUNDED, atol=0)
    torch.testing.assert_close(a.bias, b.bias, rtol=CONDITIONED, atol=DEEP)
    assert not bool(b.beta[:, 12:].any())


def test_nothing_depends_on_the_neighbours_of_a_problem() -> None:
    x, y, q = drawn(5, 5, 12, 0.4, count=5)
    together, heads = solvers.svc(x, y, 5, C=0.5), fit_heads(x, y, 5, "svc", 0.5, normalise=False)
    for i in range(5):
        alone = solvers.svc(x[i : i + 1], y[i : i + 1], 5, C=0.5)
        torch.testing.assert_close(alone.weights[0], together.weights[i], rtol=CHAINED, atol=MULTIPLIED)
    labels = solvers.votes(solvers.scores(together, q)).argmax(-1)
    assert torch.equal(head_scores(heads, q, normalise=False).argmax(-1), labels)
    assert torch.equal(pairs(5)[:, :4], torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]]))


def test_what_has_no_answer_is_refused() -> None:
    x, y, _ = drawn(3, 2, 4, 1.0)
    with pytest.raises(UserError, match="class 3 of problem 0 has no support example"):
        solvers.svc(x, y, 4)
    with pytest.raises(UserError, match="C=0"):
        solvers.svc(x, y, 3, C=0)
    x[1, 0, 0] = torch.nan
    with pytest.raises(UserError, match="features of problem 1 are not finite"):
        solvers.svc(x, y, 3)
    assert bool(solvers.votes(torch.tensor([[1.0, torch.nan, 1.0]])).isnan().any())
