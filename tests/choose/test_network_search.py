"""A search: what is asked, budgets, trials that go on, validation of scores, the race."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from innerloop.choose import cell_space, count_parameters, random_candidate, trials
from innerloop.choose.network_search import resume_search, search_networks
from innerloop.choose.problem import pose_search
from innerloop.choose.race import LEAST_STEPS, halving, in_steps, plan_rungs, shortest_race
from innerloop.choose.request import read_search
from innerloop.choose.session import begin
from innerloop.choose.shortlist import random_field
from innerloop.choose.trials import Costs, map_jobs, shorten
from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.core.files import plain
from innerloop.core.formatting import parse_duration
from innerloop.data.glyphs import glyphs
from innerloop.experiment.recipe.library import named
from innerloop.runs.process import sole_writer

pytestmark = pytest.mark.usefixtures("own_folder")

TINY = [
    "space=convnet",
    "space.depths=[1,2]",
    "space.widths=[2,3]",
    "space.kernels=[3]",
    "repeats=2",
    "tasks.ways=5",
    "eval.validation_episodes=4",
]


def _asked(*items: str, validate: bool = False, source: str = "glyphs") -> Any:
    return read_search(source, list(items), validate=validate)


def test_lengths_of_time() -> None:
    assert [parse_duration(text) for text in ("60s", "2h", "1h30m", "5 min", "", "-3s", "3x", "m")] == [
        60.0,
        7200.0,
        5400.0,
        300.0,
        None,
        None,
        None,
        None,
    ]


def test_a_dataset_a_folder_and_a_recipe_are_understood() -> None:
    assert _asked("space.cells=2", "seed=3", "tasks.shots=5").recipe.run.seed == 3
    assert _asked("space.channels=4").settings.space.channels == 4
    assert _asked(*TINY).settings.space.name == "convnet"
    recipe = _asked(source="cifar-fs-protonet").recipe
    assert (recipe.name, recipe.tasks.ways) == ("cifar-fs-protonet", 20)
    assert named("glyphs").kind == "pictures"


def test_all_mistakes_are_told_at_once() -> None:
    items = ["budget=soon", "space.cels=3", "inner.lrr=1", "score=naswott", "k=0"]
    with pytest.raises(UserError) as caught:
        _asked(*items)
    said = str(caught.value)
    assert len(said.splitlines()) == 5
    for word in ("budget=soon", "space.cells", "inner.lr", "'naswot'", "k must be"):
        assert word in said
    with pytest.raises(UserError, match="did you mean 'glyphs'"):
        _asked(source="glyhps")
    with pytest.raises(UserError, match="networks of pictures"):
        _asked(source="sine-maml")
    with pytest.raises(UserError, match="unknown setting 'k'"):
        _asked("k=3", validate=True)


def _pictures(classes: int, each: int, name: str = "noise.npz") -> str:
    """Noise, in a file."""
    images = np.random.default_rng(0).integers(0, 255, (classes * each, 12, 12, 1), dtype=np.uint8)
    np.savez(name, images=images, labels=np.repeat(np.arange(classes), each))
    return name


def test_classes_with_many_pictures_are_learned_as_a_whole() -> None:
    source = _pictures(30, 100)
    whole = pose_search(_asked(source=source)).recipe
    assert (whole.tasks.family, whole.outer.objective, whole.eval.head) == ("supervised", "erm", "learner")
    assert pose_search(_asked("outer.lr=0.01", source=source)).recipe.tasks.family == "few-shot"
    assert pose_search(_asked("tasks.family=few-shot", source=source)).recipe.outer.optimiser == "adam"
    assert pose_search(_asked(source=_pictures(30, 99, "few.npz"))).recipe.tasks.family == "few-shot"


def test_the_network_of_a_recipe_is_replaced_and_said_so() -> None:
    asked = _asked("model.filters=8", source="cifar-fs-protonet")
    assert asked.notes == ["model.filters is not read by a search: its network comes from the space"]


def test_lengths_fit_their_time() -> None:
    costs = Costs(0.02, 0.005, 0.1)
    seconds = plan_rungs([[6]], [costs], 2, 30.0, fresh=0)
    assert seconds is not None
    (steps,), episodes = in_steps(seconds, costs.step).lengths, seconds.episodes
    assert 3 * (costs.build + steps * costs.step + episodes * costs.episode) <= 30.0
    least = shortest_race([[6]], [costs], 2, fresh=0)
    assert plan_rungs([[6]], [costs], 2, 0.9 * least, fresh=0) is None
    asked = plan_rungs([[6]], [costs], 2, 0.0, episodes=3, fresh=0, forced=True)
    assert asked is not None
    assert in_steps(asked, costs.step, 7) == ([[6]], [7], 3)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_races_fit_their_time(workers: int) -> None:
    costs = Costs(0.02, 0.005, 0.1)
    fields = halving(4, 5)
    seconds = plan_rungs(fields, [costs], workers, 60.0)
    assert seconds is not None
    rungs = in_steps(seconds, costs.step)
    total = 0.0
    for rung, field in enumerate(rungs.fields):
        more = rungs.lengths[rung] - (rungs.lengths[rung - 1] if rung else 0)
        turns = -(-sum(field) // workers)
        total += turns * (more * costs.step + rungs.episodes * costs.episode + costs.build)
    assert 0.7 * 60 < total < 60
    enough = shortest_race(fields, [costs], workers)
    assert plan_rungs(fields, [costs], workers, 0.95 * enough) is None
    least = plan_rungs(fields, [costs], workers, 1.05 * enough)
    assert least is not None
    assert in_steps(least, costs.step).lengths[0] >= LEAST_STEPS


def test_jobs_run_in_processes_and_the_first_error_ends_them() -> None:
    assert dict(map_jobs(abs, [-3, -4, 5], 2)) == {0: 3, 1: 4, 2: 5}
    with pytest.raises(TypeError):
        dict(map_jobs(abs, [None, None], 2))


def _result(run: str) -> dict[str, Any]:
    return dict(json.loads((Path(run) / "result.json").read_text(encoding="utf-8")))


def _same(first: dict[str, Any], second: dict[str, Any], *keys: str) -> bool:
    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: bare(v) for k, v in value.items() if "seconds" not in k}
        return [bare(v) for v in value] if isinstance(value, list) else value

    return all(bare(first[key]) == bare(second[key]) for key in keys)


def test_validation_tells_every_score_and_goes_on_where_it_was() -> None:
    asked = _asked(*TINY, "cells=5", "steps=3", "episodes=4", validate=True)
    finished = search_networks(asked, workers=1, show=False)
    run, result = finished.run, finished.as_dict()
    assert _result(str(run)) == {key: value for key, value in plain(result).items() if key != "report"}
    assert {"metantk", "flops", "te-nas", "all"} <= {row["score"] for row in result["table"]}
    assert all(len(row["better_half"]) == 5 for row in result["table"])
    assert len(result["candidates"]) == 5
    assert "How well every score predicts" in (run / "report.html").read_text(encoding="utf-8")
    with pytest.raises(UserError, match="is finished"):
        resume_search(run)
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    (run / "manifest.json").write_text(json.dumps({**manifest, "status": "interrupted"}), encoding="utf-8")
    (run / "result.json").rename(run / "before.json")
    shutil.rmtree(run / "candidates" / "003")
    measured = (run / "scores.jsonl").read_text(encoding="utf-8").splitlines()
    (run / "scores.jsonl").write_text("\n".join(measured[:4]) + "\n", encoding="utf-8")
    again = resume_search(run, workers=2, show=False).as_dict()
    assert _same(result, again, "table", "candidates", "reliability", "protocol")


def test_a_budget_that_is_too_small_says_what_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "glyphs", "--validate", "cells=50", "budget=1s", "repeats=1", *TINY[:4]]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("error: budget=1s is too small for 24 candidates")


def test_too_few_classes_and_networks_that_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "glyphs", "eval.ways=90"]) == 2
    assert "eval.ways" in capsys.readouterr().err
    assert main(["search", "glyphs", "space=convnet", "space.depths=[9]", "space.poolings=[max]"]) == 2
    assert "vanish" in capsys.readouterr().err
    assert not Path("runs").exists()


RACE = [*TINY, "k=2", "pool=5", "steps=4", "episodes=4", "score=parameters,flops", "repeats=1"]


def _race_items() -> list[str]:
    return list(dict.fromkeys(item for item in RACE if item != "repeats=2"))


def test_a_race_chooses_a_recipe_that_trains(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "glyphs", *_race_items(), "--jobs", "1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    entries = printed["shortlist"]
    assert {"genotype", "from", "scores", "accuracy", "ci95"} <= set(entries[0])
    assert [entry["from"] for entry in entries].count("score") == 2
    assert sum(entry["chosen"] for entry in entries) == 1
    assert printed["chosen"]["name"] in {entry["name"] for entry in entries if len(entry["rungs"]) > 1}
    assert {"tau", "top_again", "top_chance", "decided"} <= set(printed["reliability"])
    page = (Path(printed["run"]) / "report.html").read_text(encoding="utf-8")
    assert all(word in page for word in ("The race", "What the score was worth", "chosen.toml"))
    command = printed["command"].split()[1:]
    assert main([*command, "outer.steps=2", "eval.episodes=4", "run.execution=loop"]) == 0
    assert main(["resume", printed["run"]]) == 2
    assert "is finished" in capsys.readouterr().err


def test_an_interrupted_race_goes_on_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _asked(*_race_items())
    whole = search_networks(asked, workers=1, show=False).as_dict()
    with monkeypatch.context() as patched:
        patched.setattr(trials, "run_trial", _ends_after(5, trials.run_trial))
        with pytest.raises(KeyboardInterrupt):
            search_networks(asked, workers=1, show=False)
    run = next(run for run in Path("runs/search-glyphs").iterdir() if run != Path(whole["run"]))
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["status"] == "interrupted"
    assert "innerloop resume" in manifest["reason"]
    again = resume_search(run, workers=2, show=False).as_dict()
    assert _same(whole, again, "shortlist", "chosen", "reliability", "rungs", "sentence")
    assert again["worth"]["seconds"]["scoring"] > 0  # what was scored before the interruption counts
    chosen = [(Path(each["run"]) / "chosen.toml").read_text(encoding="utf-8") for each in (whole, again)]
    assert chosen[0].splitlines()[1:] == chosen[1].splitlines()[1:]


def test_two_at_once_and_a_damaged_manifest_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    run = begin(_asked(*_race_items()), None, data={"content_sha256": glyphs().content_sha256})
    with sole_writer(run):
        assert main(["resume", str(run)]) == 2
        assert "is being worked on by" in capsys.readouterr().err
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    for damaged in ({}, {"recipe": 3}, {**manifest["asked"], "settings": {"space": {"name": "x"}, "k": "y"}}):
        told = {**manifest, "asked": damaged, "status": "interrupted"}
        (run / "manifest.json").write_text(json.dumps(told), encoding="utf-8")
        assert main(["resume", str(run)]) == 2
        assert "error:" in capsys.readouterr().err
    assert main(["search", "~nosuchuser/pictures"]) == 2
    assert "~nosuchuser" in capsys.readouterr().err


def _ends_after(count: int, run_trial: Any) -> Any:
    left = iter(range(count))

    def interrupted(trial: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return run_trial(trial)

    return interrupted


def test_rungs_are_one_training() -> None:
    """Continued from rung to rung, a candidate is where one training of all steps takes it."""
    problem = pose_search(_asked(*_race_items()))
    recipe = shorten(problem.entrant(problem.space.candidate(1)).recipe, 6, problem.queries)
    parts = [trials.Trial(recipe, Path("rungs"), f"rung-{n}", n, 4, go_on=True) for n in (2, 4, 6)]
    rungs = [trials.run_trial(trial) for trial in parts]
    at_once = trials.run_trial(trials.Trial(recipe, Path("once"), "whole", 6, 4))
    assert rungs[-1].scores == at_once.scores
    assert trials.run_trial(parts[-1]) == rungs[-1]  # kept, and read again
    fresh = trials.run_trial(parts[-1]._replace(name="fresh", seed=1))
    assert fresh.scores != at_once.scores
    parts[-1].file.write_text('{"steps": 6}', encoding="utf-8")
    with pytest.raises(UserError, match="is damaged: remove it"):
        trials.run_trial(parts[-1])


def test_a_candidate_that_diverges_stands_last() -> None:
    items = ["space.norms=[none]", "outer.optimiser=sgd", "outer.lr=1e30"]
    asked = _asked(*_race_items(), *items)
    with pytest.raises(UserError, match="diverged for every candidate"):
        search_networks(asked, workers=1, show=False)


def test_random_ones_have_the_size_of_their_counterparts() -> None:
    space = cell_space(1, 28, 5, cells=2, channels=4)
    listed = [random_candidate(space, seed) for seed in (1, 2)]
    field = random_field(space, 0, listed, extra=1)
    assert len({*field, *listed}) == 5
    sizes = [count_parameters(space.build(cell, "group")) for cell in (*listed, listed[0])]
    counts = [count_parameters(space.build(cell, "group")) for cell in field]
    assert all(abs(a - b) < 0.5 * b for a, b in zip(counts, sizes, strict=True))
    assert field == random_field(space, 0, listed, extra=1)


@pytest.mark.parametrize("trust", [False, True])
def test_the_command_understands_what_was_asked_once(trust: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of the pictures is said once, and code that the user trusts may stand in the recipe."""
    asked: list[bool] = []

    def counted(*given: Any, trust: bool, **more: Any) -> Any:
        asked.append(trust)
        return read_search(*given, trust=trust, **more)

    monkeypatch.setattr("innerloop.choose.request.read_search", counted)
    listed = SimpleNamespace(as_dict=lambda: {"keys": []})
    monkeypatch.setattr("innerloop.choose.network_search.search_networks", lambda *_, **__: listed)
    assert main(["search", "glyphs", "budget=60s", *(["--trust"] if trust else [])]) == 0
    assert asked == [trust]
