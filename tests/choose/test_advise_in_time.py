"""The budget of an advice is kept, and the pretrained network comes first, by clocks that tests turn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import innerloop as il
from innerloop.choose import advisor, method_race, session, trials
from innerloop.choose import baselines as others
from innerloop.choose.advice import Row, recommend
from innerloop.choose.advisor import give_advice
from innerloop.choose.baselines import SPLIT, FreshTasks, ground_of, untrained_baselines
from innerloop.choose.method_race import MethodRace
from innerloop.choose.problem import pose_advice
from innerloop.choose.race import Rungs
from innerloop.choose.request import read_advise
from innerloop.choose.trials import Costs, map_jobs
from innerloop.classify.backbones import Backbone
from innerloop.core.preprocessing import Preprocessing
from innerloop.core.statistics import mean_interval
from innerloop.data.source import only_rows
from innerloop.experiment.parts import Parts
from innerloop.nets import conv4
from innerloop.runs.executors import OutOfTimeError

SHAPE = ["tasks.ways=3", "tasks.shots=1", "tasks.queries=2", "model.filters=8"]
FOREVER = 10_000.0


class Clock:
    """Goes on by some seconds whenever it is looked at, and when told to: not with the machine's."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("innerloop.runs.executors.LOOK", 0.02)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of whatever sits down from now on."""
    made = Clock(1.0)

    @contextmanager
    def open_session(*args: Any, **named: Any) -> Iterator[Any]:
        with session.open_session(*args, **named) as opened:
            yield opened._replace(clock=made)

    monkeypatch.setattr(advisor, "open_session", open_session)
    return made


def drawn() -> Backbone:
    """As if somebody had trained it."""
    net = conv4(3, 28, 5, filters=4, norm="running")
    look = Preprocessing((28, 28), "share", share=1.0, mean=(0.5,) * 3, std=(0.25,) * 3)
    return Backbone("lite0", net, *net.init(torch.Generator().manual_seed(0)), look, "drawn here")


def never(*_: Any) -> Any:
    time.sleep(FOREVER)


@pytest.mark.parametrize("processes", [1, 2])
def test_what_runs_when_time_is_up_is_ended(processes: int) -> None:
    clock = Clock(1.0)
    with pytest.raises(OutOfTimeError):
        list(map_jobs(never, [1, 2], processes, lambda: 20.0 - clock()))
    assert clock.now == 20.0


PARTS = {
    "baselines": (advisor, "untrained_baselines", lambda _: {"mean": never}),
    "steps": (trials, "_costs_of", never),
    "trials": (trials, "run_trial", never),
    "estimates": (advisor, "rate_part", never),
}


@pytest.mark.parametrize("part", PARTS)
def test_the_budget_is_kept_whatever_does_not_end(
    part: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part in turn takes for ever: it is ended, and what was found by then is the advice."""
    module, name, instead = PARTS[part]
    monkeypatch.setattr(module, name, instead)
    monkeypatch.setattr(method_race, "LEAST_STEPS", 2)
    if part != "steps":
        costs = Costs(0.001, 0.001, 0.001)
        monkeypatch.setattr(
            method_race, "measure_recipes", lambda some, *_: dict.fromkeys(range(len(some)), costs)
        )
    if part == "baselines":
        with pytest.raises(il.UserError, match="budget=100s is too small"):
            give_advice(read_advise("sine", ["budget=100s"]), workers=2, show=False)
    else:
        advice = give_advice(read_advise("sine", ["budget=100s"]), workers=2, show=False)
        assert advice.recommendation.sentence
        assert part != "estimates" or "no time left" in advice.rate.reason
    assert clock.now <= 120.0


def test_reading_pictures_longer_than_the_budget_is_refused_with_one_that_suffices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()

    def read(_: Any, progress: Any) -> None:
        for done in range(1, 101):
            clock.now += 10.0
            progress("pictures", done, 100)

    monkeypatch.setattr(advisor, "open_pictures", read)
    with pytest.raises(il.UserError, match=r"too small for reading 100 pictures.*set budget=11m"):
        advisor._read_pictures(read_advise("glyphs", SHAPE), clock)
    assert clock.now == 70.0


def test_a_start_that_takes_most_of_the_budget_is_refused_before_anything_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As seen on a busy machine: importing torch took 65 s of 60."""
    monkeypatch.setattr(advisor, "open_pictures", lambda *_: pytest.fail("pictures were read"))
    asked, now = read_advise("glyphs", SHAPE), time.monotonic()
    with pytest.raises(il.UserError, match=r"starting alone took 40 s: set budget=7m or more"):
        give_advice(asked, show=False, started=now - 40.0)
    assert not Path("runs").exists()


def test_a_slow_start_keeps_more_time_for_the_end() -> None:
    asked = read_advise("glyphs", [*SHAPE, "budget=100s"])
    assert (advisor._ending(asked, 5.0), advisor._ending(asked, 50.0)) == (8.0, 35.0)


def grounded(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> tuple[FreshTasks, list[int]]:
    """Tasks of glyphs in the order of their pool; every feature takes a second."""
    ground = ground_of(pose_advice(read_advise("glyphs", [*SHAPE, "methods=[protonet]"])), 20, 1, 1)
    pictures = ground.whole.pictures
    seen: list[int] = []

    def extract(_: Any, some: Any, **__: Any) -> None:
        clock.now += len(some)
        seen.extend(range(len(some)))

    monkeypatch.setattr(others, "extract", extract)
    return ground._replace(pool=tuple(others.pool_order(ground.recipe, pictures))), seen


@pytest.mark.parametrize(("share", "left", "pictures"), [(40.0, 500.0, 39), (1.0, 500.0, 15), (1.0, 8.0, 0)])
def test_features_are_computed_as_long_as_their_time_lasts(
    share: float, left: float, pictures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its share at least; longer only until the first tasks can be drawn, and not beyond the budget."""
    clock = Clock()
    ground, seen = grounded(monkeypatch, clock)
    end = clock.now + left
    rows = others.affordable_pictures(drawn(), ground, ground.whole.pictures, share, lambda: end - clock())
    assert len(rows) == pictures
    assert len(seen) == 8 * max(1, -(-pictures // 8))
    assert clock.now <= end


def test_every_row_is_about_the_same_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretrained, untrained and trained: tasks that show nothing but the pictures there was time for."""
    ground, _ = grounded(monkeypatch, Clock())
    ground = ground._replace(pool=ground.pool[:24])
    problem = pose_advice(read_advise("glyphs", [*SHAPE, "methods=[protonet]"]))
    trained = trials._on_pool(Parts(ground.recipe, ground.whole), ground.pool)
    ours, theirs = (data.validation.episode(3) for data in (ground.data, trained.data))
    assert torch.equal(ours.x_query, theirs.x_query)
    few = only_rows(ground.whole.pictures, ground.pool, SPLIT)
    assert np.array_equal(few.images, ground.data.pictures.images)
    monkeypatch.setattr(others, "open_backbone", lambda _: drawn())
    same, row = others.evaluate_pretrained(problem, ground, "lite0", 100.0, lambda: 1000.0)
    assert row is not None
    assert (same.pool, row.kind, row.episodes) == (ground.pool, "pretrained", 20)
    for of in untrained_baselines(problem).values():
        assert len(of(problem, same).scores) == len(row.scores)


def test_the_pretrained_network_is_evaluated_before_time_runs_out(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything else takes for ever; it has been evaluated all the same, and is the headline."""
    monkeypatch.setattr(others, "open_backbone", lambda _: drawn())
    monkeypatch.setattr(trials, "_costs_of", never)
    monkeypatch.setattr(advisor, "untrained_baselines", lambda _: {"pixels": never})
    asked = read_advise("glyphs", [*SHAPE, "budget=100s", "backbone=lite0"])
    advice = give_advice(asked, workers=2, show=False)
    assert advice.recommendation.sentence.startswith("Train nothing: lite0 with a logistic head has accuracy")
    assert "no time to race methods" in advice.recommendation.sentence
    assert any("pictures of" in why and "validation classes" in why for why in advice.reasons)
    assert 80.0 < advice.seconds == clock.now <= 120.0  # what it took, without what was kept for the end


def test_nothing_is_recommended_over_a_network_that_was_not_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = pose_advice(read_advise("glyphs", [*SHAPE, "methods=[protonet]"]))
    monkeypatch.setattr(others, "open_backbone", lambda _: drawn())
    ground, _ = grounded(monkeypatch, Clock())
    assert others.evaluate_pretrained(problem, ground, "lite0", 10.0, lambda: 0.0) == (ground, None)
    scores = (0.5, 0.6, 0.7)
    rows = [Row("colours", "histograms", "untrained", mean_interval(scores), 3, fresh=True, scores=scores)]
    nothing = MethodRace([], Rungs([], [], 3), [], 303.0)
    told = recommend(problem, rows, nothing, Path("runs"), "lite0")
    assert told.sentence.startswith("Ask again with budget=6m: there was no time to evaluate lite0")
    assert "Train nothing" not in told.sentence
    assert told.command == "innerloop advise glyphs budget=6m"
    assert (told.decided, told.recipe) == (False, None)


def test_commands_can_be_pasted() -> None:
    """Folders with spaces are quoted, and examples are those that advice was asked about."""
    problem = pose_advice(read_advise("glyphs", [*SHAPE, "methods=[protonet]"]))
    data = problem.recipe.data.model_copy(update={"name": "my photos"})
    recipe = problem.recipe.model_copy(update={"data": data})
    asked = problem.asked._replace(source="my photos", recipe=recipe)
    problem = problem._replace(asked=asked)
    Path("my photos").mkdir()
    nothing = MethodRace([], Rungs([], [], 3), [], 303.0)
    scores = (0.5, 0.6, 0.7)
    row = Row("lite0", "lite0", "pretrained", mean_interval(scores), 3, fresh=True, scores=scores)
    missing = recommend(problem, [row], nothing, Path("runs"), "lite1")
    assert missing.command == "innerloop advise 'my photos' budget=6m"
    told = recommend(problem, [row], nothing, Path("runs"), "")
    assert told.command == "innerloop predict --backbone lite0 --support 'my photos' PICTURES"
