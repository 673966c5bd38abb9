"""Numbers and protocols as people read them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

View: TypeAlias = dict[str, Any]
"""Plain data for a template."""
Pairs: TypeAlias = list[tuple[str, str]]
"""Names and values, in order."""

MINUS = "−"
NAMES = {
    "seed": "episode seed",
    "inner_loss": "inner loss:",
    "kind": "",
    "weights": "weights:",
    "method": "",
    "test_classes": "hash of the test classes",
}
"""Entries of a protocol whose own name would not read well."""

THIN = "\u202f"


def number(value: Any, digits: int = 4) -> str:
    """A value for a table: significant digits for floats, thousands set apart, lists in brackets.

    >>> number(0.123456), number(12345), number(True), number(None), number([40, 40]), number(1e-9)
    ('0.1235', '12\u202f345', 'true', 'none', '[40, 40]', '1e-09')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}".replace(",", THIN).replace("-", MINUS)
    if isinstance(value, float):
        if not math.isfinite(value):
            return "not finite"
        return f"{value:.{digits}g}" if value >= 0 else MINUS + f"{-value:.{digits}g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(number(item, digits) for item in value) + "]"
    return str(value)


def interval(mean: float | None, ci95: float | None, score: str = "", signed: bool = False) -> str:
    """Mean ± half-width, rounded where the half-width has two digits; accuracies in per cent.

    With ``signed`` it is a difference, which has its sign, and percentage points for accuracies.

    >>> interval(0.31234, 0.0213), interval(0.4681, 0.0092, "accuracy"), interval(-0.5, 0.1, signed=True)
    ('0.312 ± 0.021', '46.81 ± 0.92 %', '−0.50 ± 0.10')
    >>> interval(-0.0528, 0.0071, "accuracy", signed=True)
    '−5.28 ± 0.71 points'
    >>> interval(0.5, None), interval(None, None)
    ('0.5 (no interval)', 'not finite')
    """
    if mean is None or not math.isfinite(mean):
        return "not finite"
    scale, unit = (100.0, " points" if signed else " %") if score == "accuracy" else (1.0, "")
    mean = mean * scale
    sign = MINUS if mean < 0 else "+" if signed else ""
    if ci95 is None or not math.isfinite(ci95):
        return f"{sign}{abs(mean):.4g}{unit} (no interval)"
    half = ci95 * scale
    digits = max(0, 1 - math.floor(math.log10(half))) if half > 0 else 4
    if digits > 8 or abs(mean) >= 1e6:
        return f"{sign}{abs(mean):.4g} ± {half:.2g}{unit}"
    return f"{sign}{abs(mean):.{digits}f} ± {half:.{digits}f}{unit}"


def percent(value: float) -> str:
    """A share in per cent, never rounded to a whole that it is not.

    >>> percent(0.5), percent(0.9996), percent(1.0)
    ('50 %', '99.9 %', '100 %')
    """
    if 0.995 <= value < 1:
        return f"{min(100 * value, 99.9):.1f} %"
    return f"{100 * value:.0f} %"


def finite_scores(evaluation: Mapping[str, Any]) -> list[float]:
    """The scores per episode that are numbers."""
    scores = evaluation.get("scores") or []
    return [float(v) for v in scores if isinstance(v, int | float) and math.isfinite(v)]


def median_text(evaluation: Mapping[str, Any], score: str) -> str:
    """The median over episodes, which a few failed ones do not move.

    >>> median_text({"scores": [0.1, 0.2, 1e9]}, "mse"), median_text({"scores": [0.5, 0.7]}, "accuracy")
    ('0.2', '60 %')
    """
    scores = finite_scores(evaluation)
    if not scores:
        return "–"
    middle = statistics.median(scores)
    return f"{number(100 * middle, 3)} %" if score == "accuracy" else number(middle, 3)


def moment(text: Any) -> datetime | None:
    """An ISO time, or None."""
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def when(text: Any) -> str:
    """An ISO time for people.

    >>> when("2026-03-01T12:30:05+01:00"), when(None)
    ('1 March 2026, 12:30:05 (UTC+01:00)', 'not recorded')
    """
    time = moment(text)
    if time is None:
        return "not recorded" if text in (None, "") else str(text)
    zone = f" ({time.tzname()})" if time.tzinfo else ""
    return f"{time.day} {time.strftime('%B %Y, %H:%M:%S')}{zone}"


def protocol_words(evaluation: Mapping[str, Any], seed: int | None = None) -> str:
    """The protocol of a number in one line: interval, episodes, every protocol entry, the run's seed.

    >>> protocol_words({"episodes": 600, "protocol": {"shots": 10, "norm": "none"}}, seed=3)
    '95 % CI over 600 episodes · shots 10 · norm none · training seed 3'
    """
    episodes = evaluation.get("episodes")
    parts = [f"95 % CI over {number(episodes)} episodes" if episodes else "95 % CI"]
    protocol = evaluation.get("protocol")
    for key, value in (protocol if isinstance(protocol, Mapping) else {}).items():
        if key in ("episodes", "train_seed") or isinstance(value, Mapping):
            continue
        parts.append(f"{NAMES.get(key, key.replace('_', ' '))} {number(value)}".strip())
    if seed is not None:
        parts.append(f"training seed {seed}")
    return " · ".join(parts)
