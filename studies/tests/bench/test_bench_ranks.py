"""`bench ranks`: what its rows say of what was measured, and the model that carries it to many ranks."""

import json
import math

import numpy as np
import pytest
import torch

from innerloop.testing.closeness import LIMIT, ROUNDED, SUMMED
from innerloop.training.execution import ranks as execution_ranks
from innerloop_studies.bench import maml, ranks, ranks_cost
from innerloop_studies.bench.harness import Measured, Side, Timing, thread_limits
from innerloop_studies.bench.ranks_cost import (
    Exchange,
    Link,
    Step,
    all_reduce_seconds,
    busiest,
    efficiency,
    fitted,
    speed_up,
    step_seconds,
    task_and_fixed,
)
from oracles.rank_threads import in_ranks

TINY = {"tasks": 4, "ways": 2, "queries": 1, "filters": 2}
STEP, LINK = Step(task=0.05, fixed=0.002, spread=0.001, size=4.5e5), Link(30e-6, 1.1e9)


# --- the report ---------------------------------------------------------------------------------------------


def timing(name, rounds, threads=1):
    return Timing(Side(name, {"threads": threads}), rounds, 300.0, 200.0, 9, 0.5)


def timings(one, two, others=(1.0, 1.0)):
    by_side = {name: timing(name, list(others), 2) for name in ranks.PEERS}
    by_side |= {ranks.ONE: timing(ranks.ONE, one), ranks.TWO: timing(ranks.TWO, two)}
    by_side |= {f"{ranks.SOME}2": timing("2", [101.0]), f"{ranks.SOME}1": timing("1", [51.0])}
    return Measured(by_side, 0.5)


def test_the_all_reduce_is_the_last_ranks_time_and_the_rest_is_waiting():
    """Two calls of 100 and 200 ms; rank 1 comes 10 and 30 ms after rank 0, the exchange takes 2 and 4 ms."""
    share = ranks.share_of_steps([0.1, 0.2], [[0.012, 0.034], [0.002, 0.004]])
    assert share.exchange == pytest.approx(0.02)
    assert share.waiting == pytest.approx((0.005 / 0.1 + 0.015 / 0.2) / 2)
    assert share.waited_s == pytest.approx(0.010)


def test_a_row_sets_two_ranks_beside_one():
    share = ranks.Share(0.012, 0.034, 0.002)
    row = ranks.row_of(5, ranks.TWO, timings([200.0, 220.0], [100.0, 110.0]), share, ["equal"])
    assert (row["case"], row["peer"], row["ratio"]) == ("5 steps, two ranks", ranks.ONE, 2.0)
    assert (row["at_least"], row["at_most"], row["threads"]) == (1.7, 0.05, "2 × 1 / 1")
    assert (row["all_reduce_share"], row["waiting_share"]) == (0.012, 0.034)
    assert row["notes"].startswith(
        "all-reduce 1.2 % of a step (at most 5 %), waiting for the last rank 3.4 %"
    )
    other = ranks.row_of(1, "threads", timings([2.0, 2.0], [1.0, 1.0]), share, ["equal"])
    assert (other["case"], other["ratio"], other["at_least"]) == ("1 step, threads", 2.0, None)
    assert "all_reduce_share" not in other
    assert other["notes"] == "equal; others kept 0.5 cores busy"


def test_the_model_is_made_of_what_was_measured():
    """201 ms for 4 tasks, 101 for 2 and 51 for 1: 50 ms a task, 1 ms besides."""
    share = ranks.Share(0.0, 0.0, waited_s=2e-3)
    case_timings = timings([201.0], [110.0], (1.0,))
    rows = [ranks.row_of(5, ranks.TWO, case_timings, share, [])]
    ms = {name: one.ms for name, one in case_timings.timings.items()}
    told = ranks.model(ranks.StepTimings(rows, ms, share, 1000), LINK, fixed=0.5e-3)
    step = Step(**told["step"])
    assert (step.task, step.fixed, step.size) == (pytest.approx(0.05), pytest.approx(1.5e-3), 4000.0)
    # half the median distance of the sums of two tasks each, on two ranks
    generator = np.random.default_rng(0)
    drawn = generator.normal(0.0, step.spread, (200_000, 2, 2)).sum(-1)
    assert np.median(np.abs(drawn[:, 0] - drawn[:, 1])) / 2 == pytest.approx(2e-3, rel=0.01)
    assert told["measured_speed_up"] == {1: 1.0, 2: pytest.approx(201 / 110)}
    assert json.loads(json.dumps(told))["link"] == LINK._asdict()


def test_all_ways_compute_the_same_step_and_parts_of_it_are_fewer_tasks():
    all_sides = {side.name: side.spec for side in ranks.sides_of(5, {})}
    assert [all_sides[name].get("ranks", 1) * all_sides[name]["threads"] for name in ranks.PEERS] == [2] * 3
    assert all_sides[ranks.ONE]["threads"] == 1
    assert {all_sides[name]["mode"] for name in (ranks.ONE, ranks.TWO)} == {"loop"}
    assert [spec["sizes"].get("tasks") for spec in all_sides.values()] == [None] * 4 + [2, 1]


def test_two_ranks_of_the_benchmark_have_the_gradient_of_one(monkeypatch):
    spec = {"workload": "conv", "side": "ours", "steps": 2, "mode": "loop", "threads": 1, "dtype": "float64"}
    spec["sizes"] = TINY
    expected = maml.build(spec)()
    for gradient in in_ranks(2, lambda rank: maml.build({**spec, "ranks": 2})(), monkeypatch):
        torch.testing.assert_close(gradient, expected, rtol=SUMMED, atol=ROUNDED / 10)


def test_a_step_without_its_tasks_still_exchanges_and_updates(monkeypatch):
    seen = []

    class Alone:
        rank, size = 0, 1

        def add_up(self, flat):
            seen.append(len(flat))

    monkeypatch.setattr(execution_ranks, "group_of", lambda wanted: Alone())
    updates = []
    step = torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: updates.append(step(self)))
    spec = {"workload": "conv", "steps": 1, "sizes": TINY}
    call = ranks.fixed_part(spec, 1)
    call()
    numbers = sum(value.numel() for value in maml.workload(spec).params.values())
    assert (seen, len(updates)) == ([numbers + TINY["tasks"] + 2], 1)


@pytest.mark.slow  # a dozen processes, each with torch to import
def test_runs_and_reports():
    report = ranks.run(True, lambda _: None, TINY)
    assert len(report["cases"]) == 2 * len(ranks.PEERS)
    for row in report["cases"]:
        assert row["ratio"] > 0
        assert 50 < row["ours_mb"] < 5000
    assert 0 < report["cases"][0]["all_reduce_share"] < 1
    assert {e["ranks"] for e in report["exchanges"]} == {2, 4}
    assert all(e["seconds"] > 0 for e in report["exchanges"])
    assert set(report["models"]) == {"5", "1"}
    assert ranks.figure(report).axes


@pytest.mark.slow
def test_ranks_of_a_team_are_separate_processes_that_end_with_it():
    spec = {**ranks.sides_of(1, TINY)[1].spec}
    with ranks.Team("a team", 2, thread_limits(1)) as team:
        team.ask("setup", spec=spec)
        answer = team.ask("block", repeats=3)
    assert len(set(answer["pids"])) == 2
    assert len(answer["seconds"]) == len(team.seconds) == 3
    assert [len(spent) for spent in team.exchanges] == [3, 3]
    assert all(0 < spent <= step for spent, step in zip(team.exchanges[0], team.seconds, strict=True))
    assert all(child.process.poll() is not None for child in team.children)


# --- the model ----------------------------------------------------------------------------------------------


def test_a_ring_by_hand():
    """Messages of a ring of four, counted one by one: 3 to add up and 3 to pass on, a quarter each."""
    quarter = 1e6 / 4
    by_hand = sum(LINK.latency + quarter / LINK.bandwidth for _ in range(3 + 3))
    assert all_reduce_seconds(4, 1e6, LINK) == pytest.approx(by_hand)
    assert all_reduce_seconds(1, 1e6, LINK) == 0
    # the bytes that a rank sends never exceed twice the buffer, however many ranks there are
    assert all_reduce_seconds(10**6, 1e9, Link(0.0, 1e9)) == pytest.approx(2.0, rel=LIMIT)


def test_the_busiest_core_has_what_rank_shares_give_it():
    for tasks in range(1, 40):
        for size in range(1, 12):
            shares = [execution_ranks.share_of(tasks, rank, size) for rank in range(size)]
            assert busiest(tasks, size) == max(stop - start for start, stop in shares)
    assert busiest(10, 2, cores=4) == math.ceil(5 / 4)
    # ranks without a task cost their place in the ring and no more
    free = Link(0.0, math.inf)
    assert step_seconds(STEP, free, 4, 64) == pytest.approx(step_seconds(STEP, free, 4, 4))


def test_perfect_parts_scale_perfectly_and_others_do_not():
    free = Step(0.05, 0.0, 0.0, 0.0)
    assert speed_up(free, Link(0.0, 1e9), 64, 16, 4) == pytest.approx(64)
    assert efficiency(free, Link(0.0, 1e9), 64, 128) == pytest.approx(0.5)  # half of the cores have no task
    slower = [efficiency(STEP, LINK, 4 * n, n) for n in (1, 2, 8, 64, 512)]
    assert slower[0] == 1.0
    assert slower == sorted(slower, reverse=True)
    # a rank per machine passes the ring once per machine
    assert efficiency(STEP, LINK, 4 * 512, 16, 32) > efficiency(STEP, LINK, 4 * 512, 512)


def test_amdahls_law_is_what_is_left_of_a_free_network():
    """Without spread and exchange the model is Amdahl's, with the fixed part as what does not divide."""
    step, cores = STEP._replace(spread=0.0, size=0.0), 64
    serial = step.fixed / (step.fixed + 64 * step.task)
    amdahl = 1 / (serial + (1 - serial) / cores)
    assert speed_up(step, Link(0.0, 1e9), 64, cores) == pytest.approx(amdahl)


def test_waiting_is_no_less_than_the_slowest_of_normal_ranks_costs():
    drawn = np.random.default_rng(0).normal(STEP.task, STEP.spread, (4000, 64, 2)).sum(-1)
    expected = float(drawn.max(1).mean())
    told = step_seconds(STEP._replace(fixed=0.0, size=0.0), Link(0.0, 1e9), 128, 64)
    assert expected <= told <= expected + STEP.spread


def test_a_link_is_found_again_from_its_exchanges():
    exact = [Exchange(p, n, all_reduce_seconds(p, n, LINK)) for p in (2, 4) for n in (1e3, 1e5, 1e7)]
    assert fitted(exact) == pytest.approx(LINK)
    generator = np.random.default_rng(1)
    noisy = [e._replace(seconds=e.seconds * generator.uniform(0.9, 1.1)) for e in exact * 20]
    assert fitted(noisy) == pytest.approx(LINK, rel=0.1)


def test_tasks_and_the_rest_are_told_apart():
    assert task_and_fixed({4: 0.201, 2: 0.101, 1: 0.051}) == pytest.approx((0.05, 0.001))


def test_the_table_has_every_way_and_the_picture_shows_it():
    rows = ranks_cost.extrapolated(STEP, LINK)
    assert {row["way"] for row in rows} == {way.name for way in ranks_cost.ways(LINK)}
    slow = ranks_cost.LINKS["10 Gbit/s Ethernet"]
    machines = [
        row for row in rows if "10 Gbit/s" in row["way"] and "32 cores" in row["way"] and row["grows"]
    ]
    for row in machines:  # of 32 cores with 4 tasks each
        expected = step_seconds(STEP, slow, 4 * row["cores"], row["cores"] // 32, 32)
        assert row["ms"] == pytest.approx(1e3 * expected)
    assert [row["ranks"] for row in machines] == [1, 2, 4, 8, 16]
    for row in rows:
        assert row["efficiency"] == pytest.approx(row["speed_up"] / row["cores"])
    assert max(row["cores"] for row in rows) == 512
    modelled = {"step": STEP._asdict(), "link": LINK._asdict(), "measured_speed_up": {1: 1.0, 2: 1.8}}
    left, right = ranks_cost.panels({"5": modelled, "1": modelled})
    assert left.lines[-1].name == "4 tasks, measured here"
    assert left.lines[-1].points == ([1.0, 2.0], [1.0, 1.8], None)
    assert len(right.lines) == len(ranks_cost.ways(LINK))
    assert ranks.figure({"models": {"5": modelled, "1": modelled}}).axes
    told = ranks_cost.sentences(5, {**modelled, "extrapolated": rows})
    assert "a task takes 50.0 ms (± 1.0)" in told[0]
    assert "1.80× measured" in told[1]
    assert "256 cores" in told[2]
