"""`reproduce all`: failures are recorded and passed over, interruptions gone on from, one page at the end."""

import base64
import json
import re

import pytest

from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.report.plots.style import new_figure
from innerloop.runs.manifest import read_manifest
from innerloop_studies import reproduce
from innerloop_studies.reproduce import find
from innerloop_studies.reproduce.rows import Reproduction, row
from innerloop_studies.reproduce.runs import select
from support.pages import read


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """Replaces all reproductions; returns the calls, and what each does on being run."""
    calls, does = [], {}

    def made(name):
        def run(scale, say):
            calls.append(name)
            if isinstance(does[name], BaseException):
                raise does[name]
            holds, expected = does[name]
            figure, _ = new_figure()
            rows = [row(f"{name} < said", 3, 2.5, holds, expected=expected)]
            return Reproduction(rows, {name: figure}, {}, {"seeds": 1})

        return run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("innerloop_studies.reproduce.find", made)
    monkeypatch.setattr("innerloop_studies.reproduce.runs.made_by", lambda name: {"version": 1})
    before = dict(reproduce.REPRODUCTIONS)
    reproduce.REPRODUCTIONS.clear()
    for name in ("good", "bad", "other"):
        reproduce.REPRODUCTIONS[name] = f"about {name}"
        does[name] = (True, True)
    yield calls, does
    reproduce.REPRODUCTIONS.clear()
    reproduce.REPRODUCTIONS.update(before)


def answer(capsys, *words):
    code = main(["reproduce", *words, "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize(
    ("bad", "other", "code"),
    [
        ((True, True), (False, False), 0),
        ((True, True), (False, True), 3),
        (UserError("there is no omniglot here: get it."), (True, True), 2),
        (ZeroDivisionError("by nothing"), (True, True), 1),
        (ZeroDivisionError("by nothing"), (True, False), 3),
    ],
)
@pytest.mark.one_in(2)
def test_the_exit_code_tells_rows_crashes_and_missing_data_apart(fakes, capsys, bad, other, code):
    calls, does = fakes
    does.update(bad=bad, other=other)
    exit_code, result = answer(capsys, "all")
    assert exit_code == code
    assert calls == ["good", "bad", "other"]
    ended = [one["status"] for one in result["reproductions"]]
    assert ended == ["finished", "failed" if isinstance(bad, Exception) else "finished", "finished"]
    assert result["as_recorded"] == sum(one == (True, True) or one == (False, False) for one in does.values())


def test_one_page_and_one_object_have_all_of_them(fakes, capsys, tmp_path):
    _, does = fakes
    does.update(bad=UserError("there is no omniglot here: get it."), other=(False, False))
    _, result = answer(capsys, "all", "--scale", "cpu")
    assert (result["scale"], result["statements"], result["hold"], result["as_recorded"]) == ("cpu", 2, 1, 2)
    assert result["failed"] == ["bad"]
    assert result["reproductions"][1]["reason"] == "there is no omniglot here: get it."
    assert read_manifest(tmp_path / result["reproductions"][1]["run"])["status"] == "failed"
    page = read(tmp_path / result["report"])
    assert "3 reproductions" in page.text
    assert "1 of 2 statements hold here; all 2 findings are as recorded." in page.text
    for words in (
        "good < said",
        "other < said",
        "there is no omniglot here",
        "about bad",
        "Without rows: bad",
    ):
        assert words in page.text
    assert main(["report", result["run"], "--page", "again.html"]) == 0
    assert read(tmp_path / "again.html").text == page.text


def test_for_people_there_is_a_line_each_and_a_table(fakes, capsys):
    _, does = fakes
    does.update(bad=ZeroDivisionError("by nothing"), other=(False, True))
    assert main(["reproduce", "all"]) == 3
    shown = capsys.readouterr()
    for line in ("[1/3] good at smoke: about good", "[1/3] good: 1 of 1 hold, 1 of 1 as recorded"):
        assert line in shown.err
    assert "[2/3] bad: failed: ZeroDivisionError: by nothing" in shown.err
    assert "bad: ZeroDivisionError: by nothing" in shown.out
    assert "other is not as recorded: other < said: 2.5" in shown.out
    assert "1 of 2 statements hold, 1 of 2 are as recorded" in shown.out


def test_members_whose_version_was_raised_are_not_kept(fakes, monkeypatch):
    calls, does = fakes
    does["other"] = KeyboardInterrupt()
    assert main(["reproduce", "all"]) == 130
    does["other"] = (True, True)
    monkeypatch.setattr("innerloop_studies.reproduce.runs.made_by", lambda n: {"version": 1 + (n == "good")})
    calls.clear()
    assert main(["reproduce", "all"]) == 0
    assert calls == ["good", "other"]


def test_an_interrupted_batch_goes_on_where_it_was(fakes, capsys, tmp_path):
    calls, does = fakes
    does["bad"] = KeyboardInterrupt()
    assert main(["reproduce", "all"]) == 130
    assert calls == ["good", "bad"]
    (batch,) = (tmp_path / "runs" / "reproduce-all").iterdir()
    assert read_manifest(batch)["status"] == "interrupted"
    assert "It was interrupted" in read(batch / "report.html").text
    does["bad"] = (True, True)
    capsys.readouterr()
    code, result = answer(capsys, "all")
    assert (code, calls) == (0, ["good", "bad", "bad", "other"])
    assert (tmp_path / result["run"]).samefile(batch)
    assert [one["status"] for one in result["reproductions"]] == ["finished"] * 3
    assert read_manifest(batch)["status"] == "finished"
    answer(capsys, "all")  # finished: from the beginning
    assert calls[4:] == ["good", "bad", "other"]


@pytest.mark.slow
def test_another_scale_or_another_choice_is_another_batch(fakes, capsys):
    calls, does = fakes
    does["other"] = KeyboardInterrupt()
    assert main(["reproduce", "all"]) == 130
    does["other"] = (True, True)
    answer(capsys, "all", "--scale", "cpu")
    answer(capsys, "good", "other")
    assert calls[3:] == ["good", "bad", "other", "good", "other"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["all", "--scale", "big"], "no scale 'big'"),
        (["goood", "bad"], "did you mean 'good'"),
        (["x*"], "no reproduction fits 'x*'"),
        (["ls", "good"], "no reproduction 'ls'"),
    ],
)
def test_mistakes_are_told_before_anything_runs(fakes, capsys, tmp_path, words, message):
    assert main(["reproduce", *words]) == 2
    assert message in capsys.readouterr().err
    assert fakes[0] == []
    assert not (tmp_path / "runs").exists()


def test_names_and_patterns():
    assert select(["all"]) == list(reproduce.REPRODUCTIONS)
    chosen = select(["landscape-fig1", "adaptlr-fig1*", "adaptlr-fig1"])
    assert chosen == ["adaptlr-fig1", "adaptlr-fig10", "adaptlr-fig11", "adaptlr-fig12", "landscape-fig1"]


def test_a_real_one_beside_one_that_fails(monkeypatch, tmp_path, capsys):
    def find_or_fail(name):
        if name == "bridge-fig1":
            raise ImportError("no such module")
        return find(name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("innerloop_studies.reproduce.find", find_or_fail)
    code, result = answer(capsys, "bridge-fig1", "landscape-fig1")
    assert code == 1
    assert result["failed"] == ["bridge-fig1"]
    page = (tmp_path / result["report"]).read_text(encoding="utf-8")
    assert "All 6 statements hold here" in page
    assert "ImportError: no such module" in page
    (figure,) = re.findall(r'<img alt="Figure landscape-fig1" src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert b"MAML starts here" in base64.b64decode(figure)  # the figure's own legend
