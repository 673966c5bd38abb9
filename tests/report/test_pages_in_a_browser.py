"""Every kind of page in a real browser: nothing complains, nothing sticks out, everything is drawn."""

import json

import numpy as np
import pytest
from test_predictions_page import with_predictions
from test_report import make_run, write_evaluation
from test_report_results import analysed, redone

from innerloop.choose import method_race, race
from innerloop.cli.main import main
from innerloop.experiment.pages import write_report as write_page
from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop.report.plots.style import write_figures
from innerloop.report.read_run import headline, load_run
from innerloop.report.text import interval
from oracles.browser import measured, opened

KINDS = ("one", "two", "many", "labels", "failed", "interrupted", "reproduced", "analysed", "several")


def drawn_wide(run):
    """A figure of five panels, as reproductions have."""
    parts = [panel("x", "y", [line("a", range(9), np.arange(9.0))]) for _ in range(5)]
    write_figures(run, {"main": panels_figure(parts, columns=5)})
    return run


def made(kind, folder):
    """A page of that kind."""
    if kind in ("one", "two", "many"):
        count = {"one": 1, "two": 2, "many": 7}[kind]
        long = {"name": "a-rather-long-name-of-a-recipe", "inner": {"lr": 0.05}}
        runs = [make_run(folder, seed=i, **(long if i % 2 else {})) for i in range(count)]
        write_evaluation(runs[0], number=2, level=2e9)
        return write_page(runs, folder / "page.html")
    if kind == "labels":
        return write_page([with_predictions(folder)[0]])
    if kind in ("failed", "interrupted"):
        reason = f"step 3: {'a-long-word' * 9}, lower inner.lr" if kind == "failed" else None
        return write_page([make_run(folder, status=kind, reason=reason, evaluated=False)])
    if kind == "reproduced":
        return write_page([drawn_wide(redone(folder))])
    if kind == "analysed":
        return write_page([analysed(folder)])
    return write_page([redone(folder, "a"), redone(folder, "b"), analysed(folder)], folder / "page.html")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_whole_at_any_width(tmp_path, kind):
    page = made(kind, tmp_path)
    for width, dark in ((390, False), (390, True), (1100, False)):
        seen = measured(page, width, dark)
        assert seen.console == []
        assert seen.reach <= width
        assert all(natural > 0 for natural in seen.images)
        assert all(one["width"] > 200 and one["marks"] > 10 for one in seen.drawings)
    drawn = {"one": 4 - 1, "labels": 3, "failed": 1, "interrupted": 1, "reproduced": 0, "analysed": 0}
    assert (len(seen.images) == 1) == (kind == "reproduced")
    assert len(seen.drawings) == drawn.get(kind, len(seen.drawings))


CELLS = ["space.cells=2", "space.channels=2", "data.size=8", "tasks.ways=5", "score=flops"]
FEW = ["model.filters=4"]
ASKED = {
    "advised": ["advise", "glyphs", "budget=40s", "methods=[protonet,maml]", "tasks.ways=3", *FEW],
    "searched": ["search", "glyphs", *CELLS, "k=1", "pool=3", "steps=3", "episodes=4", "budget=10m"],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ASKED)
def test_what_a_command_found_is_whole_at_any_width(tmp_path, monkeypatch, capsys, kind):
    """Pages that only whole commands write: a race of methods, and one of cells, which are drawn."""
    monkeypatch.chdir(tmp_path)
    for module in (race, method_race):  # a race that tells nothing, on a busy machine too
        monkeypatch.setattr(module, "LEAST_STEPS", 2)
    monkeypatch.setattr(race, "LEAST_EPISODES", 4)
    assert main([*ASKED[kind], "--jobs", "1", "-q", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    page = tmp_path / told["run"] / "report.html"
    for width, dark in ((390, False), (390, True), (1100, False)):
        seen = measured(page, width, dark)
        assert seen.console == []
        assert seen.reach <= width
        assert all(one["width"] > 200 and one["marks"] > 10 for one in seen.drawings)
    document = opened(page).document
    if kind == "searched":
        assert len(seen.drawings) == 1 + len(told["shortlist"])  # the race, and every cell
        assert all(entry["name"] in document for entry in told["shortlist"])
    else:
        assert len(seen.drawings) >= 1
        scores = [
            f"{100 * entry['accuracy']:.1f}" for entry in told["pilot"] if entry["accuracy"] is not None
        ]
        assert len(scores) > 2
        assert all(score in document for score in scores)


@pytest.mark.slow
def test_a_browser_shows_the_numbers_of_the_files(tmp_path):
    run, drawn = with_predictions(tmp_path)
    document = opened(write_page([run])).document
    evaluation = headline(load_run(run))
    mean, half = interval(evaluation["mean"], evaluation["ci95"], "accuracy").split(" ± ")
    assert f'<span class="mean">{mean}</span> <span class="half">± {half}</span>' in document
    kept = json.loads((run / "predictions" / "test-1.json").read_text())
    assert document.count('class="tile slip"') == sum(
        one["said"] != label for label, row in enumerate(kept["shown"][0]["rows"]) for one in row["queries"]
    )
    assert len(drawn) == len(kept["tasks"])
