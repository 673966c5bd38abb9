"""Files of pages: which may be written, before anything heavy is imported."""

from __future__ import annotations

from pathlib import Path

from innerloop.core.errors import UserError

MARKER = "<!-- innerloop:report -->"
"""Stands in every page we write; a file without it is not ours to overwrite."""


def check_page(out: Path) -> None:
    """Refuses a name that no page can have, before anything is computed for it."""
    if out.is_dir():
        raise UserError(f"{out} is a folder: name a file in it, such as {out / 'report.html'}.")
    if out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--page {out} must end in .html, so that a browser opens it.")
    if not out.parent.is_dir():
        raise UserError(f"there is no folder {out.parent} to write {out.name} into: make it first.")
    if out.exists() and not (out.is_file() and MARKER in _beginning(out)):
        raise UserError(f"{out} exists and is not a page of ours: choose another name for --page.")


def _beginning(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as opened:
        return opened.read(500)
