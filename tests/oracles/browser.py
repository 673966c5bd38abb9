"""A page as a real browser sees it: its document after scripts have run, and what it complained of."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from oracles.patience import PATIENCE

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
]


class Seen(NamedTuple):
    """The document as text, and the lines of its console."""

    document: str
    console: list[str]


def browser() -> str:
    """The path of a Chromium; skips the test where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine")
    return found


def opened(page: Path, fragment: str = "") -> Seen:
    """Opens a file and waits until it has loaded."""
    address = page.resolve().as_uri() + (f"#{fragment}" if fragment else "")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser(), *OPTIONS, f"--user-data-dir={profile}", "--dump-dom", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "</html>" in done.stdout, done.stderr[-500:]
    return Seen(done.stdout, re.findall(r"CONSOLE[^\n]*", done.stderr))
