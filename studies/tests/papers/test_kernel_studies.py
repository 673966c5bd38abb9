"""Studies of kernels at smoke, and the benchmark of meta-kernels."""

import json

import pytest

from innerloop.cli.main import main
from innerloop_studies.bench import metakernel


def answer(words, capsys, code=0):
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("bridge-fig1", marks=pytest.mark.slow),
        pytest.param("bridge-spectra", marks=pytest.mark.slow),
        "bridge-objectives",
        pytest.param("bridge-agreement", marks=pytest.mark.slow),
        "bridge-convergence",
        pytest.param("metantk-regression", marks=pytest.mark.slow),
        pytest.param("metantk-convergence", marks=pytest.mark.slow),
    ],
)
def test_reproductions_are_as_recorded(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    told = answer(["reproduce", name, "--scale", "smoke"], capsys)
    assert all(row["ok"] for row in told["rows"])
    assert (tmp_path / told["figure"]).stat().st_size > 10_000


@pytest.mark.slow
def test_bench_metakernel_runs_and_both_sides_agree():
    report = metakernel.run(quick=True, say=lambda _: None, sizes={"tasks": 20, "looped": 10, "points": 250})
    assert [row["peer"] for row in report["cases"]] == ["pair-loop"] * 2
    assert all(row["ratio"] > 1 for row in report["cases"])
    assert report["growth"]["points"] == [250]
