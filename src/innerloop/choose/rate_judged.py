"""The estimate of an inner rate beside the rate that a user has chosen."""

from __future__ import annotations

from typing import Any, NamedTuple

from innerloop.choose.rate_record import RateAdvice, doubtful_outside, warning_for


class JudgedRate(NamedTuple):
    """An estimate, and what it says about a user's own rate.

    Attributes:
        advice: the estimate.
        low: below it, a user's rate is warned about.
        high: above it, likewise.
        warning: the warning about the user's own rate, or None.
        method: of the learner.
    """

    advice: RateAdvice
    low: float
    high: float
    warning: str | None
    method: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        bounds = {"low": self.low, "high": self.high, "meaning": "outside, a user's rate is warned about"}
        return {**self.advice.as_dict(), "bounds": bounds, "warning": self.warning, "method": self.method}


def judge_rate(advice: RateAdvice, own: float | None, method: str) -> JudgedRate:
    """The advice with a warning if a user's ``own`` rate, if any, lies far outside it.

    Args:
        advice: the estimate, with its bracket.
        own: the rate that the user has set; None if there is none.
        method: the learner's name in ``inner.method``.
    """
    warning = None if own is None else warning_for(own, advice)
    return JudgedRate(advice, *doubtful_outside(advice), warning, method)
