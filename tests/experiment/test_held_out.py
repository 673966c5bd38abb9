"""Splits without validation classes are trained on all the same; what cannot be drawn is named by its key."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from innerloop.classify import FewShotClassifier
from innerloop.core.errors import UserError
from innerloop.data import from_arrays
from innerloop.data.catalogue import catalogue, class_list, published_splits
from innerloop.data.glyphs import glyphs
from innerloop.data.splits import hold_out
from innerloop.evaluation import Protocol, evaluate_head
from innerloop.experiment.parts import build
from innerloop.experiment.pictures import build_source, held_out
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.training import train
from innerloop.nets import conv4
from innerloop.runs.manifest import read_manifest
from innerloop.tasks.few_shot import few_shot_sampler

SMALL = [
    "data.name=glyphs",
    "data.rotations=false",
    "tasks.ways=3",
    "tasks.queries=2",
    "model.filters=4",
    "model.pooling=stride",
    "outer.steps=2",
    "eval.episodes=3",
    "eval.validation_episodes=2",
    "eval.ways=3",
    "eval.queries=2",
    "run.execution=loop",
    "run.compile=off",
]


def recipe(folder: Path, *settings: str) -> Recipe:
    given = {item.partition("=")[0]: item for item in (*SMALL, *settings)}
    return load_recipe("omniglot-protonet", [*given.values(), f"run.folder={folder}"])


def split_file(folder: Path, **alphabets: range) -> str:
    """Glyphs, divided by these alphabets."""
    names = np.array(glyphs().class_names)
    listed = {part: names[np.isin(glyphs().groups, some)].tolist() for part, some in alphabets.items()}
    path = folder / "splits.json"
    path.write_text(json.dumps(listed))
    return f"data.split_file={path}"


# ---- the rule ----


def test_the_published_split_of_omniglot_by_alphabets() -> None:
    classes, published = class_list("omniglot"), published_splits(catalogue()["omniglot"], "alphabet")
    assert classes.groups is not None
    groups = [classes.group_names[g] for g in classes.groups]
    parts = hold_out(published["train"].tolist(), classes.names, groups)
    assert {part: len(numbers) for part, numbers in parts.items()} == {"train": 739, "validation": 225}
    assert sorted([*parts["train"], *parts["validation"]]) == published["train"].tolist()
    alphabets = [{groups[c] for c in parts[part]} for part in ("train", "validation")]
    assert [len(numbers) for numbers in alphabets] == [23, 7]
    assert not alphabets[0] & alphabets[1]


def test_the_rule_depends_on_names_only() -> None:
    names = [f"class {i}" for i in range(40)]
    parts = hold_out(range(10, 40), names, None)
    assert len(parts["validation"]) == 6
    assert not set(parts["validation"]) & set(parts["train"])
    backwards = hold_out(range(30), names[::-1], None)
    assert {names[c] for c in parts["validation"]} == {names[::-1][c] for c in backwards["validation"]}
    one_group = hold_out(range(10, 40), names, ["greek"] * 40)
    assert one_group == parts  # there is no whole group to spare
    assert hold_out([0, 1], names, ["a", "b"] * 20) in (
        {"train": (0,), "validation": (1,)},
        {"train": (1,), "validation": (0,)},
    )


# ---- recipes ----


def test_a_split_without_validation_classes_trains_and_is_judged_on_its_own_test_classes(
    tmp_path: Path,
) -> None:
    listed = split_file(tmp_path, train=range(15), test=range(20, 30))
    made = recipe(tmp_path / "runs", listed)
    source = build_source(made)
    assert source.groups is not None
    of = {part: set(source.groups[classes]) for part, classes in source.splits.items()}
    assert of["train"] | of["validation"] == set(range(15))
    assert len(of["validation"]) == 3
    assert not of["train"] & of["validation"]
    assert of["test"] == set(range(20, 30))
    run = train(made, progress=False).run
    said = "this split has no validation classes: 60 of 300 training classes (3 groups) are held out for it"
    assert read_manifest(run)["data"]["validation"] == said
    assert said in (run / "log.txt").read_text()
    other = build_source(recipe(tmp_path / "runs", listed, "run.seed=7", "eval.seed=3"))
    assert np.array_equal(other.splits["validation"], source.splits["validation"])


def test_turned_classes_are_held_out_with_their_originals(tmp_path: Path) -> None:
    listed = split_file(tmp_path, train=range(10), test=range(20, 30))
    plain, turned = (
        build_source(recipe(tmp_path, listed, f"data.rotations={on}")) for on in ("false", "true")
    )
    assert len(turned.splits["validation"]) == 4 * len(plain.splits["validation"]) == 160
    assert set(turned.splits["validation"] % plain.n_classes) == set(plain.splits["validation"])


def test_splits_with_validation_classes_are_left_alone(tmp_path: Path) -> None:
    made = recipe(tmp_path)
    assert held_out(made) is None
    for part, classes in glyphs().splits.items():
        assert np.array_equal(build_source(made).splits[part], classes)
    assert held_out(load_recipe("sine-maml", [])) is None


@pytest.mark.parametrize(
    ("alphabets", "settings", "says"),
    [
        (
            {"train": range(10), "validation": range(10, 12), "test": range(0)},
            ["tasks.choice=one-group"],
            r"the split 'test' of glyphs has no classes.*train \(200 classes\), validation \(40 classes\)",
        ),
        ({"train": range(10), "validation": range(10, 12)}, [], r"glyphs has no split 'test'; it has train"),
        ({"validation": range(10, 12), "test": range(20, 30)}, [], "has no split 'train'"),
        (
            {"train": range(10), "test": range(20, 21)},
            ["eval.ways=21"],
            r"the split 'test' of glyphs has 20 classes to draw from; 21-way .* Lower eval\.ways to 20",
        ),
        (
            {"train": range(10), "test": range(20, 21)},
            ["eval.ways=21", "tasks.choice=one-group"],
            r"no group of the split 'validation' of glyphs has 21 classes: lower eval\.ways to 20",
        ),
        (
            {"train": range(10), "test": range(20, 24)},
            ["eval.ways=5", "tasks.choice=across-groups"],
            r"need 5 groups; the split 'validation' of glyphs has 2: lower eval\.ways to 2",
        ),
    ],
    ids=["empty-test", "no-test", "no-train", "few-classes", "small-groups", "few-groups"],
)
def test_messages_name_the_split_and_the_key(
    tmp_path: Path, alphabets: dict[str, range], settings: list[str], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        build(recipe(tmp_path, split_file(tmp_path, **alphabets), *settings))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ["eval.shots=5", "eval.queries=16"],
            r"'validation' of glyphs has 20 .* Lower eval\.queries to 15, or",
        ),
        (
            ["tasks.shots=5", "tasks.queries=16"],
            r"'train' of glyphs has 20 .* Lower tasks\.queries to 15, or",
        ),
        (["eval.shots=25", "eval.queries=5"], r"Lower eval\.shots to 15, or"),
        (["eval.shots=25", "eval.queries=25"], r"Lower eval\.shots to 1 and eval\.queries to 19, or"),
        (["eval.shots=8", "eval.queries=10", "tasks.balanced=false"], r"Lower eval\.shots to 4, or"),
        (
            ["tasks.mixture=[{ways=3, shots=1, queries=2}, {ways=3, shots=18, queries=5}]"],
            r"Lower tasks\.mixture\[1\]\.queries to 2, or",
        ),
    ],
)
def test_the_key_to_change_is_the_one_that_asked(tmp_path: Path, settings: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        build(recipe(tmp_path, *settings))


@pytest.mark.parametrize("shots", [8, 12, 20])
def test_the_fix_is_enough(shots: int) -> None:
    source = glyphs()
    for balanced in (True, False):
        asked = {"shots": shots, "queries": 19, "ways": 3}
        for _ in range(2):
            try:
                few_shot_sampler(source, "train", seed=0, balanced=balanced, **asked)  # type: ignore[arg-type]
                break
            except UserError as error:
                fix = str(error).rpartition("Lower ")[2].partition(", or")[0]
                for part in fix.split(" and "):
                    key, _, value = part.partition(" to ")
                    asked[key.removeprefix("tasks.")] = int(value)
        sampler = few_shot_sampler(source, "train", seed=0, balanced=balanced, **asked)  # type: ignore[arg-type]
        assert sampler.episode(0).y_query.shape == (3 * asked["queries"],)


# ---- without a recipe ----


def test_arguments_are_called_as_the_user_called_them() -> None:
    pixels, labels = np.zeros((24, 28, 28), np.uint8), np.repeat(np.arange(6), 4)
    with pytest.raises(UserError, match=r"Lower queries to 2, or add"):
        FewShotClassifier(verbose=False).pretrain(pixels, labels, ways=3, shots=2, queries=5, steps=1)
    net = conv4(1, 28, 3, filters=4, norm="group")
    source = from_arrays(pixels, labels, splits={"test": [str(c) for c in range(6)]})
    params, buffers = net.init(torch.Generator().manual_seed(0))
    protocol = Protocol(ways=3, shots=2, queries=5, episodes=2, norm="group", head="cosine")
    with pytest.raises(UserError, match=r"class '0' of the split 'test' .* Lower queries to 2, or add"):
        evaluate_head(net, params, buffers, source, protocol)


def test_as_many_labels_as_pictures() -> None:
    source = glyphs()
    model, training = FewShotClassifier(verbose=False), {"filters": 4, "ways": 3, "shots": 1, "queries": 2}
    model.pretrain(source.images[:400], np.repeat(np.arange(20), 20), steps=1, batch=1, **training)
    model.fit(source.images[[0, 1, 20, 21]], ["a", "a", "b", "b"])
    with pytest.raises(UserError, match="score got 3 pictures but 2 labels: give one label each"):
        model.score(source.images[[2, 3, 22]], ["a", "b"])
