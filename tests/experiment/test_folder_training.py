"""Training on a folder of pictures: settings follow from the pictures, and what is wrong with it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.data.opening import Survey, survey
from innerloop.experiment.recipe.library import load_recipe, read_recipe
from innerloop.experiment.recipe.picture_fit import fitted_shape
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import recipe_from_toml
from support.data_files import giant_picture

pytestmark = pytest.mark.usefixtures("own_folder", "own_data")

SHORT = ("outer.steps=2", "model.filters=2", "eval.episodes=4", "eval.validation_episodes=2")
HERE = ("run.execution=loop", "run.compile=off", "run.threads=1")


def draw(folder: Path, counts: dict[str, int], size: tuple[int, int] = (20, 24), grey: bool = False) -> Path:
    """Pictures of noise, all different, (height, width) pixels."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            values = np.random.default_rng([*name.encode(), i]).integers(0, 256, (*size, 3), dtype=np.uint8)
            Image.fromarray(values[..., 0] if grey else values).save(folder / name / f"{i}.png")
    return folder


def animals(classes: int, pictures: int) -> dict[str, int]:
    return {f"animal{i:02}": pictures for i in range(classes)}


def shape_of(recipe: Recipe) -> tuple[int, int, int]:
    return recipe.tasks.ways, recipe.tasks.shots, recipe.tasks.queries


# ---- what follows from the pictures ----


@pytest.mark.parametrize(
    ("classes", "pictures", "expected"),
    [
        (6, 2, (2, 1, 1)),
        (8, 5, (2, 2, 3)),
        (12, 10, (3, 5, 5)),
        (12, 20, (3, 5, 15)),
        (20, 30, (5, 5, 15)),
        (200, 60, (5, 5, 15)),
    ],
)
def test_tasks_fit_the_smallest_class_and_the_smallest_split(
    classes: int, pictures: int, expected: tuple[int, int, int]
) -> None:
    from innerloop.data.splits import divide

    names = [f"animal{i}" for i in range(classes)]
    parts = {part: [names[c] for c in members] for part, members in divide(names).items()}
    assert min(map(len, parts.values())) >= 2
    seen = Survey("zoo", {**dict.fromkeys(names, pictures + 7), names[0]: pictures}, parts, 84, False, True)
    shape = fitted_shape(seen, Recipe(), [])
    assert (shape["ways"], shape["shots"], shape["queries"]) == expected
    one_shot = Recipe.model_validate({"tasks": {"shots": 1}})
    assert fitted_shape(seen, one_shot, ["tasks.shots"])["queries"] == min(15, pictures - 1)


@pytest.mark.parametrize(
    ("size", "side"), [((30, 30), 30), ((100, 100), 84), ((40, 60), 40), ((200, 90), 84), ((9, 12), 16)]
)
def test_the_side_follows_from_the_files(size: tuple[int, int], side: int) -> None:
    folder = draw(Path("zoo"), animals(6, 2), size)
    surveyed = survey(str(folder))
    assert (surveyed.side, surveyed.grey) == (side, False)
    draw(Path("grey"), animals(6, 2), size, grey=True)
    assert survey("grey").grey
    draw(Path("grey"), {"animal00": 3}, (500, 400))  # one of many is larger, and in colour
    assert (survey("grey").side, survey("grey").grey) == (side, False)


def test_a_folder_stands_for_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    draw(Path("zoo"), animals(8, 6))
    by_folder = load_recipe("zoo")
    said = capsys.readouterr().err.splitlines()
    assert said[0] == (
        "8 classes of 6 pictures (4 to train on, 2 to validate, 2 to test): 2-way 3-shot with 3 queries; "
        "in colour, 20×20 pixels; cropped, flipped and tinted at random"
    )
    assert (
        "to choose otherwise, set tasks.ways, tasks.shots, tasks.queries, data.size, data.augment" in said[1]
    )
    by_name = load_recipe("pictures-protonet", ["data.name=zoo"])
    assert by_folder == by_name
    assert (by_folder.data.auto, by_folder.data.size, by_folder.data.colour) == (False, 20, "rgb")
    assert said[0] in by_folder.description
    capsys.readouterr()
    assert shape_of(read_recipe("zoo", ["tasks.shots=1", "data.size=16"])) == (2, 1, 5)
    assert read_recipe("zoo", ["data.size=16"]).data.size == 16
    assert capsys.readouterr().err == ""  # who only looks is told nothing
    assert main(["show", "zoo"]) == 0
    assert recipe_from_toml(capsys.readouterr().out) == by_folder
    supervised = load_recipe("pictures-supervised", ["data.name=zoo"])
    assert (supervised.tasks.minibatch, supervised.outer.steps) == (24, 300)
    assert (supervised.data.augment, by_folder.data.augment) == ("lee2019", "lee2019")
    assert load_recipe("pictures-maml", ["data.name=zoo"]).data.augment == "none"  # it did better without
    assert load_recipe("pictures-supervised", ["data.name=zoo", "outer.steps=7"]).outer.steps == 7
    for word in ("data.colour=grey", "data.augment=none"):  # characters must not be flipped
        assert load_recipe("pictures-supervised", ["data.name=zoo", word]).data.augment == "none"


def test_a_folder_named_like_a_dataset_is_the_folder() -> None:
    draw(Path("omniglot"), animals(6, 4))
    assert load_recipe("omniglot").data.name == "./omniglot"


def test_small_classes_are_named_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    draw(Path("zoo"), {**animals(12, 11), "eel": 3, "asp": 1})
    with pytest.raises(UserError, match=r"too few pictures in 'asp' \(1\): .*with data.leave_out=2\.$"):
        load_recipe("zoo")
    assert shape_of(load_recipe("zoo", ["data.leave_out=2"])) == (3, 1, 2)
    assert "'eel' has 3 pictures): data.leave_out=10 leaves out 1 class" in capsys.readouterr().err
    assert shape_of(load_recipe("zoo", ["data.leave_out=10"])) == (3, 5, 6)
    with pytest.raises(UserError, match=r"no class of zoo has 50 pictures: lower data.leave_out"):
        load_recipe("zoo", ["data.leave_out=50"])


def test_splits_of_the_user_are_kept() -> None:
    for part, number in (("train", 4), ("val", 3), ("test", 2)):
        draw(Path("zoo") / part, {f"{part}{i}": 4 for i in range(number)})
    assert shape_of(load_recipe("zoo")) == (2, 2, 2)
    (Path("zoo") / "test" / "test0").rename("elsewhere")
    with pytest.raises(UserError, match=r"zoo has 1 class to test \(split 'test'\), and tasks need two"):
        load_recipe("zoo")


def test_without_a_folder_there_is_nothing_to_train() -> None:
    assert load_recipe("pictures-maml").data.auto
    assert main(["train", "pictures-maml", *SHORT]) == 2
    with pytest.raises(UserError, match="neither a dataset"):
        load_recipe("pictures-maml", ["data.name=nowhere"])


# ---- from the folder to labels ----


@pytest.mark.parametrize("recipe", ["pictures-protonet", "pictures-supervised", "pictures-maml"])
def test_train_judge_and_train_again(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    draw(Path("zoo"), animals(8, 6), (16, 16))
    source = ["zoo"] if recipe == "pictures-protonet" else [recipe, "data.name=zoo"]
    assert main(["train", *source, *SHORT, *HERE, "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert "8 classes of 6 pictures" in err
    assert "2-way 3-shot" in out
    assert "without training, on the first 4 of these tasks: nearest mean of pixels" in out
    (run,) = Path("runs", recipe).iterdir()
    kept = recipe_from_toml(run / "recipe.toml")
    assert (shape_of(kept), kept.data.auto, kept.data.size) == ((2, 3, 3), False, 16)
    assert load_recipe(str(run)) == kept
    draw(Path("zoo"), {"newt": 2})  # a folder that grows does not change what the run was
    assert load_recipe(str(run)) == kept
    assert main(["eval", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["name"] for row in told["baselines"]] == ["pixels", "colours", "untrained"]


def test_a_run_is_judged_on_another_folder(capsys: pytest.CaptureFixture[str]) -> None:
    draw(Path("zoo"), animals(8, 6), (16, 16), grey=True)
    assert main(["train", "zoo", "tasks.shots=2", *SHORT, *HERE, "--quiet"]) == 0
    (kept,) = Path("runs").glob("*/*/data.json")
    known = json.loads(kept.read_text())["splits"]["train"][0]
    draw(Path("farm"), {"cow": 3, "pig": 4, known: 5}, (40, 30))
    capsys.readouterr()
    assert main(["eval", "last", "farm", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "3 classes of 3 to 5 pictures to test on: 2-way 2-shot with 1 query" in err
    told = json.loads(out.splitlines()[-1])
    assert (told["protocol"]["data"], told["protocol"]["queries"]) == ("farm", 1)
    assert told["changed"] == {"data.name": "farm", "data.splits": "test", "eval.queries": 1}
    assert f"trained on, such as '{known}'" in " ".join(told["notes"])
    assert len(told["baselines"]) == 3
    assert main(["eval", "last", "zoo", "--json"]) == 0  # the run's own folder: its test classes
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["changed"] == {}
    for words, said in (
        (["farm", "zoo"], "one folder at a time"),
        (["runs"], "'runs' is not a setting"),
        (["farm/cow"], "lie directly in farm/cow"),
    ):
        assert main(["eval", "last", *words]) == 2
        assert said in capsys.readouterr().err


# ---- what is wrong with a folder ----


def copied(root: Path) -> None:
    (root / "animal01" / "copy.png").write_bytes((root / "animal00" / "0.png").read_bytes())


def long_strip(root: Path) -> None:
    Image.new("RGB", (20_000, 10)).save(root / "animal00" / "strip.png")


WRONG: dict[str, tuple[Any, str, str]] = {
    "an empty class": (
        lambda root: (root / "eel").mkdir(),
        "too few pictures in 'eel' (0): every class needs at least",
        "data.leave_out=",
    ),
    "a video": (
        lambda root: (root / "animal00" / "clip.mp4").write_bytes(b"video"),
        "animal00/clip.mp4 (it is a video; take pictures out of it)",
        "data.on_bad=skip",
    ),
    "a picture of a phone": (
        lambda root: (root / "animal00" / "a.HEIC").write_bytes(b"photo"),
        "animal00/a.HEIC (it is of a format that is not read; save it as JPEG or PNG)",
        "data.on_bad=skip",
    ),
    "a giant": (
        lambda root: giant_picture(root / "animal00" / "giant.png", 20_000),
        "animal00/giant.png (it has more than the 80 million pixels that are read; make it smaller first)",
        "data.on_bad=skip",
    ),
    "a large one": (
        lambda root: giant_picture(root / "animal00" / "large.png", 10_000),
        "animal00/large.png (it has 10000×10000 pixels, more than the 80 million that are read; make it",
        "data.on_bad=skip",
    ),
    "folders of folders of folders": (
        lambda root: root.rename(root.parent / "kept") and draw(root, {"a/b/c": 2, "a/b/d": 2, "a/e/f": 2}),
        "lie in folders of folders of folders ('a/b/c')",
        "name the folder that holds the class folders",
    ),
    "folders at different depths": (
        lambda root: draw(root, {"birds/owl": 6}),
        "lie at different depths ('animal00' and 'birds/owl')",
        "bring them to the same",
    ),
    "a file that cannot be read": (
        lambda root: (root / "animal00" / "bad.png").write_bytes(b"no picture"),
        "animal00/bad.png (it is of no known format)",
        "data.on_bad=skip",
    ),
    "a picture in two classes": (
        copied,
        "the same picture is in several classes (animal00/0.png and animal01/copy.png)",
        "data.on_bad=skip",
    ),
    "a picture beside the classes": (
        lambda root: Image.new("RGB", (9, 9)).save(root / "loose.png"),
        "loose.png lies directly in",
        "into a folder of its own",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_mistakes_in_a_folder_get_one_sentence(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, words, fix = WRONG[what]
    root = draw(Path("zoo"), animals(8, 3))
    make(root)
    assert main(["train", "zoo", *SHORT]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert fix in line
    assert not Path("runs").exists()
    if fix == "data.on_bad=skip":
        recipe = read_recipe("zoo", ["data.on_bad=skip"])
        assert shape_of(recipe) == ((2, 1, 1) if "two classes" in what else (2, 1, 2))


def test_all_mistakes_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    root = draw(Path("zoo"), animals(8, 3))
    for what in (
        "an empty class",
        "a video",
        "a giant",
        "a file that cannot be read",
        "a picture in two classes",
    ):
        WRONG[what][0](root)
    whole = (root / "animal02" / "0.png").read_bytes()
    (root / "animal02" / "cut.png").write_bytes(whole[: len(whole) // 2])  # only decoding shows it
    assert main(["train", "zoo", "iner.lr=1"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    told = "\n".join(lines)
    for words in ("iner.lr", "clip.mp4", "giant.png", "bad.png", "cut.png", "copy.png", "'eel' (0)"):
        assert words in told


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: draw(Path("zoo"), animals(1, 9)), "zoo has 1 class, and training needs six or more"),
        (lambda: draw(Path("zoo"), animals(5, 9)), "`innerloop predict --support zoo PICTURES`"),
        (lambda: Path("zoo").mkdir(), "zoo is a folder without recipe.toml and without pictures"),
        (lambda: Image.new("L", (9, 9)).save("zoo", "PNG"), "cannot read the recipe zoo"),
        (lambda: None, "there is no recipe, dataset, folder or family of tasks called 'zoo'"),
    ],
)
def test_what_cannot_be_trained_on(make: Any, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    make()
    assert main(["train", "zoo"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_picture_is_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("L", (9, 9)).save("owl.png")
    assert main(["train", "owl.png"]) == 2
    assert "owl.png is a single file: name the folder" in capsys.readouterr().err


def test_a_long_strip_is_a_picture_like_any_other() -> None:
    root = draw(Path("zoo"), animals(6, 2))
    long_strip(root)
    assert load_recipe("zoo").data.size == 20
