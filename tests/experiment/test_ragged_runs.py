"""Variable ways and shots by command: a run on a mixture is its tasks one at a time, and says what it saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import RaggedBatch
from innerloop.evaluation import evaluate
from innerloop.experiment.learner import build_learner
from innerloop.experiment.loading import load_run
from innerloop.experiment.parts import Parts, build
from innerloop.experiment.protocol import head_protocol
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.protocols import refuse_mixed_ways
from innerloop.experiment.weights import for_test
from innerloop.learners import LEARNERS, episodic
from innerloop.runs.metrics import read_metrics
from innerloop.tasks import Sampler
from innerloop.testing.closeness import CHAINED, CONDITIONED, ROUNDED, assert_trees_close
from innerloop.training import Gradient, Plan, meta_gradient
from oracles import frozen_loop

KINDS = "{ways=5,shots=1,queries=3},{ways=3,shots=4,queries=2,share=2},{ways=2,shots=3,queries=2}"
MIXTURE, TASKS, RATE = f"tasks.mixture=[{KINDS}]", 6, 0.1
TINY = [
    *("data.name=glyphs", "model.filters=8", "model.pooling=stride", "run.dtype=float64", "run.threads=1"),
    *("outer.steps=1", f"outer.batch={TASKS}", "outer.optimiser=sgd", f"outer.lr={RATE}"),
    *("outer.schedule=constant", "eval.episodes=8", "eval.validation_episodes=2", "eval.weights=last"),
    *("run.log_every=1", "run.execution=loop"),
]
FREE = [name for name, entry in LEARNERS.items() if entry.own_head]
FIXED = [name for name, entry in LEARNERS.items() if not entry.own_head]
CROSS_ENTROPY = get_loss("cross-entropy")


def words(*settings: str) -> list[str]:
    """A tiny run on glyphs; settings that are given come first."""
    return list({item.partition("=")[0]: item for item in (*TINY, MIXTURE, *settings)}.values())


def trained(folder: Path, *settings: str) -> Path:
    assert main(["train", "cifar-fs-protonet", *words(*settings, f"run.folder={folder}")]) == 0
    (run,) = (folder / "cifar-fs-protonet").iterdir()
    return run


def kept(run: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "eval" / f"{name}-1.json").read_text())
    return content


def one_step_task_by_task(parts: Parts) -> tuple[float, dict[str, Tensor], dict[str, Tensor]]:
    """Loss, weights and statistics after one step, each task by a learner that knows of its classes only."""
    params, buffers = parts.first.params, parts.first.buffers
    gradients: list[Gradient] = []
    for i in range(TASKS):
        task = parts.data.train.episode(i)
        loss = episodic(build_learner(parts.recipe.inner, parts.network, 0, len(task.id)), CROSS_ENTROPY).loss
        gradients.append(meta_gradient(loss, Plan("loop"))(params, buffers, RaggedBatch((task,))))

    def mean(trees: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        return {name: torch.stack([tree[name] for tree in trees]).mean(0) for name in trees[0]}

    step = mean([each.grads for each in gradients])
    stepped = {name: value - RATE * step[name] for name, value in params.items()}
    return (
        float(torch.cat([e.losses for e in gradients]).mean()),
        stepped,
        mean([e.buffers for e in gradients]),
    )


def scores_task_by_task(parts: Parts, params: dict[str, Tensor], buffers: dict[str, Tensor]) -> list[float]:
    scores = []
    for i in range(parts.recipe.eval.episodes):
        task = parts.data.test.episode(i)
        learner = build_learner(parts.recipe.inner, parts.network, 0, len(task.id))
        alone = Sampler(lambda _, task=task: RaggedBatch((task,)))
        scores += evaluate(learner, *for_test(params, buffers), alone, CROSS_ENTROPY, 1).scores
    return scores


@pytest.mark.parametrize("method", FREE)
@pytest.mark.one_in(3)
def test_a_run_on_a_mixture_is_its_tasks_one_at_a_time(method: str, tmp_path: Path) -> None:
    run = trained(tmp_path, f"inner.method={method}")
    loaded = load_run(run)
    loss, params, buffers = one_step_task_by_task(build(loaded.trained))
    (line,) = [line for line in read_metrics(run / "metrics.jsonl") if "loss" in line]
    assert line["loss"] == pytest.approx(loss, rel=CHAINED)
    (weights, statistics), _ = loaded.weights()
    iterated = LEARNERS[method].differentiated == "implicit"  # problems are solved to 1e-10, not to rounding
    assert_trees_close(weights, params, (CONDITIONED, CHAINED) if iterated else None)
    assert_trees_close(statistics, buffers)
    told = kept(run, f"glyphs-mixture-{method}0")
    assert told["scores"] == scores_task_by_task(loaded.parts, weights, statistics)
    assert len({len(loaded.parts.data.test.episode(i).id) for i in range(8)}) > 1  # unequal ways were judged


@pytest.mark.parametrize("training", ["RFS", "MTL"])
def test_heads_on_a_mixture_are_fitted_task_by_task(
    training: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = {
        "RFS": ["tasks.family=supervised", "tasks.minibatch=8", "outer.objective=erm", "outer.batch=1"],
        "MTL": ["outer.objective=multitask", "outer.heads=released"],
    }[training]
    run = trained(tmp_path, *how, "eval.head=logistic")
    assert main(["eval", str(run), "eval.head=ridge"]) == 0
    assert main(["eval", str(run), "eval.head=cosine"]) == 0
    for head in ("logistic", "ridge", "cosine"):
        loaded = load_run(run, [f"eval.head={head}"])
        weights, _ = loaded.weights()
        weights = for_test(*weights)
        protocol = head_protocol(loaded.parts.recipe, "running", 1)
        tasks = [loaded.parts.data.test.episode(i) for i in range(8)]
        wanted = [frozen_loop.one_accuracy(loaded.parts.network, *weights, task, protocol) for task in tasks]
        assert kept(run, f"glyphs-mixture-{head}")["scores"] == pytest.approx(wanted, abs=ROUNDED)
    assert "2 to 5-way 1 to 4-shot, glyphs" in capsys.readouterr().out


def test_the_protocol_of_a_mixture_names_all_kinds(tmp_path: Path) -> None:
    run = trained(tmp_path)
    told = kept(run, "glyphs-mixture-protonet0")["protocol"]
    assert {name: told[name] for name in ("ways", "shots", "queries", "shares")} == {
        "ways": [5, 3, 2],
        "shots": [1, 4, 3],
        "queries": [3, 2, 2],
        "shares": [1.0, 2.0, 1.0],
    }
    assert main(["report", str(run)]) == 0
    assert "ways [5, 3, 2]" in (run / "report.html").read_text()
    assert main(["eval", str(run), "tasks.mixture=[]", "eval.shots=2", "eval.queries=2"]) == 0
    one_kind = kept(run, "glyphs-5way-2shot-protonet0")["protocol"]
    assert (one_kind["ways"], one_kind["shots"]) == (5, 2)


@pytest.mark.parametrize("method", FIXED)
def test_a_last_layer_that_fixes_the_ways_refuses_a_mixture(method: str) -> None:
    recipe = load_recipe("cifar-fs-protonet", words(f"inner.method={method}"))
    with pytest.raises(UserError) as refused:
        refuse_mixed_ways(recipe, training=True)
    told = str(refused.value)
    assert told.count("\n") == 0
    assert f"inner.method={method} predicts with the network's last layer, which fixes the ways" in told
    assert "have 2, 3 and 5: give all kinds the same ways, or set inner.method to a learner" in told


def test_a_refused_mixture_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "cifar-fs-protonet", *words("inner.method=maml", f"run.folder={tmp_path}")]) == 2
    assert capsys.readouterr().err.count("which fixes the ways") == 1
    assert not list(tmp_path.iterdir())


def test_equal_ways_and_unequal_shots_are_for_all(tmp_path: Path) -> None:
    shots = "tasks.mixture=[{ways=3,shots=1,queries=2},{ways=3,shots=4,queries=2}]"
    run = trained(tmp_path, shots, "inner.method=anil")
    ragged = load_run(run, [MIXTURE]).parts
    assert len({kind.ways for kind in ragged.recipe.tasks.mixture}) == 3


def test_judging_a_fixed_last_layer_on_a_mixture_takes_a_head(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, "tasks.mixture=[]", "tasks.ways=5", "tasks.queries=2", "inner.method=anil")
    capsys.readouterr()
    assert main(["eval", str(run), MIXTURE]) == 2
    assert "or fit a head to every task with eval.head=logistic" in capsys.readouterr().err
    assert main(["eval", str(run), MIXTURE, "eval.head=logistic"]) == 0


def test_other_families_have_no_mixture() -> None:
    with pytest.raises(UserError, match=r"unknown setting 'tasks.mixture' with tasks.family=sine"):
        load_recipe("sine-maml", [MIXTURE])
