"""How the meta learning rate moves: pure functions of the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from innerloop.core.errors import UserError

Schedule: TypeAlias = Callable[[int], float]
"""Step (from 0) → factor on the learning rate."""


def make_schedule(
    kind: str,
    steps: int,
    milestones: Sequence[float] = (),
    factor: float = 0.1,
    warmup: int = 0,
    factors: Sequence[float] = (),
) -> Schedule:
    """The factor by which the rate is multiplied at each step.

    Args:
        kind: ``constant``, ``cosine`` (to zero at the end), ``step`` (times ``factor`` at each milestone);
            ``plateau`` is constant here, training lowers it when validation stalls.
        steps: length of the run.
        milestones: for ``step``, as fractions of the run.
        factor: for ``step``.
        warmup: steps of linear rise from zero.
        factors: for ``step``: the share of the first rate from each milestone on, in place of ``factor``.

    >>> [round(make_schedule("step", 100, [0.5], 0.1)(s), 3) for s in (0, 49, 50, 99)]
    [1.0, 1.0, 0.1, 0.1]
    >>> metaoptnet = make_schedule("step", 60, [1 / 3, 2 / 3, 5 / 6], factors=[0.06, 0.012, 0.0024])
    >>> [metaoptnet(epoch) for epoch in (0, 19, 20, 39, 40, 50, 59)]
    [1.0, 1.0, 0.06, 0.06, 0.012, 0.0024, 0.0024]
    >>> [round(make_schedule("cosine", 100)(s), 3) for s in (0, 50, 100)]
    [1.0, 0.5, 0.0]
    """
    if kind not in ("constant", "cosine", "step", "plateau"):
        raise UserError(f"unknown schedule '{kind}'; there are constant, cosine, step and plateau.")
    if factors and len(factors) != len(milestones):
        raise UserError(f"{len(milestones)} milestones and {len(factors)} factors: give one for each.")

    def schedule(step: int) -> float:
        """The factor at a step."""
        rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
        if kind == "cosine":
            return rise * 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))
        if kind == "step":
            passed = sum(step >= m * steps for m in milestones)
            return rise * ((1.0, *factors)[passed] if factors else factor**passed)
        return rise

    return schedule
