"""Estimates for Python users: plain arguments in, typed results out, and plain data for JSON."""

from __future__ import annotations

import json
import math

import pytest
import torch

from innerloop.choose.rate_advice import RateAdvice, judge_rate
from innerloop.choose.scores.patterns import PATIENCE, count_regions, different_inputs
from innerloop.core.errors import UserError
from innerloop.nets.mlp import mlp
from innerloop.tasks import get_family, make_sampler
from innerloop.testing.closeness import CHAINED
from innerloop.theory.hardness import rank_tasks
from innerloop.theory.landscape.features import Step, View, look_at
from innerloop.theory.landscape.geography import Geography, closed_landscape, environment
from innerloop.theory.landscape.permuted import permuted_task_landscape
from innerloop.theory.landscape.tasks import task_landscape
from innerloop.theory.rate.linear import DESCRIPTIONS, SPLIT, LinearTasks, needed, rate_by
from innerloop.training.convergence import FiniteWidthEffects, MetaMethod, WideNetwork, follow_bound


def drawn(family: str, shots: int = 3, queries: int = 3, **options):
    return make_sampler(
        get_family(family), seed=0, shots=shots, queries=queries, dtype=torch.float64, **options
    )


# ---- convergence ----


def test_a_trained_network_tells_more_than_the_limit():
    tasks = drawn("bridge-quadratic").episodes(range(2))
    limit = follow_bound(tasks, MetaMethod("anil"), WideNetwork(2), steps=4)
    bound = follow_bound(tasks, MetaMethod("anil"), WideNetwork(2, 16), steps=4)
    assert limit.trained is None
    assert bound.trained is not None
    assert bound.eigenvalues == limit.eigenvalues
    assert set(bound.as_dict()) - set(limit.as_dict()) == set(FiniteWidthEffects._fields)
    assert json.loads(json.dumps(bound.as_dict()))["kernel_error"] == bound.trained.kernel_error


# ---- landscape ----


def linear_view(env: Geography, tasks: int, samples: int) -> View:
    """Tasks drawn from a geography, without noise, seen in their own inputs."""
    made = torch.Generator().manual_seed(3)
    covariances, optima, _ = environment(env, tasks, made)
    x = torch.randn(2 * tasks, samples, env.dim, generator=made, dtype=torch.float64)
    x = x * covariances[:, :1, 0, None].sqrt()
    return View(x, x @ optima[..., None], samples // 2, 1.0)


def test_drawn_tasks_have_the_landscape_of_their_geography():
    env = Geography(3, 0.1, 1.0, 2.0, 0.5, 0.5)
    exact = closed_landscape(env, lr=1.0, shots=100)
    landscape = task_landscape(linear_view(env, 100, 60), Step(100, 100, 1.0))
    assert landscape.gain.low <= exact.gain <= landscape.gain.high
    assert landscape.geography["rho_hard"].value == pytest.approx(0.1, rel=0.1)
    assert landscape.condition.hardness == pytest.approx(exact.condition.hardness, rel=0.1)
    assert landscape.noise == pytest.approx(0, abs=CHAINED)
    plain = json.loads(json.dumps(landscape.as_dict()))
    assert plain["gain_interval"] == [landscape.gain.low, landscape.gain.high]
    assert plain["nal"]["intervals"]["risk_hard"] == list(landscape.nal.risk_hard[1:])
    assert (plain["tasks"], plain["samples"], plain["components"]) == (200, 60, 3)
    assert "by_kind" not in plain["hardness"]


def test_a_rate_that_nobody_gives_is_one_over_the_largest_eigenvalue():
    view = linear_view(Geography(2, 0.1, 1.0, 2.0, 0.5, 0.5), 10, 20)
    landscape = task_landscape(view, Step(5, 5))
    largest = torch.linalg.eigvalsh(view.z.mT @ view.z / 20).max()
    assert landscape.inner_lr == pytest.approx(1 / float(largest))
    assert landscape.rate == "1/λ_max of the features"


def test_permuted_classes_gain_nothing_and_kinds_are_told_apart():
    made = torch.Generator().manual_seed(0)
    z = torch.randn(4, 12, 2, generator=made, dtype=torch.float64)
    view = View(z, torch.arange(3).repeat(4, 4), 6, 1.0)
    landscape = permuted_task_landscape(view, Step(2, 2), kinds=["easy", "hard", "easy", "hard"])
    assert landscape.checked is not None
    assert landscape.checked.gain == pytest.approx(1, abs=CHAINED)
    assert landscape.hardness.by_kind is not None
    measure = landscape.hardness.measures["smallest eigenvalue"]
    assert landscape.hardness.by_kind["hard"]["smallest eigenvalue"] == pytest.approx(
        (measure[1] + measure[3]) / 2
    )
    assert (
        permuted_task_landscape(view._replace(z=z[:, :3], y=view.y[:, :3], support=2), Step(2, 2)).checked
        is None
    )


def test_ranking_puts_the_task_first_that_steps_leave_worst():
    z = torch.diag(torch.tensor([1.0, 0.5, 0.2], dtype=torch.float64)).repeat(3, 2, 1)
    y = torch.stack([scale * z[0].sum(-1, keepdim=True) for scale in (1.0, 3.0, 2.0)])
    assert rank_tasks(z, y, 3).ranking == [1, 2, 0]


def test_tasks_of_unequal_shapes_are_refused():
    mixed = type("Mixed", (), {})()
    with pytest.raises(UserError, match="unequal shapes"):
        look_at(mixed, mlp(1, [4], 1))


# ---- regions ----


def test_inputs_are_different_and_end_where_tasks_bring_no_more():
    tasks = drawn("sine", 2, 2, n_tasks=3, resample=False)
    x = different_inputs(tasks, 1000)
    assert len(x) == 12 == len({float(value) for value in x})
    assert len(different_inputs(tasks, 5)) == 5
    assert PATIENCE > 3


def test_one_initialisation_has_no_interval():
    net = mlp(1, [6], 1)
    regions = count_regions(net, [net.init(torch.Generator().manual_seed(0))], torch.tensor([[-1.0], [1.0]]))
    assert (regions.patterns, regions.ci95, regions.saturated, regions.units) == ([2], None, True, 6)
    assert regions.as_dict()["ci95"] is None


# ---- rates ----


def linear_tasks(**options) -> LinearTasks:
    made = torch.Generator().manual_seed(1)
    support, query = torch.randn(2, 40, 6, 3, generator=made, dtype=torch.float64)
    optima = torch.randn(40, 3, generator=made, dtype=torch.float64)
    return LinearTasks(support, query, optima)._replace(**options)


@pytest.mark.parametrize("form", DESCRIPTIONS)
def test_every_form_says_what_it_needs(form):
    whole = rate_by(form, linear_tasks(), search=True)
    assert whole.low <= whole.high
    assert (whole.kind, whole.tasks, whole.sweep) == (form, 40, (whole.alpha,))
    assert whole.best is not None
    assert needed(form, search=True) == (["optima"] if form == "lim" else ["query", "optima"])
    for name in needed(form, search=False):
        with pytest.raises(UserError, match=f"needs .*{name}"):
            rate_by(form, linear_tasks(**{name: None}), search=False)
    least = {name: None for name in ("query", "optima") if name not in needed(form, search=False)}
    alone = rate_by(form, linear_tasks(**least), search=False)
    assert alone.alpha == whole.alpha
    assert "best" not in alone.as_dict()
    assert (whole.interval is None) == (form in ("stacked", "variance", "merged"))
    assert ("query" in needed(form, search=False)) == (form in SPLIT)


def test_the_searched_rate_has_the_least_training_risk():
    """Against a fine grid of the risk itself, with the best common start at each rate."""
    tasks = linear_tasks()
    rate = rate_by("split", tasks, search=True)

    def risk(alpha: float) -> float:
        left = torch.eye(3, dtype=torch.float64) - alpha * 2 / 6 * tasks.support.mT @ tasks.support
        rows = tasks.query @ left  # what a start w leaves on queries is rows·(w − optimum)
        start = torch.linalg.lstsq(
            rows.flatten(0, 1), (rows @ tasks.optima[..., None]).flatten(0, 1)
        ).solution
        return float((rows @ (start - tasks.optima[..., None])).square().sum())

    assert rate.best is not None
    grid = [risk(rate.best * (1 + step / 50)) for step in range(-10, 11)]
    assert min(grid) == grid[10]


def test_a_rate_of_ones_own_is_judged():
    advice = RateAdvice(1.0, 0.5, 2.0, (1.0,), (0.9, 1.1), "bracket", 3.0, "mean", {}, (), 10, 0.0)
    assert judge_rate(advice, None, "anil").warning is None
    assert judge_rate(advice, 1.0, "anil").warning is None
    judged = judge_rate(advice, 100.0, "anil")
    assert judged.warning is not None
    plain = judged.as_dict()
    assert (plain["bounds"]["low"], plain["bounds"]["high"], plain["method"]) == (0.125, 8.0, "anil")
    assert math.isclose(plain["alpha"], 1.0)
