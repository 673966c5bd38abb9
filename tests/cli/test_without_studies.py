"""The library without `innerloop-studies`: nothing needs it, and the command says how to get it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT

WITHOUT = """
import importlib.metadata, sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "innerloop_studies":
            raise ModuleNotFoundError(name)

every = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **by: () if by["group"].startswith("innerloop.") else every(**by)
sys.meta_path.insert(0, NotInstalled())
from innerloop.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-P", "-c", WITHOUT, *words]
    return subprocess.run(called, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words", [["reproduce", "ls"], ["bench", "maml-sine", "--quick"], ["bench", "--help"]]
)
def test_verbs_of_the_studies_say_how_to_install_them(tmp_path: Path, words: list[str]) -> None:
    ran = run(tmp_path, *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    said = (
        f"`innerloop {words[0]}` needs the studies, which are not installed: `pip install innerloop-studies`."
    )
    assert said in " ".join(ran.stderr.split())
    assert not list(tmp_path.iterdir())


def test_ls_and_help_work(tmp_path: Path) -> None:
    listed = run(tmp_path, "ls", "--json")
    assert listed.returncode == 0
    assert json.loads(listed.stdout)["benchmarks"] == []
    assert "reproduce" in run(tmp_path, "--help").stdout


def test_neither_the_library_nor_its_tests_import_them() -> None:
    imported = re.compile(r"^\s*(from|import) innerloop_studies", re.MULTILINE)
    files = [file for folder in ("src/innerloop", "tests") for file in (ROOT / folder).rglob("*.py")]
    assert [file for file in files if imported.search(file.read_text("utf-8"))] == []
