"""Messages name arguments: as a caller in Python knows them; where a recipe is trained, as it calls them."""

import ast
import inspect
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import innerloop
from innerloop.choose.rate_advice import RateAdvice, warning_for
from innerloop.cli.main import main
from innerloop.core.errors import UserError, spell, spelling
from innerloop.core.files import read_json
from innerloop.core.losses import get_loss
from innerloop.core.types import TaskBatch
from innerloop.data.glyphs import glyphs
from innerloop.experiment.messages import RECIPE_WORDS, recipe_words
from innerloop.experiment.parts import build
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.problems import known_settings
from innerloop.experiment.training import train
from innerloop.learners import Objective, multitask
from innerloop.nets import mlp
from innerloop.runs.directory import create_run, list_runs
from innerloop.tasks import Sampler
from innerloop.tasks.episodes import Kind
from innerloop.tasks.few_shot import few_shot_sampler
from innerloop.training import choose_plan, fit, initial_state, make_optimiser

PACKAGE = Path(inspect.getfile(innerloop)).parent
BELOW_RECIPES = (
    *("core", "nets", "solvers", "kernels", "theory", "data", "tasks", "learners", "training", "evaluation"),
)
ABOUT_RECIPES = ("learners/taxonomy.py", "learners/table.py", "learners/objectives/base.py")
"""Make tables of the documentation, which say what a recipe calls learners and objectives: no messages."""


def texts(room: str) -> list[tuple[str, str]]:
    """Every text in the source of a room that is no docstring, with its place."""
    out = []
    for file in sorted((PACKAGE / room).rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                out.append((f"{file.relative_to(PACKAGE).as_posix()}:{node.lineno}", node.value))
    return out


def test_no_room_below_recipes_knows_what_a_recipe_calls_things() -> None:
    sections = sorted({key.partition(".")[0] for key in known_settings() if "." in key})
    assert {"inner", "outer", "run", "tasks"} <= set(sections)
    key = re.compile(rf"(?<![\w.])({'|'.join(sections)})\.(?!py\b)[a-z_]+")
    named = [(place, text) for room in BELOW_RECIPES for place, text in texts(room) if key.search(text)]
    assert [one for one in named if not one[0].startswith(ABOUT_RECIPES)] == []
    assert key.search("set outer.clip=10")
    assert not key.search("innerloop.tasks.families")


def placeholders(room: str) -> set[str]:
    """What the errors and remarks of a room name."""
    out: set[str] = set()
    for file in (PACKAGE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and (called == "spell" or called.endswith("Error")):
                given = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "names")]
                out |= {n.value for g in given for n in ast.walk(g) if isinstance(n, ast.Constant)}
    return out


def test_a_recipe_has_a_word_for_everything_that_a_message_names() -> None:
    rooms = [*BELOW_RECIPES[1:], "runs", "choose"]  # estimates and trackers speak of recipes, too
    named = set().union(*map(placeholders, rooms))
    of_episodes = {"ways", "shots", "queries", "choice"}
    assert {"clip", "the learner's lr", "compile"} <= named
    # a search has settings of its own, which no recipe holds: they are called what the function calls them
    of_searches = {"repeats", "keep", "regions", "confidence", "most", "fixed", "thin", "k"}
    assert named - of_episodes - of_searches <= set(RECIPE_WORDS)
    assert set(RECIPE_WORDS) - of_episodes <= named | {"options", "meta-optimiser"}  # no word is left over
    known = known_settings()
    for word in RECIPE_WORDS.values():
        key = word.partition("=")[0]
        assert key in known or ".".join(key.split(".")[:2]) in known


def not_finite() -> None:
    objective = Objective(
        "nan", loss=lambda params, buffers, task: (params["w"].sum() * float("nan"), buffers)
    )
    sampler = Sampler(lambda index: TaskBatch(*(torch.zeros(len(index), 1) for _ in range(5))))
    state = initial_state({"w": torch.zeros(1)}, {})
    fit(objective, state, sampler, make_optimiser("sgd", 0.1), steps=1, batch=1)


def big_episodes(**settings: Any) -> None:
    few_shot_sampler(glyphs(), "train", seed=0, **settings)


def wrong_plan() -> None:
    choose_plan(
        {}, {}, TaskBatch(*(torch.zeros(1, 1) for _ in range(5))), steps=1, execution="vmap", allow_vmap=False
    )


BOTH = [
    (
        not_finite,
        "lower the learner's lr or the optimiser's lr, or set clip=10. The last",
        "lower inner.lr or outer.lr, or set outer.clip=10. The last",
    ),
    (lambda: make_optimiser("adm", 0.1), "unknown meta-optimiser 'adm'", "unknown outer.optimiser 'adm'"),
    (
        lambda: make_optimiser("sgd", 0.1, decay=1)({"w": torch.zeros(1)}),
        "options do not fit the meta-optimiser sgd: ",
        "outer.options do not fit the outer.optimiser sgd: ",
    ),
    (
        wrong_plan,
        "checkpoint=true needs execution=threads or execution=loop.",
        "inner.checkpoint=true needs run.execution=threads or run.execution=loop.",
    ),
    (
        lambda: multitask(mlp(1, [2], 2), get_loss("cross-entropy"), 3, "shared"),
        "set heads=independent.",
        "set outer.heads=independent.",
    ),
]


@pytest.mark.parametrize(("call", "plain", "recipe"), BOTH, ids=[entry[2][:24] for entry in BOTH])
def test_an_error_is_told_in_the_words_of_whoever_made_it(call: Any, plain: str, recipe: str) -> None:
    with pytest.raises(UserError) as error:
        call()
    assert plain in str(error.value)
    assert recipe not in str(error.value)
    with pytest.raises(UserError) as told, recipe_words():
        call()
    assert recipe in str(told.value)
    assert type(told.value) is type(error.value)
    assert "{" not in str(error.value) + str(told.value)


def test_the_words_stay_with_an_error_and_so_do_class_and_attributes() -> None:
    class Special(UserError):
        """Has an attribute."""

        mark = 0

    @recipe_words()
    def fails() -> None:
        error = Special("set {clip}=10 in {file}", names=("clip", "other"))
        error.mark = 7
        raise error

    with pytest.raises(Special) as caught:
        fails()
    with spelling({"clip": "something else"}):
        assert str(caught.value) == "set outer.clip=10 in {file}"
    assert caught.value.mark == 7
    assert caught.value.names == ("other",)
    again = pickle.loads(pickle.dumps(UserError("set {clip}=10", names=("clip",))))
    assert str(again) == "set clip=10"


def test_the_innermost_table_is_asked_first_and_all_are_gone_afterwards() -> None:
    with spelling({"ways": "tasks.ways", "clip": "outer.clip"}):
        with spelling({"ways": "eval.ways"}):
            assert spell("{ways} {clip}", ("ways", "clip")) == "eval.ways outer.clip"
        assert spell("{ways}", ("ways",)) == "tasks.ways"
    assert spell("{ways}", ("ways",)) == "ways"


def test_an_error_from_a_thread_is_worded_too() -> None:
    def fails() -> None:
        raise UserError("set {clip}=10", names=("clip",))

    with pytest.raises(UserError, match=r"set outer\.clip=10"), recipe_words(), ThreadPoolExecutor(1) as pool:
        pool.submit(fails).result()


def test_remarks_and_warnings_have_both_wordings_as_well() -> None:
    advice = RateAdvice(1.0, 0.9, 1.1, (1.0,), (0.9, 1.1), "bracket", 2.0, "", {}, (), 1, 0.0)
    plain = warning_for(100.0, advice) or ""
    assert plain.startswith("rate=100 is far above")
    assert "the estimate takes a point inside it" in plain
    with recipe_words():
        told = warning_for(100.0, advice) or ""
    assert told.startswith("inner.lr=100 is far above")
    assert "inner.lr=auto takes a point inside it" in told


KINDS = (Kind(5, 1, 1), Kind(5, 30, 1))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ways": 401}, "Lower ways to 400"),
        ({"shots": 10, "queries": 15}, "Lower queries to 10"),
        ({"kinds": KINDS}, r"Lower kinds\[1\].shots to 19"),
        ({"kinds": KINDS[1:]}, "Lower shots to 19"),
    ],
)
def test_episodes_that_cannot_be_drawn_are_told_in_python(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        big_episodes(**settings)


PICTURES = ("data.name=glyphs", "model.kind=conv4", "model.filters=2", "inner.loss=cross-entropy")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["tasks.ways=401"], "Lower tasks.ways to 400"),
        (["tasks.ways=5", "eval.queries=20"], "Lower eval.queries to 10"),
        (["tasks.mixture=[{shots=30}]"], r"Lower tasks.mixture[0].shots to 5"),
        (["tasks.mixture=[{shots=1}, {shots=30}]"], r"Lower tasks.mixture[1].shots to 5"),
    ],
)
def test_episodes_that_cannot_be_drawn_are_told_in_the_words_of_the_recipe(
    settings: list[str], says: str
) -> None:
    with pytest.raises(UserError) as error:
        build(load_recipe("sine-maml", ["tasks.family=few-shot", *PICTURES, *settings]))
    assert says in str(error.value)


def test_a_family_is_told_of_by_who_called_it() -> None:
    with pytest.raises(UserError, match=r"tasks\.settings\.amplitud is not a setting"):
        build(load_recipe("sine-maml", ["tasks.settings.amplitud=3"]))
    with pytest.raises(UserError, match=r"^give covariances and optima together"):
        innerloop.make_sampler(
            innerloop.get_family("linear"), seed=0, shots=1, queries=1, settings={"optima": [[1.0]]}
        ).episode(0)
    with pytest.raises(UserError, match=r"^give tasks\.settings\.covariances and tasks\.settings\.optima"):
        build(load_recipe("sine-maml", ["tasks.family=linear", "tasks.settings.optima=[[1.0]]"]))


SMALL = ("outer.steps=2", "outer.batch=1", "model.hidden=[4]", "run.execution=loop", "run.compile=off")


def test_a_run_that_fails_says_in_manifest_and_log_what_the_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "sine-maml", *SMALL, "inner.lr=1e30", "inner.method=maml"]) == 2
    told = capsys.readouterr().err
    assert "lower inner.lr or outer.lr, or set outer.clip=10" in told
    (run,) = list_runs(Path("runs"))
    manifest = read_json(run / "manifest.json")
    assert "set outer.clip=10" in manifest["reason"]
    assert manifest["diverged"] is True
    assert "set outer.clip=10" in (run / "log.txt").read_text()
    assert manifest["plan"]["reason"].startswith("run.execution=loop was asked for")


def test_a_run_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r": set folder elsewhere"):
        create_run(tmp_path / "file", "name", 0)
    recipe = load_recipe("sine-maml", [*SMALL, f"run.folder={tmp_path / 'file'}"])
    with pytest.raises(UserError, match=r": set run\.folder elsewhere"):
        train(recipe, progress=False)
