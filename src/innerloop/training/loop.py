"""The one training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from innerloop.core.errors import NonFiniteError
from innerloop.core.interrupts import defer_interrupts
from innerloop.core.ranks import LostRankError
from innerloop.core.statistics import Interval
from innerloop.core.trees import first_not_finite, global_norm
from innerloop.core.types import Batch, Buffers, Params
from innerloop.learners.base import reported
from innerloop.learners.objectives.base import Objective
from innerloop.tasks.sampler import Sampler
from innerloop.training.execution.gradient_types import Gradient
from innerloop.training.execution.gradients import meta_gradient
from innerloop.training.execution.plan import Plan, torch_threads
from innerloop.training.execution.ranks import lazy_batch
from innerloop.training.execution.worker import WorkersError
from innerloop.training.optimisers import (
    MakeOptimiser,
    Schedule,
    make_schedule,
    optimiser_tensors,
    restore_optimiser,
)
from innerloop.training.state import TrainState
from innerloop.training.task_weights import batch_weights

Log = Callable[[dict[str, Any]], None]
Save = Callable[[TrainState, tuple[str, ...]], None]
Tell = Callable[[int, float, float], Plan | None]
SAVE_SECONDS = 180.0
"""After which a checkpoint is due, however few steps were taken: what a kill may cost."""


class Validation(NamedTuple):
    """How the run is judged on the way.

    Attributes:
        score: ``(params, buffers) -> Interval`` on held-out tasks.
        every: steps between validations.
        higher_is_better: true for accuracy, false for errors.
        patience: stop after this many validations without improvement; ``None`` never stops.
        plateau: ``(factor, patience)``: lower the rate when validation stalls; ``None`` never does.
    """

    score: Callable[[Params, Buffers], Interval]
    every: int
    higher_is_better: bool = False
    patience: int | None = None
    plateau: tuple[float, int] | None = None


def fit(
    objective: Objective,
    state: TrainState,
    sampler: Sampler,
    optimiser: MakeOptimiser,
    *,
    steps: int,
    batch: int,
    plan: Plan | None = None,
    schedule: Schedule | None = None,
    clip: float | None = None,
    hard_weight: float = 1.0,
    validation: Validation | None = None,
    log: Log | None = None,
    log_every: int = 100,
    save: Save | None = None,
    save_every: int = 1000,
    tell: Tell | None = None,
) -> TrainState:
    """Trains until ``steps`` meta-steps are done, validation stalls, or a loss is not finite.

    Step ``s`` uses episodes ``s·batch … (s+1)·batch − 1`` of the sampler, so a run that is stopped and
    continued from its state goes on exactly as if it had not been.

    Args:
        objective: what one task contributes.
        state: where to start; :func:`~innerloop.training.state.initial_state` for a new run. Left alone.
        sampler: the stream of training tasks.
        optimiser: from :func:`~innerloop.training.optimisers.make_optimiser`.
        steps: total number of meta-steps, those already taken included.
        batch: tasks per meta-step.
        plan: how to run them; a plain loop if omitted. torch has its threads while it trains, and gets back
            those it had.
        schedule: factor on the rate by step.
        clip: largest norm of the meta-gradient.
        hard_weight: weight of the sampler's hard tasks against the others, normalised within each batch
            (Landscape's ζ); 1 weighs all alike.
        validation: how to judge on the way.
        log: receives records for ``metrics.jsonl``.
        log_every: steps between them.
        save: ``(state, tags)``: keeps a checkpoint; tags are ``last`` and ``best``.
        save_every: steps between checkpoints; there is also one every three minutes, which changes no number.
        tell: ``(step, loss, seconds)``: hears of every step, and how long its gradient took; may answer with
            another plan for the next steps, of those that give the same bits.

    Raises:
        NonFiniteError: with step, task and a hint; the last good state has been saved.
        WorkersError: worker processes died and died again; likewise.
    """
    rates = schedule or make_schedule("constant", steps)
    loop = _Loop(objective, state, optimiser, plan or Plan(), rates, clip, hard_weight)
    pace, saved_at, saved = _Pace(batch, state.step), -1, time.perf_counter()
    # a run that was killed while its result was evaluated had stopped already
    stop = validation is not None and loop.stalled(validation)
    try:
        with torch_threads(plan), defer_interrupts() as check:
            while loop.state.step < steps and not stop:
                check()  # an interrupt waits until here, where the state is whole
                record = loop.apply(loop.gradient(sampler, loop.state.step, batch))
                if log and loop.due(log_every, steps):
                    more = reported(loop.state.buffers)
                    log({"step": loop.state.step, **record, **more, **pace.lap(loop.state.step)})
                if tell and (other := tell(loop.state.step, record["loss"], loop.seconds)):
                    loop.run = meta_gradient(objective.loss, other, direction=objective.direction)
                improved = False
                if validation and loop.due(validation.every, steps):
                    improved = loop.validate(validation, log)
                    stop = loop.stalled(validation)
                due = improved or stop or loop.due(save_every, steps)
                if save and due:
                    loop.check_params()
                # by the clock only what is whole: when a run fails must not depend on the time
                if save and (due or (time.perf_counter() - saved >= SAVE_SECONDS and not loop.broken())):
                    # best first: a kill between the two is repaired by repeating the step
                    save(loop.snapshot(), ("best", "last") if improved else ("last",))
                    saved_at, saved = loop.state.step, time.perf_counter()
                loop.settled = True
    except (NonFiniteError, WorkersError, LostRankError, KeyboardInterrupt):
        if save and loop.settled and saved_at != loop.state.step and loop.broken() is None:
            save(loop.snapshot(), ("last",))
        raise
    return loop.snapshot()


class _Pace:
    """How fast tasks go by, from one record to the next."""

    def __init__(self, batch: int, step: int) -> None:
        self.batch, self.step, self.clock = batch, step, time.perf_counter()

    def lap(self, step: int) -> dict[str, float]:
        """Seconds and tasks per second since the last lap, which ends here."""
        now = time.perf_counter()
        elapsed, tasks = now - self.clock, (step - self.step) * self.batch
        self.step, self.clock = step, now
        return {"seconds": elapsed, "tasks_per_second": tasks / max(elapsed, 1e-9)}


class _Loop:
    """The moving parts: leaves that ``torch.optim`` updates in place, and the state around them."""

    def __init__(
        self,
        objective: Objective,
        state: TrainState,
        optimiser: MakeOptimiser,
        plan: Plan,
        schedule: Schedule,
        clip: float | None,
        hard_weight: float,
    ) -> None:
        self.leaves = {name: value.detach().clone() for name, value in state.params.items()}
        self.state = state._replace(params=self.leaves)
        self.optimiser = optimiser({k: v for k, v in self.leaves.items() if k not in objective.untrained})
        self.base_rates = [group["lr"] for group in self.optimiser.param_groups]
        restore_optimiser(self.optimiser, self.leaves, state.optimiser)
        self.run = meta_gradient(objective.loss, plan, direction=objective.direction)
        self.schedule, self.clip, self.hard_weight = schedule, clip, hard_weight
        self.ranks, self.seconds = plan.ranks, 0.0
        self.settled = True  # false while a step, or the validation that belongs to it, is half done

    def tasks(self, sampler: Sampler, step: int, batch: int) -> Batch:
        """The tasks of a step; where ranks share them, each draws its own."""
        if self.ranks == 1:
            return sampler.batch(step, batch)
        first = step * batch
        return lazy_batch(batch, lambda start, stop: sampler.episodes(range(first + start, first + stop)))

    def gradient(self, sampler: Sampler, step: int, batch: int) -> Gradient:
        """The meta-gradient on the tasks of a step; refuses losses that are not finite."""
        weights = batch_weights(sampler, step, batch, self.hard_weight, self.leaves)
        tasks, began = self.tasks(sampler, step, batch), time.perf_counter()
        gradient = self.run(self.leaves, self.state.buffers, tasks, weights)
        bad = torch.nonzero(~torch.isfinite(gradient.losses))  # which waits for a graphics card
        self.seconds = time.perf_counter() - began  # of what a plan was measured for, and nothing else
        if len(bad):
            task = int(bad[0])
            raise NonFiniteError(
                f"step {step + 1}: the loss of task {task} (episode {step * batch + task}) is not finite; "
                "lower {the learner's lr} or {the optimiser's lr}, or set {clip}=10. "
                "The last good checkpoint is kept.",
                names=("the learner's lr", "the optimiser's lr", "clip"),
            )
        return gradient

    def apply(self, gradient: Gradient) -> dict[str, float]:
        """Clips, sets the rate and takes the step; returns what is logged of it."""
        norm = float(global_norm(gradient.grads))
        if not math.isfinite(norm):
            name = first_not_finite(gradient.grads)
            what = "the norm of their gradient" if name is None else f"the gradient of {name}"
            raise NonFiniteError(
                f"step {self.state.step + 1}: the losses are finite but {what} is not; "
                "lower {the learner's lr} or {the learner's steps}. The last good checkpoint is kept.",
                names=("the learner's lr", "the learner's steps"),
            )
        scale = min(1.0, self.clip / norm) if self.clip and norm > 0 else 1.0
        factor = self.schedule(self.state.step) * self.state.rate_scale
        for group, base in zip(self.optimiser.param_groups, self.base_rates, strict=True):
            group["lr"] = base * factor
        for name, leaf in self.leaves.items():
            leaf.grad = gradient.grads[name] if scale == 1.0 else gradient.grads[name] * scale
        self.settled = False
        self.optimiser.step()
        self.state = self.state._replace(step=self.state.step + 1, buffers=gradient.buffers)
        return {"loss": float(gradient.losses.mean()), "grad_norm": norm, "lr": self.base_rates[0] * factor}

    def broken(self) -> str | None:
        """The name of a parameter that is not finite, if there is one."""
        return first_not_finite(self.leaves)

    def check_params(self) -> None:
        """Refuses to keep parameters that an update has made useless."""
        if name := self.broken():
            raise NonFiniteError(
                f"step {self.state.step}: {name} is not finite after the update; "
                "lower {the optimiser's lr}, or set {clip}=10. The last good checkpoint is kept.",
                names=("the optimiser's lr", "clip"),
            )

    def due(self, every: int, steps: int) -> bool:
        """Whether something that happens every so many steps happens now; it does at the end."""
        return self.state.step % every == 0 or self.state.step == steps

    def stalled(self, validation: Validation) -> bool:
        """Whether validation has gone without improvement for too long."""
        return validation.patience is not None and self.state.stalled >= validation.patience

    def validate(self, validation: Validation, log: Log | None) -> bool:
        """Scores the present parameters; returns whether they are the best so far."""
        interval = validation.score(self.leaves, self.state.buffers)
        best, s = self.state.best, self.state
        sign = 1 if validation.higher_is_better else -1
        # never nan: nothing would ever be better again
        improved = not math.isnan(interval.mean) and (best is None or sign * interval.mean > sign * best)
        since_drop = 0 if improved else s.since_drop + 1
        rate_scale = s.rate_scale
        if validation.plateau and since_drop > validation.plateau[1]:
            rate_scale, since_drop = rate_scale * validation.plateau[0], 0
        self.state = s._replace(
            best=interval.mean if improved else best,
            best_step=s.step if improved else s.best_step,
            stalled=0 if improved else s.stalled + 1,
            since_drop=since_drop,
            rate_scale=rate_scale,
        )
        if log:
            log({"step": s.step, "validation": interval.mean, "ci95": interval.ci95, "episodes": interval.n})
        return improved

    def snapshot(self) -> TrainState:
        """A copy that later steps do not change."""
        saved = optimiser_tensors(self.optimiser, self.leaves)
        return self.state._replace(
            params={name: value.clone() for name, value in self.leaves.items()},
            buffers={name: value.clone() for name, value in self.state.buffers.items()},
            optimiser={name: value.clone() for name, value in saved.items()},
        )
