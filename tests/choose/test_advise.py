"""Advice before training: what is asked, who races, what is recommended, and that numbers are as it says."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import innerloop as il
from innerloop.choose import method_race, race
from innerloop.choose.advice import (
    Advice,
    Recommendation,
    Row,
    choice,
    in_order,
    reasons_of,
    row_lead,
    sentence_of,
)
from innerloop.choose.advisor import give_advice
from innerloop.choose.baselines import ground_of, untrained_baselines
from innerloop.choose.estimates import hardness_part, landscape_part, rate_part
from innerloop.choose.method_race import MethodRace
from innerloop.choose.problem import normalised_together, pose_advice
from innerloop.choose.race import Racer, Rungs
from innerloop.choose.request import read_advise
from innerloop.choose.session import begin, reopen
from innerloop.choose.trials import Costs, Trial, run_trial, with_pilot_tasks
from innerloop.cli.advise import render
from innerloop.cli.output import TEXT_WIDTH
from innerloop.core.statistics import mean_interval, paired_difference
from innerloop.experiment.data import Data, build_data
from innerloop.experiment.recipe.flat import parse_duration
from innerloop.report.advice_page import hardness_words, landscape_words, rate_words
from innerloop.testing.closeness import SINGLE_SUMMED
from innerloop.theory.landscape.features import Step, look_at
from innerloop.theory.landscape.tasks import LINEAR, task_landscape
from support.commands import answer
from support.picture_runs import draw_splits

GLYPHS = ["tasks.ways=3", "tasks.shots=1", "tasks.queries=2"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races that tell nothing, in seconds."""
    for module in (race, method_race):
        monkeypatch.setattr(module, "LEAST_STEPS", 2)
    monkeypatch.setattr(race, "LEAST_EPISODES", 4)
    monkeypatch.setattr(race, "MOST_EPISODES", 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["glyhps"], "did you mean 'glyphs'"),
        (["glyphs", "budget=soon"], "budget=soon is no length of time"),
        (["glyphs", "methods=[mamal]"], "there is no method 'mamal' (did you mean 'maml'?)"),
        (["budget=5s"], "comes first, then settings: `innerloop advise glyphs budget=5s`"),
        (["glyphs", "methods=[yours]"], "no recipe was named"),
        (["glyphs", "methods=[reptile]"], "it is not for these tasks"),
    ],
)
def test_mistakes_get_a_sentence(words: list[str], said: str) -> None:
    with pytest.raises(il.UserError) as caught:
        pose_advice(read_advise(words[0], words[1:]))
    assert said in str(caught.value)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(il.UserError) as caught:
        read_advise("glyphs", ["budget=soon", "tasks.shtos=3"])
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert any("tasks.shtos" in line for line in lines)
    assert any("budget=soon" in line for line in lines)


def test_who_races() -> None:
    pictures = pose_advice(read_advise("glyphs", GLYPHS))
    assert [e.name for e in pictures.entrants] == ["protonet", "supervised", "mtl", "r2d2", "anil", "maml"]
    assert {e.recipe.eval.ways for e in pictures.entrants} == {3}
    assert [e.name for e in pictures.entrants if normalised_together(e)] == ["anil", "maml"]
    numbers = pose_advice(read_advise("sine", []))
    assert [e.name for e in numbers.entrants][:2] == ["maml", "fomaml"]
    assert (pictures.score, pictures.better, numbers.score, numbers.better) == ("accuracy", 1, "mse", -1)


def test_a_recipe_that_is_named_races_with_its_own_network() -> None:
    problem = pose_advice(read_advise("omniglot-protonet", ["data.name=glyphs", "model.filters=8", *GLYPHS]))
    assert problem.entrants[0].name == "yours"
    assert {e.recipe.model.filters for e in problem.entrants} == {8}


def test_only_what_learns_pictures_by_heart_is_augmented(tmp_path: Path) -> None:
    """Unless ``data.augment`` is typed: then it holds for all."""
    draw_splits(tmp_path / "pets", [(28, 28)] * 4)
    asked = read_advise("pets", [])
    chosen = {e.name: e.recipe.data.augment for e in pose_advice(asked).entrants}
    assert {name for name, how in chosen.items() if how == "lee2019"} == {"protonet", "supervised", "mtl"}
    assert "they see the pictures as they are" in asked.lines[-1]
    for how in ("none", "lee2019"):
        typed = read_advise("pets", [f"data.augment={how}"])
        assert {e.recipe.data.augment for e in pose_advice(typed).entrants} == {how}
        assert "they see" not in typed.lines[-1]


def test_every_method_gets_as_many_seconds() -> None:
    """Twice as fast, twice as many steps; and what a race takes by its plan fits its time."""
    costs = [Costs(0.01, 0.002, 0.1), Costs(0.02, 0.002, 0.1), Costs(0.04, 0.002, 0.1)]
    plan = method_race.plan_methods(costs, 2, 60.0)
    assert plan is not None
    assert plan.fields == [[3], [2]]
    spent = sum(
        -(-n // 2) * (seconds - before)
        for (n,), seconds, before in zip(plan.fields, plan.lengths, [0.0, *plan.lengths], strict=False)
    )
    judged = plan.episodes * 0.002 * (3 + race.FRESH) + 0.1 * 4
    assert spent + judged == pytest.approx(race.CAUTION * 60.0)


def row(name: str, scores: list[float], kind: Any = "trained", **more: Any) -> Row:
    return Row(name, name, kind, mean_interval(scores), len(scores), True, scores=tuple(scores), **more)


def test_what_needs_no_training_may_win() -> None:
    problem = pose_advice(read_advise("glyphs", [*GLYPHS, "methods=[protonet]"]))
    good, bad = [0.9, 0.8, 0.95, 0.85], [0.5, 0.6, 0.55, 0.5]
    rows = in_order([row("protonet", bad, steps=7, whole_seconds=60.0), row("pixels", good, "untrained")], 1)
    assert choice(rows).method == "pixels"
    went = MethodRace([Racer(problem.entrants[0], [], Costs(0.01, 0.01, 0.1))], Rungs([[1]], [1.0], 4), [])
    told = sentence_of(problem, rows[0], went)
    assert told.startswith("Train nothing yet: pixels")
    assert told.endswith("no method that was raced is better.")
    rows = in_order([row("protonet", good, steps=7, whole_seconds=60.0), row("pixels", bad, "untrained")], 1)
    assert sentence_of(problem, choice(rows), went).startswith("Use protonet: accuracy 87.5")
    others = [row("pixels", bad, "untrained"), row("lite0", [0.6, 0.7, 0.6, 0.65], "pretrained")]
    beside = in_order([row("protonet", good, steps=7, whole_seconds=60.0), *others], 1)
    assert (
        "best of what needs no training here, lite0 (by"
        in reasons_of(problem, beside, went, ground_of(problem, 4, 1, 1))[0]
    )
    behind = in_order(
        [row("protonet", bad, steps=7, whole_seconds=60.0), row("pixels", good, "untrained")], 1
    )
    told = reasons_of(problem, behind, went, ground_of(problem, 4, 1, 1))[0]
    assert "protonet is worse than the best of what needs no training here, pixels (by 33.8" in told


def test_a_budget_too_small_for_any_race_still_gets_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs no training is judged, and the next command has a budget that suffices."""
    costs = Costs(2.0, 0.1, 0.1)
    monkeypatch.setattr(
        method_race, "measure_recipes", lambda recipes, *_: dict.fromkeys(range(len(recipes)), costs)
    )
    monkeypatch.setattr(method_race, "LEAST_EPISODES", 4)
    told = give_advice(read_advise("sine", ["budget=30s"]), workers=2, show=False)
    assert {row.kind for row in told.rows} == {"untrained"}
    assert "no method was raced in so short a time" in told.recommendation.sentence
    assert any("no method was raced: budget=30s is too small" in line for line in told.not_examined)
    again = re.fullmatch(r"innerloop advise sine budget=(\w+)", told.recommendation.command)
    assert again is not None
    assert (parse_duration(again[1]) or 0.0) > race.LEAST_STEPS * 2.0  # as long as two methods take, at least
    budgets = {budget for line in told.not_examined for budget in re.findall(r"set budget=(\w+)", line)}
    assert budgets == {again[1]}  # the same number wherever one is named
    few = read_advise("sine", ["budget=30s", "methods=[anil,maml]"])
    with pytest.raises(il.UserError, match="budget=30s is too small for a race of anil, maml"):
        give_advice(few, workers=2, show=False)


def test_leads_are_paired_and_errors_are_better_when_lower() -> None:
    first, second = row("a", [1.0, 2.0, 3.0]), row("b", [2.0, 3.0, 5.0])
    gap = row_lead(first, second, -1)
    assert gap is not None
    assert gap.mean == pytest.approx(4 / 3)
    assert gap.ci95 == paired_difference([1.0, 2.0, 3.0], [2.0, 3.0, 5.0]).ci95
    assert [r.method for r in in_order([second, first], -1)] == ["a", "b"]
    assert row_lead(first, second._replace(fresh=False), -1) is None


def test_the_mean_of_numbers_by_hand() -> None:
    problem = pose_advice(read_advise("sine", ["methods=[maml]"]))
    ground = ground_of(problem, 5, seed=1, threads=1)
    rows = {name: of(problem, ground) for name, of in untrained_baselines(problem).items()}
    sampler = build_data(with_pilot_tasks(problem.entrants[0].recipe, 1)).validation
    for number in range(5):
        task = sampler.episode(number)
        expected = (task.y_query - task.y_support.mean()).square().mean()
        assert rows["task mean"].scores[number] == pytest.approx(float(expected), rel=SINGLE_SUMMED)


def lines(draws: il.Draws, shots: int, queries: int) -> il.TaskBatch:
    """y = a x + b: no line through the origin explains it."""
    a, b = draws.uniform("a", (1, 1), -1.0, 1.0), draws.normal("b", (1, 1))
    x = draws.uniform("x", (shots + queries, 1), -1.0, 1.0, per="sample")
    y = a * x + b
    number = torch.from_numpy(draws.task.copy())
    return il.TaskBatch(x[:, :shots], y[:, :shots], x[:, shots:], y[:, shots:], number)


def test_a_constant_is_one_more_input() -> None:
    """The gain of tasks y = a x + b is that of the same tasks with a one beside every input."""
    tasks = il.make_sampler(lines, seed=0, shots=10, queries=10).episodes(range(20))
    assert isinstance(tasks, il.TaskBatch)
    ones = [torch.cat([x, torch.ones_like(x)], -1) for x in (tasks.x_support, tasks.x_query)]
    beside = tasks._replace(x_support=ones[0], x_query=ones[1])
    step, network = Step(5, 5), il.mlp(1, [4], 1)
    affine = task_landscape(look_at(tasks, network, "affine"), step)
    assert affine == task_landscape(look_at(beside, network), step)._replace(
        view=affine.view, reason=affine.reason
    )
    assert not affine.applies
    assert task_landscape(look_at(tasks, il.mlp(1, [], 1), "affine"), step).applies
    assert affine.explained > LINEAR
    assert task_landscape(look_at(tasks, network), step).explained < LINEAR


def test_closed_forms_only_where_targets_are_linear() -> None:
    linear = landscape_part(pose_advice(read_advise("linear-maml", ["methods=[yours]"])))
    assert linear.applies
    assert linear.gain is not None
    assert linear.interval is not None
    assert linear.interval[0] <= linear.gain <= linear.interval[1]
    sine = landscape_part(pose_advice(read_advise("sine", ["methods=[maml]"])))
    assert not sine.applies
    assert "which features a network will learn is not known" in sine.reason
    family = f"{__name__}:lines"
    constant = landscape_part(pose_advice(read_advise(family, ["methods=[maml]", "model.hidden=[]"])))
    assert constant.applies
    assert "linear in the inputs and a constant" in constant.reason
    through_zero = ["methods=[maml]", "model.hidden=[]", "model.bias=false"]
    assert not landscape_part(pose_advice(read_advise(family, through_zero))).applies
    deep = landscape_part(pose_advice(read_advise(family, ["methods=[maml]"])))
    assert (deep.applies, deep.gain) == (False, None)
    assert "but the network has hidden layers" in deep.reason
    pictures = landscape_part(pose_advice(read_advise("glyphs", [*GLYPHS, "methods=[protonet]"])))
    assert not pictures.applies
    said = landscape_words(pictures._asdict())
    assert said.endswith("before training: no formula predicts it for classification; only training does.")
    assert "1/C" in pictures.why


def test_the_rate_and_hard_groups_of_pictures() -> None:
    problem = pose_advice(read_advise("glyphs", [*GLYPHS, "methods=[anil]", "model.filters=8"]))
    rate = rate_part(problem)
    assert rate.applies
    assert rate.low is not None
    assert rate.alpha is not None
    assert rate.high is not None
    assert rate.low <= rate.alpha <= rate.high
    assert rate.factor is not None
    assert rate.sweep[0] == pytest.approx(rate.alpha / rate.factor)
    assert rate.sweep[-1] == pytest.approx(rate.alpha * rate.factor)
    values = [group.value for group in hardness_part(problem).groups]
    assert len(values) > 1
    assert values == sorted(values, reverse=True)


def test_a_rate_of_ones_own_that_is_far_off_is_warned_about() -> None:
    items = ["data.name=glyphs", "inner.lr=1000.0", "inner.steps=1", "model.filters=8", "methods=[yours]"]
    rate = rate_part(pose_advice(read_advise("omniglot-anil", [*items, *GLYPHS])))
    assert "far above" in rate.warning


def test_what_is_printed_begins_with_what_to_do_and_no_line_is_long(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problem = pose_advice(read_advise("glyphs", [*GLYPHS, "methods=[anil]", "model.filters=8"]))
    dropped = row("maml", [0.5, 0.75])._replace(fresh=False)
    advice = Advice(
        *("glyphs", "glyphs, 3-way 1-shot", "accuracy", (row("anil", [0.5, 1.0]), dropped)),
        *(rate_part(problem), hardness_part(problem), landscape_part(problem), "One network. " * 20),
        Recommendation("anil", "Use ANIL: " + "for a reason " * 20, "It may be chance.", False, None, "type"),
        *(("because",), ("this", "that"), 1.0, "runs/a"),
    )
    render({**advice.as_dict(), "report": "runs/a/report.html"})
    printed = capsys.readouterr().out
    parts = re.findall(r"^(\w[\w ]*)$", printed, re.MULTILINE)
    titles = ("What to do", "Why", "Inner rate", "Closed forms", "Groups of classes", "Networks")
    assert parts == [*titles, "Not looked at"]
    sentences = [line for line in printed.splitlines() if line.startswith("  ")]
    assert max(map(len, sentences)) <= TEXT_WIDTH
    flat = " ".join(printed.split())
    for words in (rate_words(advice.rate._asdict()), hardness_words(advice.as_dict()["hardness"])):
        assert words in flat
    assert "(earlier): it dropped out before" in flat
    assert "· this · that" in flat


@pytest.mark.slow
def test_advice_as_a_whole(short: None, capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """Two methods on sinusoids: JSON, files and sentences say the same, and nothing looks at test tasks."""
    from innerloop.cli.main import main

    whole = Data.test.func
    refuse = lambda _: pytest.fail("test tasks were looked at")  # noqa: E731
    monkeypatch.setattr(Data, "test", property(lambda data: whole(data)._replace(episodes=refuse)))
    assert main(["advise", "sine", "methods=[maml,pooled]", "budget=20s", "--jobs", "1", "-q", "--json"]) == 0
    told = answer(capfd.readouterr().out)
    run = Path(told["run"])
    assert {"rate", "hardness", "landscape", "pilot", "recommendation", "reasons", "not_examined"} <= set(
        told
    )
    for entry in told["pilot"]:
        if entry["kind"] == "trained":
            kept = json.loads((run / "methods" / entry["method"] / "fresh.json").read_text())
            assert entry["mse"] == pytest.approx(sum(kept["scores"]) / len(kept["scores"]))
    best = min((e for e in told["pilot"] if e["mse"] is not None and e["fresh"]), key=lambda e: e["mse"])
    assert told["recommendation"]["method"] == best["method"]
    page = (run / "report.html").read_text(encoding="utf-8")
    assert told["recommendation"]["sentence"].partition(":")[0] in page
    if best["kind"] == "trained":
        recipe = il.load_recipe(told["recommendation"]["recipe"])
        assert recipe.tasks.family == "sine"


@pytest.mark.slow
def test_interrupted_advice_goes_on(
    short: None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was trained before the interruption is not trained again, and the plan is the one it had."""
    from innerloop.cli.main import main

    done = list[Trial]()

    def ends(some: Sequence[Trial], *_: Any) -> Any:
        """The first of them is carried out, then Ctrl-C comes."""
        done.append(some[0])
        run_trial(some[0])
        raise KeyboardInterrupt

    asked = read_advise("sine", ["methods=[maml,pooled]", "budget=20s"])
    with monkeypatch.context() as patched:
        patched.setattr(race, "run_trials", ends)
        with pytest.raises(KeyboardInterrupt):
            give_advice(asked, workers=1, show=False)
    (run,) = Path("runs/advise-sine").iterdir()
    kept = {file: file.read_bytes() for file in (run / "plan.json", done[0].file)}
    assert main(["resume", str(run), "--json", "-q"]) == 0
    told = answer(capfd.readouterr().out)
    assert told["run"] == str(run)
    assert {file: file.read_bytes() for file in kept} == kept
    assert json.loads(done[0].file.read_text())["seconds"] > 0
    assert main(["resume", str(run)]) == 2
    assert "is finished" in capfd.readouterr().err


def test_advice_whose_manifest_is_damaged_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    from innerloop.cli.main import main

    run = begin(read_advise("sine", []), None)
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    assert reopen(run, alone=True) == read_advise("sine", [])._replace(lines=())
    for damaged in ({}, {"recipe": 3}, {**manifest["asked"], "settings": {"budget": []}}):
        told = {**manifest, "asked": damaged, "status": "interrupted"}
        (run / "manifest.json").write_text(json.dumps(told), encoding="utf-8")
        assert main(["resume", str(run)]) == 2
        assert "does not say what was asked" in capfd.readouterr().err
