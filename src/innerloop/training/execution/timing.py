"""Timing the ways to run a step: on a part of a batch first, and no longer than the run is worth."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from innerloop.core.child_processes import start_method
from innerloop.core.formatting import duration
from innerloop.core.types import Batch, RaggedBatch
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.worker import WorkersError

SHARE = 0.02
"""Of the expected run that measuring may take,"""
MOST = 20.0
"""but never more seconds than these: nobody waits for longer before the first step,"""
LEAST = 5.0
"""nor fewer: quick steps are measured in less, and several ways to run them are worth comparing."""
SLOWER = 1.5
"""A way that takes this many times as long as another is not tried any further."""
THREADS_GAIN = 1.3
"""How many times faster several intra-op threads must be than any way with one. OpenMP's threads wait for
each other at every operation by spinning: if another program takes one of the cores, a step of small
operations takes a hundred times as long, where one thread would not notice (docs/performance.md)."""
TELLING = 0.1
"""Seconds from which the time of a part of a task says something of the whole: less is mostly overhead."""
SPAWN_SECONDS = 10.0  # until workers that cannot be forked have started


Measure = Callable[[Plan, Batch, float, float], float]
"""``(plan, batch, budget, best) -> seconds`` that one meta-gradient takes: see :func:`seconds_per_call`."""


class PlanTimings(NamedTuple):
    """Seconds per meta-step of the plans that were measured, and remarks on the others."""

    seconds: dict[Plan, float]
    remarks: list[str]


def seconds_per_call(call: Callable[[], Any], budget: float = 1.0, best: float = float("inf")) -> float:
    """The fastest of up to five calls after a warm-up; one call if it is long, fewer if another way wins."""
    start = time.perf_counter()
    call()
    spent = time.perf_counter() - start
    fastest, repeats = (spent, 2) if spent > budget else (float("inf"), 0)
    while repeats < 2 or (repeats < 5 and spent < budget):
        start = time.perf_counter()
        call()
        took = time.perf_counter() - start
        fastest, repeats, spent = min(fastest, took), repeats + 1, spent + took
        if fastest > SLOWER * best and spent > TELLING:  # one quick call may just have been disturbed
            break
    return fastest


def part_of(batch: Batch) -> Batch:
    """Two tasks of many; of one or two, about an eighth of the samples. The batch itself if that is small."""
    if batch.size > 2:
        return batch.slice(0, 2)
    if isinstance(batch, RaggedBatch):
        return batch
    support, queries = batch.x_support.shape[1], batch.x_query.shape[1]
    few = max(2, (support + queries) // 8 - support)
    if few >= queries:
        return batch
    return batch._replace(x_query=batch.x_query[:, :few], y_query=batch.y_query[:, :few])


def time_plans(
    plans: list[Plan], batch: Batch, measure: Measure, steps: int, say: Callable[[str], None] | None = None
) -> PlanTimings:
    """Times those plans that may be the fastest, and says what became of the others."""
    # parts of the batch first, then the whole in the order of what those took, while the budget lasts
    timing = _Timing(batch, measure, steps, say)
    timing.try_parts(plans)
    if not timing.parts and timing.part is not batch:  # a loss that does not take fewer queries, for example
        timing.part = batch
        timing.try_parts(plans)
    if not timing.parts:
        raise next(iter(timing.failures.values()))
    timing.try_whole()
    remarks = [*timing.remarks.values()]
    for mode, error in timing.failures.items():
        remarks.append(f"{mode} is not possible here ({first_line(error)})")
    return PlanTimings(timing.seconds, remarks)


class _Timing:
    """What is known of the plans so far, and what there is left to spend."""

    def __init__(self, batch: Batch, measure: Measure, steps: int, say: Callable[[str], None] | None) -> None:
        self.batch, self.part, self.steps = batch, part_of(batch), steps
        self.measure, self.say, self.began = measure, say, time.perf_counter()
        self.parts: dict[Plan, float] = {}
        self.seconds: dict[Plan, float] = {}
        self.remarks: dict[Plan, str] = {}
        self.failures: dict[str, Exception] = {}

    @property
    def ratio(self) -> float:
        """How many times more samples a whole step has than its part."""
        return _samples(self.batch) / _samples(self.part)

    @property
    def _part(self) -> str:
        return "two tasks" if self.batch.size > 2 else "part of the queries"

    def allowed(self) -> float:
        """Seconds that measuring may take in all, by what a step seems to take."""
        known = [*self.seconds.values()] or [part * self.ratio for part in self.parts.values()]
        return min(MOST, max(LEAST, SHARE * self.steps * min(known))) if known else MOST

    def too_late(self, cost: float) -> bool:
        """Whether something of this many seconds no longer fits the budget."""
        return time.perf_counter() - self.began + cost > self.allowed()

    def try_parts(self, plans: list[Plan]) -> None:
        """Times every plan on the part, as long as there is time."""
        self.failures.clear()
        for plan in plans:
            best = min(self.parts.values(), default=float("inf"))
            if plan.mode == "processes" and _starts_in_vain(self.steps * best * self.ratio):
                self.remarks[plan] = f"{plan.label}: the run is too short to start processes for"
            elif self.parts and self.too_late(best):
                self._give_up(plan)
            elif (took := self._timed(plan, self.part, 0.25, best)) is not None:
                self.parts[plan] = took

    def try_whole(self) -> None:
        """Times whole steps, the most promising first, as long as there is time."""
        if self.part is self.batch:
            self.seconds = dict(self.parts)
            return

        def promise(plan: Plan) -> float:
            return self.parts[plan] * (THREADS_GAIN if plan.intra_op > 1 else 1.0)

        for plan in sorted(self.parts, key=promise):
            best = min(self.seconds.values(), default=float("inf"))
            if self._hopeless(plan):
                took = f"{pace_words(1000 * self.parts[plan])} for {self._part}"
                self.remarks[plan] = f"{plan.label}: {took}, too slow to try on all"
            elif self.too_late(expected := self._expected(plan)):
                self._give_up(plan)
                if not self.seconds:
                    self.seconds[plan] = expected
                    self.remarks[plan] = f"{plan.label}: estimated from {self._part} of a step"
            elif (took_all := self._timed(plan, self.batch, 1.0, best)) is not None:
                self.seconds[plan] = took_all
        if not self.seconds:
            raise next(iter(self.failures.values()))

    def _expected(self, plan: Plan) -> float:
        """Seconds that a whole step will take, in proportion."""
        if self.batch.size > 2 or not self.seconds:
            return self.parts[plan] * self.ratio
        best = min(self.seconds, key=lambda one: self.seconds[one])  # adaptation costs more than its samples
        return self.parts[plan] * self.seconds[best] / self.parts[best]

    def _hopeless(self, plan: Plan) -> bool:
        """Whether a whole step cannot be the fastest."""
        if not self.seconds:
            return False
        if self.batch.size <= 2 and self.parts[plan] < TELLING:
            return False
        # under vmap more tasks may cost little more; a loop costs at least in proportion
        many = plan.mode == "vmap" and self.batch.size > 2
        at_least = self.parts[plan] if many else self._expected(plan) / SLOWER
        return at_least > min(self.seconds.values())

    def _give_up(self, plan: Plan) -> None:
        self.remarks[plan] = f"{plan.label}: not measured, because {duration(self.allowed())} have to do"

    def _timed(self, plan: Plan, on: Batch, budget: float, best: float) -> float | None:
        spent = time.perf_counter() - self.began
        if self.say is not None and (spent >= 1 or not (self.parts or self.failures)):
            what = "a step" if on is self.batch else f"{self._part} of a step"
            self.say(f"measuring {what}: {plan.mode} on {plan.threads} core{'s' * (plan.threads > 1)}")
        try:
            return self.measure(plan, on, budget, best)
        except (RuntimeError, NotImplementedError, WorkersError) as error:
            self.failures.setdefault(plan.mode, error)
            return None


def _samples(batch: Batch) -> int:
    return sum(len(task.x_support) + len(task.x_query) for task in batch.tasks())


def _starts_in_vain(total: float) -> bool:
    """Whether a run of this many seconds is over before workers have paid for their start."""
    return start_method() == "spawn" and total < 10 * SPAWN_SECONDS


def pace_words(milliseconds: float) -> str:
    """What a step takes, in the unit that fits."""
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"


def first_line(error: Exception) -> str:
    """The beginning of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
