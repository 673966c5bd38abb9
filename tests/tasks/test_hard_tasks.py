"""Hard tasks more often, or with more weight: shares by counting, weights by a slow twin, and the command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import RaggedBatch
from innerloop.data.glyphs import glyphs
from innerloop.experiment.data import build_data
from innerloop.experiment.protocol import episodes_of
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.rules import unread
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.training import train
from innerloop.learners import Objective, episodic, erm, maml, reptile
from innerloop.nets import mlp
from innerloop.runs.manifest import read_manifest
from innerloop.tasks import Sampler
from innerloop.tasks.episodes import Kind
from innerloop.tasks.few_shot import few_shot_sampler
from innerloop.tasks.hard_groups import by_hardness, group_errors, groups_of, hardest_groups
from innerloop.testing.closeness import SINGLE, assert_close, assert_trees_close, assert_trees_equal
from innerloop.training import Plan, fit, initial_state, make_optimiser, meta_gradient
from innerloop.training.task_weights import hard_weights
from oracles import problems, weighted_tasks
from oracles.training import sines

PLANS = {
    "loop": Plan("loop"),
    "threads": Plan("threads", 2),
    "vmap": Plan("vmap"),
    "chunks": Plan("vmap", chunk=2),
    "trace": Plan("vmap", compile="trace"),
}
HARD = [True, False, False, True, False]
SMALL = [
    *(
        "data.name=glyphs",
        "data.rotations=false",
        "tasks.choice=one-group",
        "tasks.ways=3",
        "tasks.queries=2",
    ),
    *("model.filters=2", "model.pooling=stride", "outer.batch=4", "outer.steps=3", "eval.episodes=4"),
    *("eval.validation_episodes=2", "eval.curve=false", "run.execution=loop", "run.threads=1"),
]


def recipe(*settings: str) -> Recipe:
    given = {item.partition("=")[0]: item for item in (*SMALL, *settings)}
    return load_recipe("omniglot-maml", list(given.values()))


def objectives() -> dict[str, Objective]:
    network, loss = mlp(2, [5], 1, activation="tanh"), get_loss("mse")
    learner = maml(network, loss, 0.1, 2)
    return {
        "maml": episodic(learner, loss),
        "erm": erm(network, loss),
        "reptile": reptile(learner, loss),
    }


# ---- weights ----


@pytest.mark.parametrize("name", ["maml", "erm", "reptile"])
@pytest.mark.parametrize("zeta", [3.0, 0.25])
@pytest.mark.one_in(3)
def test_weighted_gradients_of_every_mode_equal_the_slow_twin(name: str, zeta: float) -> None:
    objective, batch = objectives()[name], problems.regression(tasks=len(HARD))
    params, _ = problems.drawn(mlp(2, [5], 1, activation="tanh"))
    expected = weighted_tasks.gradient(objective, params, {}, batch, HARD, zeta)
    weights = hard_weights(torch.tensor(HARD), zeta, torch.float64)
    plain = meta_gradient(objective.loss, PLANS["loop"], direction=objective.direction)(params, {}, batch)
    for mode, plan in PLANS.items():
        if mode == "trace" and objective.direction is not None:
            continue
        run = meta_gradient(objective.loss, plan, direction=objective.direction)
        gradient = run(params, {}, batch, weights)
        assert_trees_close(gradient.grads, expected)
        assert_close(gradient.losses, plain.losses)
    assert any(not torch.allclose(plain.grads[k], expected[k]) for k in expected)


def test_tasks_of_unequal_shape_keep_their_weights() -> None:
    small, large = problems.regression(2), problems.regression(3, shots=7, seed=1)
    batch = RaggedBatch((*small.tasks()[:1], *large.tasks(), *small.tasks()[1:]))
    objective = objectives()["maml"]
    params, _ = problems.drawn(mlp(2, [5], 1, activation="tanh"))
    expected = weighted_tasks.gradient(objective, params, {}, batch, HARD, 4.0)
    weights = hard_weights(torch.tensor(HARD), 4.0, torch.float64)
    for mode in ("loop", "vmap", "chunks"):
        assert_trees_close(
            meta_gradient(objective.loss, PLANS[mode])(params, {}, batch, weights).grads, expected
        )


def test_equal_weights_are_the_mean() -> None:
    objective, batch = objectives()["maml"], problems.regression(tasks=5)
    params, _ = problems.drawn(mlp(2, [5], 1, activation="tanh"))
    for plan in PLANS.values():
        run = meta_gradient(objective.loss, plan)
        alike = hard_weights(torch.tensor(HARD), 1.0, torch.float64)
        assert_trees_close(run(params, {}, batch, alike).grads, run(params, {}, batch).grads)


def with_hard(sampler: Sampler) -> Sampler:
    """Every third task is hard."""

    def hard(indices: Sequence[int]) -> NDArray[np.bool_]:
        return np.asarray(indices) % 3 == 0

    return sampler._replace(hard=hard)


def test_training_weighs_the_tasks_of_each_batch() -> None:
    """SGD by hand: step s sees tasks 4s to 4s + 3, and weights are normalised among these four."""
    network, loss = mlp(1, [5], 1, activation="tanh"), get_loss("mse")
    objective = episodic(maml(network, loss, 0.05, 1), loss)
    params, buffers = problems.drawn(network)
    sampler, zeta, steps, batch = with_hard(sines()), 5.0, 4, 4
    mine = {name: value.clone() for name, value in params.items()}
    for step in range(steps):
        hard = [(step * batch + i) % 3 == 0 for i in range(batch)]
        grads = weighted_tasks.gradient(objective, mine, {}, sampler.batch(step, batch), hard, zeta)
        mine = {name: value - 0.02 * grads[name] for name, value in mine.items()}

    def fitted(zeta: float, stream: Sampler) -> dict[str, torch.Tensor]:
        start, optimiser = initial_state(params, buffers), make_optimiser("sgd", 0.02)
        return fit(objective, start, stream, optimiser, steps=steps, batch=batch, hard_weight=zeta).params

    assert_trees_close(fitted(zeta, sampler), mine)
    assert_trees_equal(fitted(1.0, sampler), fitted(zeta, sines()))  # no weight, or no hard tasks
    assert not torch.allclose(fitted(1.0, sampler)["layer0.weight"], mine["layer0.weight"])


# ---- groups ----


def test_groups_are_ranked_as_a_peer_ranks_them() -> None:
    source = glyphs()
    errors = group_errors(source, "test", ways=4, episodes=5)
    assert set(errors) == set(groups_of(source, "test"))
    for name in list(errors)[:3]:
        kind = Kind(4, 1, 5, "one-group", (name,))
        wrong = []
        for i in range(5):
            task = few_shot_sampler(source, "test", seed=0, kinds=[kind]).episode(i)
            peer = KNeighborsClassifier(1).fit(task.x_support.flatten(1), task.y_support)
            wrong.append(1 - peer.score(task.x_query.flatten(1), task.y_query))
        assert errors[name] == pytest.approx(np.mean(wrong), abs=SINGLE)
    assert hardest_groups(source, "test", 4, 2, episodes=5) == tuple(errors)[:2]


def test_groups_of_unequal_size_are_asked_for_equally_many_ways() -> None:
    source = glyphs()
    pool = source.splits["test"]
    assert source.groups is not None
    of = source.groups[pool]
    names = np.unique(of)[:3]
    few = np.concatenate([pool[of == g][:n] for g, n in zip(names, (1, 2, 6), strict=True)])
    cut = source._replace(splits={**source.splits, "test": few})
    assert set(group_errors(cut, "test", ways=5, episodes=2)) == {source.group_names[g] for g in names[1:]}


@pytest.mark.parametrize(("share", "low", "high"), [(0.7, 0.64, 0.76), (None, 0.15, 0.25), (1.0, 1.0, 1.0)])
def test_hard_tasks_come_as_often_as_asked(share: float | None, low: float, high: float) -> None:
    """Counted in 800 tasks, from the names of their classes; 2 of 10 alphabets are 20 % of them."""
    source = glyphs()
    names = list(groups_of(source, "train"))[:10]
    kinds = by_hardness(Kind(3, 1, 2, "one-group", tuple(names)), source, "train", names[3:5], share)
    sampler = few_shot_sampler(source, "train", seed=3, kinds=kinds)
    alphabets = [{c.split("/")[0] for c in sampler.files(i)["classes"]} for i in range(800)]
    assert all(len(of) == 1 and of <= set(names) for of in alphabets)
    counted = np.array([of <= set(names[3:5]) for of in alphabets])
    assert low <= counted.mean() <= high
    assert sampler.hard is not None
    assert (sampler.hard(range(800)) == counted).all()


def test_any_classes_are_all_of_hard_groups_or_all_of_others() -> None:
    source = glyphs()
    names = list(groups_of(source, "train"))
    kinds = by_hardness(Kind(5, 1, 1), source, "train", names[:2], None)
    assert kinds[0].share == pytest.approx(2 / len(names))  # as many classes in all alphabets
    sampler = few_shot_sampler(source, "train", seed=0, kinds=kinds)
    for i in range(60):
        of = {c.split("/")[0] for c in sampler.files(i)["classes"]}
        assert of <= set(names[:2]) or not of & set(names[:2])


# ---- recipes ----


def test_a_recipe_draws_measured_or_named_groups_more_often_in_training_only() -> None:
    plain = recipe()
    for more in (["tasks.hardest=2"], ['tasks.hard_groups=["alphabet03", "alphabet05"]']):
        made = recipe("tasks.hard_share=0.8", *more)
        data = build_data(made)
        named = ("alphabet03", "alphabet05")
        assert data.hard_groups == (
            hardest_groups(data.pictures, "train", 3, 2) if "est" in more[0] else named
        )
        assert data.train.hard is not None
        assert 0.7 < data.train.hard(range(400)).mean() < 0.9
        assert data.test.hard is None
        assert episodes_of(made) == episodes_of(plain)
        assert torch.equal(data.test.episode(3).x_query, build_data(plain).test.episode(3).x_query)


def test_the_command_trains_with_hard_tasks_and_says_which(tmp_path: Path) -> None:
    made = recipe("tasks.hard_share=0.5", "tasks.hardest=3", "outer.hard_weight=2", f"run.folder={tmp_path}")
    run = train(made, progress=False).run
    groups = read_manifest(run)["data"]["hard_groups"]
    assert len(groups) == 3
    assert f"hard tasks are those of {', '.join(groups)} (measured" in (run / "log.txt").read_text()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["tasks.hard_share=0.5", "tasks.hard_groups=[alphabet3]"], "did you mean 'alphabet"),
        (["tasks.hard_share=0.5", "tasks.hardest=99"], "lower tasks.hardest to at most"),
        (
            ["outer.hard_weight=2", "tasks.hard_groups=[alphabet29]"],
            "none are hard: name others in tasks.hard_groups",
        ),
        (
            ["tasks.hard_share=0.5", "tasks.ways=30", "tasks.hard_groups=[alphabet01]"],
            "lower tasks.ways to 20",
        ),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(settings: list[str], says: str) -> None:
    with pytest.raises(UserError) as told:
        _ = build_data(recipe(*settings)).train
    assert says in str(told.value)


def test_settings_that_nothing_reads_are_told() -> None:
    told = unread(recipe("tasks.hardest=2"), ["tasks.hardest"])
    assert told == [
        "tasks.hardest is not read: it is for training with tasks.hard_share or outer.hard_weight."
    ]
    with pytest.raises(UserError, match=r"'outer.hard_weight' with tasks.family=sine: it is for "):
        load_recipe("sine-maml", ["outer.hard_weight=2"])
    made = recipe("outer.hard_weight=2").model_dump()
    made["tasks"]["mixture"] = [{"ways": 3, "hard": True}, {"ways": 3, "hard": True}]
    with pytest.raises(ValueError, match="all hard: set hard=true for some"):
        Recipe.model_validate(made)
    with pytest.raises(UserError, match=r"outer\.batch=1 has one: raise outer\.batch"):
        recipe("outer.hard_weight=2", "outer.batch=1")
    with pytest.raises(UserError, match="leave out hard_share and hard_weight"):
        groups_of(glyphs()._replace(groups=None), "train")


def test_kinds_of_a_mixture_can_be_hard() -> None:
    kinds = [{"ways": 3, "hard": True, "share": 0.25}, {"ways": 3, "share": 0.75}]
    made = recipe("outer.hard_weight=2").model_dump()
    made["tasks"]["mixture"] = kinds
    data = build_data(Recipe.model_validate(made))
    assert data.train.hard is not None
    assert 0.18 < data.train.hard(range(1000)).mean() < 0.32
