"""The one training loop, against a loop written by hand; what stops it; what it keeps."""

from __future__ import annotations

import gc
import math
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import NonFiniteError, UserError
from innerloop.core.threads import map_in_threads
from innerloop.core.types import Task, TaskBatch
from innerloop.learners import Objective
from innerloop.tasks import Sampler
from innerloop.testing.closeness import assert_trees_equal
from innerloop.training import Plan, TrainState, fit, initial_state, make_optimiser, make_schedule
from innerloop.training.loop import Validation
from innerloop.training.optimisers import optimiser_classes
from innerloop.training.state import state_from
from oracles import maml_loop
from oracles.forward import mlp_forward
from oracles.patience import PATIENCE
from oracles.training import Kept, judged, problem, quadratic, sines

Tree = dict[str, Tensor]
fit_module = sys.modules["innerloop.training.loop"]  # its name in the package is the function's


# ---- the loop itself ----


def by_hand(
    params: Tree, sampler: Sampler, steps: int, batch: int, make: Callable[..., Any], inner: maml_loop.Inner
) -> tuple[Tree, list[float]]:
    """MAML as one writes it with torch alone."""
    leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
    optimiser, losses, forward = make(list(leaves.values())), [], mlp_forward(torch.tanh)
    for step in range(steps):
        tasks = sampler.episodes(range(step * batch, (step + 1) * batch)).tasks()
        total: dict[str, Tensor] = {}
        values = []
        for task in tasks:
            loss = maml_loop.task_loss(forward, mse, leaves, inner, task)
            values.append(loss.detach())
            for name, g in zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True):
                total[name] = total[name] + g if name in total else g
        for name, leaf in leaves.items():
            leaf.grad = total[name] / batch
        optimiser.step()
        losses.append(float(torch.stack(values).mean()))
    return {n: p.detach() for n, p in leaves.items()}, losses


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().sum() / outputs.shape[0]


def linear_forward(params: Tree, x: Tensor, stats: Any = None) -> tuple[Tensor, list[Any]]:
    z = torch.tanh(F.linear(x, params["layer0.weight"], params["layer0.bias"]))
    return F.linear(z, params["layer1.weight"], params["layer1.bias"]), []


@pytest.mark.parametrize(
    ("name", "options"),
    [("sgd", {}), ("sgd", {"momentum": 0.9, "nesterov": True}), ("adam", {}), ("radam", {}), ("adamw", {})],
)
def test_fit_equals_a_loop_by_hand_bit_for_bit(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(by_hand.__globals__, "mlp_forward", lambda activation: linear_forward)
    objective, state = problem(steps=2)
    logged: list[dict[str, Any]] = []
    final = fit(
        objective,
        state,
        sines(),
        make_optimiser(name, 0.01, **options),
        steps=12,
        batch=3,
        log=logged.append,
        log_every=1,
    )
    maker = optimiser_classes()[name]
    expected, losses = by_hand(
        state.params, sines(), 12, 3, lambda p: maker(p, lr=0.01, **options), maml_loop.Inner(0.01, 2)
    )
    assert_trees_equal(final.params, expected)
    assert [record["loss"] for record in logged] == losses
    assert final.step == 12


def test_fit_leaves_its_start_alone() -> None:
    objective, state = problem()
    before = {n: p.clone() for n, p in state.params.items()}
    final = fit(objective, state, sines(), make_optimiser("adam", 0.1), steps=3, batch=2)
    assert_trees_equal(state.params, before)
    assert state.optimiser == {}
    assert state.step == 0
    assert any(not torch.equal(final.params[n], p) for n, p in before.items())


def slow_sines(clock: list[float], seconds: float) -> Sampler:
    """Tasks that take their time."""

    def episodes(indices: Any) -> TaskBatch:
        clock[0] += seconds
        return sines().episodes(indices)  # type: ignore[return-value]

    return Sampler(episodes)


def test_checkpoints_are_kept_by_the_clock_too_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(fit_module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    objective, state = problem()
    make, kept = make_optimiser("adam", 0.01), Kept()
    quick = fit(objective, state, sines(), make, steps=8, batch=2)
    slow = fit(objective, state, slow_sines(clock, 70), make, steps=8, batch=2, save=kept.save)
    assert kept.steps("last") == [3, 6, 8]  # every three minutes, and at the end
    assert_trees_equal(slow.params, quick.params)
    for _, _, half in kept.saved:
        again = fit(objective, state_from(half.tensors(), half.scalars()), sines(), make, steps=8, batch=2)
        assert_trees_equal(again.params, quick.params)
        assert_trees_equal(again.optimiser, quick.optimiser)


def test_a_checkpoint_by_the_clock_keeps_only_what_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run fails at the same step however slow it is: ranks that share it must not part company."""
    clock = [0.0]
    monkeypatch.setattr(fit_module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    objective, state = problem()
    kept = Kept()

    def breaking(params: Tree) -> torch.optim.Optimizer:
        made = make_optimiser("sgd", 0.01)(params)
        made.register_step_post_hook(lambda *_: [p.data.fill_(math.nan) for p in params.values()] and None)
        return made

    with pytest.raises(NonFiniteError, match="step 2: the loss"):  # as on a fast machine
        fit(objective, state, slow_sines(clock, 1000), breaking, steps=8, batch=2, save=kept.save)
    assert kept.saved == []


def test_every_step_is_told_with_the_time_of_its_gradient_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(fit_module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    objective, state = problem()

    def value(*args: Any) -> Any:
        clock[0] += 0.25
        return objective.loss(*args)  # type: ignore[misc]

    told: list[tuple[int, float, float]] = []
    logged: list[dict[str, Any]] = []
    fit(
        objective._replace(loss=value),
        state,
        slow_sines(clock, 7),  # drawing tasks is no part of it
        make_optimiser("adam", 0.01),
        steps=3,
        batch=2,
        log=logged.append,
        tell=lambda *each: told.append(each),
    )
    assert [(step, seconds) for step, _, seconds in told] == [(1, 0.5), (2, 0.5), (3, 0.5)]
    assert [record["step"] for record in logged] == [3]
    assert told[-1][1] == logged[-1]["loss"]


@pytest.mark.parametrize("mode", ["loop", "vmap", "threads"])
def test_steps_use_the_episodes_of_their_number(mode: str) -> None:
    seen: list[int] = []

    def episodes(indices: Any) -> TaskBatch:
        seen.extend(indices)
        return sines().episodes(indices)  # type: ignore[return-value]

    objective, state = problem()
    for start, steps in ((state, 2), (state._replace(step=2), 4)):
        fit(
            objective,
            start,
            Sampler(episodes),
            make_optimiser("sgd", 0.1),
            steps=steps,
            batch=3,
            plan=Plan(mode, 2),  # type: ignore[arg-type]
        )
    assert seen == list(range(12))


# ---- rate and clipping ----


def test_the_gradient_is_clipped_to_the_norm() -> None:
    objective, state = quadratic()
    logged: list[dict[str, Any]] = []
    make = make_optimiser("sgd", 1.0)
    final = fit(objective, state, sines(), make, steps=1, batch=2, clip=0.25, log=logged.append, log_every=1)
    assert float(final.params["w"]) == pytest.approx(0.25)
    assert logged[0]["grad_norm"] == pytest.approx(1.0)  # what it was before
    free = fit(objective, state, sines(), make, steps=1, batch=2, clip=1.5)
    assert float(free.params["w"]) == pytest.approx(1.0)


def test_clipping_acts_on_all_parameters_together() -> None:
    objective, state = problem()
    moved = {}
    for clip in (None, 1e-3):
        final = fit(objective, state, sines(), make_optimiser("sgd", 1.0), steps=1, batch=2, clip=clip)
        moved[clip] = torch.cat([(final.params[n] - p).flatten() for n, p in state.params.items()])
    assert float(moved[1e-3].norm()) == pytest.approx(1e-3)
    cosine = torch.nn.functional.cosine_similarity(moved[None], moved[1e-3], dim=0)
    assert float(cosine) == pytest.approx(1.0)


def test_schedules() -> None:
    constant, warm = make_schedule("constant", 10), make_schedule("constant", 10, warmup=4)
    assert [constant(s) for s in (0, 5, 9)] == [1, 1, 1]
    assert [warm(s) for s in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    cosine = make_schedule("cosine", 100)
    assert [cosine(s) for s in (0, 25, 50)] == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5])
    assert all(cosine(s) > cosine(s + 1) > 0 for s in range(99))
    stepped = make_schedule("step", 100, [0.5, 0.75], 0.1)
    assert [stepped(s) for s in (49, 50, 74, 75, 99)] == pytest.approx([1, 0.1, 0.1, 0.01, 0.01])
    with pytest.raises(UserError, match="constant, cosine, step and plateau"):
        make_schedule("linear", 10)


def test_the_rate_follows_the_schedule() -> None:
    objective, state = quadratic()
    logged: list[dict[str, Any]] = []
    schedule = make_schedule("step", 4, [0.5], 0.1)
    final = fit(
        objective,
        state,
        sines(),
        make_optimiser("sgd", 0.5),
        steps=4,
        batch=1,
        schedule=schedule,
        log=logged.append,
        log_every=1,
    )
    assert [r["lr"] for r in logged] == pytest.approx([0.5, 0.5, 0.05, 0.05])
    assert float(final.params["w"]) == pytest.approx(1 - 0.5 * 0.5 * 0.95 * 0.95)


def test_unknown_optimisers_and_options_are_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'adam'"):
        make_optimiser("adamm", 0.1)
    with pytest.raises(UserError, match="options do not fit the meta-optimiser adam"):
        make_optimiser("adam", 0.1, momentun=0.9)({"w": torch.zeros(1)})
    with pytest.raises(UserError, match=r"^options of the meta-optimiser adam"):
        make_optimiser("adam", 0.1, betas=[2.0, 0.9])({"w": torch.zeros(1)})


# ---- validation ----


def run(kept: Kept, validation: Validation | None, steps: int, **options: Any) -> TrainState:
    objective, state = quadratic()
    defaults: dict[str, Any] = {"batch": 1, "save_every": 1000, "log_every": 1000}
    state = options.pop("state", state)
    return fit(
        objective,
        state,
        sines(),
        make_optimiser("sgd", 0.5),
        steps=steps,
        validation=validation,
        save=kept.save,
        log=kept.records.append,
        **{**defaults, **options},
    )


@pytest.mark.parametrize("higher", [False, True])
def test_the_best_by_validation_is_kept(higher: bool) -> None:
    scores = [3.0, 2.0, 2.5, 1.0, 4.0]
    kept = Kept()
    final = run(kept, judged([-s if higher else s for s in scores], higher_is_better=higher), 5)
    assert kept.steps("best") == [1, 2, 4]
    assert kept.steps("last")[-1] == 5
    assert (final.best, final.best_step, final.stalled) == (-1.0 if higher else 1.0, 4, 1)
    best = [state for step, tags, state in kept.saved if "best" in tags][-1]
    assert float(best.params["w"]) == pytest.approx(1 - 0.5**4)
    assert [r["validation"] for r in kept.records if "validation" in r] == [
        -s if higher else s for s in scores
    ]


def test_validation_comes_at_its_steps_and_at_the_end() -> None:
    kept = Kept()
    run(kept, judged([1.0] * 9, every=3), 8)
    assert [r["step"] for r in kept.records if "validation" in r] == [3, 6, 8]


def test_validation_that_stalls_stops_the_run() -> None:
    kept = Kept()
    scores = [3.0, 2.0, 2.0, 2.1, 1.9, 2.0, 2.0, 2.0, 0.0]
    final = run(kept, judged(scores, patience=3), 50)
    assert final.step == 8
    assert kept.steps("last")[-1] == 8
    assert final.best_step == 5
    # a run killed while its result is evaluated has stopped: going on must not train further
    again = run(Kept(), judged([0.0] * 9, patience=3), 50, state=final)
    assert again.step == 8


def test_stalling_is_counted_across_a_resume() -> None:
    scores = [3.0, 2.0, 2.0, 2.1, 1.9, 2.0, 2.0, 2.0, 0.0]
    half = run(Kept(), judged(scores[:7], patience=3), 7)
    assert run(Kept(), judged(scores[7:], patience=3), 50, state=half).step == 8


def test_the_rate_drops_on_a_plateau() -> None:
    kept = Kept()
    scores = [3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 2.0, 2.0]
    final = run(kept, judged(scores, plateau=(0.1, 2)), 8, log_every=1)
    rates = [r["lr"] for r in kept.records if "lr" in r]
    # validations 2, 3, 4 show no improvement: the step after the third has a tenth of the rate
    assert rates == pytest.approx([0.5] * 4 + [0.05] * 4)
    assert final.rate_scale == pytest.approx(0.1)
    assert final.since_drop == 1


def test_a_score_that_is_not_a_number_is_never_the_best() -> None:
    kept = Kept()
    final = run(kept, judged([math.nan, 3.0, math.nan, 2.0]), 4)
    assert kept.steps("best") == [2, 4]
    assert final.best == 2.0


def test_best_is_named_before_last() -> None:
    """A kill between the two must not leave a ``last`` that knows of a best which was never kept."""
    kept = Kept()
    run(kept, judged([1.0]), 1)
    assert kept.saved[0][1] == ("best", "last")


def test_checkpoints_come_at_their_steps_and_at_the_end() -> None:
    kept = Kept()
    run(kept, None, 10, save_every=4)
    assert kept.steps("last") == [4, 8, 10]
    assert [float(s.params["w"]) for *_, s in kept.saved] == pytest.approx([1 - 0.5**k for k in (4, 8, 10)])


# ---- what is not finite ----


def poisoned(step: int, task: int, where: str) -> tuple[Objective, Sampler]:
    """A stream in which one task of one step (batches of 3) has a loss or gradient that is not finite."""

    def episodes(indices: Any) -> TaskBatch:
        batch = sines().episodes(indices)
        assert isinstance(batch, TaskBatch)
        mark = torch.tensor([float(i == 3 * step + task) for i in indices], dtype=torch.float64)
        return batch._replace(y_query=mark.reshape(-1, 1, 1).expand_as(batch.y_query))

    def value(params: Tree, buffers: Tree, task: Task) -> tuple[Tensor, Tree]:
        marked = task.y_query[0, 0]
        w = params["w"].sum()
        if where == "loss":
            extra = marked * (1 - marked).log()  # 0·log 1, or 1·log 0
        else:
            extra = (marked * (w - w.detach()) + 1 - marked).abs().sqrt()  # 1, or 0 with no slope there
        return 0.5 * (w - 1).square() + extra, buffers

    return Objective("poisoned", loss=value), Sampler(episodes)


@pytest.mark.parametrize("mode", ["loop", "vmap"])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_what_is_not_finite_stops_the_run_and_keeps_the_last_good_state(where: str, mode: str) -> None:
    objective, sampler = poisoned(step=5, task=2, where=where)
    kept = Kept()
    state = initial_state({"w": torch.zeros(1, dtype=torch.float64)}, {})
    with pytest.raises(NonFiniteError) as error:
        fit(
            objective,
            state,
            sampler,
            make_optimiser("sgd", 0.5),
            steps=20,
            batch=3,
            plan=Plan(mode),  # type: ignore[arg-type]
            save=kept.save,
            save_every=4,
        )
    text = str(error.value)
    assert "step 6" in text
    assert "lower the learner's lr" in text
    assert ("task 2 (episode 17)" if where == "loss" else "the gradient of w is not") in text
    assert kept.steps("last") == [4, 5]
    assert float(kept.saved[-1][2].params["w"]) == pytest.approx(1 - 0.5**5)


def test_a_diverging_run_says_so() -> None:
    objective, state = problem(steps=3, lr=1e200)
    with pytest.raises(NonFiniteError, match=r"step 1: .* lower the learner's lr"):
        fit(objective, state, sines(), make_optimiser("sgd", 0.1), steps=3, batch=2)


@pytest.mark.parametrize("save_every", [1, 1000])
def test_parameters_that_are_not_finite_are_never_kept(save_every: int) -> None:
    slope = Objective("slope", loss=lambda p, b, task: (p["w"].sum() + 0 * task.x_query.sum(), b))

    def huge(params: dict[str, Tensor]) -> torch.optim.Optimizer:
        """The second step overflows, from finite loss and gradient."""
        return torch.optim.SGD(list(params.values()), lr=1.7e308)

    _, state = quadratic()
    kept = Kept()
    told = "step 2: w is not finite after the update" if save_every == 1 else "step 3: the loss of task 0"
    with pytest.raises(NonFiniteError, match=told):
        fit(slope, state, sines(), huge, steps=9, batch=1, save=kept.save, save_every=save_every)
    assert all(bool(torch.isfinite(s.params["w"]).all()) for *_, s in kept.saved)


# ---- memory ----


@pytest.mark.slow
def test_training_does_not_grow() -> None:
    objective, state = problem()
    counts: list[int] = []
    idle = threading.Barrier(2, timeout=PATIENCE)

    def count(record: dict[str, Any]) -> None:
        if "loss" in record:
            map_in_threads(lambda _: idle.wait(), range(2), 2)  # workers have let go of what they did before
            gc.collect()
            counts.append(sum(issubclass(type(o), Tensor) for o in gc.get_objects()))

    for mode in ("loop", "vmap", "threads"):
        counts.clear()
        fit(
            objective,
            state,
            sines(),
            make_optimiser("adam", 0.01),
            steps=200,
            batch=2,
            plan=Plan(mode, 2),  # type: ignore[arg-type]
            log=count,
            log_every=50,
        )
        assert len(counts) == 4
        assert len(set(counts)) == 1, f"{mode}: {counts}"
