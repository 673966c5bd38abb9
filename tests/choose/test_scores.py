"""Scores of untrained networks against slow twins and closed forms; `analyze regions`."""

import json
import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from innerloop.choose.scores import (
    SCORES,
    fresh_head,
    gradient_norm,
    linear_regions,
    metantk,
    naswot,
    rank_sums,
    score,
    synflow,
    zico,
)
from innerloop.choose.scores import patterns as patterns_module
from innerloop.choose.scores.conditions import condition_number, kernel_names
from innerloop.choose.scores.patterns import hamming_kernel
from innerloop.choose.scores.score_table import rows
from innerloop.choose.scores.sizes import count_layers
from innerloop.cli.analyses import ANALYSES
from innerloop.cli.main import main
from innerloop.core.autodiff import plain_autograd
from innerloop.core.errors import UserError
from innerloop.core.types import TaskBatch
from innerloop.kernels.meta.descent import Descent
from innerloop.nets import conv4, from_module, mlp
from innerloop.nets.network import apply
from innerloop.nets.resnet12 import resnet12
from innerloop.testing.closeness import CHAINED, CONDITIONED, ROUNDED, assert_close
from oracles.metakernels import regression_tasks
from oracles.ntk_loop import ntk, reduced
from oracles.scores import (
    Residual,
    block_metantk,
    gram_regions,
    hooked_patterns,
    listed_zico,
    module_gradients,
    pair_agreement,
)
from support.places import ROOT

DOUBLE = torch.float64


def seeded(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def drawn(network, dtype=DOUBLE):
    params, buffers = network.init(seeded(0))
    return {n: p.to(dtype) for n, p in params.items()}, {n: b.to(dtype) for n, b in buffers.items()}


def pictures(n, side=16, seed=1, dtype=DOUBLE):
    return torch.randn(n, 1, side, side, generator=seeded(seed), dtype=DOUBLE).to(dtype)


def crowded(n):
    """Small pictures around twenty: many share a region."""
    return pictures(20, side=3).repeat(n // 20, 1, 1, 1) + 0.02 * pictures(n, side=3, seed=2)


def picture_tasks(tasks=2, ways=3, side=16, dtype=DOUBLE) -> TaskBatch:
    x = pictures(2 * tasks * ways, side, dtype=dtype).view(2, tasks, ways, 1, side, side)
    y = torch.arange(ways).repeat(tasks, 1)
    return TaskBatch(x[0], y, x[1], y, torch.arange(tasks))


def small_module():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Residual().double()


def sides(network, params, buffers, x):
    """All patterns, as the score sees them."""
    seen = []
    patterns_module.watch_kinks(network, params, buffers, x, seen.append, "batch")
    return torch.cat(seen, 1)


def test_regions_are_those_that_hooks_see_and_the_gram_counts():
    module = small_module()
    network = from_module(module)
    params, buffers = drawn(network)
    x = crowded(400)
    signs = hooked_patterns(module, x)
    assert torch.equal(sides(network, params, buffers, x).double(), signs)
    regions = linear_regions(network, params, buffers, x)
    assert 20 < regions.value == round(gram_regions(signs)) < len(x)
    assert (regions.inputs, regions.units, regions.reason) == (400, signs.shape[1], "")
    # the module centres each batch, so batches are passed as they are and counted together
    both = torch.cat([hooked_patterns(module, part) for part in x.split(200)])
    assert linear_regions(network, params, buffers, x.split(200)).value == round(gram_regions(both))


def test_long_patterns_are_digested_without_a_change(monkeypatch):
    network = from_module(small_module())
    weights, x = drawn(network), crowded(300)
    whole = linear_regions(network, *weights, x.split(100))
    monkeypatch.setattr(patterns_module, "KEPT_UNITS", 20)
    assert linear_regions(network, *weights, x.split(100)) == whole


@pytest.mark.parametrize("norm", ["transductive", "group", "none"])
def test_conv4_is_seen_through_wherever_it_is_called(norm):
    network = conv4(1, 16, 2, filters=2, norm=norm)
    weights, x = drawn(network), pictures(4)
    outside = sides(network, *weights, x)
    with plain_autograd():  # where blocks are fused otherwise
        assert torch.equal(sides(network, *weights, x), outside)
    assert outside.shape == (4, 2 * (256 + 64 + 16 + 4))


def test_other_units_with_kinks():
    network = resnet12(1, 16, 2, widths=(2, 2, 2, 2), norm="group")
    assert sides(network, *drawn(network), pictures(2)).shape == (2, 2 * 3 * (256 + 64 + 16 + 4))
    layers = [torch.nn.PReLU(), torch.nn.ReLU6(), torch.nn.LeakyReLU(0.1)]
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), *layers, torch.nn.Linear(3, 1)).double()
    x = torch.randn(5, 2, dtype=DOUBLE, generator=seeded(0))
    network = from_module(module)
    before = module[0](x) > 0
    seen = sides(network, *drawn(network), x)
    assert seen.shape == (5, 12)  # ReLU6 has two kinks
    assert torch.equal(seen[:, :3], before)
    assert torch.equal(seen[:, 6:9], module[:2](x) > 6)


def test_a_network_without_kinks_has_no_regions():
    network = mlp(1, [3], 1, activation="tanh")
    with pytest.raises(UserError, match="no ReLU"):
        linear_regions(network, *drawn(network), torch.zeros(2, 1, dtype=DOUBLE))


def test_naswot_is_the_log_determinant_of_agreements():
    module = small_module()
    network = from_module(module)
    weights, x = drawn(network), pictures(6, side=5)
    agree = pair_agreement(hooked_patterns(module, x))
    assert torch.equal(hamming_kernel(network, *weights, x), agree)
    assert naswot(network, *weights, x).value == pytest.approx(float(torch.logdet(agree)), rel=CHAINED)
    twice = naswot(network, *weights, torch.cat([x, x[:1]]))
    assert twice.value == -math.inf
    assert "same pattern" in twice.reason


@pytest.mark.parametrize("method", ["maml", "anil"])
@pytest.mark.parametrize(("time", "ridge"), [(math.inf, 1e-3), (0.5, 1e-5)])
def test_metantk_is_that_of_single_gradients(method, time, ridge):
    network = conv4(1, 16, 3, filters=2, norm="group")
    (params, buffers), tasks = drawn(network), picture_tasks()
    weights = {n: params[n] for n in kernel_names(params)}
    assert set(weights) == {*(f"conv{i}.weight" for i in range(4)), "head.weight"}
    x = torch.cat([tasks.x_query.flatten(0, 1), tasks.x_support.flatten(0, 1)])

    def gram(part):
        rest = {n: p for n, p in params.items() if n not in part}
        theta = ntk(lambda p, x: apply(network, {**rest, **p}, buffers, x)[0], part, x, x)
        return reduced(theta, "sum")

    whole, last = gram(weights), gram({"head.weight": params["head.weight"]})
    slow = block_metantk(whole, whole if method == "maml" else last, tasks, time, ridge)
    value = metantk(network, params, buffers, tasks, method=method, inner=Descent(time, ridge=ridge))
    assert_close(value, slow, (CHAINED, ROUNDED))
    values = torch.linalg.eigvalsh(slow)
    told = score("metantk", network, params, buffers, tasks, method=method, inner=Descent(time, ridge=ridge))
    assert told.value == pytest.approx(float(values[-1] / values[0]), rel=CONDITIONED)
    features = network.features(params, buffers, x, "batch")[0]
    assert_close(last, 3 * features @ features.mT)  # ways × inner product of features


def test_float32_agrees_with_float64():
    network = conv4(1, 16, 3, filters=8, norm="group")
    plain = conv4(1, 16, 3, filters=8, norm="none")
    for name in ("metantk", "metantk-anil", "ntk", "naswot", "gradient-norm", "synflow", "zico"):
        values = []
        for dtype in (torch.float32, DOUBLE):
            chosen = plain if name == "synflow" else network
            values.append(score(name, chosen, *drawn(network, dtype), picture_tasks(dtype=dtype)).value)
        assert values[0] == pytest.approx(values[1], rel=1e-3), name


def test_kernels_without_a_condition_number_say_why():
    network = mlp(4, [3], 2)
    params, _ = drawn(network)
    dead = {n: torch.zeros_like(p) for n, p in params.items()}
    tasks = regression_tasks(2, 2, 2)
    told = score("metantk", network, dead, {}, tasks)
    assert told.value == math.inf
    assert "no gradient" in told.reason
    assert score("metantk", network, dead, {}, tasks, degenerate="released").value == 1e5
    indefinite = torch.diag(torch.tensor([2.0, -1.0]))
    assert condition_number(indefinite).value == math.inf
    assert condition_number(indefinite, degenerate="released").value == -2.0
    broken = torch.full((2, 2), math.nan)
    assert condition_number(broken).reason
    assert condition_number(broken, degenerate="released").value == 1e5


def test_a_fresh_head_is_drawn_as_linear_layers_start():
    network = mlp(4, [400], 64)
    params, _ = drawn(network)
    fresh = fresh_head(network, params, seeded(1), ways=50)
    weight = fresh["layer1.weight"]
    assert weight.shape == (50, 400)
    assert fresh["layer1.bias"].shape == (50,)
    assert float(weight.abs().max()) <= 1 / 20
    assert float(weight.std()) == pytest.approx(1 / 20 / math.sqrt(3), rel=0.02)
    assert torch.equal(fresh["layer0.weight"], params["layer0.weight"])
    assert apply(network, fresh, {}, torch.zeros(1, 4, dtype=DOUBLE))[0].shape == (1, 50)


def test_gradient_scores_are_those_of_modules():
    module = small_module()
    network = from_module(module)
    weights = drawn(network)
    tasks = picture_tasks(tasks=3, ways=5, side=5)
    batches = [
        (torch.cat([t.x_support, t.x_query]), torch.cat([t.y_support, t.y_query])) for t in tasks.tasks()
    ]
    grads = [module_gradients(module, x, y) for x, y in batches]
    norm = sum(float(g.norm()) for g in grads[0].values())
    assert gradient_norm(network, *weights, *batches[0]).value == pytest.approx(norm, rel=CHAINED)
    expected = listed_zico(grads)
    assert zico(network, *weights, batches).value == pytest.approx(expected, rel=CHAINED)
    assert score("zico", network, *weights, tasks).value == pytest.approx(expected, rel=CHAINED)
    with pytest.raises(UserError, match="at least two"):
        zico(network, *weights, batches[:1])


@pytest.mark.parametrize("norm", ["none", "running"])
def test_synflow_counts_the_flow_once_for_every_layer(norm):
    network = conv4(1, 16, 3, filters=3, norm=norm, bias=False)
    params, buffers = drawn(network)
    positive = {n: p.abs() for n, p in params.items()}
    flow = float(apply(network, positive, buffers, torch.ones(1, 1, 16, 16, dtype=DOUBLE), "stored")[0].sum())
    assert synflow(network, params, buffers, (1, 16, 16)).value == pytest.approx(5 * flow, rel=CHAINED)
    with pytest.raises(UserError, match="norm='none'"):
        synflow(conv4(1, 16, 3, norm="group"), params, buffers, (1, 16, 16))


def test_products_are_those_of_torchs_counter():
    for network, shape in (
        (conv4(1, 16, 3, filters=4), (1, 16, 16)),
        (from_module(small_module()), (1, 5, 5)),
    ):
        params, buffers = drawn(network)
        counted = count_layers(network, params, buffers, shape)
        x = torch.zeros(1, *shape, dtype=DOUBLE)
        with FlopCounterMode(display=False) as counter:
            apply(network, params, buffers, x)
        assert 2 * counted.multiply_adds == counter.get_total_flops()
        assert counted.layers == sum(p.ndim >= 2 for p in params.values())


def test_rank_sums_ask_the_table_what_is_better():
    columns = {"metantk": [10.0, math.inf, 30.0], "regions": [5, 9, 5], "naswot": [1.0, math.nan, 2.0]}
    assert rank_sums(columns) == [1 + 2.5 + 2, 3 + 1 + 3, 2 + 2.5 + 1]
    with pytest.raises(UserError, match="every candidate"):
        rank_sums({"ntk": [1.0], "zico": [1.0, 2.0]})
    with pytest.raises(UserError, match="did you mean 'naswot'"):
        rank_sums({"naswott": [1.0]})


def test_every_score_is_told_by_name_and_is_in_the_documentation():
    network = conv4(1, 16, 3, filters=2, norm="group")
    plain = conv4(1, 16, 3, filters=2, norm="none")
    weights, tasks = drawn(network), picture_tasks()
    for name in SCORES:
        told = score(name, plain if name == "synflow" else network, *weights, tasks)
        assert math.isfinite(told.value), name
        assert isinstance(told.reason, str)
    page = (ROOT / "docs" / "scores.md").read_text(encoding="utf-8")
    assert rows() in page


def answer(words, capsys, code=0):
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_analyze_regions_counts_what_a_recipe_has(capsys):
    # eight units without bias cut the plane into at most sixteen sectors
    words = ["analyze", "regions", "bridge-quadratic-maml", "tasks.settings.dim=2", "model.hidden=[8]"]
    words += ["model.activation=relu", "inputs=300", "repeats=3"]
    printed = answer(words, capsys)
    assert (printed["inputs"], printed["units"], printed["saturated"]) == (300, 8, False)
    assert len(set(printed["patterns"])) > 1
    assert 8 < min(printed["patterns"]) <= max(printed["patterns"]) <= 16
    assert printed["regions"] == pytest.approx(sum(printed["patterns"]) / 3)
    assert printed["ci95"] > 0
    assert answer([*words, "batch=7"], capsys)["patterns"] == printed["patterns"]
    assert main(words) == 0
    assert "linear regions hit by 300 different inputs" in capsys.readouterr().out


def test_biases_that_start_at_zero_leave_two_regions_of_a_line(capsys):
    printed = answer(["analyze", "regions", "sine-maml", "inputs=40", "repeats=2"], capsys)
    assert (printed["patterns"], printed["units"], printed["ci95"]) == ([2, 2], 80, 0.0)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "name a recipe"),
        (["sine-maml", "input=5"], "did you mean 'inputs'"),
        (["sine-maml", "model.activation=tanh"], "no ReLU"),
    ],
)
def test_mistakes_are_answered_with_the_fix(words, text, capsys):
    assert text in answer(["analyze", "regions", *words], capsys, code=2)["error"]


def test_every_analysis_is_in_the_documentation():
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    assert [name for name in ANALYSES if f"innerloop analyze {name}" not in pages] == []
