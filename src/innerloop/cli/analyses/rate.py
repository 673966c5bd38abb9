"""What people read of ``analyze rate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from innerloop.choose.analysis.rate import Settings
    from innerloop.choose.rate_advice import JudgedRate, RateAdvice
    from innerloop.theory.estimates.rate_forms import FormRate

RANGES = {"bracket": "bracket", "range": "range to sweep", "sweep": "range to sweep"}
"""What the two ends of an estimate are, by its kind."""


def words(result: FormRate | JudgedRate, _settings: Settings) -> list[str]:
    """The rate, how sure it is, and why."""
    from innerloop.choose.rate_advice import JudgedRate

    return _judged(result) if isinstance(result, JudgedRate) else _by_form(result)


def _judged(result: JudgedRate) -> list[str]:
    advice = result.advice
    lines = _estimate(advice)
    if advice.factor:
        lines.append(f"stated uncertainty: a factor of {advice.factor:g} up and down")
    if len(advice.sweep) > 1:
        lines.append("try: " + ", ".join(f"{rate:.3g}" for rate in advice.sweep))
    return [*lines, *advice.reasons, *([f"warning: {result.warning}"] if result.warning else [])]


def _by_form(result: FormRate) -> list[str]:
    lowest = result.bounds.corollary_low
    held = "holds" if lowest <= result.alpha else "FAILS"
    lines = [*_estimate(result), f"Corollary 1's lower bound {lowest:.3g} {held} here"]
    if result.best is not None:
        lines.append(f"least training risk at this number of tasks, by search: {result.best:.4g}")
    return [*lines, *result.reasons]


def _estimate(result: FormRate | RateAdvice) -> list[str]:
    lines = [
        f"inner.lr = {result.alpha:.4g}   ({result.kind}; {result.convention})",
        f"{RANGES.get(result.kind, 'between')}: {result.low:.3g} to {result.high:.3g}",
    ]
    if result.interval is not None:
        low, high = result.interval
        lines.append(f"sampling error alone (95 %, {result.tasks} tasks): {low:.4g} to {high:.4g}")
    return lines
