"""Batched solvers against scikit-learn, their certificates, refusals, and gradients by finite differences."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from sklearn.neighbors import NearestCentroid
from torch import Tensor
from torch.autograd import gradcheck

from innerloop import solvers
from innerloop.core.errors import UserError
from innerloop.solvers import conjugate, softmax_dual
from innerloop.solvers.inverse import spd_inverse
from innerloop.solvers.problems import LinearResult
from innerloop.testing.closeness import (
    CHAINED,
    CONDITIONED,
    DEEP,
    MULTIPLIED,
    ROUNDED,
    SINGLE,
    SINGLE_BITS,
    SOLVED,
    SOLVED_FINELY,
    SOLVED_ROUGHLY,
    SOLVED_VALUE,
)
from oracles import solvers_sklearn as twin
from oracles.solvers_problems import Problems, relu_features, unequal_counts

LABELS = 0.999  # share of queries with the same label
WEIGHTS = {"logistic": 1e-3, "svm": SOLVED_FINELY, "crammer-singer": 1e-3}  # relative to the largest weight

CASES = {
    "5-way 5-shot, unit length": (relu_features(6, queries=200, d=160, normalise=True), 3.0),
    "5-way 5-shot, as they come": (relu_features(6, queries=200, d=160), 3.0),
    "5-way 5-shot, 640 features": (relu_features(1, queries=200, d=640), 3.0),
    "5-way 1-shot": (relu_features(6, shots=1, d=160), 1.0),
    "20-way 5-shot": (relu_features(2, ways=20, queries=50, d=160, normalise=True), 3.0),
    "2-way": (relu_features(6, ways=2, d=80), 0.7),
    "more samples than dimensions": (relu_features(4, shots=20, d=24), 1.0),
    "unequal class counts": (unequal_counts(6), 1.0),
    "weak penalty": (relu_features(4, d=160, normalise=True), 1e3),
    "strong penalty": (relu_features(4, d=160), 1e-3),
}
cases = pytest.mark.parametrize("case", CASES)


def agreement(p: Problems, ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> float:
    same = solvers.scores(ours, p.x_query).argmax(-1) == solvers.scores(theirs, p.x_query).argmax(-1)
    return float(same.double().mean())


def off(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


@cases
def test_logistic_equals_scikit_learn(case: str) -> None:
    p, C = CASES[case]
    ours = solvers.logistic(p.x, p.y, p.ways, C=C)
    theirs = twin.logistic(p.x, p.y, C)
    mine, other = (twin.logistic_objective(p.x, p.y, fit, C) for fit in (ours, theirs))
    assert bool(ours.converged.all())
    torch.testing.assert_close(ours.objective, mine, rtol=CHAINED, atol=0)
    assert float(((mine - other) / other).abs().max()) <= SOLVED_VALUE
    assert agreement(p, ours, theirs) >= LABELS
    assert off(ours.weights, theirs.weights) < WEIGHTS["logistic"]
    # intercepts are unpenalised, so free by a constant: compare their differences
    a, b = (fit.bias - fit.bias.mean(1, keepdim=True) for fit in (ours, theirs))
    assert float((a - b).abs().max()) < 1e-3 * max(1.0, float(b.abs().max()))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ways", [2, 3, 5])
@pytest.mark.parametrize(
    ("fit", "objective"),
    [
        (solvers.logistic, twin.logistic_objective),
        (solvers.linear_svm, twin.hinge_objective),
    ],
)
def test_c_is_the_same_penalty_for_any_number_of_classes(
    fit: Callable[..., LinearResult], objective: Callable[..., Tensor], ways: int, intercept: bool
) -> None:
    """The documented objective, with one row per class, is flat at the solution."""
    p = relu_features(3, ways=ways, shots=4, d=20)
    solution = fit(p.x, p.y, ways, C=0.3, intercept=intercept, tol=1e-13)
    point = (solution.weights.requires_grad_(), solution.bias.requires_grad_())
    reached = objective(p.x, p.y, point, 0.3)
    torch.testing.assert_close(solution.objective, reached.detach(), rtol=CHAINED, atol=0)
    slopes = torch.autograd.grad(reached.sum(), point[: 1 + intercept])
    assert max(float(slope.abs().max()) for slope in slopes) < SOLVED


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ways", [2, 3, 5])
def test_crammer_singer_has_one_row_per_class_for_any_number_of_them(ways: int, intercept: bool) -> None:
    """No point near the solution is better by the documented objective, which has kinks."""
    p = relu_features(3, ways=ways, shots=4, d=20)
    solution = solvers.crammer_singer(p.x, p.y, ways, C=0.3, intercept=intercept, tol=1e-12)
    best = twin.crammer_singer_objective(p.x, p.y, solution, 0.3)
    torch.testing.assert_close(solution.objective, best, rtol=SOLVED_VALUE, atol=0)
    for scale in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):  # another penalty would be best at other lengths
        other = twin.crammer_singer_objective(
            p.x, p.y, (scale * solution.weights, scale * solution.bias), 0.3
        )
        assert bool((other > best).all())


def test_logistic_without_intercept_takes_classes_without_examples() -> None:
    p = relu_features(4, ways=3, shots=4, d=20)
    ours = solvers.logistic(p.x, p.y, 3, C=2.0, intercept=False)
    theirs = twin.logistic(p.x, p.y, 2.0, intercept=False)
    assert off(ours.weights, theirs.weights) < WEIGHTS["logistic"]
    assert not bool(ours.bias.any())
    lacking = torch.where(p.y == 2, 1, p.y)
    x = p.x.clone()
    solution = solvers.logistic(x, lacking, 3, C=2.0, intercept=False, tol=1e-13)
    weights = solution.weights.clone().requires_grad_()
    value = twin.logistic_objective(x, lacking, (weights, solution.bias), 2.0).sum()
    (slope,) = torch.autograd.grad(value, weights)
    assert float(slope.abs().max()) < SOLVED


def test_float32_is_certified_in_float32_and_right_in_float64() -> None:
    for normalise in (True, False):
        p = relu_features(40, normalise=normalise)
        single = solvers.logistic(p.x.float(), p.y, 5, C=3.0)
        double = solvers.logistic(p.x, p.y, 5, C=3.0, tol=1e-12)
        assert single.weights.dtype == torch.float32
        assert bool(single.converged.all())
        best = twin.logistic_objective(p.x, p.y, double, 3.0)
        mine = twin.logistic_objective(p.x, p.y, single, 3.0)
        assert float(((mine - best) / best).abs().max()) <= SINGLE_BITS
        share = agreement(p, (single.weights.double(), single.bias.double()), double)
        assert share >= LABELS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("trouble", ["column scales", "offset", "huge", "saturated", "noise labels"])
def test_hard_problems_are_handed_on_until_solved(trouble: str, dtype: torch.dtype) -> None:
    p = relu_features(8, d=48, shots=6)
    x, y, C = p.x, p.y, 1.0
    if trouble == "column scales":
        x = x * 10.0 ** torch.linspace(-3, 3, 48)
    elif trouble == "offset":
        x = x + 1000.0
    elif trouble == "huge":
        x = 100 * x
    elif trouble == "saturated":
        C = 1e4
    else:
        x, y, C = x[..., :6], y.roll(1, 1) * 0 + torch.arange(30).mul(7).remainder(5), 100.0
    x = x.to(dtype)
    solution = solvers.logistic(x, y, 5, C=C)
    assert bool(solution.converged.all())
    # an unpenalised intercept makes centring free, and scikit-learn needs it here
    centred = x.double() - x.double().mean(1, keepdim=True)
    other = twin.logistic_objective(centred, y, twin.logistic(centred, y, C, solver="newton-cholesky"), C)
    limit = {torch.float32: SINGLE, torch.float64: SOLVED_VALUE}[dtype]
    assert float(((solution.objective - other) / other).abs().max()) <= limit
    # and the weights and intercepts given out are worth what is said of them
    if trouble != "offset":  # where float32 cannot hold the difference of features and intercept
        mine = twin.logistic_objective(x, y, solution, C)
        assert float(((mine - other) / other).abs().max()) <= limit


def test_gap_bounds_the_distance_from_the_minimum_at_every_step() -> None:
    p = relu_features(6, d=60)
    problem = softmax_dual.SoftmaxProblem(
        (p.x - p.x.mean(1, keepdim=True)) @ (p.x - p.x.mean(1, keepdim=True)).mT,
        torch.nn.functional.one_hot(p.y, 5).double().mT.contiguous(),
        3.0,
        True,
    )
    best = solvers.logistic(p.x, p.y, 5, C=3.0, tol=1e-13).objective
    state, before = conjugate.start(problem), None
    gaps = []
    for _ in range(8):
        last = state.R
        state, before = conjugate.step(problem, state, before), last
        proof = softmax_dual.certify(problem, state.A, state.F)
        assert bool((proof.objective - best <= proof.gap * (1 + CHAINED) + ROUNDED).all())
        gaps.append(float(proof.gap.max()))
    assert gaps[-1] < 1e-2 * gaps[0]


def test_status_tells_what_was_not_reached() -> None:
    p = relu_features(3, d=12, shots=10)
    solution = solvers.logistic(1e6 * p.x, p.y, 5, C=1e6)  # beyond what float64 can hold apart
    assert not bool(solution.converged.any())
    assert bool((solution.gap > 1e-10 * solution.objective).all())
    assert bool(torch.isfinite(solution.weights).all())
    few = solvers.crammer_singer(p.x, p.y, 5, C=1.0, max_steps=2)
    assert not bool(few.converged.any())
    assert few.iterations.tolist() == [2, 2, 2]
    done = solvers.crammer_singer(p.x, p.y, 5, C=1.0)
    assert bool((few.objective - few.gap <= done.objective).all())  # the gap holds half-way, too
    assert bool(done.converged.all())


@pytest.mark.parametrize("fit", [solvers.logistic, solvers.linear_svm, solvers.crammer_singer])
def test_a_problem_has_the_same_solution_alone_and_in_a_batch(fit: object) -> None:
    p = relu_features(70, ways=3, shots=2, d=10, normalise=True)
    together = fit(p.x, p.y, 3, C=1.0, tol=1e-12)  # type: ignore[operator]
    alone = fit(p.x[41:42], p.y[41:42], 3, C=1.0, tol=1e-12)  # type: ignore[operator]
    assert off(together.weights[41:42], alone.weights) < SOLVED
    in_threads = fit(p.x, p.y, 3, C=1.0, tol=1e-12, threads=2)  # type: ignore[operator]
    assert off(in_threads.weights, together.weights) < SOLVED


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": torch.tensor([[0, 0, 1, 1, 1, 1]])}, "class 2 of problem 0 has no support example"),
        ({"labels": torch.tensor([[0, 1, 2, 3, 1, 2]])}, "between 0 and 2"),
        ({"labels": torch.tensor([[0, 1, 2]])}, "give (problems, samples, dimensions)"),
        ({"C": 0.0}, "C=0.0: it must be positive"),
        ({"C": float("nan")}, "must be positive"),
        ({"features": torch.full((1, 6, 4), torch.nan)}, "not finite"),
        ({"features": torch.full((1, 6, 4), 1e30)}, "too large"),
        ({"features": torch.ones(1, 6, 4, dtype=torch.int64)}, "float32 or float64"),
        ({"ways": 1, "labels": torch.zeros(1, 6, dtype=torch.int64)}, "at least two"),
        (
            {"features": torch.ones(0, 6, 4), "labels": torch.ones(0, 6, dtype=torch.int64)},
            "nothing to learn",
        ),
    ],
)
def test_refusals_are_one_sentence_with_the_fix(change: dict[str, object], words: str) -> None:
    generator = torch.Generator().manual_seed(0)
    settings: dict[str, object] = {
        "features": torch.randn(1, 6, 4, generator=generator),
        "labels": torch.tensor([[0, 0, 1, 1, 2, 2]]),
        "ways": 3,
        "C": 1.0,
    }
    with pytest.raises(UserError) as caught:
        solvers.logistic(**{**settings, **change})  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("intercept", [True, False])
@cases
def test_linear_svm_equals_scikit_learn(case: str, intercept: bool) -> None:
    p, C = CASES[case]
    p = Problems(p.x[:3], p.y[:3], p.x_query[:3], p.y_query[:3], p.ways)
    ours = solvers.linear_svm(p.x, p.y, p.ways, C=C, intercept=intercept)
    theirs = twin.svc(p.x, p.y, C, intercept)
    mine, other = (twin.hinge_objective(p.x, p.y, fit, C) for fit in (ours, theirs))
    assert bool(ours.converged.all())
    torch.testing.assert_close(ours.objective, mine, rtol=CHAINED, atol=0)
    assert bool((mine <= other * (1 + SOLVED_VALUE)).all())
    assert off(ours.weights, theirs.weights) < WEIGHTS["svm"]
    assert off(ours.bias, theirs.bias) < SOLVED if intercept else not bool(ours.bias.any())
    assert agreement(p, ours, theirs) >= LABELS


@pytest.mark.parametrize("intercept", [True, pytest.param(False, marks=pytest.mark.slow)])
@cases
@pytest.mark.slow
def test_crammer_singer_equals_scikit_learn(case: str, intercept: bool) -> None:
    p, C = CASES[case]
    some = 1 if p.x.shape[-1] > 600 else 2  # scikit-learn takes seconds for each of the large ones
    p = Problems(p.x[:some], p.y[:some], p.x_query[:some], p.y_query[:some], p.ways)
    ours = solvers.crammer_singer(p.x, p.y, p.ways, C=C, intercept=intercept)
    theirs = twin.svc(p.x, p.y, C, intercept, kind="crammer_singer")
    mine, other = (twin.crammer_singer_objective(p.x, p.y, fit, C) for fit in (ours, theirs))
    assert bool(ours.converged.all())
    torch.testing.assert_close(ours.objective, mine, rtol=SOLVED_VALUE, atol=0)
    assert bool((mine <= other * (1 + SOLVED_VALUE)).all())
    assert bool((mine - ours.gap <= other).all())
    assert off(ours.weights, theirs.weights) < WEIGHTS["crammer-singer"]
    assert agreement(p, ours, theirs) >= LABELS


@pytest.mark.parametrize("shape", [(3, 7, 20, 2), (3, 30, 6, 4), (2, 5, 5, 1)])
@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_equals_scikit_learn_in_both_forms(shape: tuple[int, ...], intercept: bool) -> None:
    count, n, d, k = shape
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, n, d, generator=generator, dtype=torch.float64) + 2
    y = torch.randn(count, n, k, generator=generator, dtype=torch.float64)
    theirs = twin.ridge(x, y, 0.7, intercept)
    for form in ("auto", "primal", "dual"):
        ours = solvers.ridge(x, y, 0.7, intercept, form)  # type: ignore[arg-type]
        torch.testing.assert_close(ours.weights, theirs.weights, rtol=CHAINED, atol=MULTIPLIED)
        torch.testing.assert_close(ours.bias, theirs.bias, rtol=CHAINED, atol=MULTIPLIED)


def test_centroids_equal_scikit_learn_and_the_formula() -> None:
    p = relu_features(4, d=30)
    ours = solvers.nearest_centroid(p.x, p.y, 5)
    angles = solvers.cosine(p.x, p.y, 5)
    for i in range(4):
        theirs = NearestCentroid().fit(p.x[i].numpy(), p.y[i].numpy())
        labels = solvers.scores(ours, p.x_query)[i].argmax(-1)
        assert (labels.numpy() == theirs.predict(p.x_query[i].numpy())).all()
        means = torch.from_numpy(theirs.centroids_)
        cosines = torch.nn.functional.cosine_similarity(p.x_query[i][:, None], means[None], dim=-1)
        got = solvers.scores(angles, p.x_query)[i] / p.x_query[i].norm(dim=-1, keepdim=True)
        torch.testing.assert_close(got, cosines)


def small(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 8, 5, generator=generator, dtype=torch.float64)
    return x, torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1], [2, 1, 0, 2, 1, 0, 2, 2]])


@pytest.mark.parametrize("intercept", [True, False])
def test_gradients_of_ridge(intercept: bool) -> None:
    x, _ = small()
    y = torch.randn(2, 8, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    penalty = torch.tensor(0.3, dtype=torch.float64)
    for form in ("primal", "dual"):
        assert gradcheck(
            lambda x, y, p, form=form: solvers.ridge(x, y, p, intercept, form)[:2],
            (x.requires_grad_(), y.requires_grad_(), penalty.requires_grad_()),
        )


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ways", [3, 2])
@pytest.mark.one_in(4)
def test_gradients_of_logistic(intercept: bool, ways: int) -> None:
    x, y = small()
    y = y.clamp_max(ways - 1)

    def fit(x: Tensor) -> tuple[Tensor, Tensor]:
        solution = solvers.logistic(x, y, ways, C=2.0, intercept=intercept, tol=1e-15, threads=1)
        # unpenalised intercepts are free by a constant
        return solution.weights, solution.bias - solution.bias.mean(1, keepdim=True)

    assert gradcheck(fit, (x.requires_grad_(),), eps=1e-5, atol=SOLVED, rtol=SOLVED_ROUGHLY)


@pytest.mark.parametrize("samples", [4, 9])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
@pytest.mark.one_in(3)
def test_gradients_of_crammer_singer(intercept: bool, C: float, samples: int) -> None:
    """Along random directions. The solution has kinks: where two step sizes disagree there was one."""
    generator = torch.Generator().manual_seed(3)
    shape = (60, samples, 5)
    x, direction = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    y = torch.arange(samples).remainder(3).expand(60, -1)
    probe = torch.randn(60, 3, 6, generator=generator, dtype=torch.float64)

    def value(x: Tensor) -> Tensor:
        solution = solvers.crammer_singer(x, y, 3, C=C, intercept=intercept, tol=1e-11, threads=1)
        return (torch.cat([solution.weights, solution.bias[..., None]], -1) * probe).sum((1, 2))

    def difference(h: float) -> Tensor:
        return (value(x + h * direction) - value(x - h * direction)) / (2 * h)

    inputs = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(value(inputs).sum(), inputs)
    analytic, coarse, fine = (slope * direction).sum((1, 2)), difference(4e-4), difference(2e-4)
    smooth = (coarse - fine).abs() < SOLVED_ROUGHLY * (1 + fine.abs())
    assert float(smooth.double().mean()) > 0.6
    assert bool(((analytic - fine).abs() < 5 * SOLVED_ROUGHLY * (1 + fine.abs()))[smooth].all())


def test_gradients_flow_through_the_support_set_to_a_query_loss() -> None:
    """Meta-learning's use: the loss on queries as a function of support features, by central differences."""
    p = relu_features(3, ways=3, shots=3, queries=4, d=12, normalise=True)
    for fit, C in ((solvers.crammer_singer, 1.0), (solvers.logistic, 3.0)):

        def loss(x: Tensor, fit: object = fit, C: float = C) -> Tensor:
            solution = fit(x, p.y, 3, C=C, tol=1e-13)  # type: ignore[operator]
            outputs = solvers.scores(solution, p.x_query).flatten(0, 1)
            return torch.nn.functional.cross_entropy(outputs, p.y_query.flatten())

        x = p.x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(loss(x), x)
        direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        h = 1e-4
        with torch.no_grad():
            numeric = (loss(p.x + h * direction) - loss(p.x - h * direction)) / (2 * h)
        assert float((slope * direction).sum()) == pytest.approx(float(numeric), rel=SOLVED_ROUGHLY)


@pytest.mark.parametrize(("count", "n"), [(3, 7), (100, 25), (500, 25), (40, 60), (433, 1)])
def test_inverses(count: int, n: int) -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(count, n, n + 3, generator=generator, dtype=torch.float64)
    spd = a @ a.mT + 0.1 * torch.eye(n)
    torch.testing.assert_close(spd_inverse(spd), torch.linalg.inv(spd), rtol=CONDITIONED, atol=CHAINED)
    torch.testing.assert_close(spd_inverse(spd.view(1, count, n, n))[0], spd_inverse(spd))


def test_inverse_of_what_rounding_made_indefinite() -> None:
    thin = torch.randn(3, 12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrices = 1e6 * thin @ thin.mT
    matrices[1] += torch.eye(12)
    matrices[2] = torch.nan
    inverse = spd_inverse(matrices)
    assert bool(torch.isfinite(inverse[:2]).all())
    assert bool(torch.isnan(inverse[2]).all())
    torch.testing.assert_close(inverse[1], torch.linalg.inv(matrices[1]), rtol=SOLVED_FINELY, atol=DEEP)
