"""Learning from a teacher: the loss against torch's own, and runs that name one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.experiment.data import build_data
from innerloop.experiment.parts import build
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.resuming import resume
from innerloop.experiment.run_evaluation import evaluate_run
from innerloop.experiment.training import train
from innerloop.experiment.weights import load_teacher
from innerloop.learners.objectives.distillation import distilled, divergence, teacher_of
from innerloop.nets import apply, conv4, mlp
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.manifest import read_manifest, update_manifest
from innerloop.runs.metrics import MetricsWriter
from innerloop.testing import check_objective
from innerloop.testing.closeness import (
    FINITE_DIFFERENCE,
    assert_close,
    assert_trees_close,
    assert_trees_equal,
)
from innerloop.training import Plan, meta_gradient
from oracles import finite_differences as fd
from oracles import problems

Tree = dict[str, Tensor]
CROSS_ENTROPY = get_loss("cross-entropy")

# ---- the loss ----


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_the_divergence_is_torchs(temperature: float) -> None:
    draw = torch.Generator().manual_seed(0)
    said, taught = (3 * torch.randn(6, 5, generator=draw, dtype=torch.float64) for _ in range(2))
    theirs = nn.KLDivLoss(reduction="batchmean")(
        F.log_softmax(said / temperature, 1), F.softmax(taught / temperature, 1)
    )
    assert_close(divergence(said, taught, temperature), temperature**2 * theirs)


@pytest.mark.parametrize("mode", ["loop", "threads", "vmap"])
def test_the_objective_is_labels_and_teacher_weighed(mode: str) -> None:
    network, batch = conv4(1, 16, 3, filters=4, norm="running"), problems.images()
    params, buffers = problems.drawn(network)
    old, old_buffers = problems.drawn(network, seed=7)
    objective = distilled(network, CROSS_ENTROPY, teacher_of(network, old, old_buffers), 0.3, 0.9, 2.0)
    gradient = meta_gradient(objective.loss, Plan(mode, 2))(params, buffers, batch)  # type: ignore[arg-type]
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    losses = []
    for task in batch.tasks():
        x, y = torch.cat([task.x_support, task.x_query]), torch.cat([task.y_support, task.y_query])
        said = apply(network, leaves, buffers, x, "batch")[0]
        taught = apply(network, old, old_buffers, x, "stored")[0]  # as at test: its running statistics
        apart = F.kl_div(F.log_softmax(said / 2, 1), F.softmax(taught / 2, 1), reduction="batchmean")
        losses.append(0.3 * F.cross_entropy(said, y) + 0.9 * 4 * apart)
    assert_close(gradient.losses, torch.stack(losses).detach())
    torch.stack(losses).mean().backward()
    assert_trees_close(gradient.grads, {name: leaf.grad for name, leaf in leaves.items()})


def test_the_gradient_is_the_derivative_and_the_objective_conforms() -> None:
    network, batch = mlp(4, [6], 3, activation="tanh"), problems.classification()
    params, buffers = problems.drawn(network)
    teacher = teacher_of(network, *problems.drawn(network, seed=3))
    objective = distilled(network, CROSS_ENTROPY, teacher)
    assert objective.loss is not None
    value = objective.loss
    grads = meta_gradient(value, Plan("vmap"))(params, buffers, batch).grads
    direction = fd.random_direction(params, 0)
    expected = fd.directional(
        lambda p: torch.stack([value(p, buffers, task)[0] for task in batch.tasks()]).mean(),
        params,
        direction,
    )
    assert_close(fd.along(grads, direction), expected, FINITE_DIFFERENCE)
    check_objective(objective, params, buffers, batch)


# ---- runs ----

SMALL = [
    *("data.name=glyphs", "data.rotations=false", "model.filters=2"),
    *("outer.steps=4", "eval.every=2", "eval.episodes=4", "eval.validation_episodes=2", "eval.queries=2"),
    *("run.execution=loop", "run.compile=off", "run.threads=1", "run.save_every=1", "run.log_every=1"),
]


def recipe(folder: Path, *items: str) -> Recipe:
    given = {item.partition("=")[0]: item for item in (*SMALL, *items)}
    return load_recipe("omniglot-supervised", [*given.values(), f"run.folder={folder}"])


def trained(folder: Path, *items: str) -> Path:
    return train(recipe(folder, *items), progress=False).run


@pytest.fixture(scope="module")
def teacher_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("teacher"))


def weights(run: Path) -> Tree:
    saved = load_checkpoint(run, "last")
    assert saved is not None
    return saved[0]


def test_a_teacher_changes_what_is_learned(teacher_run: Path, tmp_path: Path) -> None:
    plain = trained(tmp_path / "plain", "run.seed=1")
    taught = trained(tmp_path / "taught", "run.seed=1", f"outer.teacher={teacher_run}")
    only_labels = trained(
        *(tmp_path / "labels", "run.seed=1", f"outer.teacher={teacher_run}"),
        *("outer.label_weight=1", "outer.teacher_weight=0"),
    )
    assert_trees_equal(weights(only_labels), weights(plain))
    assert not torch.equal(weights(taught)["params/head.weight"], weights(plain)["params/head.weight"])


def test_a_teacher_predicts_with_the_weights_it_is_judged_with(teacher_run: Path, tmp_path: Path) -> None:
    parts = build(recipe(tmp_path, f"outer.teacher={teacher_run}"))
    teacher = load_teacher(parts.recipe, parts.sizes, parts.data)
    assert teacher is not None
    x = parts.data.train.episode(0).x_support
    saved = load_checkpoint(teacher_run, "best")
    assert saved is not None
    best = {group: {} for group in ("params", "buffers")}  # type: dict[str, Tree]
    for name, value in saved[0].items():
        group, _, rest = name.partition("/")
        if group in best:
            best[group][rest] = value
    expected = apply(parts.network, best["params"], best["buffers"], x, "stored")[0]
    assert torch.equal(teacher(x), expected)


def test_a_distilled_run_goes_on_as_if_it_had_not_stopped(
    teacher_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("run.seed=1", f"outer.teacher={teacher_run}")
    whole = trained(tmp_path / "whole", *settings)
    write, lines = MetricsWriter.write, []

    def interrupted(self: Any, values: Any) -> None:
        write(self, values)
        lines.append(values)
        if len(lines) == 4:  # after step 3: validation follows step 2
            raise KeyboardInterrupt

    monkeypatch.setattr(MetricsWriter, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(recipe(tmp_path / "cut", *settings), progress=False)
    monkeypatch.undo()
    (cut,) = (tmp_path / "cut").glob("*/*")
    assert read_manifest(cut)["status"] == "interrupted"
    resume(cut, progress=False)
    assert_trees_equal(weights(cut), weights(whole))


def test_a_distilled_run_is_judged_and_taught_from_without_its_teacher(tmp_path: Path) -> None:
    """A generation needs the one before it, and no earlier one."""
    first = trained(tmp_path / "a")
    second = trained(tmp_path / "b", f"outer.teacher={first}")
    (first / "manifest.json").rename(first / "gone.json")
    (first / "recipe.toml").rename(first / "gone.toml")
    assert 0 <= evaluate_run(second, []).mean <= 1
    trained(tmp_path / "c", f"outer.teacher={second}")


def told(folder: Path, *items: str) -> str:
    with pytest.raises(UserError) as caught:
        build(recipe(folder, *items))
    return str(caught.value)


def test_teachers_that_cannot_teach_are_refused_in_one_sentence(teacher_run: Path, tmp_path: Path) -> None:
    assert told(tmp_path, f"outer.teacher={tmp_path}") == (
        f"outer.teacher={tmp_path} is not a run: give the directory of a finished run, as `innerloop train` "
        "prints it."
    )
    assert told(tmp_path, f"outer.teacher={teacher_run}", "data.rotations=true") == (
        f"outer.teacher={teacher_run} tells 400 classes apart, and 1600 are trained here: give a teacher "
        "that was trained on the same classes."
    )
    episodic = trained(tmp_path, "tasks.family=few-shot", "outer.objective=episodic", "tasks.shots=1")
    assert "give a run with outer.objective=erm" in told(tmp_path, f"outer.teacher={episodic}")
    update_manifest(episodic, status="interrupted")
    assert told(tmp_path, f"outer.teacher={episodic}") == (
        f"outer.teacher={episodic} is not finished: `innerloop resume {episodic}` first."
    )
    with pytest.raises(UserError, match="teaches classes, and the loss mse has none: set outer"):
        load_recipe("sine-erm", ["outer.teacher=x"])


def test_a_teacher_of_other_classes_is_refused(teacher_run: Path, tmp_path: Path) -> None:
    parts = build(recipe(tmp_path))
    source = parts.data.pictures
    renamed = source._replace(class_names=tuple(f"new {name}" for name in source.class_names))
    asked = recipe(tmp_path, f"outer.teacher={teacher_run}")
    first = source.class_names[int(source.splits["train"][0])]
    with pytest.raises(UserError) as caught:
        load_teacher(asked, parts.sizes, build_data(asked, renamed))
    assert f"was trained on other classes ('{first}' where 'new {first}' stands here)" in str(caught.value)


def test_a_teacher_does_not_decide_what_is_imported(teacher_run: Path, tmp_path: Path) -> None:
    """Its network's code is imported only if the recipe itself names it."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("recipe.toml", "manifest.json", "data.json"):
        (copy / name).write_bytes((teacher_run / name).read_bytes())
    text = (copy / "recipe.toml").read_text().replace('kind = "conv4"', 'kind = "somewhere:factory"')
    (copy / "recipe.toml").write_text(text)
    update_manifest(copy, recipe_sha256=None)
    said = told(tmp_path, f"outer.teacher={copy}")
    assert "names code from outside, model.kind='somewhere:factory', which this recipe does not" in said
