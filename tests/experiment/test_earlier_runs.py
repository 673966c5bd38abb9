"""Runs that earlier versions made still load.

``tests/fixtures/runs-0.1`` was written before runs kept their split, checkpoints their checksums and
evaluations the settings they changed; ``runs-before-experiments`` before runs kept what their networks were
sized to.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from innerloop.cli.main import main
from innerloop.data.glyphs import glyphs
from innerloop.experiment.run import evaluate_run
from innerloop.testing.closeness import SINGLE_CHAINED
from support.places import FIXTURES

RUNS = sorted(path for path in FIXTURES.glob("runs-*/*") if path.is_dir())


@pytest.fixture(params=RUNS, ids=lambda path: f"{path.parent.name}/{path.name}")
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(request.param, tmp_path / request.param.name))


def evaluations(run: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((run / "eval").glob("*.json"))]


def test_an_evaluation_gives_the_scores_that_were_recorded(run: Path) -> None:
    (before,) = evaluations(run)
    evaluate_run(run, [])
    first, again = evaluations(run)
    assert first == before
    if before["score"] == "mse":
        assert again["scores"] == pytest.approx(before["scores"], rel=SINGLE_CHAINED)
    else:  # another processor may round a tie the other way, once
        queries = before["protocol"]["ways"] * before["protocol"]["queries"]
        moved = sum(abs(a - b) for a, b in zip(again["scores"], before["scores"], strict=True)) * queries
        assert moved <= 1.01
    assert {key: again["protocol"][key] for key in before["protocol"]} == before["protocol"]


@pytest.mark.one_in(3)
def test_pages_and_listings_lead_with_the_recorded_score(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (before,) = evaluations(run)
    assert main(["report", str(run), "--json"]) == 0
    page = Path(json.loads(capsys.readouterr().out.splitlines()[-1])["report"]).read_text()
    shown = f"{100 * before['mean']:.1f}" if before["score"] == "accuracy" else f"{before['mean']:.3g}"
    assert shown in page
    assert main(["show", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_finished_run_is_not_resumed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(run)]) == 2
    assert "is finished" in capsys.readouterr().err


def test_an_interrupted_run_goes_on_from_its_checkpoint(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "status": "interrupted"}))
    assert main(["resume", str(run), "--quiet"]) == 0
    assert json.loads((run / "manifest.json").read_text())["status"] == "finished"


def test_new_pictures_are_labelled(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    if run.name.startswith("sine"):
        pytest.skip("was not trained on pictures")
    source = glyphs()
    for label in range(3):
        folder = tmp_path / "support" / f"class{label}"
        folder.mkdir(parents=True)
        for i in range(2):
            Image.fromarray(source.images[source.starts[label] + i, ..., 0]).save(folder / f"{i}.png")
    query = tmp_path / "query.png"
    Image.fromarray(source.images[source.starts[1] + 5, ..., 0]).save(query)
    assert main(["predict", str(run), "--support", str(tmp_path / "support"), str(query), "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out.splitlines()[-1])["predictions"]
    assert answer["label"] in {"class0", "class1", "class2"}
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
