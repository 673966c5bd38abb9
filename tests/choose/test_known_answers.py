"""Known answers of the small functions behind advice, searches and scores."""

import math

import numpy as np
import torch

from innerloop import mlp
from innerloop.choose.advice import architecture_of, lead_text
from innerloop.choose.architectures.importance import dense_ranks, quantile, relative_change
from innerloop.choose.architectures.ranking import item_means, kendall, mean_of
from innerloop.choose.architectures.space import describe_genotype
from innerloop.choose.architectures.stages import edge_stage, rounds_of
from innerloop.choose.estimates import worth_trying
from innerloop.choose.race import Rungs, budget_text, halving, in_steps, lead, plan_rungs
from innerloop.choose.rates import _power_of_two, _rounded, sign_chance, steps_of_each
from innerloop.choose.scores.conditions import condition_number, kernel_names
from innerloop.choose.scores.patterns import hamming_kernel, watch_kinks
from innerloop.choose.scores.score_table import find, ranks
from innerloop.choose.scores.sizes import Layers, count_layers
from innerloop.choose.shortlist import score_names
from innerloop.choose.trials import Costs, map_jobs
from innerloop.choose.validation import agreement, better_half
from innerloop.core.statistics import Interval
from innerloop.nets.cells import PUBLISHED, all_choices


def test_races_are_planned() -> None:
    assert halving(4, 5) == [[4, 5], [2, 3], [1, 2], [1, 1]]
    assert halving(7, last=2) == [[7], [4], [2]]
    costs = [Costs(0.02, 0.004, 0.1)] * 4
    plan = plan_rungs(halving(4, last=2), costs, 2, 30.0)
    assert plan is not None
    assert (plan.fields, plan.episodes) == ([[4], [2]], 200)
    assert [round(s, 1) for s in plan.lengths] == [7.5, 15.1]
    assert plan_rungs(halving(4, last=2), costs, 2, 2.0) is None
    seconds = plan_rungs(halving(2, 2), [Costs(0.05, 0.01, 0.0)], 2, 31.0)
    assert seconds is not None
    assert in_steps(seconds, 0.05) == Rungs([[2, 2], [1, 1]], [139, 278], 139)
    assert [budget_text(needed) for needed in (42.0, 303.2)] == ["50s", "6m"]
    assert sorted(map_jobs(abs, [-1, 2], 1)) == [(0, 1), (1, 2)]


def test_rates_are_planned() -> None:
    assert steps_of_each(1000, 5) == 10
    assert [_power_of_two(ratio) for ratio in (0.3, 0.5, 0.0)] == [0.5, 0.5, 2.0**-10]
    assert [_rounded(10, most) for most in (59, 60, 10)] == [40, 60, 10]
    assert sign_chance(5, 0) == 0.0625
    assert round(sign_chance(15, 5), 4) == 0.0414
    assert worth_trying([0.1, 0.2], 5.0) == (0.1, 0.2)
    assert worth_trying([0.1], None) == (0.1,)
    assert [round(rate, 3) for rate in worth_trying([0.3], 5.0)] == [0.06, 0.134, 0.3, 0.671, 1.5]


def test_leads_in_words() -> None:
    assert str(lead([0.75, 1.0, 0.5], [0.5, 0.5, 0.5])) == "0.25 ± 0.62 (95 % CI, n=3)"
    assert lead_text("accuracy", Interval(0.021, 0.01, 80)) == "2.1 ± 1.0 points"
    assert lead_text("mse", Interval(1.872, 0.53, 96)) == "1.872 ± 0.53 in mse"
    assert architecture_of([], pictures=False) == "No network was trained."


def test_orders_and_their_agreement() -> None:
    assert kendall([1, 2, 3], [1, 3, 2]) == 1 / 3
    assert kendall([1, 2, 2], [1, 2, 3]) == 0.8164965809277261
    means = item_means(np.array([[1.0, 12.0], [3.0, np.nan], [2.0, 13.0]]), [(0, 1, 2)])
    assert (means - means[0]).round(6).tolist() == [0.0, 2.0, 1.0]
    assert (mean_of([1.0, None, 2.0]), mean_of([None])) == (1.5, None)
    left = relative_change(np.array([4.0, np.inf, np.inf]), np.array([3.0, 2.0, np.inf]))
    assert left.tolist() == [0.25, np.inf, 0.0]
    placed = [part.tolist() for part in dense_ranks([0.5, 2.0, 0.5, 1.0], descending=True)]
    assert placed == [[2.0, 0.0, 2.0, 1.0], [2.0, 0.0, 3.0, 1.0]]
    assert [round(quantile(0.95, freedom), 3) for freedom in (10, 10**6)] == [2.228, 1.96]
    assert ranks([3.0, 1.0, 3.0, math.nan], higher_is_better=True) == [1.5, 3.0, 1.5, 4.0]
    agreed = agreement([1.0, 2.0, 3.0, 4.0], [0.2, 0.4, 0.3, 0.5], resamples=100)
    assert round(agreed.spearman.value, 3) == 0.8
    assert (round(agreed.kendall.value, 3), agreed.regret.value) == (0.667, 0.0)
    assert better_half([0.1, 0.5, 0.3]) == [1, 2]


def test_cells_and_stages() -> None:
    described = describe_genotype(PUBLISHED["metanas"])
    assert described.startswith("normal: conv_1x5_5x1(0)+conv_3x3(1), conv_3x3(0")
    assert rounds_of(all_choices()) == 6
    stage = edge_stage(all_choices(), 1)
    assert (len(stage.items), len(stage.groups), stage.groups[0].drop) == (126, 18, 1)


def test_scores() -> None:
    assert kernel_names({"conv.weight": torch.zeros(1, 1, 3, 3), "norm.weight": torch.ones(1)}) == [
        "conv.weight"
    ]
    assert condition_number(torch.diag(torch.tensor([8.0, 2.0]))).value == 4.0
    told = (math.inf, "the kernel is singular to working precision")
    assert condition_number(torch.ones(2, 2))[::3] == told
    assert [find(name).better for name in ("ntk", "parameters")] == ["lower", "higher"]
    assert score_names("te-nas,flops") == ("ntk", "regions", "flops")
    net = mlp(3, [4], 2)
    pass_of = count_layers(net, *net.init(torch.Generator().manual_seed(0)), (3,))
    assert pass_of == Layers(layers=2, multiply_adds=20, depth=2)


def test_patterns() -> None:
    seen: list[torch.Tensor] = []
    last = {"layer1.weight": torch.ones(1, 2), "layer1.bias": torch.zeros(1)}
    params = {"layer0.weight": torch.tensor([[1.0], [-1.0]]), "layer0.bias": torch.zeros(2), **last}
    watch_kinks(mlp(1, [2], 1), params, {}, torch.tensor([[3.0]]), seen.append, "batch")
    assert [sides.tolist() for sides in seen] == [[[True, False]]]
    params |= {"layer0.weight": torch.ones(2, 1), "layer0.bias": torch.tensor([0.0, -1.0])}
    kernel = hamming_kernel(mlp(1, [2], 1), params, {}, torch.tensor([[-1.0], [0.5], [2.0]]))
    assert kernel.tolist() == [[2, 1, 0], [1, 2, 1], [0, 1, 2]]
    assert kernel.dtype is torch.float64
