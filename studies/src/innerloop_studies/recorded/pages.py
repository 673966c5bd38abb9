"""What stands between marks in the pages, and how it gets there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from innerloop_studies.recorded import ROOT, TABLES, reproductions, scores

MARK = re.compile(r"(<!-- results: ([^\n]+?) -->)(\n?)(.*?)(<!-- end -->)", re.DOTALL)
__all__ = ["MARK", "TABLES", "filled", "pages", "reproductions", "scores", "write"]


def pages() -> list[Path]:
    """Where marks may stand."""
    return sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def filled(text: str) -> str:
    """A page with what its marks ask for: a block where the mark ends its line, else words within a line."""

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
