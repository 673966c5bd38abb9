"""A page as a real browser sees it: its document after scripts have run, and what it complained of."""

from __future__ import annotations

import html
import json
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
        pytest.skip("there is no Chromium on this machine: `make browser` installs it")
    return found


def opened(page: Path, fragment: str = "") -> Seen:
    """Opens a file and waits until it has loaded."""
    address = page.resolve().as_uri() + (f"#{fragment}" if fragment else "")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser(), *OPTIONS, f"--user-data-dir={profile}", "--dump-dom", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "</html>" in done.stdout, done.stderr[-500:]
    return Seen(done.stdout, re.findall(r"CONSOLE[^\n]*", done.stderr))


class Measured(NamedTuple):
    """A page as it is laid out at some width: how far it reaches, its colours, and what it draws."""

    reach: float
    background: str
    ink: str
    images: list[int]
    drawings: list[dict[str, float]]
    console: list[str]


FRAME = """<!doctype html><title>wait</title><body style="margin: 0">
<iframe id="f" src="%s" style="width: %dpx; height: 900px; border: 0"></iframe>
<script>
window.onload = () => {
  const page = document.getElementById("f").contentDocument;
  for (const more of page.querySelectorAll("details")) more.open = true;
  const look = getComputedStyle(page.body);
  const drawn = [...page.querySelectorAll("svg[role=img]")].map(svg => {
    const box = svg.getBoundingClientRect();
    const inked = [...svg.querySelectorAll("path, use, text")]
      .filter(e => e.getBoundingClientRect().width > 0);
    const words = [...svg.querySelectorAll("text")].map(e => e.getBoundingClientRect().height);
    return {width: box.width, height: box.height, marks: inked.length, smallest: Math.min(...words)};
  });
  const told = {
    reach: page.documentElement.scrollWidth, background: look.backgroundColor, ink: look.color,
    images: [...page.images].map(image => image.naturalWidth), drawings: drawn,
  };
  document.body.innerHTML = "<pre id=told></pre>";
  document.getElementById("told").textContent = JSON.stringify(told);
};
</script>"""


def measured(page: Path, width: int = 1100, dark: bool = False) -> Measured:
    """Lays a page out in a frame of that width, with everything unfolded, and measures it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        frame = Path(folder) / "frame.html"
        frame.write_text(FRAME % (page.resolve().as_uri(), width))
        options = [f"--user-data-dir={folder}/profile", "--allow-file-access-from-files"]
        if dark:
            options.append("--blink-settings=preferredColorScheme=0")
        command = [browser(), *OPTIONS, *options, "--window-size=1200,900", "--dump-dom", frame.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    (told,) = re.findall(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL) or [done.stderr[-500:]]
    return Measured(**json.loads(html.unescape(told)), console=re.findall(r"CONSOLE[^\n]*", done.stderr))
