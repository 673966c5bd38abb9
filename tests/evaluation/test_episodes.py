"""One definition of "the same episodes": what is drawn, how it is told, and who asks."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import innerloop as il
from innerloop.core.errors import UserError
from innerloop.core.statistics import mean_interval
from innerloop.evaluation.episodes import Episodes, TaskKind, differences, drawn_episodes
from innerloop.evaluation.scores import Evaluation
from innerloop.experiment.data import build_data
from innerloop.experiment.protocol import episodes_of
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe, recipe_to_toml
from innerloop.experiment.run_evaluation import compare_runs, evaluate_run
from innerloop.experiment.sweeps.runs import judged as judged_run
from innerloop.experiment.sweeps.table import table_of
from innerloop.experiment.training import train
from innerloop.report.comparison_page import pair, seed_groups
from innerloop.report.read_run import load_run

SINE: dict[str, Any] = {"tasks": {"family": "sine", "shots": 4, "queries": 3}, "eval": {"episodes": 6}}
GLYPHS: dict[str, Any] = {
    "data": {"name": "glyphs"},
    "tasks": {"family": "few-shot", "ways": 5, "shots": 2, "queries": 3},
    "inner": {"loss": "cross-entropy"},
    "eval": {"episodes": 6},
}
PLAIN = {"ways": 5, "shots": 2, "queries": 3}
BASES = {
    "sine": SINE,
    "glyphs": GLYPHS,
    "groups": {**GLYPHS, "tasks": {**GLYPHS["tasks"], "groups": ["alphabet24", "alphabet25"]}},
    "one shot": {**GLYPHS, "eval": {"episodes": 6, "shots": 1}},
    "mixture": {
        **GLYPHS,
        "tasks": {"family": "few-shot", "mixture": [{**PLAIN, "share": 1.0}, {**PLAIN, "shots": 4}]},
    },
}

SAME = [
    ("sine", "tasks.settings.amplitude=[0.1,5]"),  # the family's own default
    ("sine", "tasks.family=innerloop.tasks.families:sine"),
    ("sine", "tasks.shots=9 eval.shots=4"),
    ("sine", "tasks.n_tasks=3 tasks.resample=false"),
    ("sine", "run.seed=3 inner.lr=0.5 inner.steps=7 inner.method=anil outer.steps=3 model.hidden=[8]"),
    ("glyphs", "tasks.family=supervised outer.objective=erm tasks.minibatch=8"),
    ("glyphs", "eval.head=logistic eval.copies=2 inner.method=protonet"),
    ("glyphs", "data.augment=lee2019 eval.validation_episodes=3"),
    ("glyphs", "tasks.mixture=[{ways=5,shots=2,queries=3,share=7.0,name='one'}] eval.shots=9"),
    ("one shot", "tasks.balanced=false"),
    ("mixture", "tasks.mixture=[{ways=5,shots=2,queries=3,share=3.0},{ways=5,shots=4,queries=3,share=3.0}]"),
]
OTHER = [
    ("sine", "tasks.noise=0.1", "noise 0 and 0.1"),
    ("sine", "tasks.settings.amplitude=[1,2]", "settings.amplitude [0.1, 5] and [1, 2]"),
    ("sine", "tasks.family=adaptlr-sine", "tasks sine and adaptlr-sine"),
    ("sine", "eval.seed=1", "seed 0 and 1"),
    ("sine", "eval.shots=5", "shots 4 and 5"),
    ("sine", "tasks.queries=5", "queries 3 and 5"),
    ("sine", "eval.episodes=7", "number of tasks 6 and 7"),
    ("glyphs", "eval.seed=1", "seed 0 and 1"),
    ("glyphs", "eval.ways=4", "ways 5 and 4"),
    ("glyphs", "tasks.shots=3", "shots 2 and 3"),
    ("glyphs", "tasks.choice=one-group", "choice any and one-group"),
    ("glyphs", "tasks.choice=across-groups", "choice any and across-groups"),
    ("glyphs", "tasks.groups=[alphabet24,alphabet25]", "groups [] and [alphabet24, alphabet25]"),
    ("groups", "tasks.groups=[alphabet25,alphabet24]", "groups [alphabet24, alphabet25] and"),
    ("glyphs", "tasks.balanced=false", "balanced on and off"),
    ("glyphs", "data.rotations=true", "rotations off and on"),
    ("glyphs", "tasks.mixture=[{ways=5,shots=2,queries=3},{ways=3}]", "kinds of tasks 1 and 2"),
    (
        "mixture",
        "tasks.mixture=[{ways=5,shots=2,queries=3,share=9.0},{ways=5,shots=4,queries=3}]",
        "mixture[1].share 1 and 0.1",
    ),
    (
        "mixture",
        "tasks.mixture=[{ways=5,shots=4,queries=3},{ways=5,shots=2,queries=3}]",
        "mixture[0].shots 2 and 4",
    ),
]


def changed(base: str, settings: str) -> Recipe:
    """The recipe with further settings; words without a space between them."""
    return make_recipe(BASES[base], settings.split())


def draws(recipe: Recipe) -> list[tuple[torch.Tensor, ...]]:
    """The tensors of all held-out tasks."""
    sampler = build_data(recipe).test
    return [tuple(sampler.episode(i))[:4] for i in range(recipe.eval.episodes)]


def same(first: list[tuple[torch.Tensor, ...]], second: list[tuple[torch.Tensor, ...]]) -> bool:
    return len(first) == len(second) and all(
        a.shape == b.shape and torch.equal(a, b)
        for ours, theirs in zip(first, second, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )


# ---- equal exactly where the samplers draw the same tasks ----


@pytest.mark.parametrize(("base", "settings"), SAME)
def test_equal_episodes_are_the_same_tasks(base: str, settings: str) -> None:
    first, second = make_recipe(BASES[base]), changed(base, settings)
    assert same(draws(first), draws(second))
    assert episodes_of(first) == episodes_of(second)
    assert differences(episodes_of(first), episodes_of(second)) == []


@pytest.mark.parametrize(("base", "settings", "told"), OTHER)
def test_other_episodes_are_other_tasks(base: str, settings: str, told: str) -> None:
    first, second = make_recipe(BASES[base]), changed(base, settings)
    assert not same(draws(first), draws(second))
    assert episodes_of(first) != episodes_of(second)
    assert told in ", ".join(differences(episodes_of(first), episodes_of(second)))


@pytest.fixture
def arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Ten classes of four small pictures, and a recipe for them."""
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "store"))
    images = np.random.default_rng(0).integers(0, 255, (40, 8, 8), dtype=np.uint8)
    names = [f"c{c}" for c in range(10)]
    np.savez(tmp_path / "a.npz", images=images, labels=np.repeat(np.arange(10), 4), names=names)
    split = {"train": names[:2], "validation": names[2:4], "test": names[4:]}
    (tmp_path / "split.json").write_text(json.dumps(split))
    data = {"name": str(tmp_path / "a.npz"), "split_file": str(tmp_path / "split.json")}
    return {**GLYPHS, "data": data, "tasks": {"family": "few-shot", "ways": 2, "shots": 1, "queries": 1}}


def test_how_pictures_are_shown_does_not_decide_which_are_drawn(arrays: dict[str, Any]) -> None:
    first = make_recipe(arrays)
    shown = build_data(first).test
    for setting in ("data.size=12", "data.colour=rgb", "data.standardise=true", "run.dtype=float64"):
        second = make_recipe(arrays, [setting])
        sampler = build_data(second).test
        assert not same(draws(first), draws(second))
        assert all(shown.files(i) == sampler.files(i) for i in range(6))
        assert episodes_of(first) == episodes_of(second)


def test_splits_count_by_their_test_classes(tmp_path: Path) -> None:
    from innerloop.data.glyphs import glyphs

    names = glyphs().class_names
    parts = [(names[:40], names[40:60]), (names[20:40], names[40:60]), (names[:40], names[60:80])]
    recipes = []
    for number, (training, test) in enumerate(parts):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps({"train": training[10:], "validation": training[:10], "test": test}))
        recipes.append(make_recipe(GLYPHS, [f"data.split_file={file}"]))
    one, other_training, other_test = recipes
    assert same(draws(one), draws(other_training))
    assert episodes_of(one) == episodes_of(other_training)
    assert episodes_of(one, "validation") != episodes_of(other_training, "validation")
    assert not same(draws(one), draws(other_test))
    assert differences(episodes_of(one), episodes_of(other_test)) == ["test classes or their pictures"]


def test_pictures_are_the_same_at_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "store"))
    here = tmp_path / "here"
    for c in range(15):
        (here / f"class{c:02}").mkdir(parents=True)
        for i in range(4):
            pixels = np.random.default_rng([c, i]).integers(0, 255, (12, 12), dtype=np.uint8)
            Image.fromarray(pixels).save(here / f"class{c:02}" / f"{i}.png")
    there, altered = (Path(shutil.copytree(here, tmp_path / name)) for name in ("there", "altered"))
    for file in altered.glob("*/0.png"):
        Image.new("L", (12, 12), int(file.parent.name.removeprefix("class"))).save(file)
    few = ["tasks.ways=3", "tasks.shots=1", "tasks.queries=1"]
    recipes = [make_recipe(GLYPHS, [f"data.name={folder}", *few]) for folder in (here, there, altered)]
    assert same(draws(recipes[0]), draws(recipes[1]))
    assert episodes_of(recipes[0]) == episodes_of(recipes[1])
    assert episodes_of(recipes[0]) == episodes_of(make_recipe(recipes[1].model_dump(), ["data.size=8"]))
    assert not same(draws(recipes[0]), draws(recipes[2]))
    assert episodes_of(recipes[0]) != episodes_of(recipes[2])


def test_groups_count_only_where_tasks_are_drawn_by_them(arrays: dict[str, Any]) -> None:
    file = Path(arrays["data"]["name"])
    held = dict(np.load(file))
    for number, groups in enumerate((np.arange(10) % 2, np.arange(10) // 5)):
        np.savez(file.with_name(f"{number}.npz"), **held, groups=groups)
    for choice, equal in (("any", True), ("one-group", False)):
        first, second = (
            make_recipe(arrays, [f"data.name={file.with_name(name)}", f"tasks.choice={choice}"])
            for name in ("0.npz", "1.npz")
        )
        assert same(draws(first), draws(second)) is equal
        assert (episodes_of(first) == episodes_of(second)) is equal


# ---- as a value ----


def test_every_field_counts_and_has_words() -> None:
    base = Episodes("few-shot", (TaskKind(2, 3, 5),), 6, 0, pictures="a", grouping="b", settings=(("x", 1),))
    other: dict[str, Any] = {
        "family": "sine",
        "kinds": (TaskKind(3, 3, 5),),
        "count": 7,
        "seed": 1,
        "split": "validation",
        "pictures": "c",
        "grouping": "d",
        "rotations": True,
        "balanced": False,
        "noise": 0.1,
        "settings": (("x", 1), ("y", None)),
    }
    assert set(other) == {field.name for field in dataclasses.fields(Episodes)}
    for name, value in other.items():
        changed_one = dataclasses.replace(base, **{name: value})
        assert changed_one != base, name
        assert len(differences(base, changed_one)) == 1, name
        assert Episodes.from_dict(json.loads(json.dumps(changed_one.as_dict()))) == changed_one
    with pytest.raises(dataclasses.FrozenInstanceError):
        base.seed = 3  # type: ignore[misc]


@pytest.mark.parametrize("told", [{}, {"family": "sine"}, {"kinds": [], "settings": {}}, {"kinds": 3}])
def test_what_is_not_a_description_of_episodes_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="does not describe episodes"):
        Episodes.from_dict(told)


def test_a_later_versions_description_is_not_taken_for_ours() -> None:
    told = {**episodes_of(make_recipe(SINE)).as_dict(), "weather": "rain"}
    with pytest.raises(ValueError, match="weather"):
        Episodes.from_dict(told)
    assert drawn_episodes({"drawn": told}) is None


def test_python_refuses_scores_of_other_episodes() -> None:
    first, second = episodes_of(make_recipe(SINE)), episodes_of(changed("sine", "tasks.noise=0.1"))
    scores = [0.5, 0.7, 0.6]
    one = Evaluation(scores, mean_interval(scores), "mse", drawn=first)
    other = one._replace(drawn=second)
    with pytest.raises(UserError, match=r"other episodes \(noise 0 and 0\.1\)"):
        il.compare(one, other, higher_is_better=False)
    assert il.compare(one, one).verdict == "no clear difference"
    assert il.compare(one, other._replace(drawn=None)).difference.mean == 0  # not known: as plain scores
    assert il.compare(scores, scores).difference.mean == 0
    worse = one._replace(scores=[score + 1 for score in scores])
    assert il.compare(one, worse).verdict == "first"  # of errors, the smaller is better
    with pytest.raises(UserError, match="mse and accuracy"):
        il.compare(one, one._replace(score="accuracy"))


def test_telling_episodes_apart_needs_no_torch() -> None:
    code = (
        "import sys, innerloop.evaluation.episodes, innerloop.evaluation, innerloop.evaluation.episodes\n"
        "heavy = {'torch', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---- the four that ask: eval --against, sweep, report, and files of earlier versions ----

QUICK = {"execution": "loop", "compile": "off", "threads": 1}


@pytest.fixture(scope="module")
def wave(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on sinusoids."""
    more = {"model": {"hidden": [4]}, "outer": {"steps": 1, "batch": 2}, "name": "wave"}
    evaluation = {"episodes": 6, "validation_episodes": 2}
    folder = str(tmp_path_factory.mktemp("runs"))
    recipe = make_recipe({**SINE, **more, "eval": evaluation, "run": {**QUICK, "folder": folder}})
    return train(recipe, progress=False).run


@pytest.fixture(scope="module")
def glyph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few-shot run on glyphs."""
    return trained_on_glyphs(tmp_path_factory.mktemp("runs"))


def trained_on_glyphs(folder: Path, *settings: str) -> Path:
    model = {"kind": "conv4", "filters": 2, "norm": "group"}
    inner = {"method": "protonet", "loss": "cross-entropy"}
    base = {**GLYPHS, "model": model, "inner": inner, "outer": {"steps": 1, "batch": 2}}
    evaluation = {"episodes": 6, "validation_episodes": 2}
    run = {**QUICK, "folder": str(folder)}
    return train(make_recipe({**base, "eval": evaluation, "run": run}, settings), progress=False).run


def again(run: Path, place: Path, *settings: str) -> Path:
    """The same run, as if trained with other settings, and judged by them."""
    copied = Path(shutil.copytree(run, place))
    recipe = make_recipe(make_recipe(load_run(run).recipe).model_dump(exclude_none=True), settings)
    (copied / "recipe.toml").write_text(recipe_to_toml(recipe))
    manifest = json.loads((run / "manifest.json").read_text())
    for key in ("recipe", "recipe_sha256"):  # else the recipe would be found changed
        manifest.pop(key)
    (copied / "manifest.json").write_text(json.dumps(manifest))
    shutil.rmtree(copied / "eval")
    evaluate_run(copied, [])
    return copied


def test_an_evaluation_says_which_episodes_it_saw(wave: Path, glyph: Path) -> None:
    for run in (wave, glyph):
        told = load_run(run).evaluations[0]
        assert Episodes.from_dict(told["drawn"]) == episodes_of(make_recipe(load_run(run).recipe))
        assert told["episodes"] == told["drawn"]["count"] == 6


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("eval.seed=1", "seed 0 and 1"),
        ("tasks.noise=0.5", "noise 0 and 0.5"),
        ("tasks.family=adaptlr-sine", "tasks sine and adaptlr-sine"),
        ("tasks.settings.phase=[0.0,1.0]", "settings.phase [0, 3.14159] and [0, 1]"),
    ],
)
def test_other_tasks_are_compared_nowhere(wave: Path, tmp_path: Path, setting: str, told: str) -> None:
    other = again(wave, tmp_path / "other", setting)
    with pytest.raises(UserError) as refused:
        compare_runs(wave, other, [])
    assert f"saw other episodes ({told})" in str(refused.value)
    first, second = load_run(wave), load_run(other)
    assert pair(second, first) == (None, f"other episodes ({told})")
    with pytest.raises(UserError) as not_compared:
        il.compare(il.load(wave).evaluate(), il.load(other).evaluate())
    assert f"other episodes ({told})" in str(not_compared.value)
    key, _, value = setting.partition("=")
    rows = table_of([judged_run({key: "as it is"}, wave), judged_run({key: value}, other)])
    assert rows[1].difference is None
    assert rows[1].reason.startswith(f"other episodes ({told.split(' ')[0]} ")


def test_seeds_of_one_row_are_averaged_only_over_the_same_episodes(wave: Path, tmp_path: Path) -> None:
    other = again(wave, tmp_path / "other", "eval.seed=1")
    rows = table_of([judged_run({"run.seed": 0}, wave), judged_run({"run.seed": 1}, other)])
    assert rows[0].difference is None
    assert "seed 0 and 1" in rows[0].reason
    same_seed = again(wave, tmp_path / "same", "run.seed=1")
    assert len(seed_groups([load_run(wave), load_run(same_seed)])) == 1
    assert seed_groups([load_run(wave), load_run(other)]) == []


@pytest.mark.parametrize(
    "setting",
    [
        "tasks.choice=one-group",
        "tasks.groups=[alphabet24,alphabet25]",
        "tasks.balanced=false",
        "data.rotations=true",
        "tasks.mixture=[{ways=5,shots=2,queries=3},{ways=3,shots=2,queries=3}]",
    ],
)
def test_other_tasks_of_pictures_are_not_compared(glyph: Path, tmp_path: Path, setting: str) -> None:
    other = again(glyph, tmp_path / "other", setting)
    with pytest.raises(UserError, match="saw other episodes"):
        compare_runs(glyph, other, [])
    assert pair(load_run(other), load_run(glyph)).reason.startswith("other episodes (")


def test_training_and_use_do_not_prevent_a_comparison(glyph: Path, tmp_path: Path) -> None:
    supervised = trained_on_glyphs(tmp_path, "tasks.family=supervised", "outer.objective=erm", "run.seed=1")
    assert pair(load_run(supervised), load_run(glyph)).difference is not None
    assert compare_runs(glyph, supervised, []).comparison.difference.n == 6
    head = again(glyph, tmp_path / "head", "eval.head=logistic")
    assert pair(load_run(head), load_run(glyph)).difference is not None
    norm = again(glyph, tmp_path / "norm", "model.norm=transductive")
    assert compare_runs(glyph, norm, []).comparison.difference.n == 6


def test_an_evaluation_that_does_not_say_its_episodes_is_compared_with_nothing(
    wave: Path, tmp_path: Path
) -> None:
    copied = again(wave, tmp_path / "damaged")
    (file,) = (copied / "eval").glob("*.json")
    for drawn in ({"seed": "damaged"}, None):
        file.write_text(json.dumps({**json.loads(file.read_text()), "drawn": drawn}))
        reason = pair(load_run(copied), load_run(wave)).reason
        assert reason.startswith("the evaluation of this run does not say which episodes it saw")
        assert reason.endswith("`innerloop eval RUN` judges it again")
