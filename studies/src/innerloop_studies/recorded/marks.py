"""What stands between marks in the pages, and how it gets there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from innerloop_studies.recorded import (
    accuracies,
    benchmarks,
    evaluations,
    measurements,
    predictions,
    printed,
    races,
    rates,
    reproductions,
    sureness,
)
from innerloop_studies.recorded.files import ROOT

MARK = re.compile(r"(<!-- results: ([^\n]+?) -->)(\n?)(.*?)(<!-- end -->)", re.DOTALL)

TABLES: dict[str, Callable[..., str]] = {
    "accuracies": predictions.accuracies_of,
    "accuracy": accuracies.accuracy,
    "adaptation": evaluations.adaptation,
    "alphabets": accuracies.alphabets,
    "at_random": predictions.at_random,
    "beyond_chance": predictions.beyond_chance,
    "by_rate": evaluations.by_rate,
    "cases": benchmarks.cases,
    "cost": reproductions.cost,
    "found": reproductions.found,
    "growth": benchmarks.growth,
    "lead": evaluations.lead,
    "machine": benchmarks.machine,
    "memory": benchmarks.memory,
    "methods": accuracies.methods,
    "overview": reproductions.overview,
    "prediction": predictions.score_of,
    "predictions": predictions.predictions,
    "printed": printed.printed,
    "proximal": measurements.proximal,
    "protocols": reproductions.protocols,
    "races": races.races,
    "rates": rates.rates,
    "ratio": benchmarks.ratio,
    "repeatable": predictions.repeatable,
    "reported": evaluations.reported,
    "rows": reproductions.rows,
    "score": evaluations.score,
    "searches": accuracies.searches,
    "shares": accuracies.shares,
    "sure": sureness.sure,
    "sureness": sureness.sureness,
    "time": evaluations.time_of,
    "untrained": evaluations.untrained,
    "validations": evaluations.validations,
    "weights": evaluations.weights,
}


def pages() -> list[Path]:
    """Where marks may stand."""
    return sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def filled(text: str) -> str:
    """A page with what its marks ask for: a block where the mark ends its line, else words within a line.

    >>> filled("<!-- results: rows adaptlr-fig0 -->")
    '<!-- results: rows adaptlr-fig0 -->'
    """

    def fill(match: re.Match[str]) -> str:
        name, *words = shlex.split(match[2])
        made = TABLES[name](*words)
        return f"{match[1]}\n\n{made}\n\n{match[5]}" if match[3] else f"{match[1]}{made}{match[5]}"

    return MARK.sub(fill, text)


def write() -> list[Path]:
    """Fills all pages; returns those that changed."""
    changed = []
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = filled(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            changed.append(page)
    return changed
