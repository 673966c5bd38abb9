"""Searches by pruning as the first half of a search: their time is foreseen, and what they leave races."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from innerloop.choose import PictureDraws, cell_space, search
from innerloop.choose.architectures.measure import Measurement
from innerloop.choose.architectures.prune import ROBUST, foreseen_seconds, work_of
from innerloop.choose.architectures.search import METHODS
from innerloop.cli.main import main
from innerloop.data.glyphs import glyphs
from innerloop.nets.cells import Choices, all_choices

pytestmark = pytest.mark.usefixtures("own_folder")

SMALL = ["space.cells=2", "space.channels=2", "data.size=8", "tasks.ways=5", "score=flops"]


def _few_operators() -> Choices:
    """Two on the first edge of the normal cell, one everywhere else."""
    first, *rest = all_choices().normal
    alone = tuple(operators[-1:] for operators in rest)
    return Choices((first[-2:], *alone), (first[-1:], *alone))


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ROBUST._replace(start=_few_operators(), budget=2.0)
    monkeypatch.setitem(METHODS, "robust", METHODS["robust"]._replace(settings=settings))


@pytest.mark.usefixtures("_short")
@pytest.mark.slow
def test_a_pruned_cell_races_against_a_random_one(capsys: pytest.CaptureFixture[str]) -> None:
    items = [*SMALL, "method=robust", "steps=3", "episodes=4", "budget=10m"]
    assert main(["search", "glyphs", *items, "--jobs", "1", "--json"]) == 0
    printed = capsys.readouterr()
    answered: dict[str, Any] = json.loads(printed.out.splitlines()[-1])
    assert "method=robust will take about" in printed.err
    assert (answered["k"], answered["pool"]) == (1, 1)
    pruned = next(entry for entry in answered["shortlist"] if entry["from"] == "score")
    assert pruned["genotype"]["normal"][0][1] == f"{all_choices().normal[1][-1]}(1)"  # had no rival
    edges = answered["reliability"]["edges"]
    assert {"margin", "tau", "again", "chance"} <= set(edges[0])
    assert len(edges[0]["among"]) == 2
    page = (Path(answered["run"]) / "report.html").read_text(encoding="utf-8")
    assert "The race" in page


def test_pruning_that_does_not_fit_is_told_before_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "glyphs", *SMALL, "method=published", "budget=2s"]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("error: budget=2s is too small for method=published and a pilot, which take about")
    assert "or method=shortlist." in told
    (run,) = Path("runs/search-glyphs").iterdir()
    assert not (run / "scores.jsonl").exists()  # nothing was measured for nothing


def test_the_foreseen_time_is_that_of_all_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both scores together take a second for each operator."""
    space = cell_space(1, 8, 5, cells=2, channels=2)
    draws = PictureDraws(glyphs(), seed=0, side=8, crops=20)
    start = _few_operators()

    def measured(_: Any, job: Any, __: Any) -> Measurement:
        work = work_of(job.candidate) if isinstance(job.candidate, Choices) else 0
        return Measurement(
            {"metantk": 2.0 + job.draw % 7, "regions": 3.0 + work}, {}, work * len(job.names) / 2
        )

    monkeypatch.setattr("innerloop.choose.architectures.measure.measure", measured)
    for method in ("robust", "published", "released"):
        settings = METHODS[method].settings._replace(start=start)
        pruned = search(method, space, draws, settings={"start": start}, workers=1)
        foreseen = foreseen_seconds(space, draws, settings)
        assert 0.85 * foreseen < pruned.seconds <= foreseen, method  # candidates are a little smaller
