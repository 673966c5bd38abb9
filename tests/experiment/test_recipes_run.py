"""Runs from recipes: what they leave behind, how they go on, what they refuse."""

from __future__ import annotations

import html
import itertools
import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import innerloop.experiment.plan as plan_module
import innerloop.experiment.training as training_module
import innerloop.runs.progress as progress_module
from innerloop.core.errors import NonFiniteError, UserError
from innerloop.experiment.pages import write_report as write_page
from innerloop.experiment.parts import build
from innerloop.experiment.recipe.library import load_recipe, shipped_names
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import recipe_from_toml
from innerloop.experiment.resuming import resume
from innerloop.experiment.run_evaluation import evaluate_run
from innerloop.experiment.training import train
from innerloop.experiment.weights import for_test
from innerloop.nets.noise import STEP
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.manifest import read_manifest, update_manifest
from innerloop.runs.metrics import MetricsWriter, read_metrics
from innerloop.runs.process import LOCK
from innerloop.tasks import FAMILIES
from innerloop.testing.closeness import assert_trees_equal
from innerloop.training.execution.auto import PlanChoice
from innerloop.training.execution.plan import Plan
from innerloop.training.state import group_of

FIXED = ["run.execution=vmap", "run.compile=off", "run.threads=1", "run.dtype=float64"]
TINY = [
    "outer.steps=12",
    "outer.batch=2",
    "model.hidden=[5]",
    "eval.episodes=6",
    "eval.validation_episodes=3",
]
OFTEN = ["run.log_every=1", "run.save_every=5", "eval.every=4"]


def tiny(folder: Path, *settings: str, recipe: str = "sine-maml") -> Recipe:
    given = {item.partition("=")[0]: item for item in (*FIXED, *TINY, *OFTEN, *settings)}
    if "model.kind" in given:
        given.pop("model.hidden")  # of the perceptron
    return load_recipe(recipe, [*given.values(), f"run.folder={folder}"])


def trained(folder: Path, *settings: str, recipe: str = "sine-maml") -> Path:
    return train(tiny(folder, *settings, recipe=recipe), progress=False).run


def last(run: Path, tag: str = "last") -> dict[str, torch.Tensor]:
    saved = load_checkpoint(run, tag)
    assert saved is not None
    return saved[0]


# ---- what a run leaves behind ----


def test_a_run_leaves_everything(tmp_path: Path) -> None:
    recipe = tiny(tmp_path, "inner.test_steps=3")
    result = train(recipe, argv=["innerloop", "train"], progress=False)
    run = result.run
    assert result.steps == 12
    assert result.tasks_per_second is not None
    assert result.tasks_per_second > 0
    manifest = read_manifest(run)
    assert manifest["status"] == "finished"
    assert manifest["argv"] == ["innerloop", "train"]
    assert manifest["plan"]["mode"] == "vmap"
    assert manifest["plan"]["compile"] == "off"
    assert "vmap@1" in manifest["plan"]["milliseconds"]
    assert recipe_from_toml(run / "recipe.toml") == recipe
    records = read_metrics(run / "metrics.jsonl")
    steps = [r for r in records if "loss" in r]
    assert [r["step"] for r in steps] == list(range(1, 13))
    assert all({"grad_norm", "lr", "seconds", "tasks_per_second"} <= set(r) for r in steps)
    judged = [r for r in records if "validation" in r]
    assert [r["step"] for r in judged] == [4, 8, 12]
    assert all((r["episodes"], r["score"]) == (3, "mse") for r in judged)
    assert "trained 12 steps" in (run / "log.txt").read_text()


def test_the_evaluation_names_its_protocol(tmp_path: Path) -> None:
    recipe = tiny(tmp_path, "inner.test_steps=3", "eval.seed=5")
    evaluation = train(recipe, progress=False).evaluation
    stored = json.loads(evaluation.file.read_text())
    assert evaluation.file.parent == Path(tmp_path) / "sine-maml" / evaluation.file.parts[-3] / "eval"
    assert stored["score"] == "mse"
    assert stored["mean"] == stored["mse"] == evaluation.mean
    assert len(stored["scores"]) == stored["episodes"] == 6
    assert stored["mean"] == pytest.approx(sum(stored["scores"]) / 6)
    assert [row["steps"] for row in stored["by_step"]] == [0, 1, 2, 3]
    assert stored["by_step"][-1]["mean"] == stored["mean"]
    protocol = stored["protocol"]
    assert (protocol["shots"], protocol["inner_steps"], protocol["seed"]) == (10, 3, 5)
    assert "no ½" in protocol["inner_loss"]
    assert "best by validation" in protocol["weights"]


def test_the_plan_is_written_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def fit(*args: Any, **kwargs: Any) -> Any:
        (run,) = tmp_path.glob("*/*")
        seen["written"], seen["used"] = read_manifest(run)["plan"], kwargs["plan"]
        raise KeyboardInterrupt

    monkeypatch.setattr(training_module, "fit_parts", fit)
    with pytest.raises(KeyboardInterrupt):
        train(tiny(tmp_path, "run.execution=auto"), progress=False)
    told = seen["used"].as_dict()
    assert {name: seen["written"][name] for name in told} == told
    slow = [remark for remark in seen["written"]["remarks"] if "too slow to try on all" in remark]
    assert len(seen["written"]["milliseconds"]) + len(slow) >= 2


def test_a_resumed_run_keeps_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path)
    update_manifest(
        run, status="interrupted", plan={**read_manifest(run)["plan"], "mode": "threads", "threads": 2}
    )
    monkeypatch.setattr(plan_module, "choose_plan", lambda *a, **k: pytest.fail("measured again"))
    plan = resume(run, progress=False).plan
    assert plan is not None
    assert plan.mode == "threads"


def slow_plan(monkeypatch: pytest.MonkeyPatch, milliseconds: float) -> None:
    """``auto`` finds that a step takes this long."""
    found = PlanChoice(Plan("vmap", 2), {"vmap@2": milliseconds}, [])
    monkeypatch.setattr(plan_module, "choose_plan", lambda *a, **k: found)


def test_how_long_it_will_take_is_said_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_plan(monkeypatch, 1_300_000)
    told: list[str] = []

    def fit(*args: Any, **kwargs: Any) -> Any:
        (log,) = tmp_path.glob("*/*/log.txt")
        told.append(log.read_text())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training_module, "fit_parts", fit)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(tmp_path, "outer.steps=6"), progress=False)
    assert "about 2 h 10 min for 6 steps, and validation besides" in told[0]
    (run,) = tmp_path.glob("*/*")
    update_manifest(run, status="interrupted")
    resume(run, progress=False)
    assert (run / "log.txt").read_text().count("about 2 h 10 min") == 2  # the manifest has it


def test_slow_steps_are_shown_one_by_one_and_logged_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 11)  # a line is due after ten seconds
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    run = trained(tmp_path, "outer.steps=4", "run.log_every=100")
    said = (run / "log.txt").read_text()
    assert [f" {step}/4 " in said for step in range(1, 5)] == [True] * 4
    assert [record["step"] for record in read_metrics(run / "metrics.jsonl") if "loss" in record] == [4]


def test_a_run_that_slows_down_says_so_once_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As seen with two threads when another program takes one of two cores: 9.7 ms become 2,272."""
    slow_plan(monkeypatch, 9.7)
    clock = itertools.count(0, 2.272)
    monkeypatch.setattr(
        sys.modules["innerloop.training.loop"], "time", SimpleNamespace(perf_counter=lambda: next(clock))
    )
    run = trained(tmp_path, "outer.steps=40", "run.save_every=100", "eval.every=100")
    said = (run / "log.txt").read_text()
    assert said.count("234 times as long as when it was measured (vmap, 2 threads, compile=off)") == 1
    assert said.count("run.threads=1") == 1


def test_a_run_that_slows_down_goes_on_by_a_faster_plan_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = Plan("threads", 2), Plan("loop", 1, reason="it was faster")
    asked: list[list[Plan] | None] = []

    def choose(*args: Any, plans: list[Plan] | None = None, **kwargs: Any) -> PlanChoice:
        asked.append(plans)
        if plans is None:
            return PlanChoice(slow, {"threads@2": 9.7}, [])
        return PlanChoice(fast, {"threads@2": 900.0, "loop@1": 500.0}, ["a remark"])

    monkeypatch.setattr(plan_module, "choose_plan", choose)
    settings = (
        "run.execution=auto",
        "run.threads=2",
        "outer.steps=40",
        "run.save_every=100",
        "eval.every=100",
    )
    undisturbed = trained(tmp_path / "undisturbed", *settings)
    assert asked == [None]
    clock, gradients = itertools.count(0, 2.272), []
    loop = sys.modules["innerloop.training.loop"]
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    usual = loop.meta_gradient
    monkeypatch.setattr(
        loop, "meta_gradient", lambda loss, plan, **more: gradients.append(plan) or usual(loss, plan, **more)
    )
    result = train(tiny(tmp_path, *settings), progress=False)
    # first they are slow by 9.7 ms, then by 500 ms, and then there is nothing faster
    assert asked[1:] == [
        None,
        [slow, Plan("loop", 1), Plan("processes", 2)],
        [fast, slow, Plan("processes", 2)],
    ]
    assert gradients == [slow, fast]
    assert result.plan == fast
    assert_trees_equal(last(result.run), last(undisturbed))
    said, kept = (result.run / "log.txt").read_text(), read_manifest(result.run)["plan"]
    again = "234 times as long as when it was measured (threads, 2 threads)"
    assert said.count(f"{again}: measured again, and goes on by loop, 1 thread (it was faster)") == 1
    assert said.count("other programs seem to use the cores; stop them") == 1
    assert (kept["mode"], kept["threads"]) == ("loop", 1)
    assert kept["milliseconds"] == {"threads@2": 900.0, "loop@1": 500.0}
    assert again in kept["remarks"][0]
    assert kept["remarks"][1:] == ["a remark"]


def test_a_run_says_where_its_time_went(tmp_path: Path) -> None:
    manifest = read_manifest(trained(tmp_path))
    spent = manifest["seconds"]
    assert set(spent) == {"plan", "fit", "validation", "logging", "checkpoints", "test"}
    assert 0 < spent["validation"] + spent["logging"] + spent["checkpoints"] < spent["fit"]
    assert manifest["started"] <= manifest["first_step"]


@pytest.mark.parametrize(
    ("steps", "warns"),
    [([0.29] * 100, 0), ([0.31] * 100, 1), ([0.31] * 9, 0), ([0.1] * 99 + [3600.0], 0), ([3.0] * 10, 1)],
    ids=["noise", "slow", "few", "asleep", "very slow"],
)
def test_only_steps_that_are_slow_again_and_again_are_a_slowdown(steps: list[float], warns: int) -> None:
    said: list[str] = []
    slowdown = plan_module.Slowdown(Plan("loop", 1), 0.1, said.append, lambda *_: None)
    for seconds in steps:
        assert slowdown(seconds) is None
    assert len(said) == warns
    assert not any("run.threads" in line for line in said)  # it has one thread already


def test_a_compiled_run_is_not_resumed_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path)
    update_manifest(run, status="interrupted", plan={**read_manifest(run)["plan"], "compile": "full"})
    monkeypatch.setenv("CXX", "nowhere++")
    with pytest.raises(UserError, match=r"was compiled to C\+\+, and here no C\+\+ compiler was found"):
        resume(run, progress=False)
    assert read_manifest(run)["status"] == "interrupted"


@pytest.mark.parametrize("name", [n for n in shipped_names() if load_recipe(n).tasks.family in FAMILIES])
@pytest.mark.one_in(2)
def test_shipped_recipes_run(name: str, tmp_path: Path) -> None:
    small = [
        "outer.steps=3",
        "outer.batch=2",
        "eval.episodes=2",
        "eval.validation_episodes=2",
        "eval.curve=false",
    ]
    recipe = load_recipe(name, [*FIXED, *small, f"run.folder={tmp_path}"])
    result = train(recipe, progress=False)
    assert result.steps == 3
    assert math.isfinite(result.evaluation.mean)


# ---- repeating ----


def test_a_recipe_trained_again_repeats_the_run(tmp_path: Path) -> None:
    first = trained(tmp_path)
    again = train(recipe_from_toml(first / "recipe.toml"), progress=False).run
    assert again != first
    assert_trees_equal(last(again), last(first))


def test_seeds_change_training_and_not_the_test(tmp_path: Path) -> None:
    parts = [build(tiny(tmp_path, f"seed={seed}")) for seed in (0, 1)]
    assert not torch.equal(parts[0].params["layer0.weight"], parts[1].params["layer0.weight"])
    assert not torch.equal(parts[0].data.train.episode(0).x_query, parts[1].data.train.episode(0).x_query)
    for held_out in ("validation", "test"):
        one, two = (getattr(p.data, held_out).episode(0) for p in parts)
        assert torch.equal(one.x_query, two.x_query)
    streams = [parts[0].data.train, parts[0].data.validation, parts[0].data.test]
    assert len({float(s.episode(0).y_query[0]) for s in streams}) == 3


def test_held_out_tasks_are_not_limited_to_the_training_tasks(tmp_path: Path) -> None:
    parts = build(tiny(tmp_path, "tasks.n_tasks=3", "tasks.resample=false"))
    assert len({float(parts.data.train.episode(i).y_query[0]) for i in range(12)}) == 3
    assert len({float(parts.data.test.episode(i).y_query[0]) for i in range(12)}) == 12


# ---- going on ----


def test_interrupted_runs_go_on_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(tmp_path / "whole")
    write, lines = MetricsWriter.write, []

    def interrupted(self: Any, values: Any) -> None:
        write(self, values)
        lines.append(values)
        if len(lines) == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(MetricsWriter, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(tiny(tmp_path / "cut"), progress=False)
    monkeypatch.undo()
    (run,) = (tmp_path / "cut").glob("*/*")
    assert read_manifest(run)["status"] == "interrupted"
    result = resume(run, progress=False)
    assert result.steps == 12
    assert read_manifest(run)["status"] == "finished"
    for tag in ("last", "best"):
        assert_trees_equal(last(run, tag), last(whole, tag))
    assert losses(run) == losses(whole)


def losses(run: Path) -> list[tuple[int, str, float]]:
    """What the metrics say, without times."""
    return [
        (r["step"], name, r[name])
        for r in read_metrics(run / "metrics.jsonl")
        for name in ("loss", "grad_norm", "lr", "validation", "ci95")
        if name in r
    ]


def test_early_stopping_ends_the_run(tmp_path: Path) -> None:
    # a rate of zero: nothing ever improves after the first validation
    run = trained(tmp_path, "outer.optimiser=sgd", "outer.lr=1e-300", "eval.patience=2", "outer.steps=40")
    assert read_manifest(run)["reason"] == "validation stalled"
    saved = load_checkpoint(run, "last")
    assert saved is not None
    assert saved[1]["step"] == 12  # validations at 4, 8 and 12


def test_finished_and_running_runs_are_not_resumed(tmp_path: Path) -> None:
    run = trained(tmp_path)
    with pytest.raises(UserError, match="is finished"):
        resume(run, progress=False)
    update_manifest(run, status="running")
    update_manifest(run, pid=os.getppid(), process_started=None)  # of another process, which is alive
    (run / LOCK).unlink()  # as earlier versions left it: only the manifest tells
    with pytest.raises(UserError, match="still running"):
        resume(run, progress=False)


def test_a_run_killed_before_its_manifest_can_be_resumed(tmp_path: Path) -> None:
    run = trained(tmp_path)
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "recipe.toml").write_text((run / "recipe.toml").read_text())
    assert resume(cut, progress=False).steps == 12
    assert_trees_equal(last(cut), last(run))


def test_a_recipe_that_was_cut_is_refused_with_what_differs(tmp_path: Path) -> None:
    run = trained(tmp_path)
    update_manifest(run, status="interrupted")
    text = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(text[: text.index("[outer]")])
    for attempt in (lambda: resume(run, progress=False), lambda: evaluate_run(run, [])):
        with pytest.raises(UserError, match=r"outer.steps was 12, now it is 10000") as error:
            attempt()
        assert "put it back" in str(error.value)
        assert "\n" not in str(error.value)
    (run / "recipe.toml").write_text(text[: text.index("[outer]") + 3])
    with pytest.raises(UserError, match="it can no longer be read"):
        evaluate_run(run, [])
    # runs of earlier versions kept the checksum only
    manifest = read_manifest(run)
    del manifest["recipe"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="SHA-256 differs"):
        resume(run, progress=False)
    (run / "recipe.toml").write_text(text)
    assert evaluate_run(run, []).episodes == 6


def test_a_damaged_manifest_is_not_replaced(tmp_path: Path) -> None:
    run = trained(tmp_path)
    (run / "manifest.json").write_text('{"status": "interr')
    with pytest.raises(UserError, match="is not valid JSON"):
        resume(run, progress=False)
    assert (run / "manifest.json").read_text() == '{"status": "interr'


def test_comments_and_layout_of_a_recipe_may_change(tmp_path: Path) -> None:
    run = trained(tmp_path)
    text = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text("# my best one\n\n" + text)
    assert evaluate_run(run, []).episodes == 6


@pytest.mark.parametrize("verb", ["resume", "eval", "report"])
def test_a_flipped_bit_of_a_weight_is_never_used(tmp_path: Path, verb: str) -> None:
    run = trained(tmp_path)
    for file in run.glob("checkpoints/*/tensors.safetensors"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 64
        file.write_bytes(content)
    if verb == "report":
        text = html.unescape(write_page([run]).read_text())
        (line,) = [line for line in text.splitlines() if "is left out: the checkpoint" in line]
        assert str(tmp_path) not in line  # a page may be shown to others
        return
    update_manifest(run, status="interrupted")
    with pytest.raises(UserError, match="SHA-256 differs"):
        resume(run, progress=False) if verb == "resume" else evaluate_run(run, [])


def test_what_is_not_finite_fails_the_run_and_keeps_the_last_good_state(tmp_path: Path) -> None:
    recipe = tiny(
        tmp_path, "inner.lr=1e5", "inner.steps=50", "outer.steps=40", "run.save_every=1", "model.hidden=[]"
    )
    with pytest.raises(NonFiniteError) as error:
        train(recipe, progress=False)
    (run,) = tmp_path.glob("*/*")
    assert "step 1: the loss of task 0 (episode 0) is not finite" in str(error.value)
    assert "inner.lr=100000, under loss=mse" in str(error.value)
    assert str(run) in str(error.value)
    manifest = read_manifest(run)
    assert manifest["status"] == "failed"
    assert "not finite" in manifest["reason"]
    state = load_checkpoint(run, "last")
    assert state is not None
    assert state[1]["step"] == 0
    assert all(bool(torch.isfinite(t).all()) for t in state[0].values())


# ---- judging again ----


def test_a_run_can_be_judged_by_another_protocol(tmp_path: Path) -> None:
    run = trained(tmp_path)
    own = evaluate_run(run, [])
    other = evaluate_run(run, ["eval.episodes=9", "inner.test_steps=2", "eval.weights=last"])
    assert (own.episodes, other.episodes) == (6, 9)
    assert other.protocol["inner_steps"] == 2
    assert "last (step 12)" in other.protocol["weights"]
    files = sorted(p.name for p in (run / "eval").iterdir())
    assert len(files) == 3  # the training's own, and two more: nothing is overwritten
    again = evaluate_run(run, [])
    assert again.mean == own.mean


def test_settings_that_change_the_network_are_refused(tmp_path: Path) -> None:
    run = trained(tmp_path)
    with pytest.raises(UserError, match="change the network"):
        evaluate_run(run, ["model.hidden=[6]"])


def test_multitask_runs_are_judged_without_their_heads(tmp_path: Path) -> None:
    run = trained(tmp_path, "tasks.n_tasks=4", recipe="sine-multitask")
    assert any(name.startswith("params/heads.") for name in last(run))
    assert math.isfinite(evaluate_run(run, []).mean)


def test_weight_decay_leaves_the_head_of_test_tasks_alone(tmp_path: Path) -> None:
    settings = ("tasks.n_tasks=4", "outer.optimiser=adamw", "outer.options.weight_decay=0.5", "outer.lr=0.1")
    parts = build(tiny(tmp_path, *settings, recipe="sine-multitask"))
    end = last(trained(tmp_path, *settings, recipe="sine-multitask"))
    head = [name for name in parts.params if f"heads.{name}" in parts.params]
    assert head
    for name, value in parts.params.items():
        assert torch.equal(end[f"params/{name}"], value) == (name in head), name


def test_asking_for_cpp_without_a_compiler_leaves_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "nowhere++")
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler"):
        trained(tmp_path, "run.compile=full")
    assert not list(tmp_path.rglob("manifest.json"))


# ---- starting from weights ----


def test_runs_start_from_runs_and_files(tmp_path: Path) -> None:
    first = trained(tmp_path)
    network = {
        n.removeprefix("params/"): t for n, t in last(first, "best").items() if n.startswith("params/")
    }
    save_file(network, tmp_path / "weights.safetensors")
    for source in (first, tmp_path / "weights.safetensors"):
        assert_trees_equal(build(tiny(tmp_path, f"model.init={source}")).params, network)


def test_learned_rates_do_not_stand_in_the_way(tmp_path: Path) -> None:
    first = trained(tmp_path, recipe="sine-meta-sgd")
    for recipe in ("sine-meta-sgd", "sine-maml"):
        params = build(tiny(tmp_path, f"model.init={first}", recipe=recipe)).params
        assert torch.equal(params["layer0.weight"], last(first, "best")["params/layer0.weight"])


def test_learned_rates_start_at_the_rate_in_full_precision(tmp_path: Path) -> None:
    params = build(tiny(tmp_path, "inner.lr=0.3", recipe="sine-meta-sgd")).params
    assert bool((params["inner_lr.layer0.weight"] == 0.3).all())


def test_weights_that_do_not_fit_are_refused_all_at_once(tmp_path: Path) -> None:
    first = trained(tmp_path)
    with pytest.raises(UserError) as error:
        build(tiny(tmp_path, f"model.init={first}", "model.hidden=[6, 6]"))
    text = str(error.value)
    assert "layer2.weight: missing" in text
    assert "layer0.weight: " in text
    assert "has shape (5, 1), the model (6, 1)" in text
    with pytest.raises(UserError, match="neither a run directory nor"):
        build(tiny(tmp_path, f"model.init={tmp_path / 'nothing'}"))


# ---- refusing ----


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["outer.optimiser=adamm"], "did you mean 'adam'"),
        (["outer.options={beta=3}"], "outer.options do not fit"),
        (["tasks.family=sin"], "did you mean 'sine'"),
        (["tasks.settings={amplitud=[1, 2]}"], "did you mean 'amplitude'"),
        (["model.kind=conv4"], "square images"),
        (["model.kind=resnet99"], "unknown model.kind"),
        (["inner.loss=cross-entropy"], "numbers as targets"),
        (["run.device=cuda:99"], "run.device=cuda:99 does not work here"),
    ],
    ids=lambda v: v[0] if isinstance(v, list) else "",
)
def test_mistakes_are_found_before_anything_is_written(
    tmp_path: Path, settings: list[str], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        train(tiny(tmp_path, *settings), progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_module_that_is_another_function_is_found_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net_with_more.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.body, self.last = nn.Linear(1, 4), nn.Linear(4, 1)\n"
        "    def forward(self, x):\n"
        "        return self.last(self.body(x).tanh()).tanh()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="not those of its layer 'last'"):
        train(tiny(tmp_path / "runs", "model.kind=net_with_more:Net"), progress=False)
    assert not (tmp_path / "runs").exists()


def test_a_machine_without_a_compiler_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.delenv("CXX", raising=False)
    run = trained(tmp_path, "run.compile=auto", "run.execution=auto")
    manifest = read_manifest(run)
    assert manifest["status"] == "finished"
    if manifest["plan"]["mode"] == "vmap":
        assert any("no C++ compiler was found" in remark for remark in manifest["plan"]["remarks"])
        assert "no C++ compiler was found" in (run / "log.txt").read_text()


def test_dropout_of_a_module_of_ones_own_is_on_in_training_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_dropout.py").write_text(
        "from torch import nn\n"
        "def net(rate=0.5):\n"
        "    return nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Dropout(rate), nn.Linear(8, 1))\n"
        "def plain():\n"
        "    return nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Identity(), nn.Linear(8, 1))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    weights = {}
    for kind, settings in (("net", "{}"), ("net", "{rate=0.0}"), ("plain", "{}")):
        names = f"model.kind=my_own_dropout:{kind}", f"model.settings={settings}"
        run = trained(tmp_path / "runs", *names)
        saved = weights[kind, settings] = last(run)
        assert ("buffers/noise.step" in saved) == (settings == "{}" and kind == "net")
        assert STEP not in for_test({}, group_of(saved, "buffers"))[1]
    with_noise, without, plain = weights.values()
    assert float(with_noise["buffers/noise.step"]) > 0
    assert not torch.equal(with_noise["params/0.weight"], plain["params/0.weight"])
    assert all(torch.equal(without[name], value) for name, value in plain.items())


def test_a_module_of_ones_own_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_net.py").write_text(
        "from torch import nn\n"
        "def net(width=4):\n"
        "    body = nn.Linear(1, width), nn.BatchNorm1d(width), nn.Tanh()\n"
        "    return nn.Sequential(*body, nn.Linear(width, 1))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for norm in ("running", "transductive"):
        run = trained(
            tmp_path / "runs", "model.kind=my_own_net:net", "model.settings={width=6}", f"model.norm={norm}"
        )
        assert last(run)["params/0.weight"].shape == (6, 1)
        assert ("buffers/1.mean" in last(run)) == (norm == "running")
        assert all(t.dtype in (torch.float64, torch.float32) for t in last(run).values())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sine-maml", TINY),
        (
            "omniglot-protonet",
            [
                *(
                    "data.name=glyphs",
                    "data.augment=lee2019",
                    "tasks.ways=3",
                    "eval.ways=3",
                    "eval.queries=2",
                ),
                *("outer.steps=2", "outer.batch=2", "model.filters=4", "eval.episodes=4"),
                "eval.validation_episodes=2",
            ],
        ),
    ],
)
def test_nothing_draws_from_torchs_own_generator(name: str, settings: list[str], tmp_path: Path) -> None:
    """Building, training, judging and augmenting name their seeds: a run is the same whatever ran before."""
    state = torch.random.get_rng_state()
    train(load_recipe(name, [*settings, f"run.folder={tmp_path}", *FIXED[:3]]), progress=False)
    assert torch.equal(torch.random.get_rng_state(), state)
