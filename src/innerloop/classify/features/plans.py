"""How features are computed on the cores there are: measured on the first pictures, which count as done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from innerloop.data.pictures import in_threads
from innerloop.training.execution.plan import Plan, torch_threads

A = TypeVar("A")
B = TypeVar("B")
TRIAL = 2
"""Parts that every worker of a plan gets before the plans are compared."""
WORTH = 6
"""Trials of every plan that must remain, for comparing to pay."""


def plans_for(cores: int) -> list[Plan]:
    """Workers that decode and compute whole parts, one core each; or one that computes with all cores.

    >>> [str(plan) for plan in plans_for(2)]
    ['threads, 2 threads', 'loop, 2 threads']
    >>> len(plans_for(1))
    1
    """
    if cores == 1:
        return [Plan("loop", 1)]
    return [Plan("threads", cores), Plan("loop", cores)]


def run_parts(
    work: Callable[[A], B],
    parts: Sequence[A],
    plans: Sequence[Plan],
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[B]:
    """``work`` over ``parts``, results in order: first by every plan in turn, then by the fastest."""
    rest = iter(parts)
    best = plans[0]
    if len(plans) > 1 and len(parts) > WORTH * sum(TRIAL * plan.threads for plan in plans):
        yield from _carried_out(work, list(islice(rest, best.threads)), best)  # what a first call prepares
        speeds: dict[Plan, float] = {}
        for plan in plans:
            some = list(islice(rest, TRIAL * plan.threads))
            start = clock()
            done = list(_carried_out(work, some, plan))
            speeds[plan] = len(some) / (clock() - start)
            yield from done
        best = max(plans, key=lambda plan: speeds[plan])
    yield from _carried_out(work, rest, best)


def _carried_out(work: Callable[[A], B], parts: Iterator[A] | Sequence[A], plan: Plan) -> Iterator[B]:
    workers = plan.threads if plan.mode == "threads" else 1
    with torch_threads(plan):
        yield from in_threads(work, parts, workers)
