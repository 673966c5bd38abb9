"""The frame of `reproduce`: rows, exit codes, parts that are kept, studies that are found."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from innerloop.cli import main as command
from innerloop.core.errors import UserError
from innerloop.report.plots.style import new_figure
from innerloop_studies import reproduce
from innerloop_studies.reproduce import PACKAGE, made_by, module_name
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, row
from support.places import ROOT


def fake_reproduction(monkeypatch, holds, expected):
    def run(scale, say):
        say(f"at {scale}")
        figure, _ = new_figure()
        rows = [row("gain", 3, 2.5, holds, expected=expected, reason="because")]
        return Reproduction(rows, {"main": figure}, {"x": [1, 2]}, {"seeds": 1})

    monkeypatch.setitem(reproduce.REPRODUCTIONS, "fake", "nothing")
    monkeypatch.setattr("innerloop_studies.reproduce.runs.made_by", lambda name: {})
    monkeypatch.setattr("innerloop_studies.reproduce.find", lambda name: run)


@pytest.mark.parametrize(
    ("holds", "expected", "code"), [(True, True, 0), (False, False, 0), (False, True, 3), (True, False, 3)]
)
def test_the_exit_code_says_whether_rows_are_as_recorded(
    monkeypatch, tmp_path, capsys, holds, expected, code
):
    monkeypatch.chdir(tmp_path)
    fake_reproduction(monkeypatch, holds, expected)
    assert command.main(["reproduce", "fake", "--json"]) == code
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["rows"][0] | {"what": "gain", "holds": holds, "ok": code == 0} == result["rows"][0]
    assert (tmp_path / result["figure"]).is_file()
    assert json.loads((tmp_path / result["run"] / "result.json").read_text())["data"] == {"x": [1, 2]}


def test_a_reproduction_for_people(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    fake_reproduction(monkeypatch, False, False)
    assert command.main(["reproduce", "fake"]) == 0
    out = capsys.readouterr().out
    assert "gain: because" in out
    assert "figure: " in out


@pytest.mark.parametrize("words", [["reproduce", "nothing"], ["reproduce", "fake", "--scale", "big"]])
def test_bad_names_and_scales_are_user_errors(monkeypatch, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(reproduce.REPRODUCTIONS, "fake", "nothing")
    monkeypatch.setattr("innerloop_studies.reproduce.runs.made_by", lambda name: {})
    assert command.main(words) == 2
    assert not (tmp_path / "runs").exists()


def called(folder):
    return len((folder / "calls").read_text().splitlines())


def counted(folder, seed, size=0):
    with (Path(folder) / "calls").open("a") as file:
        file.write(f"{seed}\n")
    if seed == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": (seed, size)}


def computed(folder, *jobs, version=1, **more):
    given = [{"folder": str(folder), **job} for job in jobs]
    return list(compute_parts("x", version, counted, given, folder=folder / "parts", **more))


def test_parts_are_computed_once_for_all_that_they_are_given(tmp_path):
    for _ in range(2):
        assert computed(tmp_path, {"seed": 0}) == [{"value": [0, 0]}]
    assert called(tmp_path) == 1
    computed(tmp_path, {"seed": 1})
    computed(tmp_path, {"seed": 0, "size": 2})
    computed(tmp_path, {"seed": 0}, seen=lambda job: {"content": "other drawings"})
    assert called(tmp_path) == 4


def test_another_version_or_another_torch_computes_anew(monkeypatch, tmp_path):
    for version, torch in ((1, "2.12.0"), (1, "2.13.0"), (2, "2.13.0"), (2, "2.13.0")):
        monkeypatch.setattr("innerloop_studies.reproduce.parts.torch_version", lambda v=torch: v)
        computed(tmp_path, {"seed": 0}, version=version)
    assert called(tmp_path) == 3


def test_parts_come_in_order_and_a_killed_process_loses_only_what_it_was_at(monkeypatch, tmp_path):
    monkeypatch.setattr("innerloop_studies.reproduce.parts.available_cores", lambda: 2)
    jobs = [{"seed": seed} for seed in range(6)]
    assert computed(tmp_path, jobs[4], jobs[1]) == [{"value": [4, 0]}, {"value": [1, 0]}]
    values = [{"value": [seed, 0]} for seed in range(6)]
    assert computed(tmp_path, *jobs) == values
    assert called(tmp_path) == 6
    with pytest.raises(UserError, match="what is finished is kept"):
        computed(tmp_path, *jobs, {"seed": 6}, {"seed": "dies"})
    before = called(tmp_path)
    assert computed(tmp_path, *jobs, {"seed": 6}) == [*values, {"value": [6, 0]}]
    assert called(tmp_path) - before <= 1


def test_a_study_is_one_file(monkeypatch, tmp_path):
    """What CONTRIBUTING says: a file that states title and version is found, listed and run."""
    told = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (how_to,) = re.findall(r"### a study\n.*?```python\n(.*?)```", told, re.DOTALL)
    package = tmp_path / "innerloop_studies"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    study = package / "papers" / "landscape" / "fig99_again.py"
    study.write_text(how_to)
    ls = [sys.executable, "-c", SCRIPT, "ls"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    shown = subprocess.run(ls, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    names = [one["name"] for one in json.loads(shown.stdout)["names"]]
    assert names.index("landscape-fig99-again") == names.index("landscape-fig8") + 1
    assert shown.stderr == "torch: False\n"
    ran = [*ls[:-1], "landscape-fig99-again"]
    done = subprocess.run(ran, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["redoes"] == "Landscape, Figure 99: once more"
    assert result["rows"][0]["ours"] == "what is found here at smoke"
    manifest = json.loads((tmp_path / result["run"] / "manifest.json").read_text())
    assert manifest["made_by"]["version"] == 1


SCRIPT = """import sys
from innerloop.cli.main import main
code = main(["reproduce", sys.argv[1], "--json"])
print("torch:", "torch" in sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("name", reproduce.REPRODUCTIONS)
def test_every_study_states_a_version_and_names_its_figures_after_itself(name):
    assert made_by(name)["version"] >= 1
    assert f'"{name}' in Path(PACKAGE.parent, *module_name(name).split(".")).with_suffix(".py").read_text(
        "utf-8"
    )
