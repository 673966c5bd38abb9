"""The sweep of ``inner.lr=auto``: what it may cost, when it decides, and what it says when it could not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from innerloop.choose import rates
from innerloop.choose.race import Entrant, Racer
from innerloop.choose.rate_advice import SWEEP, RateAdvice
from innerloop.choose.rates import (
    LEAST_EPISODES,
    LEAST_STEPS,
    SHARE,
    affordable,
    choose,
    edge,
    run_seconds,
    sweep_rates,
)
from innerloop.choose.trials import TIMED_STEPS, Costs, Trial, TrialResult, measure_costs, run_trial
from innerloop.core.files import read_json
from innerloop.core.statistics import mean_interval
from innerloop.experiment.inner_rate import read_rate
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.resuming import resume
from innerloop.experiment.training import train
from innerloop.report.run_page import rate_view
from innerloop.runs.manifest import read_manifest
from innerloop.training.execution.probes import Outcome

RATES = tuple(0.01 * factor for factor in SWEEP)
ADVICE = RateAdvice(0.02, 0.005, 0.08, RATES, (0.01, 0.04), "range", 4.0, "", {}, ("known before",), 1, 0.0)
SMALL = [
    "outer.batch=2",
    "eval.episodes=5",
    "eval.validation_episodes=4",
    "model.hidden=[8]",
    "inner.lr=auto",
    "inner.method=maml",
    "run.execution=loop",
    "run.compile=off",
]


def recipe_of(*items: str) -> Recipe:
    given = {item.partition("=")[0] for item in items}
    kept = [item for item in SMALL if item.partition("=")[0] not in given]
    return load_recipe("sine-maml", [*kept, *items])


# ---- the budget ----


@pytest.mark.parametrize("steps", [100, 1000, 1400, 3000, 60_000])
@pytest.mark.parametrize("episode", [1e-4, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("validation", [4, 100, 1000])
def test_a_sweep_stays_within_a_twentieth_of_steps_and_time_or_does_not_begin(
    steps: int, episode: float, validation: int
) -> None:
    recipe = recipe_of(f"outer.steps={steps}", f"eval.validation_episodes={validation}")
    costs = Costs(0.5, 0.5 * episode, 0.05)
    sweep = affordable(recipe, 5, costs)
    least = 5 * (LEAST_STEPS * costs.step + 2 * LEAST_EPISODES * costs.episode + costs.build)
    budget = SHARE * run_seconds(recipe, costs)
    if sweep is None:
        assert steps < 1000 or 2 * least > budget  # times are rounded up by less than two
        return
    rates = 5 + sweep.beyond
    assert sweep.steps >= LEAST_STEPS
    assert sweep.episodes >= LEAST_EPISODES
    assert rates * sweep.steps <= SHARE * steps
    assert rates * (sweep.steps * costs.step + 2 * sweep.episodes * costs.episode) <= budget


def test_dear_validation_shortens_validation_and_then_leaves_the_sweep_out() -> None:
    recipe = recipe_of("outer.steps=4000", "eval.validation_episodes=400", "eval.every=4000")
    many, fewer, none = (affordable(recipe, 5, Costs(1.0, cost, 0.0)) for cost in (0.01, 0.4, 4.0))
    assert many is not None
    assert many.episodes == 320
    assert fewer is not None
    assert fewer.episodes < many.episodes
    assert none is None


def test_small_differences_of_measured_times_change_nothing() -> None:
    recipe = recipe_of("outer.steps=4000")
    sweep = {affordable(recipe, 5, Costs(0.01 * f, 0.0035 * g, 0.03)) for f in (0.9, 1.1) for g in (0.9, 1.1)}
    assert len(sweep) == 1


def test_compiled_steps_of_the_run_leave_less_time_to_eager_ones_of_the_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("innerloop.training.execution.auto.cpp_compiler", lambda: "g++")
    monkeypatch.setattr("innerloop.training.execution.auto.compiler_works", lambda: Outcome(True))
    recipe = recipe_of("outer.steps=20000", "run.compile=auto")
    slow = recipe_of("outer.steps=20000")
    costs = Costs(0.02, 0.0001, 0.0)
    assert run_seconds(recipe, costs) == pytest.approx(100, rel=0.01)  # 400 s, four times faster
    assert run_seconds(slow, costs) == pytest.approx(400, rel=0.01)
    sweeps = [affordable(one, 5, costs) for one in (recipe, slow)]
    assert sweeps[0] is not None
    assert sweeps[1] is not None
    assert sweeps[0].steps < sweeps[1].steps


def test_costs_are_measured_by_the_clock_that_is_given() -> None:
    ticks = iter([0.0, 5.0, 5.25, 5.25 + 3 * TIMED_STEPS, 14.25 + 2 * LEAST_EPISODES])
    parts = Parts(recipe_of("outer.steps=50"))
    costs, finite = measure_costs(
        lambda: parts.at_rate(0.01), tasks=LEAST_EPISODES, most=1, clock=lambda: next(ticks)
    )
    assert finite
    assert costs == Costs(3.0, 2.0, 5.0)


# ---- the decision ----

CHEAP = Costs(1.0, 1e-3, 0.0)


def result(scores: list[float]) -> TrialResult:
    interval = mean_interval(scores) if scores else None
    mean, ci95 = (interval.mean, interval.ci95) if interval else (None, None)
    return TrialResult(1, len(scores), mean, ci95, 0.0, 0.0, scores)


def tried(rate: float, before: list[float], scores: list[float]) -> Racer:
    return Racer(Entrant(f"{rate:g}", Recipe(), about=rate), [result(before), result(scores)])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fake_trials(monkeypatch: pytest.MonkeyPatch, error: Any, costs: Costs = CHEAP) -> list[float]:
    """Trials that train nothing: their first scores are 5, their last ``error(rate, episode)``."""
    rates_tried: list[float] = []

    def judged(trial: Trial, parts: Parts, *_: Any) -> TrialResult:
        rate = parts.recipe.inner.lr
        assert isinstance(rate, float)
        if not trial.steps:
            rates_tried.append(rate)
        scores = [error(rate, i) if trial.steps else 5.0 for i in range(trial.episodes)]
        return result([] if None in scores else scores)

    monkeypatch.setattr(rates, "run_trial", judged)
    monkeypatch.setattr(rates, "measure_costs", lambda *_, **__: (costs, True))
    return rates_tried


def swept(parts: Parts, advice: RateAdvice, say: Any) -> dict[str, Any]:
    return sweep_rates(parts, advice, Path("rates"), say)


def noise(rate: float, i: int) -> float:
    return ((i * 7919 + int(rate * 1e6) * 104_729) % 1000) / 1000


def test_a_rate_that_is_clearly_best_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_trials(monkeypatch, lambda rate, i: abs(rate - 0.04) + 0.001 * noise(rate, i))
    said: list[str] = []
    record = swept(Parts(recipe_of("outer.steps=4000")), ADVICE, said.append)
    assert record["alpha"] == 0.04
    assert record["sweep_decided"] is True
    assert record["sweep_edge"] is None
    assert record["reasons"] == ["known before"]
    assert len(said) == 1
    assert "of the run" in said[0]


def test_what_cannot_be_told_apart_is_said_and_the_middle_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_trials(monkeypatch, noise)
    record = swept(Parts(recipe_of("outer.steps=4000")), ADVICE, print)
    assert record["alpha"] == 0.02
    assert record["sweep_decided"] is False
    assert "could not tell 0.005, 0.01, 0.02, 0.04, 0.08 apart" in record["reasons"][-1]


@pytest.mark.parametrize(("sign", "side", "further"), [(1, "lower", 0.00125), (-1, "upper", 0.32)])
def test_an_end_of_the_range_is_looked_beyond_and_never_taken_silently(
    monkeypatch: pytest.MonkeyPatch, sign: int, side: str, further: float
) -> None:
    seen = fake_trials(monkeypatch, lambda rate, i: 1 + sign * rate + 1e-4 * noise(rate, i))
    said: list[str] = []
    record = swept(Parts(recipe_of("outer.steps=4000")), ADVICE, said.append)
    assert len(seen) == 7
    assert record["alpha"] == pytest.approx(further)
    assert record["sweep_edge"] == side
    assert f"is the {side} end of what was tried" in said[-1]
    assert record["low"] <= record["alpha"] <= record["high"]
    rows = [row["rate"] for row in record["sweep"]]
    assert rows == sorted(rows)


def test_one_rate_beyond_the_end_settles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fake_trials(monkeypatch, lambda rate, i: abs(rate - 0.08) + 1e-4 * noise(rate, i))
    record = swept(Parts(recipe_of("outer.steps=4000")), ADVICE, print)
    assert seen[-1] == pytest.approx(0.16)
    assert len(seen) == 6
    assert record["alpha"] == 0.08
    assert record["sweep_edge"] is None


def test_an_end_without_budget_beyond_it_is_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fake_trials(monkeypatch, lambda rate, i: 1 + rate + 1e-5 * noise(rate, i))
    record = swept(Parts(recipe_of("outer.steps=1200")), ADVICE, print)
    assert len(seen) == 5
    assert record["sweep_edge"] == "lower"
    assert "smaller rates" in record["reasons"][-1]


def test_a_rate_below_those_that_diverged_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_trials(monkeypatch, lambda rate, i: None if rate > 0.05 else 1 - rate + 1e-4 * noise(rate, i))
    record = swept(Parts(recipe_of("outer.steps=4000")), ADVICE, print)
    assert record["alpha"] == 0.04
    assert record["sweep_edge"] is None
    assert record["sweep"][-1]["score"] is None


def test_one_task_gone_wrong_does_not_make_a_bad_rate_level_with_a_good_one() -> None:
    start = [9.0] * 20
    fine = tried(0.01, start, [1.0 + 0.1 * noise(0.01, i) for i in range(20)])
    wild = tried(0.02, start, [2.0 + 0.1 * noise(0.02, i) for i in range(19)] + [1e6])
    taken, level = choose(recipe_of("outer.steps=1000"), [fine, wild], 0.02, 10)
    assert taken is fine
    assert level == [fine]
    assert edge([fine, wild], taken) == "lower"


@pytest.mark.parametrize(("after", "told"), [(4.9, False), (6.0, True), (5.0, True)])
def test_a_lead_of_untrained_weights_that_training_closes_is_none(after: float, told: bool) -> None:
    """The smaller rate led by 1 before training: at 0.9 after a hundredth of the run it will be overtaken."""

    def scores(mean: float, rate: float) -> list[float]:
        return [mean + 0.01 * noise(rate, i) for i in range(20)]

    small = tried(0.01, scores(4.0, 0.01), scores(4.0, 0.01))
    large = tried(0.02, scores(5.0, 0.01), scores(after, 0.01))
    taken, level = choose(recipe_of("outer.steps=1000"), [small, large], 0.02, 10)
    assert (len(level) == 1) is told
    assert taken is (small if told else large)


def test_only_neighbours_of_the_best_are_level_with_it() -> None:
    means = {0.01: 1.0, 0.02: 2.0, 0.04: 1.0}
    racers = [tried(r, [9.0] * 20, [m + 0.1 * noise(r, i) for i in range(20)]) for r, m in means.items()]
    _, level = choose(recipe_of("outer.steps=1000"), racers, 0.02, 10)
    assert len(level) == 1


def test_dear_tasks_leave_the_sweep_out_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fake_trials(monkeypatch, noise, Costs(1.0, 30.0, 0.0))
    said: list[str] = []
    record = swept(Parts(recipe_of("outer.steps=1000")), ADVICE, said.append)
    assert seen == []
    assert "no time for a sweep" in said[-1]
    assert "0.02, the middle of the range" in said[-1]
    assert record["sweep_steps"] == 0


# ---- in a run ----


def test_a_short_run_takes_the_middle_and_says_so(tmp_path: Path) -> None:
    """120 steps: five rates of one step each would tell nothing."""
    result = train(recipe_of("outer.steps=120", f"run.folder={tmp_path}"), progress=False)
    record = read_manifest(result.run)["rate"]
    assert record["sweep_steps"] == 0
    assert "no room for a sweep" in record["reasons"][-1]
    assert record["alpha"] == pytest.approx(2 * record["forms"]["trace"])


def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of a machine that is always the same, and a larger share for runs of a hundred steps."""
    monkeypatch.setattr(rates, "SHARE", 0.7)
    monkeypatch.setattr(rates, "measure_costs", lambda *_, **__: (Costs(1.0, 1e-3, 1e-3), True))


def test_the_sweep_of_a_run_takes_enough_steps_of_every_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheap(monkeypatch)
    run = train(recipe_of("outer.steps=120", f"run.folder={tmp_path}"), progress=False).run
    record = read_manifest(run)["rate"]
    assert len(record["sweep"]) >= len(SWEEP)
    assert record["sweep_steps"] == LEAST_STEPS * len(record["sweep"])
    assert record["sweep_episodes"] == LEAST_EPISODES
    rows = [row["rate"] for row in record["sweep"]]
    assert record["alpha"] in rows
    for rate in (record["forms"]["trace"] * f for f in SWEEP):
        assert any(rate == pytest.approx(row) for row in rows)
    page = rate_view(record)
    assert page is not None
    assert len(page["tables"][0]["rows"]) == len(rows)
    kept = read_json(run / "rates" / "race.json")["entrants"]
    assert [entrant["recipe"]["inner"]["lr"] for entrant in kept] == rows
    scores = [entrant["rungs"][-1]["scores"] for entrant in kept]
    assert [mean_interval(each).mean if each else None for each in scores] == [
        row["score"] for row in record["sweep"]
    ]


def test_a_run_killed_in_its_sweep_decides_again_as_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheap(monkeypatch)
    items = ["outer.steps=120", "run.save_every=30"]
    whole = train(recipe_of(*items, f"run.folder={tmp_path / 'a'}"), progress=False).run
    count = iter(range(100))

    def cut(*given: Any) -> TrialResult:
        if next(count) == 3:
            raise KeyboardInterrupt
        return run_trial(*given)

    with monkeypatch.context() as patched:
        patched.setattr(rates, "run_trial", cut)
        with pytest.raises(KeyboardInterrupt):
            train(recipe_of(*items, f"run.folder={tmp_path / 'b'}"), progress=False)
    half = next((tmp_path / "b").glob("*/*/manifest.json")).parent
    assert read_rate(half) is None
    kept = {file: file.read_bytes() for file in (half / "rates").rglob("*.json")}
    assert len(kept) == 4  # what was decided, two trials of the first rate, one of the second
    monkeypatch.setattr(rates, "measure_costs", lambda *_, **__: pytest.fail("measured again"))
    resume(half, progress=False)
    assert {file: file.read_bytes() for file in kept} == kept
    assert read_rate(half) == read_rate(whole)
    tables = [read_manifest(run)["rate"]["sweep"] for run in (whole, half)]
    assert tables[0] == tables[1]
