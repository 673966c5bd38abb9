"""What an estimate of the inner rate says, and when a user's own rate is far from it."""

from __future__ import annotations

from typing import Any, NamedTuple

SWEEP = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Where the best rate of full MAML lay around the centre."""

FAR = 4.0
"""A user's rate this many times outside the bracket is warned about."""


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


def warning_for(rate: float, found: RateAdvice) -> str | None:
    """One sentence if a user's own rate lies outside [low/4, 4·high], else None.

    Only where the bracket is known to be worth it: a head-only learner under cross-entropy.
    """
    low, high = found.low, found.high
    trusted = found.kind == "bracket" and found.factor is not None and found.factor <= FAR
    if not trusted or low / FAR <= rate <= FAR * high:
        return None
    side = "below" if rate < low / FAR else "above"
    return (
        f"inner.lr={rate:g} is far {side} the estimated bracket [{low:.3g}, {high:.3g}] "
        "(more than four times outside): inner.lr=auto takes a point inside it."
    )
