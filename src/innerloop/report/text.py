"""Numbers and protocols as people read them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

View: TypeAlias = dict[str, Any]  # plain data for a template
Pairs: TypeAlias = list[tuple[str, str]]  # names and values, in order

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
    """A value for a table: significant digits for floats, thousands set apart, lists in brackets."""
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
    """Mean ± half-width, rounded where that has two digits; accuracies in per cent."""
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
    """A share in per cent, never rounded to a whole that it is not."""
    if 0.995 <= value < 1:
        return f"{min(100 * value, 99.9):.1f} %"
    return f"{100 * value:.0f} %"


def finite_scores(evaluation: Mapping[str, Any]) -> list[float]:
    """The scores per episode that are numbers."""
    scores = evaluation.get("scores") or []
    return [float(v) for v in scores if isinstance(v, int | float) and math.isfinite(v)]


def level_text(value: float, score: str) -> str:
    """A score to three digits; accuracies in per cent."""
    return f"{number(100 * value, 3)} %" if score == "accuracy" else number(value, 3)


def median_text(evaluation: Mapping[str, Any], score: str) -> str:
    """The median over episodes, which a few failed ones do not move."""
    scores = finite_scores(evaluation)
    return level_text(statistics.median(scores), score) if scores else "–"


def moment(text: Any) -> datetime | None:
    """An ISO time, or None."""
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def when(text: Any) -> str:
    """An ISO time for people."""
    if (time := moment(text)) is None:
        return "not recorded" if text in (None, "") else str(text)
    zone = f" ({time.tzname()})" if time.tzinfo else ""
    return f"{time.day} {time.strftime('%B %Y, %H:%M:%S')}{zone}"


def protocol_words(evaluation: Mapping[str, Any], seed: int | None = None) -> str:
    """The protocol of a number in one line: interval, episodes, every protocol entry, the run's seed."""
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
