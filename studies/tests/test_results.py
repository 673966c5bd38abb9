"""Numbers of the pages that come from files of ``results/`` are those of the files."""

import doctest
import importlib
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from innerloop.choose.advice import RACES, SEARCH
from innerloop.choose.estimates import GAIN, GROUPS
from innerloop.core.errors import UserError
from innerloop_studies import recorded
from innerloop_studies.bench import BENCHMARKS
from innerloop_studies.measurements import sureness as measure_sureness
from innerloop_studies.recorded import commands, published, reproductions, scores
from innerloop_studies.reproduce import REPRODUCTIONS
from support.places import ROOT

FILES = sorted((ROOT / "results").glob("*/*.json"))
NAMES = {"reproductions": REPRODUCTIONS, "benchmarks": BENCHMARKS, **commands.LINES}
PAGE = ROOT / "docs" / "reproductions.md"


@pytest.mark.parametrize("page", recorded.pages(), ids=lambda page: page.name)
def test_what_stands_between_marks_is_what_the_files_say(page):
    """Rewrite them with: python -m innerloop_studies.recorded write."""
    content = page.read_text(encoding="utf-8")
    assert recorded.filled(content) == content
    assert content.count("<!-- results:") == len(recorded.MARK.findall(content))  # none is left open
    # a comment at the start of a line would end the paragraph that it stands in
    assert not re.search(r"^ *<!-- results: [^\n]* -->[^\n]", content, re.MULTILINE)


@pytest.mark.parametrize("module", ["proximal", "sureness"])
def test_examples_of_the_modules_are_right(module):
    assert doctest.testmod(importlib.import_module(f"innerloop_studies.measurements.{module}")).failed == 0


def test_numbers_and_words_of_the_tables():
    assert recorded.interval({"mean": 0.6463, "ci95": 0.0082, "n": 3}, 100) == "64.6 ± 0.8"
    assert [recorded.duration(s) for s in (41.4, 463, 8639)] == ["41 s", "8 min", "2 h 24 min"]
    assert recorded.table(("a", "b"), [("1", "")]) == "| a | b |\n| --- | --- |\n| 1 |  |"
    kept = commands.short({"mean": 1 / 3, "draws": [0.0] * 50, "rates": [1, 2]})
    assert kept == {"mean": 0.333333, "rates": [1, 2]}
    thinned = commands.thin([{"step": step} for step in range(1, 26)])
    assert [one["step"] for one in thinned] == [1, 4, 7, 10, 13, 16, 19, 22, 25]
    texts = [reproductions.cell(value) for value in ("|α*|", 0.123456, [1.0, 2.5], True, None)]
    assert texts == ["\\|α\\*\\|", "0.1235", "1, 2.5", "yes", "–"]
    diverged = reproductions.cell("32: 19558742600931125060.000, 64: 0.052")
    assert diverged == "32: 2.0e+19, 64: 0.052"
    settings = {"seeds": [0, 1], "net": {"width": 40}}
    assert reproductions.sentence(settings) == "seeds: 0, 1; net: (width: 40)"
    assert reproductions.listed(["rate-regret", "x"]) == "`rate-regret`, x"
    made = {"machine": {"cpu": "Z80", "cores": 1}, "versions": {"torch": "2.13.0"}}
    assert reproductions.machines([made] * 2) == "one core of Z80 with torch 2.13.0"
    assert [scores.elapsed(ms) for ms in (2.93, 169.3, 3854.3, 1211842.9, None)] == [
        *("2.9 ms", "169 ms", "3.9 s", "20.2 min", "")
    ]
    assert [scores.times(ratio) for ratio in (145.3, 19.44, 2.036)] == ["145×", "19×", "2.04×"]
    assert scores.aim_of({"ratio": 1.2, "at_least": 1.6}) == "1.6×, not reached"
    assert scores.aim_of({"ratio": 1.003, "at_most": 1.01}) == "at most 1.01×"
    bounds = {"value": -0.021, "low": -0.33, "high": 0.29}
    assert scores.bounded(bounds) == "−0.02 [−0.33, 0.29]"
    assert (scores.pair([0.5, -0.212]), scores.pair([1.0, None], digits=1)) == ("0.50; −0.21", "1.0; –")
    assert [scores.shortfall([0.0, 1.0, 2.0], n) for n in (1, 2, 3)] == [1.0, pytest.approx(1 / 3), 0.0]


def test_lines_of_races_and_rates():
    one = {"problem": "x", "chosen": "a", "best": "b", "decided": True, "regret": 0.012}
    line = reproductions.race_line({**one, "long": {"a": 0.488, "b": 0.5}}, ["a", "b"], False)
    assert line == ["x", "a", "more than chance", "1.2 points", "48.8", "**50.0**"]
    line = reproductions.race_line({**one, "long": {"a": 4.4e10, "b": 0.5, "d": None}}, [*"abcd"], True)
    assert line[3:] == ["1 %", "4.4e+10", "**0.5**", "", "diverged"]
    rate = {"case": "x", "auto": 0.411, "rate": 0.263, "scores": [0.2, 0.414], "regret": 0.003}
    assert reproductions.rate_line(rate) == ["x", "41.1 at 0.26", "20.0", "41.4", "0.3"]


def test_files_are_named_after_what_they_hold_and_are_small():
    assert FILES
    for file in FILES:
        content = json.loads(file.read_text(encoding="utf-8"))
        assert content["name"] == file.stem
        assert file.parent.name in commands.KINDS
        assert file.stem in NAMES[file.parent.name]
        assert {"command", "made_by", "ended", "machine"} <= set(content)
        assert file.stat().st_size < 40_000
        assert "/work/" not in file.read_text(encoding="utf-8")


def test_every_recorded_reproduction_is_on_the_page_and_none_of_them_is_typed_as_well():
    content = PAGE.read_text(encoding="utf-8")
    between = "".join(match[3] for match in recorded.MARK.findall(content))
    typed = recorded.MARK.sub("", content)
    for file in (ROOT / "results" / "reproductions").glob("*.json"):
        assert re.search(rf"^\| `{file.stem}` \|.*\|.*\|.*\| (yes|\*\*no\*\*) \|$", between, re.MULTILINE), (
            file.stem
        )
        assert not re.search(rf"^\| `{file.stem}`", typed, re.MULTILINE), file.stem


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"rows": [', "is not valid JSON"),
        ('{"name": "adaptlr-fig1", "ended": ""}', "lacks 'rows'"),
        ('{"name": "adaptlr-fig1", "rows": [{"what": "a"}]}', "lacks 'holds'"),
    ],
)
def test_a_page_is_not_filled_from_a_file_that_is_damaged_or_of_another_format(empty, content, said):
    file = recorded.path_of("reproductions", "adaptlr-fig1")
    file.parent.mkdir(parents=True)
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        recorded.filled("<!-- results: rows adaptlr-fig1 -->old<!-- end -->")
    assert said in str(caught.value)
    assert "make results" in str(caught.value)


def finished(folder, name="adaptlr-fig1", scale="cpu", **changes):
    run = folder / f"reproduce-{name}" / "20260101-000000-s0"
    run.mkdir(parents=True)
    row = {"what": "|a*|", "paper": 1.0, "ours": [2.0, 3.0], "holds": False, "ok": True, "reason": ""}
    result = {
        "name": name,
        "redoes": "…",
        "scale": scale,
        "rows": [row],
        "protocol": {},
        "seconds": 3.5,
        "data": {},
    }
    times = {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:00:05+00:00"}
    manifest = {"kind": "reproduce", "status": "finished", "scale": scale, "cores": 1, **times, **changes}
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (run / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return run


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A folder of results of its own."""
    monkeypatch.setattr(recorded, "RESULTS", tmp_path / "results")
    return tmp_path


def test_a_run_that_is_adopted_becomes_a_table(empty):
    run = finished(empty)
    later = run.parent / "20260102-000000-s0"
    run.rename(later)
    before = finished(empty, status="interrupted", ended="2026-01-01T00:01:00+00:00")
    kept = json.loads(commands.adopt(later).read_text(encoding="utf-8"))
    assert kept["earlier"] == [60.0]
    assert reproductions.seconds_of(kept) == 63.5
    assert reproductions.rows("adaptlr-fig*").splitlines()[2:] == [
        "| `adaptlr-fig1` | \\|a\\*\\| | 1 | 2, 3 | **no** |"
    ]
    with pytest.raises(UserError, match="interrupted"):
        commands.adopt(before)


@pytest.mark.parametrize("changes", [{"scale": "smoke"}, {"status": "running"}, {"kind": "train"}])
def test_only_finished_reproductions_at_cpu_are_adopted(empty, changes):
    with pytest.raises(UserError):
        commands.adopt(finished(empty, **changes))
    assert not (empty / "results").exists()


def test_an_older_run_does_not_replace_a_later_one(empty):
    commands.adopt(finished(empty / "new", ended="2026-01-03T00:00:00+00:00"))
    with pytest.raises(UserError, match="later run"):
        commands.adopt(finished(empty / "old"))


def test_what_is_missing_or_of_another_version_is_run_and_nothing_else(empty, monkeypatch):
    (one,) = commands.chosen(["adaptlr-fig1"])
    assert commands.state_of(one) == "missing"
    commands.adopt(finished(empty, made_by={**one.made_by, "version": 0}))
    now = one.made_by["version"]
    assert commands.state_of(one) == f"out of date (version 0 → {now})"
    ran = []
    monkeypatch.setattr(commands, "carry_out", lambda command: ran.append(command.name))
    assert commands.run(["adaptlr-fig1"], lambda line: None) == 0
    assert ran == ["adaptlr-fig1"]
    (empty / "results/reproductions/adaptlr-fig1.json").unlink()
    commands.adopt(finished(empty / "again", made_by=one.made_by))
    assert commands.run(["adaptlr-fig1"], lambda line: None) == 0
    assert ran == ["adaptlr-fig1"]


def test_every_file_says_which_version_made_it():
    for file in FILES:
        made_by = json.loads(file.read_text(encoding="utf-8"))["made_by"]
        assert set(made_by) == {"version", "torch"}, file
        assert made_by["version"] >= 1


def test_a_version_is_stated_for_every_command():
    for one in commands.commands():
        assert set(one.made_by) == {"version", "torch"}
        assert one.made_by["version"] >= 1
    (bench,) = commands.chosen(["maml-sine"])
    assert bench.made_by["version"] == BENCHMARKS["maml-sine"].version


def test_the_status_names_kinds_in_words(monkeypatch, capsys):
    status = importlib.import_module("innerloop_studies.recorded.__main__")
    monkeypatch.setattr(status, "state_of", lambda command: "missing")
    monkeypatch.setattr(sys, "argv", ["recorded", "status"])
    assert status.main() == 0
    kinds = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert kinds == {"reproduction", "benchmark", "evaluation", "prediction", "measurement", "printed"}


def test_mistakes_are_a_sentence_and_exit_code_2(empty, monkeypatch, capsys):
    commands.adopt(finished(empty, made_by={**commands.chosen(["adaptlr-fig1"])[0].made_by, "version": 0}))
    page = empty / "page.md"
    page.write_text("<!-- results: found adaptlr-fig1 nothing -->old<!-- end -->", encoding="utf-8")
    monkeypatch.setattr(recorded, "pages", lambda: [page])
    status = importlib.import_module("innerloop_studies.recorded.__main__")
    monkeypatch.setattr(sys, "argv", ["recorded", "write"])
    assert status.main() == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("warning: adaptlr-fig1 is out of date (version 0 → ")
    assert told[1:] == ["error: 0 statements of adaptlr-fig1 are 'nothing'; there must be one."]
    assert "old" in page.read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["recorded", "adopt", str(empty / "nothing.json")])
    assert status.main() == 2
    assert capsys.readouterr().err == f"error: there is no {empty / 'nothing.json'}.\n"


def test_a_command_that_fails_is_told_and_does_not_stop_the_others(empty, monkeypatch):
    monkeypatch.setattr(commands, "state_of", lambda command: "missing")
    monkeypatch.setattr(
        commands, "carry_out", lambda command: "no data" if command.name.endswith("1") else None
    )
    said = []
    assert commands.run(["landscape-fig[12]"], said.append) == 1
    assert said[1::2] == ["[1/2] landscape-fig1: no data", "[2/2] landscape-fig2: recorded"]
    with pytest.raises(UserError, match="nothing is called"):
        commands.chosen(["landscape-fig0"])


def test_words_within_a_line_are_filled_like_blocks(monkeypatch):
    monkeypatch.setattr(reproductions, "rows", lambda *words: "+".join(words))
    assert recorded.filled("a <!-- results: rows 'b c' d -->old<!-- end --> e") == (
        "a <!-- results: rows 'b c' d -->b c+d<!-- end --> e"
    )
    assert recorded.filled("<!-- results: rows b -->\nold\n<!-- end -->") == (
        "<!-- results: rows b -->\n\nb\n\n<!-- end -->"
    )


def test_a_benchmark_becomes_a_table_and_words(empty):
    where = {"cpu": "Z80", "cores": 1, "torch": "2.13.0+cpu", "sgemm_gflops": {"1": 90.2}}
    case = {"case": "a, b", "peer": "p", "ours_ms": 2.0, "peer_ms": 3000.0, "ratio": 1.5, "at_least": 2.0}
    case |= {"ours_mb": 30.0, "peer_mb": 20.0, "notes": "one; two"}
    other = {"case": "c", "peer": "p", "ours_ms": 1.0}
    printed = empty / "bench.json"
    printed.write_text(
        json.dumps({"name": "heads", "cases": [case, other], "machine": where}), encoding="utf-8"
    )
    commands.adopt(printed)
    assert scores.cases("heads").splitlines()[2:] == [
        "| a, b | p | 2.0 ms | 3.0 s | **1.50×** | 2×, not reached | 30 / 20 MB | one; two |",
        "| c | p | 1.0 ms |  |  |  |  |  |",
    ]
    assert (scores.ratio("heads", "a*"), scores.memory("heads", "a*", "p")) == ("1.50×", "1.50×")
    assert scores.machine("heads").startswith(
        "Z80, 1 core, torch 2.13.0; sgemm in GFLOP/s by threads: 90 on 1;"
    )
    with pytest.raises(UserError, match="2 cases"):
        scores.ratio("heads", "*")
    with pytest.raises(UserError, match="missing"):
        scores.cases("qp")
    printed.write_text('{"error": "interrupted", "exit_code": 130}', encoding="utf-8")
    with pytest.raises(UserError, match="no result"):
        commands.adopt(printed)


def test_a_sweep_becomes_a_table_and_a_score(empty):
    times = {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:00:05+00:00"}
    for seed, mean in enumerate((1.0, 2.0)):
        run = empty / f"run{seed}"
        (run / "eval").mkdir(parents=True)
        (run / "manifest.json").write_text(
            json.dumps({"status": "finished", "cores": 1, **times}), encoding="utf-8"
        )
        steps = [{"steps": 0, "mean": 9.0, "ci95": 1.0}, {"steps": 1, "mean": mean, "ci95": 0.5}]
        found = {"score": "mse", "mean": mean, "ci95": 0.5, "by_step": steps, "scores": [mean] * 600}
        found |= {"protocol": {"train_seed": seed}, "time": "1"}
        (run / "eval" / "a.json").write_text(json.dumps(found), encoding="utf-8")
        again = found | {"mean": 7.0, "time": "2"}
        (run / "eval" / "b.json").write_text(json.dumps(again), encoding="utf-8")
    commands.adopt_evaluation("sine-maml", {"runs": ["run0", "run1"]}, empty)
    kept = recorded.path_of("evaluations", "sine-maml").read_text(encoding="utf-8")
    assert "scores" not in kept
    assert json.loads(kept)["runs"][0]["seconds"] == 5.0
    assert scores.adaptation("sine-maml=MAML").splitlines() == [
        "| after inner steps | 0 | 1 | over seeds |",
        "| --- | --- | --- | --- |",
        "| MAML, seed 0 | 9.000 | 1.000 ± 0.500 |  |",
        "| MAML, seed 1 | 9.000 | 2.000 ± 0.500 | **1.500 ± 6.353** |",
    ]
    assert scores.score("sine-maml") == "1.500 ± 6.353"
    judged = {"score": "mse", "ci95": 0.5}
    rates = [judged | {"mean": mean, "protocol": {"inner_lr": 1 / mean}} for mean in (1, 2)]
    recorded.keep("evaluations", "sine-anil-rates", {"runs": rates})
    assert scores.by_rate("sine-anil-rates") == "0.5: 2.00 ± 0.50; **1: 1.00 ± 0.50**"
    with pytest.raises(UserError, match="nothing is called"):
        commands.adopt_evaluation("sine", {"run": "run0"}, empty)


def test_the_course_baselines_and_comparisons_of_a_training_become_words(empty):
    run = empty / "run"
    (run / "eval").mkdir(parents=True)
    times = {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:10:00+00:00"}
    (run / "manifest.json").write_text(json.dumps({"status": "finished", **times}), encoding="utf-8")
    lines = [{"step": 9, "loss": 1.0, "learner.inner_residual": 0.125}]
    lines += [{"step": 10 * i, "validation": i / 10, "ci95": 0.01} for i in (1, 2)]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    nearest = {"name": "pixels", "mean": 0.3, "ci95": 0.02}
    judged = {"score": "accuracy", "mean": 0.5, "ci95": 0.01, "baselines": [nearest], "scores": [0.5] * 600}
    judged |= {"protocol": {"weights": "best by validation (step 20)"}, "time": "1"}
    (run / "eval" / "a.json").write_text(json.dumps(judged), encoding="utf-8")
    comparison = {"against": "run", "difference": 0.25, "ci95": 0.005, "verdict": "first"}
    also = {"pretrained": judged | {"mean": 0.75, "comparison": comparison}}
    commands.adopt_evaluation("photos-supervised", {"run": "run"}, empty, also)
    assert scores.score("photos-supervised") == "50.0 ± 1.0 %"
    assert scores.score("photos-supervised", "pretrained") == "75.0 ± 1.0 %"
    assert scores.lead("photos-supervised", "pretrained") == "25.0 ± 0.5"
    assert scores.untrained("photos-supervised", "pixels") == "30.0 ± 2.0 %"
    assert scores.weights("photos-supervised") == "best by validation (step 20)"
    assert scores.reported("photos-supervised", "inner_residual") == "0.12"
    assert scores.time("photos-supervised") == "10 min"
    commands.adopt_evaluation("photos-maml", {"run": "run"}, empty, timed=False)
    assert scores.time("photos-maml") == "not timed"  # it was interrupted: the clock tells nothing
    assert scores.validations("photos-supervised").splitlines() == [
        "| meta-step | 10 | 20 |",
        "| --- | --- | --- |",
        "| validation | 10.0 ± 1.0 % | 20.0 ± 1.0 % |",
    ]
    kept = recorded.path_of("evaluations", "photos-supervised").read_text(encoding="utf-8")
    assert "scores" not in kept
    assert "against" not in kept


def test_photographs_are_written_once_and_asked_for_where_they_are_missing(tmp_path, monkeypatch):
    monkeypatch.delenv("INNERLOOP_TEST_DATA", raising=False)
    with pytest.raises(UserError, match="set INNERLOOP_TEST_DATA"):
        commands.write_photographs(tmp_path / "photos")
    labels = np.repeat(np.arange(4), 3)
    data = {"jpeg": np.arange(24, dtype=np.uint8), "offsets": 2 * np.arange(13), "labels": labels}
    np.savez(tmp_path / commands.REAL, **data)
    monkeypatch.setenv("INNERLOOP_TEST_DATA", str(tmp_path))
    commands.write_photographs(tmp_path / "photos", classes=2, each=2)
    written = {str(file.relative_to(tmp_path)): file.read_bytes() for file in tmp_path.glob("photos/*/*")}
    assert written == {
        "photos/class000/000.jpg": bytes([0, 1]),
        "photos/class000/001.jpg": bytes([2, 3]),
        "photos/class001/000.jpg": bytes([18, 19]),
        "photos/class001/001.jpg": bytes([20, 21]),
    }
    (tmp_path / "photos" / "class000" / "000.jpg").write_bytes(b"mine")
    commands.write_photographs(tmp_path / "photos", classes=3, each=1)
    assert len(list(tmp_path.glob("photos/*"))) == 2
    assert (tmp_path / "photos" / "class000" / "000.jpg").read_bytes() == b"mine"


def test_a_measurement_of_sureness_becomes_a_table(empty, monkeypatch):
    (few,), (many,) = commands.chosen(["sureness"]), commands.chosen(["sureness-many-queries"])
    monkeypatch.delenv(commands.DATA, raising=False)
    with pytest.raises(UserError, match="INNERLOOP_TEST_DATA"):
        commands.carry_out(few)
    row = {name: {"mean": 0.5, "ci95": 0.01} for name in measure_sureness.HEADING}
    row["inside"] = {"mean": 0.9, "ci95": 0.04}
    printed = subprocess.CompletedProcess([], 0, stdout=json.dumps({"rows": {"Omniglot (…)": row}}))
    called = []
    monkeypatch.setattr(commands.subprocess, "run", lambda words, **_: called.append(words) or printed)
    monkeypatch.setenv(commands.DATA, "somewhere")
    assert commands.carry_out(many) is None
    assert called[0][2:] == [
        *("innerloop_studies.measurements.sureness", "somewhere", "--each", "60", "--queries", "55", "--json")
    ]
    content = recorded.required("measurements", "sureness-many-queries")
    assert content["command"].endswith("sureness $INNERLOOP_TEST_DATA --each 60 --queries 55")
    assert content["made_by"] == many.made_by
    assert scores.sure("sureness-many-queries", "Omniglot", "inside") == "90.0 ± 4.0 %"
    assert (
        scores.sureness("sureness-many-queries").splitlines()[2].startswith("| Omniglot (…) | 50.0 ± 1.0 |")
    )
    printed.returncode = 2
    assert commands.carry_out(few) == "ended with code 2"


def test_what_a_command_prints_becomes_a_block(empty, monkeypatch):
    (one,) = commands.chosen(["advise-glyphs"])
    ended = subprocess.CompletedProcess([], 0, stdout="\nWhat to do  \n  Use it.\n")
    called = []
    monkeypatch.setattr(commands.subprocess, "run", lambda words, **_: called.append(words) or ended)
    assert commands.carry_out(one) is None
    assert called[0][2:] == ["innerloop", "advise", "glyphs", "budget=60s"]
    assert scores.printed("advise-glyphs").splitlines() == [
        *("```text", "$ innerloop advise glyphs budget=60s", "What to do", "  Use it.", "```")
    ]
    ended.stdout = "a\n\nWhy\n  b"
    assert commands.carry_out(one) is None
    assert scores.printed("advise-glyphs", "Why").splitlines()[2:] == ["a", "", "…", "```"]
    ended.returncode = 2
    assert commands.carry_out(one) == "ended with code 2"


def test_validations_of_scores_become_one_table(empty):
    def row(score, value):
        estimate = {"value": value, "low": value - 0.1, "high": value + 0.1}
        numbers = {"spearman": estimate, "ndcg": {"value": 0.9}, "regret": {"value": 0.01}}
        return {"score": score, **numbers, "better_half": {"spearman": estimate}, "tau_between_repeats": None}

    for name, values in (("scores-cifar-fs", (0.1, 0.2)), ("scores-omniglot", (0.5, 0.3))):
        result = {"table": [row(score, value) for score, value in zip(("ntk", "flops"), values, strict=True)]}
        result |= {"reliability": {"accuracy": 0.82}, "protocol": {}, "training_seconds": 1.0, "seconds": 2.0}
        result["candidates"] = [{"accuracy": mean, "genotype": "…"} for mean in (0.25, 0.5)]
        (command,) = commands.chosen([name])
        commands.adopt_output(command, result)
    lines = scores.predictions("scores-cifar-fs=CIFAR-FS", "scores-omniglot").splitlines()
    assert lines[0].startswith("| score | ρ, CIFAR-FS | ρ, scores-omniglot | in the better half |")
    assert lines[2] == (
        "| `ntk` | 0.10 [0.00, 0.20] | 0.50 [0.40, 0.60] | 0.10; 0.50 | 0.90; 0.90 | 1.0; 1.0 | –; – |"
    )
    assert lines[3].startswith("| `flops` |")
    assert scores.accuracies("scores-omniglot") == "between 25.0 and 50.0 % (mean 37.5)"
    assert scores.repeatable("scores-omniglot") == "0.82"
    assert scores.beyond_chance("scores-cifar-fs=CIFAR-FS", "scores-omniglot=Omniglot") == (
        "`flops` on CIFAR-FS; `ntk`, `flops` on Omniglot"
    )
    assert scores.prediction("scores-omniglot", "ntk", "regret") == "1.0"
    assert scores.at_random("scores-omniglot") == "12.5"
    assert "genotype" not in recorded.path_of("predictions", "scores-omniglot").read_text(encoding="utf-8")


def test_commands_of_the_pages_are_those_that_are_run():
    names = ("results.md", "taxonomy.md", "own-pictures.md", "scores.md", "rate.md")
    page = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in names)
    for kind in ("evaluations", "predictions"):
        for line in commands.LINES[kind].values():
            quoted = " ".join(f"'{word}'" if "[" in word else word for word in line.split())
            assert quoted in page or line in page, line


def test_the_number_of_statements_that_hold_is_counted_from_the_files():
    found = [
        json.loads(file.read_text(encoding="utf-8")) for file in FILES if file.parent.name == "reproductions"
    ]
    rows = [row for one in found for row in one["rows"]]
    said = f"{sum(row['holds'] for row in rows)} of\ntheir {len(rows)} statements hold"
    assert said.replace("\n", " ") in PAGE.read_text(encoding="utf-8").replace("\n", " ")


@pytest.mark.parametrize(("kind", "name"), [("pictures", "advice-race"), ("numbers", "advice-numbers")])
def test_what_the_advice_says_of_races_is_what_was_recorded(kind, name):
    rows = json.loads((ROOT / "results" / "reproductions" / f"{name}.json").read_text())["rows"]
    close, lasted = (rows[place]["ours"] for place in (1, 3))
    hits, _, worst = re.match(r"(\d+ of \d+); median (\S+), worst (\S+)", close).groups()
    assert f"on {hits} its first choice" in RACES[kind]
    assert f"({worst}" in RACES[kind]
    assert f"and {lasted} leads" in RACES[kind]


def test_what_the_advice_says_of_hard_groups_is_what_was_recorded():
    rows = json.loads((ROOT / "results" / "reproductions" / "advice-hardness.json").read_text())["rows"]
    omniglot, cifar = (
        " and ".join(row["ours"].split()[0] for row in rows if row["what"].startswith(name))
        for name in ("omniglot", "cifar100")
    )
    assert GROUPS.endswith(f"correlations of {omniglot} on Omniglot, {cifar} on CIFAR-100")


def test_what_the_advice_says_of_gains_is_what_was_recorded():
    rows = json.loads((ROOT / "results" / "reproductions" / "advice-landscape.json").read_text())["rows"]
    inside, there, most = re.match(r"(\d+) of (\d+); .*, (\d+%) at most", rows[1]["ours"]).groups()
    assert GAIN.startswith(f"of {there} random environments")
    assert f"after training in {inside}, and off by {most} at most" in GAIN


def test_what_the_advice_says_of_searches_is_what_was_recorded():
    names = ("scores-cifar-fs", "scores-omniglot")
    below = " and ".join(map(scores.at_random, names))
    assert f"a random cell was {below} points below the best" in SEARCH
    tables = [scores.rows_of(name) for name in names]
    assert not [s for s in tables[0] if all(table[s]["spearman"]["low"] > 0 for table in tables)]
    for name in names:
        assert len(recorded.required("predictions", name)["accuracies"]) == 40


DECIMAL = re.compile(r"(?<![\w.§])\d+\.\d+(?![\w.]*\d)")
REFERENCES = re.compile(
    r"```.*?```|`[^`\n]*`|§\S+|(Sections?|Corollary|eqs?\.) \d+\.\d+( and \d+\.\d+)?", re.DOTALL
)


def test_numbers_in_the_prose_of_reproductions_are_those_of_the_tables_beside_it():
    """A sentence that repeats a number must not outlive it: fractions are in a table of their section."""
    for section in re.split(r"^(?=## )", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE):
        if section.startswith("## Every statement"):  # its numbers are those of sections of the papers
            continue
        tables = set(DECIMAL.findall("".join(match[3] for match in recorded.MARK.findall(section))))
        prose = REFERENCES.sub("", recorded.MARK.sub("", section))
        settings = {"0.1"}  # an inner rate
        assert set(DECIMAL.findall(prose)) <= tables | settings, section.partition("\n")[0]


def test_a_command_that_cannot_begin_does_not_stop_the_others(empty, monkeypatch):
    monkeypatch.delenv("INNERLOOP_TEST_DATA", raising=False)
    monkeypatch.setattr(commands, "ROOT", empty)
    monkeypatch.setattr(commands.subprocess, "run", lambda *_, **__: pytest.fail("nothing can be trained"))
    said = []
    assert commands.run(["photos-maml", "sureness"], said.append) == 2
    assert sum("set INNERLOOP_TEST_DATA" in line for line in said) == 2


def test_an_interrupted_training_goes_on_unless_another_version_began_it(empty, monkeypatch):
    monkeypatch.setattr(commands, "ROOT", empty)
    (one,) = commands.chosen(["omniglot-protonet"])
    run = empty / "runs" / "omniglot-protonet" / "20260101-000000-s0"
    run.mkdir(parents=True)

    def ended_as(status):
        manifest = {"argv": [*one.line.split(), "--json"], "status": status}
        (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")

    called, timed = [], []
    ended = subprocess.CompletedProcess([], 130, stdout='{"error": "interrupted"}')
    monkeypatch.setattr(commands, "run_words", lambda *words: called.append(words[1:-1]) or ended)
    monkeypatch.setattr(commands, "adopt_evaluation", lambda *args, **named: timed.append(named["timed"]))
    ended_as("interrupted")  # of a version that nobody noted
    assert commands.carry_out(one) == "interrupted"
    assert commands.carry_out(one) == "interrupted"
    ended.returncode, ended.stdout = 0, '{"run": "runs/omniglot-protonet/20260101-000000-s0"}'
    assert commands.carry_out(one) is None
    ended_as("finished")
    assert commands.carry_out(one) is None
    assert [words[0] for words in called] == ["train", "resume", "resume", "train"]
    assert called[1] == ("resume", str(run))
    assert timed == [False, True]
    ended.returncode, ended.stdout = 130, '{"error": "interrupted"}'
    commands.carry_out(one)
    ended_as("running")  # killed
    commands.carry_out(one._replace(made_by={**one.made_by, "version": 2}))
    assert called[-1][0] == "train"


def test_a_further_judgement_that_fails_is_not_kept(monkeypatch):
    ended = subprocess.CompletedProcess([], 2, stdout='{"error": "gone"}')
    monkeypatch.setattr(commands, "run_words", lambda *words: ended)
    assert commands.further_evaluations("sine-maml", "run") == {}
    with pytest.raises(UserError, match="eval run model"):
        commands.further_evaluations("omniglot-maml", "run")
    ended.returncode = 0
    assert commands.further_evaluations("omniglot-maml", "run") == {"support": {"error": "gone"}}


def test_an_accuracy_is_reached_within_its_interval_or_a_point(monkeypatch, tmp_path):
    paper = published.Published("5-way 1-shot", 58.9, 1.9)
    assert published.is_reached(paper, 0.571)
    assert not published.is_reached(paper, 0.569)
    assert published.is_reached(paper._replace(ci95=0.1), 0.58)
    assert not published.is_reached(paper._replace(ci95=0.1), 0.578)
    monkeypatch.setattr(recorded, "RESULTS", tmp_path)
    assert published.reached() == "0 of 18"
    assert "not run" in published.published()
    found = {"score": "accuracy", "mean": 0.99, "ci95": 0.001, "seconds": 60.0}
    recorded.keep("evaluations", "omniglot-protonet-published", {"runs": [found], "also": {"20-way": found}})
    assert published.reached() == "2 of 18"
    assert "| 98.8 % | **99.0 ± 0.1 %** | yes | 60 s |" in published.published()


def test_every_published_accuracy_has_its_command():
    known = commands.LINES["evaluations"]
    for name, (_, numbers) in published.PUBLISHED.items():
        assert name in known
        assert set(numbers) - {""} == set(commands.ALSO.get(name, {}))
