"""The page: says what the files say, says what is missing, and overwrites nothing that is not ours."""

import json
import random
import re
from pathlib import Path

import pytest
import tomli_w

from innerloop.core.errors import UserError
from innerloop.core.statistics import mean_interval, paired_difference
from innerloop.evaluation.episodes import Episodes, TaskKind
from innerloop.experiment.pages import write_report as write_page
from innerloop.experiment.recipe.schema import Recipe
from innerloop.report.comparison_page import group_label, labels, pair, seed_groups
from innerloop.report.read_run import load_run
from innerloop.report.run_page import settings_rows
from innerloop.report.text import interval
from innerloop.runs.pages import MARKER
from support.pages import read

PLAN = {
    "mode": "vmap",
    "threads": 1,
    "chunk": None,
    "compile": "off",
    "reason": "vmap was fastest of two",
    "milliseconds": {"vmap": 12.1, "loop": 88.2},
    "remarks": ["not compiled: no C++ compiler was found"],
}


def without_none(values):
    return {k: without_none(v) if isinstance(v, dict) else v for k, v in values.items() if v is not None}


def make_run(root, name="sine-maml", seed=0, level=0.5, stamp="20260301-120000", evaluated=True, **options):
    recipe = Recipe.model_validate(
        {
            "name": name,
            "description": options.get("description", "a test"),
            "inner": options.get("inner", {}),
            "run": {"seed": seed},
            "eval": {"seed": options.get("eval_seed", 0)},
        }
    )
    run = Path(root) / name / f"{stamp}-s{seed}"
    (run / "eval").mkdir(parents=True)
    (run / "recipe.toml").write_text(tomli_w.dumps(without_none(recipe.model_dump())))
    manifest = {
        "argv": ["/somewhere/bin/innerloop", "train", name, "seed=0"],
        "versions": {"innerloop": "0.1.0", "torch": "2.13.0"},
        "platform": "Linux-6.1",
        "plan": PLAN,
        "started": "2026-03-01T12:00:00+00:00",
        "ended": "2026-03-01T12:01:15+00:00",
        "status": options.get("status", "finished"),
        "reason": options.get("reason"),
    }
    (run / "manifest.json").write_text(json.dumps(manifest))
    lines = [{"step": s, "loss": 4.0 / s, "tasks_per_second": 5512.0} for s in range(1, 11)]
    lines.append({"step": 10, "validation": 0.4, "ci95": 0.1, "episodes": 9, "score": "mse"})
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if evaluated:
        write_evaluation(run, seed, level)
    return run


def write_evaluation(run, seed=0, level=0.5, number=1, **fields):
    draw = random.Random(7)
    noise = random.Random(seed)
    scores = [level * draw.uniform(0.5, 1.5) + 0.01 * noise.random() for _ in range(50)]
    mean, ci95, _ = mean_interval(scores)
    evaluation = {
        "score": "mse",
        "mean": mean,
        "ci95": ci95,
        "episodes": 50,
        "protocol": {"tasks": "sine", "shots": 10, "inner_steps": 5, "norm": "none", "seed": 0},
        "by_step": [{"steps": k, "mean": mean + 3 * 0.5**k, "ci95": 0.1} for k in range(6)],
        "scores": scores,
        "changed": {},
        "time": f"2026-03-01T12:02:{number:02d}+00:00",
        **fields,
    }
    protocol, count = evaluation["protocol"], len(evaluation["scores"])
    kind = TaskKind(protocol.get("shots", 10), 10)
    evaluation["drawn"] = Episodes("sine", (kind,), count, protocol.get("seed", 0)).as_dict()
    (run / "eval" / f"test-{number}.json").write_text(json.dumps(evaluation))
    return evaluation


def test_one_run_leads_with_its_number_and_protocol(tmp_path):
    run = make_run(tmp_path, seed=3, inner={"lr": 0.05})
    evaluation = json.loads((run / "eval" / "test-1.json").read_text())
    out = write_page([run])
    assert out == run / "report.html"
    page = read(out)
    value = interval(evaluation["mean"], evaluation["ci95"])
    assert value.replace(" ", "") in page.text.replace(" ", "")
    assert "95 % CI over 50 episodes · tasks sine · shots 10 · inner steps 5 · norm none" in page.text
    assert "training seed 3" in page.text
    assert "inner.lr" in page.text
    assert "vmap was fastest of two. Not compiled: no C++ compiler was found." in page.text
    assert "88.2" in page.text
    assert "1 min 15 s" in page.text
    assert "2.13.0" in page.text
    assert "/somewhere" not in page.text
    for title in ("Training", "Adaptation", "Episodes"):
        assert title in page.text


def test_page_needs_no_network_and_is_accessible(tmp_path):
    runs = [make_run(tmp_path), make_run(tmp_path, name="sine-anil", inner={"method": "anil"})]
    out = write_page(runs, tmp_path / "report.html")
    page, text = read(out), out.read_text()
    assert all(address.startswith("#") for address in page.addresses)
    assert not re.search(r"<script|@import|url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    assert {a[1:] for a in page.addresses} <= set(page.ids)
    figures = text.count("<figure>")
    assert figures == 2 + 2 * 3
    assert text.count('role="img"') == figures
    assert all("scope=" in th for th in re.findall(r"<th\b[^>]*>", text))
    assert '<html lang="en">' in text


def test_the_same_run_gives_the_same_page(tmp_path):
    run = make_run(tmp_path)
    first = write_page([run]).read_text()
    assert write_page([run]).read_text() == first


def test_hostile_words_are_escaped(tmp_path):
    run = make_run(tmp_path, description="<script>alert(1)</script>", status="failed", reason="a < b & c")
    write_evaluation(run, number=2, protocol={"note": "<img src=x onerror=alert(2)>"})
    text = write_page([run]).read_text()
    assert "<script" not in text
    assert "<img" not in text
    assert "a &lt; b &amp; c" in text


def test_the_latest_evaluation_by_the_own_protocol_leads_and_all_are_listed(tmp_path):
    run = make_run(tmp_path)
    write_evaluation(run, level=9.0, number=2)
    write_evaluation(run, level=5.0, number=10)
    write_evaluation(run, level=7.0, number=11, changed={"inner.lr": 0.5})
    page = read(write_page([run]))
    assert "All evaluations" in page.text
    files = ["test-1.json", "test-2.json", "test-10.json", "test-11.json"]
    assert [e["file"] for e in load_run(run).evaluations] == files
    evaluation = load_run(run).evaluations[-2]
    value = interval(evaluation["mean"], evaluation["ci95"]).split()[0]
    assert f"held-out tasks: 5 inner steps, 10 shots, sine {value}" in page.text


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("running", "still running, or was killed"),
        ("interrupted", "interrupted; “innerloop resume” continues it"),
        ("failed", "loss was not finite at step 10"),
        ("finished", "finished"),
    ],
)
def test_how_it_ended_and_what_is_missing_is_said(tmp_path, status, words):
    reason = "the loss was not finite at step 10." if status == "failed" else None
    run = make_run(tmp_path, status=status, reason=reason, evaluated=False)
    (run / "metrics.jsonl").unlink()
    page = read(write_page([run]))
    assert words in page.text
    assert "Not evaluated yet" in page.text
    assert "nothing to draw" in page.text


def test_damaged_pieces_are_said_not_raised(tmp_path):
    run = make_run(tmp_path)
    (run / "eval" / "test-2.json").write_text("{")
    (run / "eval" / "test-3.json").write_text("[]")
    (run / "manifest.json").write_text("{")
    (run / "recipe.toml").write_text("= nonsense")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "lo')
    out = write_page([run])
    page = read(out)
    assert page.text.count("Could not be read") == 4
    assert str(tmp_path) not in out.read_text()
    assert "Training" in page.text


def test_scores_that_are_not_finite_are_counted(tmp_path):
    run = make_run(tmp_path)
    rows = [{"steps": 0, "mean": 4.0, "ci95": 0.1}, {"steps": 1, "mean": 1.0, "ci95": 0.1}]
    rows.append({"steps": 2, "mean": None, "ci95": None})
    write_evaluation(run, number=2, scores=[0.1, 0.2, None, 0.3], by_step=rows)
    page = read(write_page([run]))
    assert "1 not finite" in page.text
    assert "4 at 0 inner steps, 1 at 1." in page.text


def test_accuracies_are_per_cent_everywhere(tmp_path):
    run = make_run(tmp_path)
    rows = [{"steps": 0, "mean": 0.2, "ci95": 0.01}, {"steps": 5, "mean": 0.468, "ci95": 0.009}]
    scores = [0.4, 0.5, 0.504]
    write_evaluation(run, number=2, score="accuracy", mean=0.468, ci95=0.009, by_step=rows, scores=scores)
    text = read(write_page([run])).text
    assert "46.80 ± 0.90 %" in text
    assert "20 % at 0 inner steps, 46.8 % at 5." in text
    assert "median 50 %, mean 46.8 %." in text


def test_a_mean_made_by_few_episodes_is_marked(tmp_path):
    run = make_run(tmp_path)
    assert "Few episodes make this mean" not in read(write_page([run])).text
    scores = [0.1, 0.2, 0.3, 0.2, 0.1, 90.0]
    write_evaluation(run, number=2, mean=sum(scores) / 6, ci95=30.0, scores=scores)
    text = read(write_page([run])).text
    assert "Few episodes make this mean: 1 of 6 lie above it, and the median is 0.2." in text


def test_only_settings_that_differ_are_listed():
    recipe = Recipe.model_validate({"inner": {"lr": 0.4}, "tasks": {"settings": {"dim": 3}}})
    rows = settings_rows(recipe.model_dump())
    assert [(row["key"], row["value"]) for row in rows] == [("tasks.settings.dim", "3"), ("inner.lr", "0.4")]
    assert rows[1]["default"] == "0.01"
    assert "inner learning rate" in rows[1]["about"]


def test_paired_difference_is_that_of_the_same_episodes(tmp_path):
    first = make_run(tmp_path, level=0.5)
    second = make_run(tmp_path, name="sine-anil", seed=1, level=0.6, inner={"method": "anil"})
    a, b = load_run(first), load_run(second)
    expected = paired_difference(b.evaluations[0]["scores"], a.evaluations[0]["scores"])
    assert pair(b, a).difference == expected
    separate = (a.evaluations[0]["ci95"] ** 2 + b.evaluations[0]["ci95"] ** 2) ** 0.5
    assert expected.ci95 < separate / 2  # the point of pairing
    page = read(write_page([first, second], tmp_path / "out.html"))
    assert interval(expected.mean, expected.ci95, signed=True) in page.text
    assert "worse" in page.text


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"protocol": {"tasks": "sine", "shots": 5, "inner_steps": 5, "norm": "none", "seed": 0}}, "shots"),
        ({"protocol": {"tasks": "sine", "shots": 10, "inner_steps": 5, "norm": "none", "seed": 1}}, "seed"),
        ({"scores": [0.1, 0.2]}, "number of tasks 50 and 2"),
        ({"score": "accuracy"}, "score"),
        ({"scores": [None] * 50}, "not finite"),
    ],
)
@pytest.mark.one_in(3)
def test_other_episodes_are_not_paired(tmp_path, fields, why):
    first, second = make_run(tmp_path), make_run(tmp_path, seed=1)
    write_evaluation(second, number=2, **fields)
    paired = pair(load_run(second), load_run(first))
    assert paired.difference is None
    assert why in paired.reason
    assert paired.reason in read(write_page([first, second], tmp_path / "out.html")).text


def test_steps_and_norm_do_not_prevent_pairing(tmp_path):
    first, second = make_run(tmp_path), make_run(tmp_path, seed=1)
    protocol = {"tasks": "sine", "shots": 10, "inner_steps": 1, "norm": "running", "seed": 0}
    write_evaluation(second, number=2, protocol=protocol)
    assert pair(load_run(second), load_run(first)).difference is not None


@pytest.mark.slow
def test_seeds_are_taken_together_only_within_one_recipe(tmp_path):
    runs = [make_run(tmp_path, seed=s, level=0.5 + 0.1 * s) for s in range(3)]
    runs.append(make_run(tmp_path, seed=4, inner={"lr": 0.5}))
    loaded = [load_run(run) for run in runs]
    (group,) = seed_groups(loaded)
    assert group.members == [0, 1, 2]
    assert group.seeds == [0, 1, 2]
    assert group.interval == mean_interval([run.evaluations[0]["mean"] for run in loaded[:3]])
    assert group_label(loaded, group.members) == "sine-maml · inner.lr=0.01"
    assert "Over seeds" in read(write_page(runs, tmp_path / "out.html")).text


def test_seeds_of_a_sweep_are_taken_together_though_every_run_has_its_own_name(tmp_path):
    runs = [
        load_run(make_run(tmp_path, name=f"lr={lr}+seed={seed}", seed=seed, inner={"lr": lr}))
        for lr in (0.01, 0.05)
        for seed in (0, 1)
    ]
    groups = seed_groups(runs)
    assert [group.members for group in groups] == [[0, 1], [2, 3]]
    assert [group_label(runs, g.members) for g in groups] == ["inner.lr=0.01", "inner.lr=0.05"]


def test_labels_are_short_and_all_different(tmp_path):
    maml, anil = make_run(tmp_path), make_run(tmp_path, name="sine-anil", inner={"method": "anil"})
    assert labels([load_run(maml), load_run(anil)]) == ["sine-maml", "sine-anil"]
    other = make_run(tmp_path, seed=1, inner={"lr": 0.05})
    assert labels([load_run(maml), load_run(other)]) == ["inner.lr=0.01", "inner.lr=0.05"]
    again = make_run(tmp_path, stamp="20260301-130000")
    assert labels([load_run(maml), load_run(again)]) == [
        "sine-maml/20260301-120000-s0",
        "sine-maml/20260301-130000-s0",
    ]


def test_a_file_that_is_not_ours_is_never_overwritten(tmp_path):
    run = make_run(tmp_path)
    mine = run / "report.html"
    mine.write_text("<html>my own notes</html>")
    with pytest.raises(UserError, match="not a page of ours"):
        write_page([run])
    assert mine.read_text() == "<html>my own notes</html>"
    ours = write_page([run], run / "other.html")
    assert MARKER in ours.read_text()
    write_page([run], ours)


def test_bad_arguments_are_user_errors(tmp_path):
    run = make_run(tmp_path)
    with pytest.raises(UserError, match="at least one run"):
        write_page([])
    with pytest.raises(UserError, match="is not a run"):
        write_page([tmp_path])
    with pytest.raises(UserError, match="is a folder"):
        write_page([run], tmp_path)
    with pytest.raises(UserError, match="no folder"):
        write_page([run], tmp_path / "nowhere" / "page.html")


def test_several_runs_write_here_and_a_run_named_twice_counts_once(tmp_path, monkeypatch):
    run, other = make_run(tmp_path), make_run(tmp_path, seed=1)
    monkeypatch.chdir(tmp_path)
    assert write_page([run, other]) == Path("report.html")
    assert write_page([run, run]) == run / "report.html"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A real run of a few steps."""
    from innerloop.experiment.recipe.library import load_recipe
    from innerloop.experiment.training import train

    folder = tmp_path_factory.mktemp("runs")
    settings = ["outer.steps=4", "outer.batch=2", "model.hidden=[8]", "eval.episodes=5", "run.log_every=1"]
    settings += [
        "eval.validation_episodes=2",
        "run.execution=loop",
        "run.compile=off",
        f"run.folder={folder}",
    ]
    return train(load_recipe("sine-maml", settings), progress=False).run


def test_a_real_run_has_all_its_pictures(trained):
    page = read(write_page([trained]))
    for title in ("Training", "Adaptation", "Episodes", "A held-out task"):
        assert title in page.text
    assert "run.execution=loop was asked for" in page.text
    errors = r"mean squared error [\d.e-]+ before and [\d.e-]+ after 5 inner steps on 10 points"
    assert re.search(errors, page.text)


def test_the_held_out_task_is_the_one_that_is_scored_first(trained):
    from innerloop.experiment.data import build_data
    from innerloop.experiment.pages import POINTS, adapted_data
    from innerloop.experiment.recipe.settings import recipe_from_toml

    data = adapted_data(trained)
    task = build_data(recipe_from_toml(trained / "recipe.toml")).test.episode(0)
    assert data["x_support"] == task.x_support.flatten().tolist()
    assert data["y_support"] == task.y_support.flatten().tolist()
    assert len(data["x"]) == POINTS
    assert data["before"] != data["after"]
    # the truth goes through the support points: they are drawn from one sinusoid
    nearest = [min(range(POINTS), key=lambda i: abs(data["x"][i] - x)) for x in data["x_support"]]
    gaps = [abs(data["truth"][i] - y) for i, y in zip(nearest, data["y_support"], strict=True)]
    assert max(gaps) < 0.5
