"""Numbers that are not finite are named: they never count as a result."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from innerloop.core.errors import NonFiniteError, UserError
from innerloop.core.importing import Trusted
from innerloop.core.losses import accuracy, get_loss, score
from innerloop.core.types import TaskBatch
from innerloop.evaluation import HEADS, Protocol, evaluate, evaluate_head
from innerloop.experiment.pages import write_report as write_page
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.results import TrainResult
from innerloop.experiment.resuming import resume
from innerloop.experiment.run_evaluation import evaluate_run
from innerloop.experiment.training import train
from innerloop.learners import LEARNERS, Learner
from innerloop.nets.convolutional import conv4
from innerloop.report.read_run import headline, load_run
from innerloop.runs.checkpoints import load_checkpoint, save_checkpoint
from innerloop.runs.manifest import read_manifest
from innerloop.tasks import make_sampler
from innerloop.tasks.families import get_family
from innerloop.training import Plan
from support.picture_runs import short_run

FIXED = ["run.execution=loop", "run.compile=off", "run.threads=1"]
TINY = ["outer.steps=2", "outer.batch=2", "model.hidden=[5]", "eval.episodes=6", "eval.validation_episodes=3"]


def sine(folder: Path, *settings: str) -> TrainResult:
    given = {item.partition("=")[0]: item for item in (*FIXED, *TINY, *settings)}
    return train(load_recipe("sine-maml", [*given.values(), f"run.folder={folder}"]), progress=False)


def glyph_run(folder: Path, **sections: Any) -> Path:
    return short_run(folder, {"name": "glyphs", "data": {"name": "glyphs"}}, sections)


def spoil(run: Path) -> None:
    """NaN in the weights of both checkpoints, as a broken training would leave them."""
    for tag in ("last", "best"):
        saved = load_checkpoint(run, tag)
        if saved is not None:
            tensors = {n: v * torch.nan if n.startswith("params/") else v for n, v in saved[0].items()}
            save_checkpoint(run, 1000 + saved[1]["step"], tensors, saved[1], (tag,))


# ---- scores ----


def test_an_accuracy_without_a_largest_output_is_nan() -> None:
    fine = torch.tensor([[1.0, -torch.inf, 0.0], [0.0, 2.0, 1.0]])
    assert accuracy(fine, torch.tensor([0, 0])) == 0.5
    for bad in (torch.nan, torch.inf):
        outputs = fine.clone()
        outputs[1, 2] = bad
        assert math.isnan(accuracy(outputs, torch.tensor([0, 0])))
        assert math.isnan(score(get_loss("cross-entropy"), outputs, torch.tensor([0, 0])))
    assert math.isnan(accuracy(torch.full((2, 3), -torch.inf), torch.tensor([0, 0])))
    mixed = torch.stack([fine, fine * torch.nan])
    accuracies = torch.func.vmap(accuracy)(mixed, torch.zeros(2, 2, dtype=torch.int64))
    assert accuracies[0] == 0.5
    assert math.isnan(accuracies[1])


def test_evaluate_counts_the_episodes_that_are_not_finite() -> None:
    sampler = make_sampler(get_family("sine"), seed=0, split="test", shots=3, queries=3)

    def predict(adapted: Any, x: torch.Tensor, training: bool = False) -> Any:
        return torch.where(adapted > 0, x, torch.nan), {}

    learner = Learner("odd", lambda params, buffers, x, y, training=False: y.mean(), predict)
    evaluation = evaluate(learner, {}, {}, sampler, get_loss("mse"), 20, Plan())
    batch = sampler.episodes(range(20))
    assert isinstance(batch, TaskBatch)
    assert evaluation.not_finite == int((batch.y_support.mean((1, 2)) <= 0).sum())
    assert 0 < evaluation.not_finite < 20
    assert math.isnan(evaluation.interval.mean)


@pytest.mark.parametrize("head", [*HEADS, "finetune"])
def test_heads_on_broken_weights_have_no_accuracy(head: str) -> None:
    from innerloop.data.glyphs import glyphs

    net = conv4(1, 28, 5, filters=4, norm="group")
    params, buffers = net.init(torch.Generator().manual_seed(0))
    protocol = Protocol(shots=1, queries=3, episodes=3, norm="group", head=head, steps=1)
    assert evaluate_head(net, params, buffers, glyphs(), protocol).not_finite == 0
    broken = {name: value * torch.nan for name, value in params.items()}
    evaluation = evaluate_head(net, broken, buffers, glyphs(), protocol)
    assert evaluation.not_finite == 3
    assert math.isnan(evaluation.interval.mean)


def test_only_the_episodes_with_broken_features_are_left_out() -> None:
    from innerloop.evaluation.frozen import head_accuracy
    from innerloop.tasks.episodes import EpisodeRows

    draw = torch.Generator().manual_seed(0)
    z, q = torch.randn(3, 4, 6, generator=draw), torch.randn(3, 6, 6, generator=draw)
    y = torch.tensor([[0, 0, 1, 1]] * 3)
    labels = np.array([[0, 1] * 3] * 3)
    rows = EpisodeRows(*[labels] * 5)
    whole = head_accuracy(z, y, q, rows, 2, Protocol(head="ridge")).accuracy
    z[1, 2, 3] = torch.nan
    accuracies = head_accuracy(z, y, q, rows, 2, Protocol(head="ridge")).accuracy
    assert math.isnan(accuracies[1])
    assert accuracies[[0, 2]].tolist() == whole[[0, 2]].tolist()


# ---- runs ----


def test_a_diverging_adaptation_fails_the_run_and_keeps_the_training(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError) as error:
        sine(tmp_path, "inner.steps=0", "inner.lr=1e5", "inner.test_steps=60", "eval.curve=false")
    text = str(error.value)
    assert "the predictions for 6 of 6 test tasks are not finite, after 60 inner steps" in text
    assert "at inner.lr=100000: lower inner.lr or inner.test_steps" in text
    (run,) = tmp_path.glob("*/*")
    manifest = read_manifest(run)
    assert manifest["status"] == "failed"
    assert "6 of 6 test tasks are not finite" in manifest["reason"]
    assert manifest["diverged"] is True
    saved = load_checkpoint(run, "last")
    assert saved is not None
    assert saved[1]["step"] == 2
    (file,) = (run / "eval").glob("*.json")
    assert json.loads(file.read_text())["not_finite"] == 6
    evaluation = evaluate_run(run, ["inner.test_steps=0"])  # the training is not lost
    assert math.isfinite(evaluation.mean)
    page = write_page([run]).read_text()
    assert "6 episodes have no finite score, so there is no mean." in page
    assert "Few episodes make this mean" not in page
    assert (headline(load_run(run)) or {})["file"] == file.name  # the own protocol leads, whatever it gave
    with pytest.raises(NonFiniteError, match="6 of 6"):
        resume(run, progress=False)


def test_the_command_says_so_and_leaves_with_2(tmp_path: Path, capsys: Any) -> None:
    from innerloop.cli.main import main

    run = sine(tmp_path).run
    assert main(["eval", str(run), "inner.lr=1e20"]) == 2
    told = capsys.readouterr()
    assert told.err.count("error:") == 1
    assert "of 6 test tasks are not finite, after 5 inner steps at inner.lr=1e+20" in told.err
    assert "mse" not in told.out
    assert main(["ls", "runs"]) == 0
    assert read_manifest(run)["status"] == "finished"  # the run itself is as good as it was


def test_broken_weights_of_a_picture_run_are_no_chance_level(tmp_path: Path) -> None:
    run = glyph_run(tmp_path)
    spoil(run)
    for settings in ([], ["eval.head=logistic"], ["eval.head=finetune", "eval.head_steps=1"]):
        with pytest.raises(NonFiniteError, match=r"4 of 4 test tasks.*the trained weights are not"):
            evaluate_run(run, settings)


def test_a_fine_tuning_rate_that_diverges_is_named(tmp_path: Path) -> None:
    run = glyph_run(tmp_path, model={"kind": "conv4", "filters": 4, "norm": "none"})
    with pytest.raises(NonFiniteError, match=r"4 of 4.*eval.head_lr=1e\+38: lower eval.head_lr"):
        evaluate_run(run, ["eval.head=finetune", "eval.head_lr=1e38"])


@pytest.mark.slow
def test_a_validation_that_is_not_finite_is_said_and_is_never_the_best(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError):
        sine(tmp_path, "inner.steps=0", "inner.lr=1e5", "inner.test_steps=60", "eval.every=1")
    (run,) = tmp_path.glob("*/*")
    assert "step 1: validation mse is not finite" in (run / "log.txt").read_text()
    assert load_checkpoint(run, "best") is None


@pytest.mark.slow
def test_a_sweep_keeps_going_and_lists_what_diverged(tmp_path: Path, monkeypatch: Any) -> None:
    from innerloop.experiment.sweeps.sweep import sweep

    monkeypatch.chdir(tmp_path)
    grid = ["inner.lr=[0.01,1e20]", *FIXED, *TINY]
    rows = sweep("sine-maml", grid, jobs=1, progress=False).table
    assert [row.settings["inner.lr"] for row in rows] == [0.01, 1e20]
    assert rows[1].mean is None
    assert rows[1].over == "1 of 1 runs diverged"
    again = sweep("sine-maml", grid, jobs=1, progress=False)
    assert again.table == rows
    with pytest.raises(UserError, match="none of the 1 runs"):
        sweep("sine-maml", ["inner.lr=[1e20]", *FIXED, *TINY], jobs=1, progress=False)


# ---- negative rates, and combinations that cannot work ----


def test_a_negative_rate_warns_and_its_divergence_says_so(tmp_path: Path, capsys: Any) -> None:
    from innerloop.cli.main import main

    small = [*FIXED, *TINY, f"run.folder={tmp_path}"]
    assert main(["train", "sine-maml", "inner.lr=-1e-3", *small]) == 0
    assert "warning: inner.lr=-0.001 is negative" in capsys.readouterr().err
    (run,) = tmp_path.glob("*/*")
    assert main(["eval", str(run), "inner.lr=-1e20"]) == 2
    assert "inner.lr=-1e+20, which is negative, so that inner steps climb the loss" in capsys.readouterr().err
    assert main(["eval", str(run), "inner.lr=-1e-4"]) == 0
    assert "warning: inner.lr=-0.0001 is negative" in capsys.readouterr().err
    assert main(["train", "sine-maml", "inner.lr=-1e20", *small]) == 2
    assert "which is negative" in capsys.readouterr().err.splitlines()[-1]


def families(folder: Path) -> None:
    (folder / "own_labels.py").write_text(
        "import torch\n"
        "from innerloop.core.types import TaskBatch\n"
        "def blobs(draws, shots, queries):\n"
        "    x = draws.normal('x', (2 * (shots + queries), 2), per='sample')\n"
        "    y = torch.arange(2).repeat(x.shape[0], shots + queries)\n"
        "    x = x + 3 * y[..., None]\n"
        "    n = 2 * shots\n"
        "    return TaskBatch(x[:, :n], y[:, :n], x[:, n:], y[:, n:], torch.arange(x.shape[0]))\n"
    )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "protonet on numbers": ({"inner": {"method": "protonet"}}, "inner.method=protonet tells classes apart"),
    "outer loss of labels": ({"outer": {"loss": "cross-entropy"}}, "set outer.loss=mse"),
    "outer loss of numbers": (
        {"tasks": {"family": "few-shot"}, "outer": {"loss": "mse"}, "inner": {"loss": "cross-entropy"}},
        "set outer.loss=cross-entropy",
    ),
    "an envelope of another loss": (
        {"inner": {"method": "minibatchprox", "loss": "mse"}, "outer": {"loss": "half-mse"}},
        "would ignore outer.loss=half-mse: leave out outer.loss",
    ),
    "too few outputs": (
        {"tasks": {"family": "few-shot"}, "model": {"outputs": 3}, "inner": {"loss": "cross-entropy"}},
        "model.outputs=3 does not fit tasks with 5 classes",
    ),
    "too many outputs": ({"model": {"outputs": 3}}, "model.outputs=3 does not fit tasks with targets of 1"),
    "supervised and episodic": (
        {"tasks": {"family": "supervised"}, "inner": {"loss": "cross-entropy"}},
        "outer.objective=episodic needs tasks: set outer.objective=erm",
    ),
    "supervised and auto": (
        {
            "tasks": {"family": "supervised"},
            "inner": {"loss": "cross-entropy", "lr": "auto"},
            "outer": {"objective": "erm"},
        },
        "inner.lr=auto looks at training tasks",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    settings, words = REFUSED[case]
    with pytest.raises(UserError) as error:
        train(make_recipe({"run": {"folder": str(tmp_path)}, **settings}), progress=False)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family", ["sine", "few-shot", "supervised"])
@pytest.mark.parametrize(
    "objective",
    [
        "episodic",
        pytest.param("multitask", marks=pytest.mark.slow),
        pytest.param("erm", marks=pytest.mark.slow),
        "reptile",
    ],
)
def test_every_combination_runs_or_is_refused(family: str, objective: str, tmp_path: Path) -> None:
    pictures = family != "sine"
    ran, refused = 0, []
    for method in LEARNERS:
        base = {
            "tasks": {"family": family, "shots": 1, "queries": 1, "minibatch": 4, "n_tasks": 4},
            "model": {"kind": "conv4", "filters": 2, "pooling": "stride"} if pictures else {"hidden": [3]},
            "inner": {"method": method, "loss": "cross-entropy" if pictures else "mse"},
            "outer": {"objective": objective, "steps": 1, "batch": 1},
            "eval": {"episodes": 1, "validation_episodes": 1, "curve": False},
            "run": {"folder": str(tmp_path), "execution": "loop", "compile": "off", "threads": 1},
        }
        try:
            train(make_recipe(base), progress=False)
            ran += 1
        except UserError as error:
            refused.append(str(error))
    assert all(line.endswith(".") for text in refused for line in text.splitlines())
    assert ran or (family, objective) in {("supervised", o) for o in ("episodic", "multitask", "reptile")}


def test_protonet_on_labels_of_an_own_family(tmp_path: Path, monkeypatch: Any) -> None:
    families(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = {
        "tasks": {"family": Trusted("own_labels:blobs"), "shots": 2, "queries": 3},
        "model": {"hidden": [4]},
        "inner": {"method": "protonet", "loss": "cross-entropy"},
        "outer": {"steps": 2, "batch": 2},
        "eval": {"episodes": 4, "validation_episodes": 2},
        "run": {"folder": str(tmp_path), "execution": "loop", "compile": "off"},
    }
    assert train(make_recipe(recipe), progress=False).evaluation.mean > 0.5
