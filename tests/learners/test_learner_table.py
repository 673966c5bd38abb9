"""The table of learners says what is so, and what is derived from it follows."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from innerloop.choose.rate_advice import GRADIENT, LEARNED
from innerloop.core.errors import UserError
from innerloop.core.importing import Trusted, load_object
from innerloop.core.losses import get_loss
from innerloop.experiment.inner_rate import HEAD_ONLY
from innerloop.experiment.learner import ARGUMENTS, build_learner
from innerloop.experiment.parts import build
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.protocols import expected_protocol
from innerloop.experiment.recipe.schema import InnerSettings
from innerloop.experiment.training import train
from innerloop.learners import (
    LEARNERS,
    Learner,
    adam,
    anil,
    episodic,
    imaml,
    logistic_head,
    maml,
    r2d2,
    reptile,
)
from innerloop.learners.base import Adapted, is_own
from innerloop.learners.inner import moving_names
from innerloop.learners.table import reads, takes_steps
from innerloop.nets import backbone, resnet12, wide_resnet
from innerloop.nets.mlp import mlp
from innerloop.testing.suites import labels


def test_the_table_is_read_without_torch() -> None:
    code = (
        "import sys, innerloop.learners\nfrom innerloop.learners import LEARNERS, taxonomy\n"
        "taxonomy.learners(); print('torch' in sys.modules, 'maml' in dir(innerloop.learners))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize("name", LEARNERS)
def test_a_factory_takes_what_its_entry_gives(name: str) -> None:
    entry = LEARNERS[name]
    takes = inspect.signature(load_object(Trusted(entry.factory))).parameters
    any_name = any(each.kind is each.VAR_KEYWORD for each in takes.values())
    given = {*entry.reads, *entry.fixed, *entry.settings}
    assert given <= set(takes) or any_name
    needed = {n for n, p in takes.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
    assert needed - {"network"} <= {*entry.reads, *entry.fixed}
    assert set(entry.reads) <= set(ARGUMENTS)
    assert entry.held_by != "steps" or takes_steps(name)
    assert not entry.learns_rates or "lr" in entry.reads


@pytest.mark.parametrize("name", LEARNERS)
def test_what_moves_is_what_the_entry_says(name: str) -> None:
    entry, case = LEARNERS[name], labels()
    inner = InnerSettings(method=name, lr=0.1, steps=2, loss=case.loss)
    learner = build_learner(inner, case.network, 2, case.ways)
    params = learner.init(case.network.init(torch.Generator().manual_seed(0))[0])
    task = case.batch.task(0)
    adapted: Any = learner.adapt(params, {}, task.x_support, task.y_support)
    moved = {n for n, value in params.items() if not torch.equal(value, adapted.params[n])}
    assert moved == (set() if entry.own_head else set(moving_names(case.network, entry.adapts, params)))
    assert any(n.startswith("inner_lr.") for n in params) == bool(entry.learns_rates)
    if entry.own_head:  # the network's last layer is not looked at
        other = {n: value + (n in case.network.head_names) for n, value in params.items()}
        outputs = [
            learner.predict(learner.adapt(p, {}, task.x_support, task.y_support), task.x_query)[0]
            for p in (params, other)
        ]
        assert torch.equal(*outputs)


def test_every_setting_of_the_inner_loop_is_read_by_some_learner() -> None:
    others = {"method", "split", "settings"}
    for setting in InnerSettings.model_fields.keys() - others:
        assert any(reads(name, setting) for name in LEARNERS), setting
    stepping = [name for name in LEARNERS if reads(name, "test_steps")]
    assert [name for name in stepping if LEARNERS[name].held_by == "steps"] == list(GRADIENT)


def test_choices_and_lists_follow_the_table() -> None:
    assert get_args(get_args(InnerSettings.model_fields["method"].annotation)[0]) == tuple(LEARNERS)
    assert GRADIENT == ("maml", "fomaml", "anil", "boil", "meta-sgd", "maml-lslr")
    assert (HEAD_ONLY, LEARNED) == (("anil",), ("meta-sgd", "maml-lslr"))


def added(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """A learner called ``new``, like ANIL but for what is given."""
    monkeypatch.setitem(LEARNERS, "new", LEARNERS["anil"]._replace(**changed))


def test_steps_in_protocols_follow_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = {"inner": {"method": "new", "steps": 3}}
    added(monkeypatch)
    assert expected_protocol(recipe)["inner_steps"] == 3
    added(monkeypatch, reads=("ways",))
    assert expected_protocol(recipe)["inner_steps"] == 0
    monkeypatch.delitem(LEARNERS, "new")  # as a page reads the run of another version
    assert expected_protocol(recipe)["inner_steps"] == 3


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (["inner.method=protonet", "inner.lr=auto"], "unknown setting 'inner.lr' with inner.method=protonet"),
        (["inner.online=h3"], "it is for inner.method=anil"),
        (["inner.method=anil", "inner.online=h3", "inner.optimiser=adam"], "inner.optimiser=sgd"),
        (
            ["inner.method=anil", "inner.online=h3", "inner.truncate=1"],
            "leave inner.truncate and inner.check",
        ),
        (["outer.objective=reptile", "inner.method=meta-sgd"], "set inner.method=maml"),
        (["outer.objective=reptile", "inner.method=anil"], "set inner.method=maml"),
        (["inner.settings.penalty=1"], "unknown setting 'inner.settings' with inner.method=maml"),
    ],
)
def test_rules_name_the_fix(items: list[str], words: str) -> None:
    with pytest.raises(UserError) as error:
        load_recipe("sine-maml", items)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_several_wrong_settings_of_a_learner_are_told_at_once() -> None:
    with pytest.raises(UserError) as error:
        load_recipe("sine-maml", ["inner.settings.a=1", "inner.settings.b=1", "inner.online=h3"])
    assert len(str(error.value).splitlines()) == 2


def test_buffers_of_a_learner_are_in_the_first_weights() -> None:
    parts = build(load_recipe("sine-anil", ["inner.online=h3", "inner.lr=0.03", "model.hidden=[4]"]))
    assert float(parts.buffers["online.rate"]) == pytest.approx(0.03)
    assert not build(load_recipe("sine-anil", ["model.hidden=[4]"])).buffers


def test_a_run_is_a_start_without_what_its_learner_owns(tmp_path: Path) -> None:
    short = ["outer.steps=1", "outer.batch=1", "eval.episodes=1", "eval.validation_episodes=1"]
    here = [*short, "model.hidden=[4]", "run.execution=loop", "run.compile=off", f"run.folder={tmp_path}"]
    for items in (["inner.method=anil", "inner.online=trace"], ["inner.method=meta-sgd"]):
        run = train(load_recipe("sine-maml", [*here, *items]), progress=False).run
        params = build(load_recipe("sine-maml", [*here, f"model.init={run}"])).params
        assert not any(is_own(name) for name in params)


def test_an_online_rate_refuses_what_it_would_ignore() -> None:
    network, loss = labels().network, get_loss("cross-entropy")
    assert isinstance(anil(network, loss, 0.1, online="h3", rule=None, truncate=None), Learner)
    with pytest.raises(UserError, match="leave out rule and checkpoint, or set online='off'"):
        anil(network, loss, 0.1, online="h3", rule=adam(), checkpoint=True)


def test_learners_without_extra_buffers_leave_them_alone() -> None:
    learner = Learner(
        "plain", lambda p, b, x, y, training=False: Adapted(p, b), lambda a, x, training=False: (x, {})
    )
    buffers = {"mean": torch.zeros(2)}
    assert learner.init_buffers({}, buffers) == buffers
    assert learner.init_buffers({}, buffers) is not buffers


# ---- arguments are checked when a learner is made ----

NET = mlp(1, [8], 5)
GOOD: dict[str, Any] = {"loss": "mse", "lr": 0.1, "steps": 2, "ways": 5}
WRONG = [
    ("lr", "0.1"),
    ("lr", math.nan),
    ("lr", True),
    ("steps", 1.5),
    ("steps", -1),
    ("steps", "3"),
    ("ways", "5"),
    ("ways", 0),
    ("loss", "msee"),
    ("loss", torch.nn.MSELoss()),
]


@pytest.mark.parametrize("name", LEARNERS)
def test_wrong_arguments_are_refused_in_a_sentence(name: str) -> None:
    entry = LEARNERS[name]
    factory, network = load_object(Trusted(entry.factory)), mlp(1, 8, 5)
    good = {key: value for key, value in GOOD.items() if key in entry.reads}
    if entry.made_from == "network":
        assert isinstance(factory(network, **good, **entry.fixed), Learner)  # a loss may be named
        with pytest.raises(UserError, match="wrap a torch module with from_module"):
            factory(torch.nn.Linear(1, 1), **good, **entry.fixed)
    for key, value in WRONG:
        if key in entry.reads:
            with pytest.raises(UserError, match=key):
                factory(network, **{**good, key: value}, **entry.fixed)


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda **w: maml(NET, "mse", 0.1, **w), {"first_order": "false"}),
        (lambda **w: maml(NET, "mse", 0.1, **w), {"checkpoint": 1}),
        (lambda **w: maml(NET, "mse", 0.1, **w), {"rule": "adam"}),
        (lambda **w: maml(NET, "mse", 0.1, **w), {"head_start": None}),
        (lambda **w: anil(NET, "mse", 0.1, **w), {"online": "h4"}),
        (lambda **w: anil(NET, "mse", 0.1, **w), {"online": None}),
        (lambda **w: imaml(NET, "mse", 0.1, **w), {"penalty": "2"}),
        (lambda **w: imaml(NET, "mse", 0.1, **w), {"damping": None}),
        (lambda **w: r2d2(NET, 5, **w), {"scale": "10"}),
        (lambda **w: logistic_head(NET, 5, **w), {"C": None}),
        (lambda **w: mlp(1, [8], 1, **w), {"activation": None}),
        (lambda **w: mlp(1, [8], 1, **w), {"bias": "no"}),
        (lambda **w: mlp(1, [8], 1, **w), {"bias_var": -1.0}),
        (lambda **w: mlp(1, [8], 1, **w), {"weight_var": "2"}),
        (lambda **w: backbone("conv4", 3, 16, 5, **w), {"norm": 3}),
        (lambda **w: resnet12(3, 16, 5, **w), {"dropblock": 1.5}),
        (lambda **w: wide_resnet(3, 16, 5, **w), {"widen": "2"}),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(make: Any, wrong: dict[str, Any]) -> None:
    ((name, _),) = wrong.items()
    with pytest.raises(UserError, match=f"{name}="):
        make(**wrong)


@pytest.mark.parametrize("make", [episodic, reptile])
def test_objectives_take_a_loss_by_name(make: Any) -> None:
    learner = anil(mlp(1, [8], 1), "mse", 0.1)
    assert make(learner, "mse").name == make(learner, get_loss("mse")).name
    with pytest.raises(UserError, match="did you mean 'mse'"):
        make(learner, "msee")
    with pytest.raises(UserError, match="must be a Learner"):
        make(mlp(1, [8], 1), "mse")
