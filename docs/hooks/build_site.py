"""Builds the site, strictly: ``python docs/hooks/build_site.py``.

Zensical checks links between pages and to headings. What it does not look at is done here: the links of pages
that are included from the root, and whether everything that a built page points to is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import reference

SITE = reference.ROOT / "site"
INCLUDED = ("changelog.html", "security.html")
"""Pages whose text is a file of the root, where other pages are in ``docs/``."""


class Page(HTMLParser):
    """What a page points to, and what can be pointed to on it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.targets: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes ids, links and pictures."""
        for key, value in attrs:
            if key == "id" and value:
                self.anchors.add(value)
            elif key in ("href", "src") and value and tag != "base":
                self.targets.append(value)


def dead_links(site: Path) -> list[str]:
    """Every target of the pages that is a file or an anchor of this site and is not there, with its page."""
    pages = {file.resolve(): Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    dead = []
    for here, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            there = (here.parent / unquote(parts.path)).resolve() if parts.path else here
            known = pages[there].anchors if there in pages else {unquote(parts.fragment)}
            if not there.exists() or unquote(parts.fragment) not in known:
                dead.append(f"{page.file.relative_to(site)}: {target}")
    return dead


def build() -> int:
    """Writes the reference, builds, mends the links of included pages, and tells which lead nowhere."""
    reference.write()
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}  # formulas.py
    if code := subprocess.run(command, cwd=reference.ROOT, env=environment, check=False).returncode:
        return code
    for name in INCLUDED:
        page = SITE / name
        page.write_text(page.read_text(encoding="utf-8").replace('href="docs/', 'href="'), encoding="utf-8")
    dead = dead_links(SITE)
    for line in dead:
        sys.stderr.write(f"{line} leads nowhere\n")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(build())
