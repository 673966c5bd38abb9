"""Tasks divided among ranks, against the one process that does them all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from innerloop.core.errors import NonFiniteError, UserError
from innerloop.core.ranks import LostRankError, take_rank
from innerloop.core.types import Buffers, Params
from innerloop.experiment import ranks
from innerloop.experiment.data import build_data
from innerloop.experiment.fitting import fit_parts, judge, validation_of
from innerloop.experiment.parts import Parts, build
from innerloop.experiment.recipe.library import load_recipe
from innerloop.learners import LEARNERS
from innerloop.testing.closeness import SUMMED
from innerloop.training import Plan, TrainState
from innerloop.training.execution.ranks import checksum, map_over_ranks, share_of
from oracles.rank_threads import in_ranks

PICTURES = [
    *(
        "data.name=glyphs",
        "model.filters=2",
        "model.pooling=stride",
        "model.norm=running",
        "run.dtype=float64",
    ),
    *("tasks.ways=2", "tasks.queries=2", "outer.steps=2", "outer.batch=5", "outer.optimiser=adam"),
    # a small rate: gradients of biases before a norm are nothing but rounding, which Adam divides by 1e-8
    *("outer.lr=0.001", "outer.schedule=constant", "outer.clip=1", "eval.episodes=7", "eval.queries=2"),
    *("eval.validation_episodes=3", "eval.every=1", "run.threads=1"),
]
NUMBERS = [
    *("model.hidden=[5]", "run.dtype=float64", "outer.steps=3", "outer.batch=5", "eval.episodes=7"),
    *("eval.validation_episodes=3", "eval.every=1", "run.threads=1", "inner.test_steps=1"),
]


def parts_of(source: str, *settings: str) -> Parts:
    base = NUMBERS if source.startswith(("sine", "linear")) else PICTURES
    items = {item.partition("=")[0]: item for item in (*base, *settings)}
    parts = Parts(load_recipe(source, list(items.values())))
    assert parts.by_recipe
    return parts


def with_method(method: str) -> list[str]:
    rate = {key: value for key, value in {"lr": 0.05, "steps": 2}.items() if key in LEARNERS[method].reads}
    given = {**rate, **LEARNERS[method].solved_with}
    settings = {"inner.method": method, **{f"inner.{key}": value for key, value in given.items()}}
    return [f"{key}={_toml(value)}" for key, value in settings.items()]


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}={_toml(each)}" for key, each in value.items()) + "}"
    return str(value)


def largest_gap(actual: TrainState, expected: TrainState) -> float:
    """The largest difference in any parameter, statistic or moment, beside its tensor's largest entry."""
    one, two = actual.tensors(), expected.tensors()
    assert list(one) == list(two)
    gaps = [float((one[n] - two[n]).abs().max()) / max(1.0, float(two[n].abs().max())) for n in two]
    return max(gaps)


def check_ranks(parts: Parts, modes: Sequence[str], counts: Sequence[int], patch: pytest.MonkeyPatch) -> None:
    first = (parts.params, parts.buffers)
    assert parts.data.train.batch(0, 1).size == 1  # made before threads ask for it
    for mode in modes:
        plan = Plan(mode, 1)  # type: ignore[arg-type]
        whole = fit_parts(parts, plan=plan, validation=validation_of(parts, plan))
        scores = judge(parts, *first, "test", 7, plan)
        for count in counts:
            shared = plan._replace(ranks=count)

            def work(rank: int, shared: Plan = shared) -> tuple[TrainState, list[float]]:
                state = fit_parts(parts, plan=shared, validation=validation_of(parts, shared))
                return state, judge(parts, *first, "test", 7, shared).scores

            states = in_ranks(count, work, patch)
            for state, own in states:
                assert largest_gap(state, whole) < SUMMED, (mode, count)
                assert own == scores.scores  # exactly
                assert checksum(state.tensors().values()) == checksum(states[0][0].tensors().values())
            moved = TrainState(0, *first, {}).tensors()
            assert checksum(v for n, v in whole.tensors().items() if n in moved) != checksum(moved.values())


# ---- every learner and objective, in every mode


QUICK = ("maml", "meta-sgd", "r2d2")


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in LEARNERS]
)
@pytest.mark.one_in(2)
def test_learners_on_one_to_four_ranks(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of("cifar-fs-protonet", *with_method(method))
    assert parts.buffers  # running statistics
    check_ranks(parts, ("loop",), (2, 3, 4), monkeypatch)


OBJECTIVES = {
    "episodic": ("sine-maml", []),
    "reptile": ("sine-maml", ["outer.objective=reptile"]),
    "multitask": ("sine-maml", ["outer.objective=multitask", "tasks.n_tasks=6", "inner.method=anil"]),
    "erm": ("sine-maml", ["outer.objective=erm"]),
    "fewer tasks than ranks": ("sine-maml", ["outer.batch=1"]),
    "mixture": (
        "cifar-fs-protonet",
        ["tasks.mixture=[{ways=3,shots=1,queries=2},{ways=2,shots=2,queries=2}]", "outer.batch=4"],
    ),
    "hard tasks weigh more": (
        "cifar-fs-protonet",
        [
            "tasks.mixture=[{ways=2,shots=1,queries=2,hard=true},{ways=2,shots=2,queries=2}]",
            "outer.hard_weight=3",
        ],
    ),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.one_in(3)
def test_objectives_on_one_to_four_ranks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, settings = OBJECTIVES[name]
    check_ranks(parts_of(source, *settings), ("loop", "vmap", "threads"), (2, 3, 4), monkeypatch)


SUPERVISED = ["tasks.family=supervised", "tasks.minibatch=8", "outer.objective=erm", "outer.batch=3"]


@pytest.mark.parametrize("head", ["logistic", "cosine", "finetune"])
def test_heads_on_one_to_four_ranks(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of("cifar-fs-protonet", *SUPERVISED, f"eval.head={head}")
    check_ranks(parts, ("loop",), (2, 3), monkeypatch)


# ---- what goes wrong on one rank is known to all


def test_a_loss_that_is_not_finite_ends_all_ranks_at_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of("sine-maml", "inner.lr=1e6", "inner.steps=5", "outer.steps=20", "run.dtype=float32")

    def work(rank: int) -> str:
        with pytest.raises(NonFiniteError) as caught:
            fit_parts(parts, plan=Plan("loop", 1, ranks=3))
        return str(caught.value)

    with pytest.raises(NonFiniteError) as alone:
        fit_parts(parts, plan=Plan("loop", 1))
    assert set(in_ranks(3, work, monkeypatch)) == {str(alone.value)}


def test_parameters_that_have_parted_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of("sine-maml")

    def work(rank: int) -> None:
        start = parts.first
        if rank == 1:
            name = next(iter(start.params))
            other = start.params[name] + 1e-15
            start = start._replace(params={**start.params, name: other})
        fit_parts(parts, start, plan=Plan("loop", 1, ranks=2))

    with pytest.raises(UserError, match="rank 1 has other parameters than rank 0"):
        in_ranks(2, work, monkeypatch)


def test_a_mistake_that_one_rank_finds_is_raised_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def some(items: list[int]) -> list[tuple[Tensor, ...]]:
        if 2 in items:
            raise UserError("two is wrong.")
        return [(torch.tensor(item),) for item in items]

    def work(rank: int) -> str:
        with pytest.raises(UserError) as caught:
            map_over_ranks(some, [1, 2, 3], 3)
        return str(caught.value)

    assert in_ranks(3, work, monkeypatch) == ["two is wrong."] * 3
    many = list(range(3, 40))  # several rounds, the last of them uneven
    numbers = in_ranks(3, lambda rank: map_over_ranks(some, many, 3), monkeypatch)
    assert [[int(n) for (n,) in each] for each in numbers] == [many] * 3


# ---- shares and places


@pytest.mark.parametrize(("total", "size"), [(0, 2), (1, 4), (5, 2), (7, 3), (8, 4), (100, 7)])
def test_shares_cover_all_tasks_once(total: int, size: int) -> None:
    shares = [share_of(total, rank, size) for rank in range(size)]
    assert [i for start, stop in shares for i in range(start, stop)] == list(range(total))
    sizes = [stop - start for start, stop in shares]
    assert max(sizes) - min(sizes) <= 1


def test_a_place_needs_somewhere_to_meet_and_somebody() -> None:
    assert take_rank({}) is None
    assert take_rank({"RANK": "0", "WORLD_SIZE": "2"}) is None  # nowhere to meet
    assert take_rank({"RANK": "x", "WORLD_SIZE": "2", "MASTER_PORT": "1"}) is None
    given = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_PORT": "29500", "LOCAL_RANK": "1", "KEPT": "1"}
    here = take_rank(given)
    assert here is not None
    assert (here.rank, here.size, here.local_rank, here.port) == (3, 4, 1, 29500)
    assert "KEPT" in given
    assert "RANK" not in given  # children are no ranks


def test_what_followers_are_told_is_plain() -> None:
    parts = parts_of("sine-maml")
    told = json.loads(json.dumps({"recipe": parts.recipe.model_dump(), "plan": Plan().as_dict()}))
    assert type(parts.recipe).model_validate(told["recipe"]) == parts.recipe
    assert Plan(**told["plan"]) == Plan()


def _types(params: Params, buffers: Buffers) -> set[torch.dtype]:
    return {value.dtype for value in (*params.values(), *buffers.values())}


def test_types_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of("cifar-fs-protonet", "run.dtype=float32", "outer.steps=1")
    states = in_ranks(2, lambda rank: fit_parts(parts, plan=Plan("loop", 1, ranks=2)), monkeypatch)
    assert _types(states[0].params, states[0].buffers) == {torch.float32}


# ---- what stays with rank 0, and where it runs


def test_what_no_recipe_says_stays_on_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of("sine-maml")
    own = Parts(parts.recipe, build_data(parts.recipe, train=parts.data.train))
    assert not own.by_recipe
    assert parts.at_rate(0.5).by_recipe
    told: list[str] = []

    class Asked:
        size, busy, whole, timeout = 3, False, True, 0.0

        def announce(self, tensors: dict[str, Tensor]) -> None:
            told.extend(tensors)

    monkeypatch.setattr(ranks, "group_here", Asked)
    with ranks.all_ranks("fit", own, Plan("loop", 2), {}) as plan:
        assert plan == Plan("loop", 2)
    assert told == []
    with ranks.all_ranks("fit", parts, Plan("loop", 2), {"w": torch.ones(1)}) as plan:
        assert plan == Plan("loop", 2, ranks=3)
    assert told == ["call", "/w"]


def test_ranks_that_are_out_of_step_are_told_nothing_more() -> None:
    group: Any = SimpleNamespace(busy=False, whole=True)
    for error, whole in ((NonFiniteError("loss"), True), (OSError("disk"), False)):
        with pytest.raises(type(error)), ranks.at_work(group):
            raise error
        assert (group.busy, group.whole) == (False, whole)
    with pytest.raises(LostRankError, match="out of step"):
        ranks.announce(group, {}, {})


def test_notes_on_ranks_say_what_changes() -> None:
    recipe = load_recipe("sine-maml", ["run.ranks=4"])
    (note,) = ranks.ranks_notes(recipe, None)
    assert "run.ranks=4 is read by the command" in note
    (note,) = ranks.ranks_notes(load_recipe("sine-maml"), 2)
    assert "was trained on 2 rank(s) and goes on with 1" in note


def test_auto_is_a_device_that_is_there() -> None:
    recipe = load_recipe("sine-maml", ["run.device=auto"])
    assert recipe.run.device == "auto"  # kept in the run: another machine may have another
    parts = build(recipe)
    torch.zeros(1, device=parts.recipe.run.device)
    assert next(iter(parts.params.values())).device.type == parts.recipe.run.device
