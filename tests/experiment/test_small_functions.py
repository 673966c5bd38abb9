"""Known answers of the small functions that recipes, sweeps and their messages are made of."""

import pytest

from innerloop.core.errors import UserError
from innerloop.core.importing import Trusted
from innerloop.experiment.data import Sizes, sizes_from
from innerloop.experiment.fitting import kept_tasks
from innerloop.experiment.inner_rate import provisional
from innerloop.experiment.messages import episode_words, rate_words
from innerloop.experiment.parts import placed
from innerloop.experiment.pictures import own_scale
from innerloop.experiment.recipe.flat import BudgetSettings
from innerloop.experiment.recipe.grammar import (
    Assignment,
    as_assignments,
    as_items,
    in_section,
    mentions,
    parse,
    read_value,
    toml_value,
)
from innerloop.experiment.recipe.judging import backbone_recipe, has_pictures
from innerloop.experiment.recipe.library import header, named
from innerloop.experiment.recipe.picture_fit import (
    fitted_shape,
    learns_by_heart,
    number,
    span,
    with_settings,
)
from innerloop.experiment.recipe.problems import (
    allowed,
    known_settings,
    likeliest,
    near,
    show,
    suggest,
    words_beside,
)
from innerloop.experiment.recipe.protocols import (
    brief,
    changed_settings,
    grid_lines,
    kinds_asked,
    shapes_asked,
)
from innerloop.experiment.recipe.rules import When, own_setting_problems, unread, unread_keys
from innerloop.experiment.recipe.schema import (
    ModelSettings,
    OuterSettings,
    Recipe,
    TaskSettings,
    absent,
    unknown,
    variant,
)
from innerloop.experiment.recipe.settings import RECIPE, parse_assignments, stated, typed_keys, whole
from innerloop.experiment.recipe.trust import foreign_code
from innerloop.experiment.sweeps.grid import Range, read_range, split_grid, split_ranges
from innerloop.experiment.sweeps.runs import score_of
from innerloop.experiment.sweeps.study import optuna_problem, told

KNOWN = known_settings()
VALUES = {
    "3": 3,
    "1e-3": 0.001,
    ".5": 0.5,
    "true": True,
    "relu": "relu",
    '"a b"': "a b",
    "[64, 64]": [64, 64],
    "[maml,anil]": ["maml", "anil"],
}
NAMED = {
    "cifar-fs-protonet": "recipe",
    "mine.toml": "recipe",
    "cifar-fs": "pictures",
    "sine": "family",
    "mine:lines": "family",
}


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_values_are_read(text: str, value: object) -> None:
    assert read_value(text) == value


def test_settings_as_items_and_assignments() -> None:
    nested = {"outer": {"steps": 2000}, "seed": 1, "model": {"kind": "conv4"}}
    assert as_items(nested) == ["outer.steps=2000", "seed=1", 'model.kind="conv4"']
    given = as_assignments({"inner": {"lr": 0.1}, "seed": 1})
    assert given == [Assignment("inner.lr", 0.1, "0.1"), Assignment("seed", 1, "1")]
    in_eval = in_section({"episodes": 600, "inner": {"lr": 0.1}}, "eval", ["episodes"])
    assert in_eval == {"eval": {"episodes": 600}, "inner": {"lr": 0.1}}
    assert toml_value([1, 2.5, "a", True, {"ways": 5}]) == '[1, 2.5, "a", true, {"ways" = 5}]'
    assert parse_assignments(["inner.lr=1e-3", "seed=1"]) == {"inner.lr": 0.001, "run.seed": 1}
    keys = {"model.bias", "model.kind", "run.seed"}
    assert typed_keys(["seed=1", "model={kind='mlp', bias=false}"]) == keys
    data = {"name": "mine", "inner": {"lr": 0.1, "settings": {"penalty": 1}}}
    assert stated(data) == ["name", "inner.lr", "inner.settings"]
    inner = {"method": "maml", "lr": 0.5, "steps": 1, "test_steps": 5, "loss": "mse"}
    assert whole('extends = "sine-maml"\n[inner]\nlr = 0.5', "mine")["inner"] == inner


def test_sentences_about_settings() -> None:
    assert mentions("set inner.lr=0.1", ["inner"])
    assert not mentions("one per inner.lr_rule", ["inner.lr"])
    assert words_beside(KNOWN["inner.lr"]) == ["auto"]
    assert allowed(KNOWN["outer.clip"]) == "a number above 0, or none"
    assert allowed(KNOWN["model.pooling"]) == "max or stride"
    assert near("steps", KNOWN) == ["inner.steps", "outer.steps"]
    assert near("inner.learning_rate", KNOWN) == ["inner.lr"]
    assert suggest("inner.step", KNOWN) == " (did you mean 'inner.steps'?)"
    assert suggest("zebra", KNOWN) == "; `innerloop show sine-maml --schema` lists them all"
    assert likeliest("mamll", KNOWN["inner.method"]) == " (did you mean 'maml'?)"
    assert [show(value) for value in ("relu", [1, 2], True, None, 0.001)] == [
        "'relu'",
        "[1, 2]",
        "true",
        "none",
        "0.001",
    ]
    assert span([3, 3]) == "3"
    assert span([3, 5, 4]) == "3 to 5"
    assert number(1, "class", "classes") == "1 class"
    assert number(2, "class", "classes") == "2 classes"
    negative = "inner.lr=-1, which is negative, so that inner steps climb the loss"
    assert rate_words(Recipe.model_validate({"inner": {"lr": -1.0}})) == negative
    with episode_words(0, training=False):
        assert str(UserError("lower {ways}", names=("ways",))) == "lower eval.ways"


def test_settings_that_there_are_not() -> None:
    with_conv4 = ("model.kind", "model.kind=conv4")
    assert absent(Recipe(), ["model.filters", "inner.lr"]) == {"model.filters": with_conv4}
    said = "unknown setting 'model.filters' with model.kind=mlp: it is for model.kind=conv4."
    assert unknown(Recipe(), "model.filters") == said
    few = variant(OuterSettings, frozenset({"objective", "lr"}))(lr=0.1)  # type: ignore[call-arg]
    assert few.model_dump() == {"objective": "episodic", "lr": 0.1}
    assert few.batch == 25  # type: ignore[attr-defined]
    none = "inner.settings.penalty: inner.method=maml has no settings of its own: leave it out."
    assert list(own_setting_problems("maml", {"penalty": 1.0})) == [none]
    readers = {"width": (When("a network", lambda depth: depth > 0),)}
    assert unread_keys(readers, ["width", "seed"], 0) == {"width": "a network"}
    assert unread_keys(readers, ["width"], 2) == {}
    resample = "tasks.resample is not read: it is for a given tasks.n_tasks."
    assert unread(Recipe(), ["tasks.resample"]) == [resample]
    assert unread(Recipe(), ["outer.lr"]) == []
    of_training = ["outer.lr is not read: it is for training."]
    assert unread(Recipe(), ["outer.lr"], judging=True) == of_training


def test_code_that_a_recipe_names() -> None:
    named_code = Recipe(model=ModelSettings(kind="os:system"), tasks=TaskSettings(family="mine:lines"))
    assert foreign_code(named_code) == {"model.kind": "os:system", "tasks.family": "mine:lines"}
    reads = ModelSettings(kind="timm:resnet18", settings={"checkpoint_path": "a.pth"})
    assert foreign_code(Recipe(model=reads)) == {"model.settings.checkpoint_path": "a.pth"}
    assert not isinstance(Recipe().model.kind, Trusted)


@pytest.mark.parametrize(("word", "kind"), NAMED.items())
def test_what_a_word_names(word: str, kind: str) -> None:
    assert named(word).kind == kind


def test_recipes_of_pictures() -> None:
    from innerloop.data.opening import Survey

    parts = {"train": ["a", "b", "c"], "validation": ["d", "e"], "test": ["f", "g"]}
    seen = Survey("pets", dict.fromkeys("abcdefg", 8), parts, 84, False, True)
    assert fitted_shape(seen, Recipe(), []) == {"ways": 2, "shots": 4, "queries": 4}
    assert learns_by_heart("few-shot", "protonet")
    assert not learns_by_heart("few-shot", "maml")
    assert with_settings(Recipe(), {"tasks": {"ways": 3}}).tasks.ways == 3
    assert not has_pictures(["eval.shots=1", "tasks.ways=5"])
    recipe = backbone_recipe("efficientnet-lite0", ["data.name=cifar-fs", "eval.shots=5"])
    assert recipe.name == "cifar-fs-efficientnet-lite0"
    assert (recipe.outer.objective, recipe.eval.head) == ("none", "logistic")
    assert own_scale("conv4") is None
    assert (own_scale("efficientnet-lite0") or ([0.0], []))[0][0] == 127 / 255
    many = Recipe.model_validate({"tasks": {"family": "few-shot", "ways": 20, "queries": 100}})
    assert kept_tasks(many) == (10, 2000)


def test_recipes_and_their_parts() -> None:
    assert header("# innerloop train x\n# Shows y.\nname = 'x'") == "innerloop train x\nShows y."
    assert provisional(Recipe()).inner.lr == 0.01
    assert placed(Recipe()).run.device == "cpu"
    sizes = Sizes((1, 28, 28), 5, 5, 800, True)
    assert sizes_from(sizes.as_dict()) == sizes
    assert BudgetSettings(budget="2m").seconds == 120.0


def test_protocols() -> None:
    recipe = Recipe.model_validate({"tasks": {"shots": 1}, "eval": {"shots": 5}})
    assert [kinds_asked(recipe, training)[0].shots for training in (True, False)] == [1, 5]
    mixture = [{"ways": 5, "shots": 1}, {"ways": 3, "shots": 4, "share": 2}]
    mixed = Recipe.model_validate({"tasks": {"family": "few-shot", "mixture": mixture}})
    shapes = {"ways": [5, 3], "shots": [1, 4], "queries": [15, 15], "shares": [1.0, 2.0]}
    assert shapes_asked(mixed) == shapes
    ours, theirs = ({"eval": {"shots": n, "curve": n > 1}} for n in (5, 1))
    assert changed_settings(ours, theirs) == {"eval.shots": 5}
    maml = {"inner": {"method": "maml", "lr": 0.1}}
    assert changed_settings({"inner": {"method": "none"}}, maml) == {"inner.method": "none"}


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        (
            {"tasks": "few-shot", "data": "a/leaves", "ways": 5, "shots": 1, "head": "svm"},
            "svm head, 5-way 1-shot, leaves",
        ),
        (
            {"tasks": "sine", "shots": 10, "method": "maml", "inner_steps": 5},
            "maml, 5 inner steps, 10 shots, sine",
        ),
        (
            {"data": "glyphs", "ways": [5, 3], "shots": [1, 4], "method": "r2d2"},
            "r2d2, 3 to 5-way 1 to 4-shot, glyphs",
        ),
    ],
)
def test_protocols_in_brief(protocol: dict[str, object], words: str) -> None:
    assert brief({"protocol": protocol}) == words


def test_lines_of_a_grid() -> None:
    rows = [{"C": 1.0, "normalise": True, "accuracy": 0.7, "ci95": 0.01}]
    lines = grid_lines({"grid": rows, "ensemble": {"accuracy": 0.71, "ci95": 0.01}})
    assert [line.split() for line in lines] == [
        ["C=1,", "unit", "length", "70.0", "±", "1.0", "%"],
        ["mean", "of", "probabilities", "71.0", "±", "1.0", "%"],
    ]


def test_grids_and_ranges() -> None:
    items = ["inner.lr=[0.01,0.1]", "seed=[0,1]", "outer.steps=5", "model.hidden=[40,40]"]
    swept, fixed = split_grid(parse(items, RECIPE)[0].values())
    assert swept == {"inner.lr": [0.01, 0.1], "run.seed": [0, 1]}
    assert fixed == ["outer.steps=5", "model.hidden=[40,40]"]
    assert Range("uniform", 1, 5).probes() == [1, 2.527864, 5]
    assert Range("int", 1, 5).probes() == [1, 2, 5]
    typed = [Assignment("inner.lr", "log(1e-3,1)", "log(1e-3,1)"), Assignment("inner.steps", 5, "5")]
    ranges, rest, problems = split_ranges(typed)
    assert ranges == {"inner.lr": Range("log", 0.001, 1)}
    assert ([item.key for item in rest], problems) == (["inner.steps"], [])
    assert read_range("inner.steps", "int", "1, 10") == Range("int", 1, 10)
    assert score_of(Recipe()) == "mse"
    assert [told(value) for value in ("maml", [40, 40])] == ["maml", "[40, 40]"]
    assert "Optuna" in (optuna_problem() or "Optuna is fine")
