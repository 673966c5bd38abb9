"""Searches: against a slow twin, interrupted and resumed, on one process and two; their reliability."""

from __future__ import annotations

import functools
import json
import math

import numpy as np
import pytest
import torch

from innerloop.choose import PictureDraws, cell_space, conv_space, score_candidates, search
from innerloop.choose.architectures.draws import digest
from innerloop.choose.architectures.importance import (
    Order,
    StageTable,
    affordable,
    contests,
    dense_ranks,
    rank_rule,
    relative_change,
    removals,
)
from innerloop.choose.architectures.measure import Bench, ScoringJob, Watch, measure, own_seeds
from innerloop.choose.architectures.prune import Budget, PruneSettings, _decide
from innerloop.choose.architectures.ranking import item_means, kendall, mean_tau, noise_of, other_runs
from innerloop.choose.architectures.search import METHODS
from innerloop.choose.architectures.stages import OperatorGroup, Stage, check_start, edge_stage, node_stage
from innerloop.core.errors import UserError
from innerloop.data.glyphs import glyphs
from innerloop.nets.cells import Choices, all_choices, to_table
from innerloop.nets.cells.genotype import EDGES, check_genotype
from innerloop.testing.closeness import CONDITIONED, SINGLE_BITS
from oracles.prune import slow_condition, slow_prune, slow_regions
from oracles.race import slow_race

SOURCE = glyphs()
SHAPE = (1, 8, 5)
SPACE = cell_space(*SHAPE, cells=2, channels=2)


def cell(**operators: str) -> tuple[tuple[str, ...], ...]:
    """Operators by edge, ``e02="skip_connect conv_3x3"``; no operator where none is said."""
    return tuple(tuple(operators.get(f"e{s}{n}", "").split()) for s, n in EDGES)


START = Choices(
    cell(
        e02="skip_connect conv_3x3",
        e12="conv_3x3",
        e03="max_pool_3x3",
        e13="skip_connect",
        e04="conv_3x3",
        e24="skip_connect conv_3x3",
        e34="avg_pool_3x3",
    ),
    cell(
        e02="conv_3x3",
        e12="max_pool_3x3 conv_3x3",
        e03="skip_connect",
        e23="conv_3x3",
        e14="conv_3x3",
        e34="conv_3x3",
    ),
)
"""Nine candidates in all: three edges with two operators, and one node with three edges."""


def pictures(seed=0, dtype=torch.float64, **more):
    return PictureDraws(SOURCE, seed=seed, side=8, crops=60, tasks=2, ways=3, dtype=dtype, **more)


def searched(method, workers=1, keep=None, draws=None, say=None, **settings):
    draws = draws or pictures()
    return search(
        method, SPACE, draws, settings={"start": START, **settings}, workers=workers, keep=keep, say=say
    )


def outcome(result):
    """All that must not depend on workers, interrupts and time."""
    return result.ranked, result.reliability, result.rounds, result.measured


# draws


def test_draws_are_pure_and_as_the_paper_has_them():
    draws = PictureDraws(SOURCE, seed=1, side=16, crops=300)
    draw = draws(3)
    assert draw.tasks.x_support.shape == draw.tasks.x_query.shape == (3, 5, 1, 16, 16)
    assert draw.crops.shape == (300, 1, 3, 3)
    assert digest(draw) == digest(PictureDraws(SOURCE, seed=1, side=16, crops=300)(3))
    assert (
        len(
            {digest(draws(i)) for i in range(3)}
            | {digest(PictureDraws(SOURCE, seed=2, side=16, crops=300)(0))}
        )
        == 4
    )
    assert abs(float(draw.crops.mean())) < 0.3
    assert 0.5 < float(draw.crops.std()) < 1.5
    # a support picture is a shifted picture of the class, never one of the queries
    assert set(draw.tasks.id.flatten().tolist()) <= set(SOURCE.splits["train"].tolist())


def test_windows_of_whole_pictures_are_cut_without_resizing():
    whole = PictureDraws(SOURCE, seed=1, crops=50)
    rows = np.arange(50) * 7
    y = x = np.arange(50) % 26
    colour = np.zeros(50, np.int64)
    images = torch.from_numpy(np.asarray(SOURCE.images)[rows, ..., 0] / 255.0)
    slow = torch.stack([images[i, y[i] : y[i] + 3, x[i] : x[i] + 3] for i in range(50)])
    assert torch.allclose(whole._windows(rows, y, x, colour).double(), slow, atol=SINGLE_BITS)
    # every pixel of a resized picture is reached, and nothing outside it
    small = PictureDraws(SOURCE, seed=1, side=8, crops=400)
    assert small._windows(rows, np.full(50, 5), np.full(50, 5), colour).shape == (50, 3, 3)


def test_fixed_tasks_come_from_so_many():
    draws = pictures(fixed=2)
    seen = {tuple(sorted(map(tuple, draws(i).tasks.id.tolist()))) for i in range(4)}
    assert len(seen) == 1  # two tasks of two, in some order
    with pytest.raises(UserError, match="set fixed=2 or more"):
        pictures(fixed=1)


def test_too_few_classes_are_refused():
    with pytest.raises(UserError, match="Lower ways to"):
        PictureDraws(SOURCE, seed=0, ways=1000)


# measurements


def test_weights_are_common_to_a_network_and_its_parts():
    """Removing an operator leaves the others' weights: what changes is the operator's own."""
    stage = edge_stage(START, 1)
    assert [item.operator for item in stage.items] == ["skip_connect", "conv_3x3"] * 2 + [
        "max_pool_3x3",
        "conv_3x3",
    ]
    draw = pictures(dtype=torch.float64)(0)
    settings = PruneSettings()
    job = ScoringJob(
        START,
        ("metantk", "regions"),
        0,
        own_seeds(draw.seed),
        settings.network(),
        settings.network(True),
        settings.score_settings,
    )
    values = measure(SPACE, job, draw).values
    shared = {"cells": 2, "channels": 2, "mixing": "mean"}
    assert values["metantk"] == pytest.approx(
        slow_condition(START, SHAPE, draw, 1e-3, first_weights="fan_out", **shared), rel=CONDITIONED
    )
    assert values["regions"] == slow_regions(START, 5, draw, first_weights="fan_in", mixing="mean")


def test_every_score_can_be_asked_for_in_both_spaces():
    names = (
        "metantk",
        "metantk-anil",
        "ntk",
        "regions",
        "naswot",
        "gradient-norm",
        "synflow",
        "zico",
        "parameters",
        "flops",
        "layers",
    )
    for space in (SPACE, conv_space(*SHAPE, depths=(2,), widths=(4,), kernels=(3,))):
        candidate = space.candidate(5)
        scores = score_candidates(space, [candidate], names, pictures(), 1, workers=1)
        assert all(math.isfinite(float(scores.values[name])) for name in names), scores.reasons
        small = space.build(candidate, "transductive").init(torch.Generator().manual_seed(0))[0]
        assert float(scores.values["parameters"]) == sum(value.numel() for value in small.values())


# pruning


def test_the_fast_search_removes_what_the_slow_one_removes():
    draws = functools.lru_cache(pictures(dtype=torch.float64))
    shared = {"mixing": "mean"}

    @functools.cache
    def condition(choices, draw):
        return slow_condition(
            choices, SHAPE, draws(draw), 1e-3, cells=2, channels=2, first_weights="fan_out", **shared
        )

    @functools.cache
    def regions(choices, draw):
        return slow_regions(choices, 5, draws(draw), first_weights="fan_in", **shared)

    fast = searched("published", draws=draws, data="round", repeats=2)
    slow = slow_prune(START, condition, regions, lambda number: number, 2)
    assert [tuple(item) for stage in fast.rounds for item in stage.removed] == slow
    check_genotype(fast.ranked[0].candidate)


@pytest.fixture(scope="module")
def whole():
    """A robust search that was not interrupted, and what it kept."""
    return searched("robust", budget=3.0, most=4)


def test_a_race_spends_its_budget_where_decisions_are_close(whole):
    assert 18 < whole.measured <= 27  # nine candidates, two repeats each, up to three on average
    assert [stage.candidates for stage in whole.rounds] == [6, 3]
    edges = whole.reliability.edges
    assert len(edges) == 4
    assert all(edge.repeats >= 2 and 0 <= edge.again <= 1 for edge in edges)
    assert all(edge.margin >= 0 and set(edge.removed) < set(edge.among) for edge in edges)
    json.dumps([whole.reliability.as_dict(), whole.rounds], allow_nan=False)
    table = to_table(whole.ranked[0].candidate)
    assert table["normal"][0][1] == "conv_3x3(1)"
    assert table["reduce"][2] == ["conv_3x3(1)", "conv_3x3(3)"]


def test_an_interrupted_search_goes_on_bit_for_bit(whole, tmp_path):
    keep = tmp_path / "kept" / "measured.jsonl"
    first = searched("robust", budget=3.0, most=4, keep=keep)
    assert outcome(first) == outcome(whole)
    lines = keep.read_text().splitlines(keepends=True)
    for cut in (len(lines) // 3, 2 * len(lines) // 3, len(lines) - 1):
        keep.write_text("".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])  # killed while it wrote
        again = searched("robust", budget=3.0, most=4, keep=keep)
        assert outcome(again) == outcome(whole)
        kept = [json.loads(line)["key"] for line in keep.read_text().splitlines()]
        assert kept == [json.loads(line)["key"] for line in lines]  # nothing was measured twice
    finished = searched("robust", budget=3.0, most=4, keep=keep)
    assert (outcome(finished), finished.seconds) == (outcome(whole), 0.0)


def test_an_interrupt_leaves_what_was_finished(tmp_path, monkeypatch):
    keep, calls = tmp_path / "measured.jsonl", []

    def interrupted(space, job, draw):
        calls.append(job)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return measure(space, job, draw)

    monkeypatch.setattr("innerloop.choose.architectures.measure.measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        searched("robust", keep=keep, most=2)
    assert len(keep.read_text().splitlines()) == 4


def test_two_processes_find_what_one_finds(whole):
    assert outcome(searched("robust", budget=3.0, most=4, workers=2)) == outcome(whole)


def test_a_file_of_something_else_is_refused(tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("shopping list\n")
    with pytest.raises(UserError, match="holds no measurements"):
        searched("robust", keep=other)


def test_the_released_manner_differs_in_each_of_its_deviations():
    published, released = METHODS["published"].settings, METHODS["released"].settings
    differ = {name for name in PruneSettings._fields if getattr(published, name) != getattr(released, name)}
    assert differ == {"weights", "redraw", "heads", "degenerate", "figures", "stale"}


@pytest.mark.slow
def test_the_released_search_keeps_weights_and_draws_data_and_heads(monkeypatch):
    jobs: list[ScoringJob] = []
    real = Bench.run

    def seen(self, given, *rest):
        jobs.extend(given)
        return real(self, given, *rest)

    monkeypatch.setattr(Bench, "run", seen)
    result = searched("released", repeats=2)
    assert result.measured == 18
    assert result.ranked[0].scores["metantk"] > 0
    first = [job for job in jobs if job.draw < 100_000 and job.seeds]
    assert len({job.seeds.weights for job in first}) == 1  # one network for the round
    assert len({job.draw for job in first}) == 12  # a batch for every candidate and repeat
    assert len({job.seeds.head for job in first}) == 24  # and a head for every network
    assert len({job.seeds.thin for job in first}) == 6  # a thin network for every candidate, in both repeats
    assert all(job.network == {"first_weights": "uniform", "mixing": "mean"} for job in jobs[:-2])
    jobs.clear()
    searched("robust", budget=2.0)
    first = [job for job in jobs if job.draw < 100_000 and job.seeds]
    assert len(first) == 2 * (6 + 1)  # the network with all operators once per repeat
    assert len({job.seeds for job in first}) == len({job.draw for job in first}) == 2


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"kernel": "none"}, {"regions"}),
        ({"kernel": "ntk", "regions": False}, {"ntk"}),
        ({"kernel": "metantk-anil", "time": 1.0, "ridge": 1e-5}, {"metantk-anil", "regions"}),
    ],
)
def test_what_is_looked_at_can_be_chosen(settings, names):
    assert set(searched("published", repeats=1, data="round", **settings).ranked[0].scores) == names


@pytest.mark.parametrize(
    ("method", "settings", "match"),
    [
        ("robsut", {}, "did you mean 'robust'"),
        ("robust", {"repeat": 3}, "did you mean 'repeats'"),
        ("robust", {"kernel": "metantk2"}, "did you mean 'metantk'"),
        ("robust", {"kernel": "none", "regions": False}, "set regions=true"),
        ("robust", {"repeats": 1}, "repeats=1 cannot be: give 2 to 100"),
        ("robust", {"most": 1}, r"most=1 cannot be: give 2 \(repeats\) to 100"),
        ("published", {"ridge": -1.0}, "at least 0"),
        ("robust", {"confidence": 2.0}, "set 0.95"),
        (
            "robust",
            {"start": START._replace(normal=cell(e02="conv_3x3", e12="conv_3x3", e03="conv_3x3"))},
            "no path leads",
        ),
        (
            "robust",
            {"start": START._replace(reduce=cell(e02="conv_3x3", e03="conv_3x3", e14="conv_3x3"))},
            "on one edge only",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(method, settings, match):
    with pytest.raises(UserError, match=match):
        searched(method, **settings)


def test_other_spaces_and_numbers_are_refused():
    space = conv_space(*SHAPE, depths=(2,), widths=(4,))
    with pytest.raises(UserError, match="no supernet that could be pruned"):
        search("robust", space, pictures())
    with pytest.raises(UserError, match="give 1 or more"):
        score_candidates(space, [space.candidate(0)], ["flops"], pictures(), workers=0)
    with pytest.raises(UserError, match="there is no score 'flop'"):
        search("shortlist", space, pictures(), settings={"names": ("flop",)})
    with pytest.raises(UserError, match="set keep to 1 to 3"):
        search("shortlist", space, pictures(), settings={"keep": 4, "pool": 3})
    with pytest.raises(UserError, match="ask for 1 to"):
        search("random", space, pictures(), settings={"keep": 10**6})
    with pytest.raises(UserError, match="nothing to score"):
        score_candidates(space, [], ["flops"], pictures())


# rules


def test_stages_have_every_operator_once():
    assert check_start(START) is START
    assert [group.drop for group in edge_stage(START, 1).groups] == [1, 1, 1]
    crowded = node_stage(Choices(*(tuple(ops[:1] for ops in kind) for kind in START)))
    assert [item.source for item in crowded.items] == [0, 2, 3]
    assert crowded.groups == (OperatorGroup((0, 1, 2), 1),)


def test_ranks_are_shared_and_the_released_order_is_by_three_figures():
    assert dense_ranks([0.1234, 0.1231, 0.5], True)[0].tolist() == [1, 2, 0]
    assert dense_ranks([0.1231, 0.1234, 0.5], True)[0].tolist() == [2, 1, 0]
    assert dense_ranks([0.1231, 0.1234, 0.5], True, figures=3)[0].tolist() == [
        1,
        2,
        0,
    ]  # 0.123 both: as they came
    assert relative_change(np.array([2.0]), np.array([np.inf])).tolist() == [-np.inf]


def test_rank_sums_decide_within_the_edge():
    whole = np.full((4, 1), 10.0)
    condition = np.array([[5.0], [8.0], [10.0], [20.0]])  # the first falls most: least important
    regions = np.array([[9.0], [10.0], [5.0], [10.0]])  # the second and the last lose nothing
    table = StageTable(condition, regions, whole, whole)
    order = rank_rule(3, None)(table, np.array([0]))
    assert order.importance.tolist() == [0 + 1, 1 + 0, 2 + 2, 3 + 0]
    assert removals(order, [OperatorGroup((0, 1), 1), OperatorGroup((2, 3), 1)]) == [
        (0,),
        (3,),
    ]  # a tie: the larger fall


def test_a_race_closes_clear_decisions_and_keeps_close_ones_open():
    noise = 0.1 * np.array([1, -1, 1, -1]) * np.array([1, -1, 1, -1, 1, -1])[:, None]
    values = np.array([0.0, 5.0, 9.0, 0.0, 0.05, 3.0])[:, None] + noise
    groups = [OperatorGroup((0, 1, 2), 1), OperatorGroup((3, 4, 5), 1)]
    order, places = Order(values.mean(1), np.arange(6.0)), [group.places for group in groups]
    spread = noise_of(values, places, 4)
    assert 0.05 < spread.deviation < 0.2
    assert spread.freedom == 12
    (open_,) = contests(values, order, groups, spread, 0.95)
    assert open_.places == (3, 4)
    assert affordable([open_], 2) == [3, 4]
    assert affordable([open_], 1) == []
    shifted = values + 100 * np.arange(4)  # what all have in common is no noise
    assert noise_of(shifted, places, 4).deviation == pytest.approx(spread.deviation)


class Drawn:
    """Stands for the measurements of a stage: scores with effects of items, repeats and chance."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage, self.repeats, self.known = stage, 0, set()
        random = np.random.default_rng(seed)
        count = len(stage.items)
        shape = (2, count + 1, 12)
        logs = 0.3 * random.normal(size=shape) + random.normal(size=(2, count + 1, 1))
        self.scores = np.exp(4 + logs + random.normal(size=(2, 1, 12)))

    def score(self, item: int | None, repeat: int) -> tuple[float, float]:
        condition, regions = self.scores[:, -1 if item is None else item, repeat]
        return condition, regions

    def measure(self, places):
        self.known |= set(places)
        self.repeats = max(self.repeats, *(repeat + 1 for _, repeat in places))

    def table(self) -> StageTable:
        count = len(self.stage.items)
        seen = np.array([[(i, r) in self.known for r in range(self.repeats)] for i in range(count)])
        left = np.where(seen, self.scores[:, :-1, : self.repeats], np.nan)
        whole = np.broadcast_to(self.scores[:, -1:, : self.repeats], left.shape)
        return StageTable(left[0], left[1], whole[0], whole[1])


@pytest.mark.parametrize("seed", range(6))
def test_a_race_measures_and_removes_what_the_slow_one_does(seed):
    stage = edge_stage(all_choices(), 1)
    settings = PruneSettings(most=6)
    drawn, extra = Drawn(stage, seed), (40, 70, 1000)[seed % 3]
    decision, spent = _decide(drawn, settings, seed, Budget(extra, len(stage.items)))
    groups = [tuple(group) for group in stage.groups]
    removed, often = slow_race(drawn.score, groups, settings.repeats, 6, settings.confidence, extra)
    assert decision.removed == [stage.items[place] for places in removed for place in places]
    assert decision.repeats == often
    assert spent == sum(often) - settings.repeats * len(stage.items) <= extra
    assert len(set(often)) > 1  # some decisions were closed before others


# reliability


def test_means_of_unequally_many_repeats_are_not_moved_by_what_is_common():
    truth = np.array([0.0, 1.0, 2.0, 5.0])[:, None]
    values = truth + np.array([0.0, 10.0, -40.0])
    means = item_means(values, [(0, 1), (2, 3)])
    assert means.tolist() == pytest.approx([-0.5, 0.5, -1.5, 1.5])
    values[[0, 3], 2] = np.nan  # those that are decided are not measured again
    assert item_means(values, [(0, 1), (2, 3)]).tolist() == pytest.approx([-0.5, 0.5, -1.5, 1.5])


def test_kendall_is_scikit_learns_neighbour():
    from scipy.stats import kendalltau

    random = np.random.default_rng(0)
    for _ in range(5):
        a, b = random.integers(4, size=(2, 9))
        assert kendall(a, b) == pytest.approx(kendalltau(a, b).statistic)
    assert math.isnan(kendall([1, 1], [1, 2]))
    assert mean_tau([[1, 1], [1, 2]]) is None


@pytest.mark.parametrize("signal", [0.0, 0.4, 2.0])
def test_imagined_runs_promise_what_other_runs_keep(signal):
    """Three operators on each of 200 edges: as promised, so often does a second run decide the same."""
    random = np.random.default_rng(1)
    truth = signal * random.normal(size=(600, 1))
    shared = 5 * random.normal(size=(2, 3))  # common draws move all operators of a repeat
    ours, other = (truth + common + random.normal(size=(600, 3)) for common in shared)
    groups = [range(at, at + 3) for at in range(0, 600, 3)]

    def lowest(means):
        return np.array([means[list(group)].argmin() for group in groups])

    mine = lowest(ours.mean(1))
    promised = np.mean([lowest(means) == mine for means in other_runs(ours, groups, 0, 100)])
    assert promised == pytest.approx(np.mean(lowest(other.mean(1)) == mine), abs=0.07)
    assert (promised < 0.4) == (signal == 0.0)


def test_a_shortlist_tells_how_far_repeats_agree():
    space = conv_space(*SHAPE, depths=(1, 2), widths=(2, 4, 8), kernels=(3,))
    sized = {"pool": 6, "keep": 2, "repeats": 3}
    by_size = search("shortlist", space, pictures(), settings={"names": ("parameters",), **sized}, workers=1)
    assert by_size.reliability.tau == by_size.reliability.top_again == 1.0
    sizes = [ranked.scores["parameters"] for ranked in by_size.ranked]
    assert sizes == sorted(sizes, reverse=True)
    assert len(by_size.ranked) == 2
    noisy = search(
        "shortlist", space, pictures(), settings={"names": ("regions", "naswot"), **sized}, workers=1
    )
    assert 0 < noisy.reliability.top_again <= 1
    assert noisy.reliability.top_chance == pytest.approx(1 / 3)
    json.dumps(noisy.reliability.as_dict(), allow_nan=False)


def test_random_candidates_of_a_size_are_different_and_of_that_size():
    drawn = search(
        "random", SPACE, pictures(), settings={"keep": 3, "parameters": 1000, "tolerance": 0.3}, workers=1
    )
    assert len({ranked.candidate for ranked in drawn.ranked}) == 3
    assert all(700 <= ranked.scores["parameters"] <= 1300 for ranked in drawn.ranked)


def test_the_time_left_counts_what_was_kept_as_nothing():
    clock, lines = iter([0.0, 10.0, 25.0]), []
    watch = Watch(10, "measurements", lines.append, lambda: next(clock))
    for _ in range(5):
        watch.tick(kept=True)
    watch.tick()
    watch.tick()
    assert lines == ["1 measurements, 40 s left", "2 measurements, 38 s left"]
