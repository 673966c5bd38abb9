"""A run from elsewhere: nothing in it leads out of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from innerloop.cli.main import main
from support.places import ROOT

RUN = ROOT / "tests" / "fixtures" / "runs" / "sine-maml"


@pytest.mark.parametrize(
    "name", ["log.txt", "eval", "metrics.jsonl", "manifest.json", "checkpoints", ".lock"]
)
def test_links_in_a_run_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(RUN, run)
    if (run / name).exists():
        (run / name).rename(outside)
    else:
        outside.write_text("mine\n")
    (run / name).symlink_to(outside)
    before = {file: file.read_bytes() for file in (outside, *outside.rglob("*")) if file.is_file()}
    for words in (["resume", "run"], ["eval", "run", "eval.episodes=2"], ["report", "run"]):
        assert main(words) == 2, words
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{name} is a symbolic link" in line, words
    assert before == {file: file.read_bytes() for file in (outside, *outside.rglob("*")) if file.is_file()}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes")
@pytest.mark.parametrize("name", ["log.txt", "recipe.toml", "report.html", "eval/more.json"])
def test_pipes_in_a_run_are_refused_and_not_waited_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RUN, "run")
    Path("run", name).unlink(missing_ok=True)
    os.mkfifo(Path("run", name))
    for words in (["resume", "run"], ["eval", "run", "eval.episodes=2"], ["report", "run"]):
        assert main(words) == 2, words
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{name} is a pipe or a device" in line or "run has no recipe.toml" in line, words


def test_a_link_to_a_run_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RUN, tmp_path / "run")
    (tmp_path / "other").symlink_to("run")
    assert main(["report", "other"]) == 0
