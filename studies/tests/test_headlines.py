"""Verdicts on the papers' claims follow from what is recorded."""

import json
import shutil
import subprocess
import sys

import pytest

from innerloop.cli import main as command
from innerloop.core.errors import UserError
from innerloop_studies import recorded
from innerloop_studies.recorded import claims, commands, headlines
from innerloop_studies.recorded.claims import CLAIMS, PAPERS, Bars, Claim, Evidence
from innerloop_studies.reproduce import REPRODUCTIONS
from support.places import ROOT

SMALLER = Evidence("adaptlr-fig1", ["b*"], "more steps")
CLAIM = Claim("adaptlr-x", "It is so", "abstract", [Evidence("adaptlr-fig1", ["a*"]), SMALLER])


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A folder of results of its own."""
    monkeypatch.setattr(recorded, "RESULTS", tmp_path / "results")
    return tmp_path


def record(name="adaptlr-fig1", protocol="100 steps", **holds):
    rows = [
        {"what": what, "paper": 1, "ours": "2.5 ± 0.5, 3.0", "holds": held} for what, held in holds.items()
    ]
    about = {"seconds": 60.0, "earlier": [None, 60.0], "protocol": {"training": protocol}}
    recorded.keep("reproductions", name, {**about, "rows": rows})


def test_every_paper_has_three_or_four_claims_and_a_name_for_each():
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert [name.partition("-")[0] for name in names] == sorted(
        (name.partition("-")[0] for name in names), key=list(PAPERS).index
    )
    assert {sum(name.startswith(f"{paper}-") for name in names) for paper in PAPERS} <= {3, 4}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_is_decided_by_statements_that_are_recorded_or_says_what_it_needs(claim):
    assert bool(claim.evidence) != bool(claim.needs)
    for one in claim.evidence:
        assert one.study in REPRODUCTIONS
        assert headlines.deciding(one, recorded.required("reproductions", one.study))
        assert one.short_of or not one.published
    decided = headlines.judge(claim)
    assert decided.verdict in (
        *(headlines.HOLDS, headlines.IN_PART, headlines.FAILS, headlines.UNDECIDED, headlines.UNTESTED),
    )
    if decided.verdict in (headlines.UNDECIDED, headlines.UNTESTED):
        assert decided.would_decide()


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.bars], ids=lambda claim: claim.name)
def test_a_figure_shows_the_numbers_that_are_recorded(claim):
    """Draw them with: python -m innerloop_studies.recorded write."""
    drawn = (ROOT / headlines.figure_of(claim)).read_text(encoding="utf-8")
    groups = headlines.groups_of(claim.bars)
    assert groups
    for group in groups.values():
        for value, _ in group.values():
            assert f">  {value:.3g}<" in drawn


T, F = True, False


@pytest.mark.parametrize(
    ("statements", "verdict"),  # pairs: it holds, its setting is the paper's
    [
        ([(T, T), (T, T)], "holds"),
        ([(T, T), (F, T)], "holds in part"),
        ([(T, T), (F, F)], "holds in part"),
        ([(T, T), (T, F)], "holds in part"),
        ([(T, F), (T, F)], "holds in part"),
        ([(F, T)], "does not hold here"),
        ([(F, T), (T, F)], "does not hold here"),
        ([(F, F)], "cannot be decided with this budget"),
        ([(T, F), (F, F)], "cannot be decided with this budget"),
        ([], "not tested yet"),
    ],
)
def test_a_verdict_follows_from_statements_and_their_settings(statements, verdict):
    assert headlines.verdict(statements) == verdict
    assert headlines.verdict(statements[::-1]) == verdict


@pytest.mark.usefixtures("empty")
def test_a_study_that_is_recorded_anew_changes_the_verdict_by_itself():
    record(a1=True, a2=True, b=True, c=False)
    assert headlines.judge(CLAIM).verdict == "holds in part"
    at_length = CLAIM._replace(evidence=[CLAIM.evidence[0], SMALLER._replace(published=["900 steps"])])
    assert headlines.judge(at_length).verdict == "holds in part"
    record(protocol="900 steps", a1=True, a2=True, b=True, c=False)
    assert headlines.judge(at_length).verdict == "holds"
    record(protocol="900 steps", a1=False, a2=False, b=False, c=True)
    assert headlines.judge(at_length).would_decide() == []
    record(a1=False, a2=False, b=False, c=True)
    found = headlines.judge(CLAIM)
    assert found.verdict == "does not hold here"
    assert found.sentences() == [
        "0 of 2 deciding statements hold in the paper's setting: `adaptlr-fig1` (2 min).",
        "Not: “a1”, “a2”.",
        "0 of 1 deciding statements hold in a smaller or other setting: `adaptlr-fig1` (2 min).",
        "What would decide it: more steps (`adaptlr-fig1`).",
    ]
    assert headlines.judge(CLAIM._replace(evidence=[SMALLER])).verdict == headlines.UNDECIDED


@pytest.mark.usefixtures("empty")
def test_what_is_missing_is_named_instead_of_a_verdict():
    further = [*CLAIM.evidence, Evidence("adaptlr-fig2", ["*"]), Evidence("adaptlr-fig9", ["*"])]
    record("adaptlr-fig2", a=True)
    missing = headlines.judge(CLAIM._replace(evidence=further))
    assert missing.verdict == "not recorded: innerloop reproduce adaptlr-fig1 adaptlr-fig9 --scale cpu"
    nothing = headlines.judge(Claim("adaptlr-y", "It is so", "abstract", needs="a study"))
    assert (nothing.verdict, nothing.sentences()) == ("not tested yet", ["What would decide it: a study."])
    record(a=True)
    with pytest.raises(UserError, match=r"no statement of adaptlr-fig1 is 'b\*'"):
        headlines.judge(CLAIM)


@pytest.mark.usefixtures("empty")
def test_numbers_of_bars_come_from_rows():
    record(first=True, second=False)
    bars = Bars("title", "adaptlr-fig1", ["*"], ["x", "y"])
    numbers = headlines.groups_of(bars)
    assert list(numbers) == ["first", "second"]
    assert numbers["first"]["x"] == (2.5, 0.5)
    assert numbers["first"]["y"][0] == 3.0
    one_group = headlines.groups_of(bars._replace(names=(), number=r"(?P<value>[\d.]+) ±"))
    assert {name: value for name, (value, _) in one_group[""].items()} == {"first": 2.5, "second": 2.5}
    with pytest.raises(ValueError, match="zip"):
        headlines.groups_of(bars._replace(names=["x"]))


def test_the_command_prints_every_claim_under_its_paper(capsys):
    assert command.main(["reproduce", "headlines"]) == 0
    out = capsys.readouterr().out
    words = " ".join(out.split())
    for one in headlines.headlines():
        assert f"[{one.verdict}] {one.claim.says} ({one.claim.where})." in words
    assert all(title in out for title in PAPERS.values())
    assert max(map(len, out.splitlines())) <= 94


def test_a_study_that_is_not_recorded_has_its_command_in_place_of_the_verdict(empty, capsys):
    shutil.copytree(ROOT / "results" / "reproductions", empty / "results" / "reproductions")
    (empty / "results" / "reproductions" / "adaptlr-fig9.json").unlink()
    assert command.main(["reproduce", "headlines"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "[not recorded: innerloop reproduce adaptlr-fig9 --scale cpu] A principled estimate" in words
    assert words.count("[not recorded") == 1


def test_the_json_has_verdicts_and_the_statements_behind_them(capsys):
    assert command.main(["reproduce", "headlines", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [one["name"] for one in result["headlines"]] == [claim.name for claim in CLAIMS]
    first = result["headlines"][0]
    assert set(first) == {*("name", "says", "where", "verdict", "why", "findings", "would_decide", "figure")}
    assert set(first["findings"][0]) == {"study", "rows", "seconds", "short_of"}
    assert first["findings"][0]["rows"][0]["what"].startswith("§4.2")


@pytest.mark.usefixtures("empty")
def test_without_a_clone_one_sentence_says_so(capsys):
    assert command.main(["reproduce", "headlines", "--run"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "no clone" in said.err


@pytest.mark.parametrize(("failed", "code"), [(0, 0), (1, 2)])
def test_what_is_missing_is_run_when_asked_for(monkeypatch, capsys, failed, code):
    ran = []
    monkeypatch.setattr(commands, "run", lambda names, say: ran.append(names) or failed)
    assert command.main(["reproduce", "headlines", "--run"]) == code
    assert ran == [headlines.studies()]
    assert command.main(["reproduce", "adaptlr-fig1", "--run"]) == 2
    assert "--run" in capsys.readouterr().err
    assert len(ran) == 1


def test_what_another_version_recorded_is_named(monkeypatch, capsys):
    monkeypatch.setattr(commands, "state_of", lambda one: "up to date" if one.name > "b" else "out of date")
    assert command.main(["reproduce", "headlines"]) == 0
    last = capsys.readouterr().out.partition("Recorded by another version")[2]
    assert "adaptlr-fig1" in last
    assert "bridge" not in last


def test_ls_and_help_mention_it(capsys):
    assert command.main(["reproduce", "ls"]) == 0
    assert "innerloop reproduce headlines" in capsys.readouterr().out
    assert command.main(["reproduce", "--help"]) == 0
    assert "innerloop reproduce headlines" in capsys.readouterr().out


SCRIPT = """
import sys
from innerloop.cli.main import main
assert main(["reproduce", "headlines", *sys.argv[1:]]) == 0
assert "torch" not in sys.modules and "matplotlib" not in sys.modules
"""


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_it_needs_no_torch(words):
    subprocess.run([sys.executable, "-c", SCRIPT, *words], check=True, capture_output=True)


@pytest.mark.usefixtures("empty")
def test_a_section_of_the_page_has_verdict_statements_and_figure(monkeypatch):
    record(a=True, b=False)
    drawn = CLAIM._replace(bars=Bars("A | title", "adaptlr-fig1", ["a"], ["x", "y"]))
    monkeypatch.setattr(headlines, "CLAIMS", (drawn,))
    heading, said, why, picture, table = headlines.claims("adaptlr").split("\n\n")
    assert (heading, said) == ("### It is so", "**Holds in part** (abstract).")
    assert why.splitlines() == [f"- {sentence}" for sentence in headlines.judge(drawn).sentences()]
    assert picture == "![A \\| title](images/headlines-adaptlr-x.svg)"
    assert table.splitlines()[2:] == [
        "| `adaptlr-fig1` | a | 1 | 2.5 ± 0.5, 3.0 | yes |",
        "| `adaptlr-fig1` | b | 1 | 2.5 ± 0.5, 3.0 | **no** |",
    ]
    assert headlines.verdicts().splitlines()[2:] == ["| AdaptLR | It is so | **holds in part** |"]
    assert claims.PAPERS["adaptlr"].startswith("AdaptLR: ")
