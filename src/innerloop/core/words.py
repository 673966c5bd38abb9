"""Scores in words, the same on the terminal and in Python."""

from __future__ import annotations

import math


def score_text(name: str, mean: float | None, ci95: float | None) -> str:
    """A score with its interval.

    >>> score_text("accuracy", 0.468, 0.009), score_text("mse", 0.1234, None)
    ('accuracy 46.8 ± 0.9 %', 'mse 0.1234')
    """
    if mean is None or not math.isfinite(mean):
        return f"{name} is not finite"
    if ci95 is not None and not math.isfinite(ci95):
        ci95 = None  # a single task has no interval
    if name == "accuracy":
        return f"accuracy {100 * mean:.1f}" + (f" ± {100 * ci95:.1f} %" if ci95 is not None else " %")
    return f"{name} {mean:.4g}" + (f" ± {ci95:.2g}" if ci95 is not None else "")


def difference_text(name: str, mean: float, ci95: float | None) -> str:
    """A difference of two scores with its interval, in the unit of the scores.

    >>> difference_text("accuracy", -0.0528, 0.0071), difference_text("mse", 0.25, 0.1)
    ('-5.3 ± 0.7 points', '+0.25 ± 0.1')
    """
    known = ci95 is not None and math.isfinite(ci95)
    if name == "accuracy":
        return f"{100 * mean:+.1f}" + (f" ± {100 * (ci95 or 0):.1f}" if known else "") + " points"
    return f"{mean:+.4g}" + (f" ± {ci95:.2g}" if known else "")
