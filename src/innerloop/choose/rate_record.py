"""An estimate of the inner rate, and what it says about a user's own rate."""

from __future__ import annotations

from typing import Any, NamedTuple

from innerloop.core.errors import spelt
from innerloop.theory.rate.linear import describe_rate

SWEEP = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Where the best rate of full MAML lay around the centre."""

FAR = 4.0
"""A user's rate this many times outside the bracket is warned about; above it also by the stated factor."""


class RateAdvice(NamedTuple):
    """An inner learning rate, with what stands behind it.

    Attributes:
        alpha: the rate to start with.
        low: lower end of the bracket, or of the range to sweep.
        high: upper end.
        sweep: rates to try; a single one where the point stands by itself.
        interval: 95 % bootstrap interval of ``alpha``: sampling error only.
        kind: ``bracket``, ``range``, or ``sweep`` (inner optimisers other than plain descent).
        factor: the stated uncertainty: a factor up and down; none where nothing is known.
        convention: the loss convention that gives the rate its meaning.
        forms: the estimates behind it, by name.
        reasons: sentences.
        tasks: how many tasks were looked at.
        seconds: how long that took.
    """

    alpha: float
    low: float
    high: float
    sweep: tuple[float, ...]
    interval: tuple[float, float]
    kind: str
    factor: float | None
    convention: str
    forms: dict[str, float]
    reasons: tuple[str, ...]
    tasks: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in self._asdict().items()}

    def __str__(self) -> str:
        lines = describe_rate(self)
        if self.factor:
            lines.append(f"stated uncertainty: a factor of {self.factor:g} up and down")
        if len(self.sweep) > 1:
            lines.append("try: " + ", ".join(f"{rate:.3g}" for rate in self.sweep))
        return "\n".join([*lines, *self.reasons])


def doubtful_outside(advice: RateAdvice) -> tuple[float, float]:
    """The rates outside which a user's own one is warned about: [low/4, 4·high], or further up if unsure.

    Where the point was far off, the best rate lay above it; a rate far below the bracket was never good.
    """
    return advice.low / FAR, max(FAR, advice.factor or FAR) * advice.high


def warning_for(rate: float, advice: RateAdvice) -> str | None:
    """One sentence if a user's own rate lies far outside the bracket (:func:`doubtful_outside`), else None.

    For head-only learners under cross-entropy, where the bracket is known to be worth it; None for ranges.
    """
    low, high = doubtful_outside(advice)
    if advice.kind != "bracket" or low <= rate <= high:
        return None
    side, times = ("below", FAR) if rate < low else ("above", high / advice.high)
    warning = (
        f"{{rate}}={rate:g} is far {side} the estimated bracket [{advice.low:.3g}, {advice.high:.3g}] "
        f"(more than {times:g} times outside): {{the estimate}} takes a point inside it."
    )
    return spelt(warning, ("rate", "the estimate"))


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

    def __str__(self) -> str:
        return "\n".join([str(self.advice), *([f"warning: {self.warning}"] if self.warning else [])])


def judge_rate(advice: RateAdvice, own: float | None, method: str) -> JudgedRate:
    """The advice with a warning if a user's ``own`` rate, if any, lies far outside it.

    Args:
        advice: the estimate, with its bracket.
        own: the rate that the user has set; None if there is none.
        method: the learner's name in ``inner.method``.
    """
    warning = None if own is None else warning_for(own, advice)
    return JudgedRate(advice, *doubtful_outside(advice), warning, method)
