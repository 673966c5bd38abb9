"""A run is known by the number of its recipe's own protocol; other numbers stand beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from innerloop.cli.main import main
from innerloop.evaluation.episodes import Episodes, TaskKind
from innerloop.experiment.pages import write_report as write_page
from innerloop.experiment.recipe.protocols import is_own, own_evaluation
from innerloop.experiment.run_evaluation import evaluate_run
from innerloop.experiment.sweeps.table import SweepRun, table_of
from innerloop.report.comparison_page import pair, seed_groups
from innerloop.report.read_run import headline, load_run, others
from innerloop.runs.progress import Progress
from support.picture_runs import short_run


def trained(folder: Path, method: str, **sections: Any) -> Path:
    base = {"name": method, "data": {"name": "glyphs"}, "inner": {"method": method, "steps": 2}}
    return short_run(folder, {**base, "eval": {"episodes": 6}}, sections)


def old_style(run: Path) -> None:
    """Evaluations as earlier versions wrote them."""
    for file in (run / "eval").glob("*.json"):
        told = json.loads(file.read_text())
        told = {key: value for key, value in told.items() if key not in ("changed", "notes", "drawn")}
        told["protocol"].pop("test_classes")
        file.write_text(json.dumps(told))


@pytest.mark.parametrize("version", ["this", "earlier"])
@pytest.mark.parametrize(
    "settings",
    [["eval.head=logistic"], ["eval.shots=2"], ["eval.ways=3"], ["eval.episodes=3"], ["inner.test_steps=1"]],
)
@pytest.mark.one_in(3)
def test_the_own_protocol_leads_whatever_came_later(
    tmp_path: Path, settings: list[str], version: str
) -> None:
    run = trained(tmp_path, "anil")
    own = Path(next((run / "eval").glob("*.json"))).name
    evaluate_run(run, settings)
    if version == "earlier":
        old_style(run)
    loaded = load_run(run)
    assert (headline(loaded) or {})["file"] == own
    assert len(others(loaded)) == 1
    again = evaluate_run(run, [])  # the newest of several by the own protocol
    assert (headline(load_run(run)) or {})["file"] == again.file.name


def test_settings_that_no_protocol_names_count_too(tmp_path: Path) -> None:
    run = trained(tmp_path, "protonet")
    evaluation = evaluate_run(run, ["tasks.choice=one-group"])
    assert evaluation.changed == {"tasks.choice": "one-group"}
    assert not is_own(load_run(run).recipe, evaluation.as_dict())
    assert evaluate_run(run, ["run.threads=2", "eval.curve=false"]).changed == {}


@pytest.mark.slow
def test_a_run_without_an_evaluation_of_its_own_says_so(tmp_path: Path) -> None:
    run = trained(tmp_path, "protonet")
    evaluate_run(run, ["eval.head=ridge"])
    (run / "eval" / "glyphs-5way-1shot-protonet0-1.json").unlink()
    loaded = load_run(run)
    assert own_evaluation(loaded.recipe, loaded.evaluations)[1] is False
    assert "by the recipe's own protocol" in write_page([run]).read_text().replace("&#39;", "'")
    second = trained(tmp_path, "anil")
    assert pair(load_run(second), loaded).difference is not None  # the same episodes all the same
    page = write_page([run, second], tmp_path / "two.html").read_text().replace("&#39;", "'")
    assert "ridge head, 5-way 1-shot, glyphs; another protocol than the recipe's" in page


def test_a_comparison_is_of_the_own_protocols(tmp_path: Path) -> None:
    proto, anil = trained(tmp_path, "protonet"), trained(tmp_path, "anil")
    fair = pair(load_run(anil), load_run(proto))
    evaluate_run(proto, ["eval.head=logistic"])
    assert pair(load_run(anil), load_run(proto)) == fair
    page = write_page([proto, anil], tmp_path / "page.html").read_text()
    assert 'data-of="judged by">protonet, 5-way 1-shot, glyphs<' in page
    assert 'data-of="judged by">anil, 2 inner steps, 5-way 1-shot, glyphs<' in page
    assert "(1 more below)" in page
    assert "logistic head, 5-way 1-shot, glyphs" in page


def test_ls_and_show_give_every_number_with_head_shots_and_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = trained(tmp_path / "runs", "protonet")
    own = headline(load_run(run)) or {}
    evaluate_run(run, ["eval.head=logistic", "eval.shots=2"])
    capsys.readouterr()
    assert main(["ls", "runs", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert row["mean"] == own["mean"]
    assert row["judged_by"] == "protonet, 5-way 1-shot, glyphs"
    assert row["own_protocol"] is True
    assert [other["judged_by"] for other in row["others"]] == ["logistic head, 5-way 2-shot, glyphs"]
    assert main(["ls", "runs"]) == 0
    assert "logistic head, 5-way 2-shot, glyphs" in " ".join(capsys.readouterr().out.split())
    assert main(["show", "last"]) == 0
    text = capsys.readouterr().out
    first, second = (line for line in text.splitlines() if "accuracy" in line)
    assert "protonet, 5-way 1-shot, glyphs" in first
    assert second.startswith("by another protocol than the recipe's: accuracy")
    assert "logistic head, 5-way 2-shot, glyphs" in second


def test_seeds_judged_differently_are_not_taken_together(tmp_path: Path) -> None:
    runs = [trained(tmp_path, "protonet", run={"seed": seed, "folder": str(tmp_path)}) for seed in (0, 1)]
    assert len(seed_groups([load_run(run) for run in runs])) == 1
    evaluate_run(runs[1], ["eval.head=ridge"])
    (runs[1] / "eval" / "glyphs-5way-1shot-protonet0-1.json").unlink()
    assert seed_groups([load_run(run) for run in runs]) == []


def test_a_sweep_compares_the_same_tasks_only() -> None:
    def judged(settings: dict[str, Any], shots: int, level: float) -> SweepRun:
        protocol = {"tasks": "few-shot", "data": "glyphs", "ways": 5, "shots": shots, "method": "protonet"}
        content = {
            "score": "accuracy",
            "mean": level,
            "ci95": 0.1,
            "scores": [level] * 3,
            "protocol": protocol,
        }
        drawn = Episodes("few-shot", (TaskKind(shots, 15, 5),), count=3, seed=0, pictures="of glyphs")
        return SweepRun(settings, content, drawn)

    rows = table_of([judged({"tasks.shots": 1}, 1, 0.5), judged({"tasks.shots": 5}, 5, 0.7)])
    assert rows[1].reason == "other episodes (shots 1 and 5)"
    assert rows[1].difference is None
    assert rows[0].judged_by == "protonet, 5-way 5-shot, glyphs"
    rows = table_of([judged({"outer.lr": 1}, 1, 0.5), judged({"outer.lr": 2}, 1, 0.7)])
    assert rows[1].difference == pytest.approx(-0.2)


def test_differences_have_the_unit_of_the_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = trained(tmp_path, "protonet"), trained(tmp_path, "anil")
    capsys.readouterr()
    assert main(["eval", str(one), "--against", str(two)]) == 0
    (line,) = (text for text in capsys.readouterr().out.splitlines() if text.startswith("against"))
    difference = line.partition("difference ")[2].partition(" task by task")[0]
    assert difference.endswith(" points")
    told = [json.loads(next((run / "eval").glob("*.json")).read_text())["mean"] for run in (one, two)]
    assert float(difference.split()[0]) == pytest.approx(100 * (told[0] - told[1]), abs=0.06)


def test_a_sweep_counts_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    import innerloop.runs.progress as module

    clock = iter(range(0, 1000, 50))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    stream = io.StringIO()
    bar = Progress(3, "sweep", 0, stream, None, None, "runs")
    for done in (1, 2, 3):
        bar.update(done)
    assert "runs/min" in stream.getvalue()
    assert "steps" not in stream.getvalue()
