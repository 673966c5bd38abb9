"""Stopping and going on, after a save, Ctrl-C or ``kill -9`` at any moment: bit for bit the same."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import innerloop
from innerloop.core.losses import get_loss
from innerloop.core.statistics import Interval
from innerloop.core.types import Task
from innerloop.learners import Objective, erm, maml, multitask, reptile
from innerloop.nets import Network, conv4, mlp
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.manifest import read_manifest
from innerloop.runs.metrics import read_metrics
from innerloop.tasks import Sampler
from innerloop.testing.closeness import assert_trees_equal
from innerloop.training import Plan, TrainState, fit, initial_state, make_optimiser
from innerloop.training.loop import Validation
from innerloop.training.optimisers import optimiser_classes
from innerloop.training.state import in_order, state_from
from oracles import kill_server, problems
from oracles.patience import PATIENCE
from oracles.training import Kept, problem, sines
from support.places import TESTS

Tree = dict[str, Tensor]

# ---- from a state ----


@pytest.mark.parametrize("name", sorted(optimiser_classes()))
def test_stopping_and_going_on_changes_nothing(name: str) -> None:
    objective, state = problem()
    make = make_optimiser(name, 0.01)
    whole = fit(objective, state, sines(), make, steps=8, batch=2)
    for cut in (1, 5):
        half = fit(objective, state, sines(), make, steps=cut, batch=2)
        half = state_from(half.tensors(), half.scalars())  # through what is saved
        again = fit(objective, half, sines(), make, steps=8, batch=2)
        assert_trees_equal(again.params, whole.params)
        assert_trees_equal(again.optimiser, whole.optimiser)


@pytest.mark.parametrize("kind", ["multitask", "reptile", "erm", "running"])
def test_other_objectives_stop_and_go_on_too(kind: str) -> None:
    loss = get_loss("mse")
    network: Network = mlp(1, [5], 1)
    sampler = sines(n_tasks=6)
    objective = {
        "multitask": lambda: multitask(network, loss, 6),
        "reptile": lambda: reptile(maml(network, loss, 0.01, 3), loss),
        "erm": lambda: erm(network, loss),
        "running": lambda: erm(network, get_loss("cross-entropy")),
    }
    if kind == "running":
        network = conv4(1, 16, 3, filters=2, norm="running")
        sampler = Sampler(lambda indices: problems.images(len(indices), seed=int(indices[0])))
    made = objective[kind]()
    params, buffers = problems.drawn(network)
    state = initial_state(made.init(params, torch.Generator().manual_seed(0)), buffers)
    make, plan = make_optimiser("adam", 0.01), Plan("vmap")
    whole = fit(made, state, sampler, make, steps=6, batch=2, plan=plan)
    half = fit(made, state, sampler, make, steps=3, batch=2, plan=plan)
    again = fit(made, half, sampler, make, steps=6, batch=2, plan=plan)
    assert_trees_equal(again.params, whole.params)
    assert_trees_equal(again.buffers, whole.buffers)
    if kind == "running":
        assert any(not torch.equal(whole.buffers[n], b) for n, b in buffers.items())
    if kind == "multitask":
        assert torch.equal(whole.params["layer1.weight"], params["layer1.weight"])  # test tasks' head


def test_states_survive_saving() -> None:
    state = TrainState(
        7, {"a.b": torch.ones(2)}, {"m": torch.zeros(1)}, {"a.b/exp_avg": torch.ones(2)}, 0.5, 3, 2, 1, 0.1
    )
    again = state_from(state.tensors(), state.scalars())
    assert again.scalars() == state.scalars()
    assert_trees_equal(again.tensors(), state.tensors())


def test_saved_states_are_put_in_the_order_of_the_network() -> None:
    """Files sort names; sums over parameters follow the dict, and their last bits with them."""
    params = {name: torch.ones(1) for name in ("z", "a", "m")}
    state = TrainState(
        0, {n: params[n] for n in sorted(params)}, {"q": torch.ones(1), "b": torch.ones(1)}, {}
    )
    ordered = in_order(state, params, {"q": torch.ones(1), "b": torch.ones(1)})
    assert list(ordered.params) == ["z", "a", "m"]
    assert list(ordered.buffers) == ["q", "b"]
    assert list(in_order(state, {"m": params["m"]}, {}).params) == ["m", "a", "z"]


# ---- interruption ----


@pytest.mark.parametrize("moment", ["gradient", "update", "validation"])
def test_interrupting_at_any_moment_keeps_a_whole_state(moment: str) -> None:
    """Going on after Ctrl-C gives what an uninterrupted run gives."""
    objective, state = problem()
    armed = False

    def strike(now: str) -> None:
        nonlocal armed
        if armed and now == moment:
            armed = False
            raise KeyboardInterrupt

    def value(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
        strike("gradient")
        assert objective.loss is not None
        return objective.loss(params, buffers, task)

    class Striking(torch.optim.Adam):
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups[:]:  # one parameter after the other, as torch does inside
                whole = group["params"]
                for i, p in enumerate(whole):
                    group["params"] = [p]
                    super().step()
                    group["params"] = whole
                    if i == 1:
                        strike("update")

    def score(params: Tree, buffers: Tree) -> Interval:
        strike("validation")
        return Interval(float(params["layer0.weight"].sum()), 0.0, 1)

    def train(start: TrainState, kept: Kept) -> TrainState:
        return fit(
            Objective("striking", loss=value),
            start,
            sines(),
            lambda p: Striking(list(p.values()), lr=0.01),
            steps=10,
            batch=2,
            validation=Validation(score, every=2),
            save=kept.save,
            save_every=3,
        )

    whole_kept, kept = Kept(), Kept()
    whole = train(state, whole_kept)
    start = next(s for step, _, s in whole_kept.saved if step == 3)
    armed = True
    with pytest.raises(KeyboardInterrupt):
        train(start, kept)
    last = kept.saved[-1][2] if kept.saved else start
    again = train(last, kept)
    assert_trees_equal(again.params, whole.params)
    assert_trees_equal(again.optimiser, whole.optimiser)
    assert again.scalars() == whole.scalars()


# ---- from a run that was killed ----

KILLS = 10  # at least; `make kills` has hundreds
SETTINGS = [
    "run.execution=vmap",
    "run.compile=off",
    "run.threads=1",
    "run.log_every=3",
    "run.save_every=7",
    "tasks.n_tasks=50",
    "model.hidden=[6]",
    "outer.steps=250",
    "outer.batch=2",
    "outer.optimiser=radam",
    "outer.clip=2",  # makes every update depend on a sum over all parameters
    "outer.schedule=plateau",
    "outer.plateau_patience=2",
    "eval.every=20",
    "eval.validation_episodes=4",
    "eval.episodes=20",
]


class Server:
    """The other end of :mod:`oracles.kill_server`."""

    def __init__(self, errors: Path) -> None:
        self.errors = errors
        homes = [Path(innerloop.__file__).parents[1], TESTS]
        path = os.pathsep.join([*map(str, homes), os.environ.get("PYTHONPATH", "")])
        with errors.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-P", kill_server.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
            )

    def ask(self, folder: Path, run: Path | None, after: int | None) -> tuple[str, int]:
        """``killed`` or ``done``, and how many calls there were if it is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"folder": str(folder), "run": run and str(run), "settings": SETTINGS, "after": after}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer, _, calls = self._process.stdout.readline().strip().partition(" ")
        assert answer in ("killed", "done"), self.errors.read_text()[-3000:]
        return answer, int(calls or 0)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=PATIENCE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "errors.txt")
    yield made
    made.close()


def only_run(folder: Path) -> Path | None:
    """The run to resume: none if the first child was killed before it had written its recipe."""
    runs = [path.parent for path in folder.glob("*/*/recipe.toml")]
    assert len(runs) <= 1
    return runs[0] if runs else None


def story(run: Path) -> list[dict[str, Any]]:
    """The metrics without what a clock said."""
    timed = ("seconds", "tasks_per_second")
    return [{k: v for k, v in r.items() if k not in timed} for r in read_metrics(run / "metrics.jsonl")]


def check_same(run: Path, whole: Path) -> None:
    for tag in ("last", "best"):
        one, two = load_checkpoint(run, tag), load_checkpoint(whole, tag)
        assert one is not None
        assert two is not None
        assert_trees_equal(one[0], two[0])  # parameters and the optimiser's state
        assert one[1] == two[1]  # step, best, plateau
    assert story(run) == story(whole)
    assert read_manifest(run)["status"] == "finished"
    results = [json.loads(max((r / "eval").iterdir()).read_text()) for r in (run, whole)]
    assert results[0]["scores"] == results[1]["scores"]
    left = [p.name for p in (run / "checkpoints").iterdir() if p.name.startswith(".")]
    assert left == []  # nothing half-written stays behind


def test_resume_after_kill_is_bit_identical(server: Server, tmp_path: Path) -> None:
    answer, calls = server.ask(tmp_path / "whole", None, None)
    assert answer == "done"
    whole = only_run(tmp_path / "whole")
    assert whole is not None
    dice = random.Random(0)
    kills, rounds = 0, 0
    while kills < KILLS:
        rounds += 1
        folder = tmp_path / f"round{rounds}"
        here, answer = 0, "killed"
        while answer == "killed":
            # after twenty kills in one round the run may end in peace
            after = dice.randint(1, calls // 3) if here < 20 else None
            answer, _ = server.ask(folder, only_run(folder), after)
            here += answer == "killed"
        assert here > 0  # the first child never gets far enough to finish
        kills += here
        finished = only_run(folder)
        assert finished is not None
        check_same(finished, whole)
