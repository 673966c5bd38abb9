"""The part of a page that looks at single labels: counted right, shown right, and safe."""

import base64
import io
import json
import random
from collections import defaultdict

import pytest
import torch
from PIL import Image
from test_report import make_run, write_evaluation

from innerloop.classify.sureness import calibration_error
from innerloop.core.statistics import mean_interval
from innerloop.experiment.pages import write_report as write_page
from innerloop.report.plots.scores import calibration_data
from innerloop.report.read_run import headline, load_run
from innerloop.report.run_page import status_view
from innerloop.report.run_predictions import (
    address,
    by_groups,
    by_outcome,
    class_rows,
    confused_pairs,
    labels_view,
    read_predictions,
)
from innerloop.report.text import interval
from innerloop.testing.closeness import ROUNDED
from oracles.browser import measured
from support.pages import read

NAMES = ["oak", "elm", "ash", "fir", "yew", "<b>beech</b>"]
GROUPS = ["leaf", "leaf", "leaf", "needle", "needle", "leaf"]


def picture(shade=0):
    buffer = io.BytesIO()
    Image.new("L", (8, 8), shade).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def drawn_task(episode, draw):
    classes = draw.sample(range(len(NAMES)), 3)
    labels = [label for label in range(3) for _ in range(4)]
    said = [label if draw.random() < 0.6 else draw.randrange(3) for label in labels]
    probability = [round(draw.uniform(0.34, 1), 4) for _ in labels]
    told = {"labels": labels, "said": said, "probability": probability}
    return {"episode": episode, "kind": 0, "classes": classes, **told}


def with_predictions(root, count=30, **changes):
    draw = random.Random(5)
    run = make_run(root, name="trees")
    drawn = [drawn_task(i, draw) for i in range(count)]
    scores = [sum(a == b for a, b in zip(t["labels"], t["said"], strict=True)) / 12 for t in drawn]
    mean, ci95, _ = mean_interval(scores)
    told = {"scores": scores, "mean": mean, "ci95": ci95, "episodes": count, "by_step": []}
    write_evaluation(run, number=1, score="accuracy", **told)
    rows = [
        {
            "support": [picture(9 * label)],
            "queries": [{"picture": picture(), "said": drawn[0]["said"][4 * label], "probability": 0.5}],
        }
        for label in range(3)
    ]
    shown = [{"episode": 0, "rows": rows}]
    kept = {"classes": NAMES, "groups": GROUPS, "kinds": [""], "tasks": drawn, "shown": shown, **changes}
    (run / "predictions").mkdir()
    (run / "predictions" / "test-1.json").write_text(json.dumps(kept))
    return run, drawn


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    return with_predictions(tmp_path_factory.mktemp("trees"))


def kept_of(run):
    loaded = load_run(run)
    kept, problem = read_predictions(loaded, headline(loaded))
    assert not problem
    return kept


def test_classes_and_pairs_are_counted_as_a_plain_loop_counts_them(trees):
    run, drawn = trees
    hits, met, taken = defaultdict(list), defaultdict(int), defaultdict(int)
    for task in drawn:
        own = [NAMES[c] for c in task["classes"]]
        by_class = defaultdict(list)
        for true, said in zip(task["labels"], task["said"], strict=True):
            by_class[own[true]].append(true == said)
            taken[own[true], own[said]] += 1
            for other in own:
                met[own[true], other] += 1
        for name, right in by_class.items():
            hits[name].append(sum(right) / len(right))
    kept = kept_of(run)
    rows = {row.name: row for row in class_rows(kept)}
    assert {name: row.accuracy for name, row in rows.items()} == {
        n: mean_interval(v) for n, v in hits.items()
    }
    assert [row.accuracy.mean for row in class_rows(kept)] == sorted(
        row.accuracy.mean for row in rows.values()
    )
    for name, row in rows.items():
        wrong = {said: n for (true, said), n in taken.items() if true == name != said}
        assert row.times == max(wrong.values()) == wrong[row.mistaken]
    pairs = {
        (NAMES[pair.true], NAMES[pair.said]): (pair.times, pair.pictures) for pair in confused_pairs(kept)
    }
    assert pairs == {pair: (taken[pair], count) for pair, count in met.items()}


def test_calibration_is_that_of_the_library(trees):
    _, drawn = trees
    said = [
        (p, a == b) for t in drawn for p, a, b in zip(t["probability"], t["labels"], t["said"], strict=True)
    ]
    probability, right = (list(column) for column in zip(*said, strict=True))
    # the label that was given stands in the first column, however probable it was called
    table = torch.tensor([[p, 0.0] for p in probability], dtype=torch.float64)
    expected = calibration_error(table, torch.tensor([0 if hit else 1 for hit in right]))
    data = calibration_data(probability, right)
    assert data["error"] == pytest.approx(expected, abs=ROUNDED)
    assert sum(data["counts"]) == len(right)


def test_hard_tasks_are_set_apart(trees):
    run, drawn = trees
    loaded = load_run(run)
    evaluation = headline(loaded)
    scores = sorted(evaluation["scores"])
    hard, between, easy = (score for _, score in by_outcome(evaluation))
    assert (hard.n, between.n, easy.n) == (7, 16, 7)
    assert hard.mean == pytest.approx(sum(scores[:7]) / 7)
    assert easy.mean == pytest.approx(sum(scores[-7:]) / 7)
    errors = by_outcome({"score": "mse", "scores": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]})
    assert errors[0][1].mean == 7.5  # of errors, the large ones are hard
    together = {n: [] for n in (1, 2)}
    for task, score in zip(drawn, evaluation["scores"], strict=True):
        together[len({GROUPS[c] for c in task["classes"]})].append(score)
    assert [score for _, score in by_groups(kept_of(run))] == [mean_interval(v) for v in together.values()]


def test_the_page_says_what_the_file_says(trees):
    run, drawn = trees
    out = write_page([run])
    page, text = read(out), out.read_text()
    right = sum(a == b for t in drawn for a, b in zip(t["labels"], t["said"], strict=True))
    assert f"From 30 test tasks: {right} of 360 labels are right, {100 * right / 360:.0f} %." in page.text
    hardest = class_rows(kept_of(run))[0]
    assert f"{hardest.name} {interval(*hardest.accuracy[:2], 'accuracy')}" in page.text
    assert text.count("data:image/png;base64,") == 6
    slips = sum(drawn[0]["said"][4 * label] != label for label in range(3))
    assert text.count('class="tile slip"') == slips
    assert "<b>beech" not in text
    assert "&lt;b&gt;beech" in text
    for words in ("Can its probabilities be believed?", "What is confused", "Easy and hard tasks"):
        assert words in page.text
    assert write_page([run]).read_text() == text


@pytest.mark.parametrize(
    "change",
    [
        {"tasks": []},
        {"tasks": [{"episode": 0}]},
        {"tasks": 3},
        {"classes": ["oak"]},
        {"groups": ["leaf"]},
        {"shown": [{"episode": 99, "rows": []}]},
        {"shown": [{"episode": 0, "rows": [{}]}]},
        {"kinds": []},
    ],
)
def test_a_damaged_file_is_said(tmp_path, change):
    run = load_run(with_predictions(tmp_path, **change)[0])
    kept, problem = read_predictions(run, headline(run))
    assert kept is None
    assert problem.startswith("predictions/test-1.json is damaged")
    assert status_view(run)["word"] == "finished"
    if change == {"tasks": 3}:
        assert f"Could not be read: {problem}" in read(write_page([run.path])).text


@pytest.mark.parametrize("text", ["", "x", "<script>", base64.b64encode(b"<svg onload=1>").decode(), None, 3])
def test_what_is_no_picture_has_no_address(text):
    assert address(text) == ""


def test_a_page_about_many_runs_shows_no_sample_tasks(trees):
    kept, evaluation = kept_of(trees[0]), headline(load_run(trees[0]))
    assert len(labels_view(kept, evaluation, "r0")["samples"]) == 1
    assert labels_view(kept, evaluation, "r0", with_pictures=False)["samples"] == []


def test_a_real_run_keeps_what_its_page_shows(tmp_path):
    from innerloop.experiment.recipe.library import load_recipe
    from innerloop.experiment.training import train

    small = ["data.name=glyphs", "data.rotations=false", "tasks.ways=5", "tasks.queries=2", "eval.queries=3"]
    small += ["model.filters=4", "outer.steps=1", "eval.episodes=9", "eval.validation_episodes=2"]
    small += ["run.execution=loop", "run.compile=off", f"run.folder={tmp_path}", "eval.baselines=false"]
    result = train(load_recipe("omniglot-protonet", [*small, "eval.predictions=6"]), progress=False)
    run = load_run(result.run)
    kept = kept_of(run.path)
    assert len(kept.tasks) == 6
    assert [task.accuracy for task in kept.tasks] == pytest.approx(headline(run)["scores"][:6])
    assert all(text.startswith("data:image/png") for row in kept.shown[0].support for text in row)
    assert len(kept.shown[0].queries[0]) == 3


def test_a_browser_draws_it_on_a_phone_in_light_and_dark(trees):
    page = write_page([trees[0]])
    narrow, dark = measured(page, 390), measured(page, 390, dark=True)
    for shown in (narrow, dark):
        assert shown.console == []
        assert shown.images == [8] * 6  # every picture was decoded
        assert len(shown.drawings) == 3
        assert all(one["width"] > 200 and one["marks"] > 20 for one in shown.drawings)
    assert narrow.reach <= 390  # nothing sticks out on a phone
    assert (narrow.background, narrow.ink) != (dark.background, dark.ink)
    brightness = [sum(map(int, c[4:-1].split(","))) for c in (dark.background, dark.ink, narrow.background)]
    assert brightness[0] < brightness[1]
    assert brightness[2] > brightness[0]
