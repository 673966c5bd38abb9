"""What can be said before training: the inner rate of a learner on its own tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.advice.rate import advise_rate as advise_rate
    from innerloop.advice.rate_record import RateAdvice as RateAdvice
    from innerloop.advice.rate_record import warning_for as warning_for

__getattr__, __dir__ = lazy(
    __name__,
    {
        "innerloop.advice.rate": "advise_rate",
        "innerloop.advice.rate_record": "RateAdvice warning_for",
    },
)
