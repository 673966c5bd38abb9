"""Pages of `reproduce` and `analyze` runs: what they must say, what they must not let through."""

import base64
import json
import re
import shutil

import pytest
from test_report import make_run

from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.experiment.pages import write_report as write_page
from innerloop.report.plots.style import new_figure, write_figures
from innerloop.runs.pages import MARKER
from support.pages import read

ROWS = [
    {"what": "gain where hard", "paper": "about 3", "ours": [2.881234, 3.1], "holds": True, "ok": True},
    {"what": "bound", "paper": 0.5, "ours": 1.23456, "holds": False, "ok": True, "reason": "known slip"},
    {"what": "trend", "paper": None, "ours": "falls", "holds": False, "ok": False, "reason": "unexpected"},
]


def embedded(page):
    """The figures of a run that stand in its page as images, as text."""
    images = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', page)
    return "\n".join(base64.b64decode(image).decode() for image in images)


def redone(root, name="landscape-fig1", rows=ROWS, status="finished", figures=("main",), **options):
    run = root / f"reproduce-{name}" / options.get("stamp", "20260301-120000-s0")
    run.mkdir(parents=True)
    drawn = {}
    for stem in figures:
        figure, (axes,) = new_figure()
        axes.plot([0, 1], [0, 1], label="seen in the figure")
        axes.set_title("seen in the figure")
        drawn[stem] = figure
    files = write_figures(run, drawn)
    manifest = {
        "argv": ["innerloop", "reproduce", name, "--scale", "cpu"],
        "versions": {"innerloop": "0.1.0", "torch": "2.13.0"},
        "platform": "Linux-6.1",
        "cores": 2,
        "kind": "reproduce",
        "scale": "cpu",
        "redoes": "Landscape, Figure 1: four environments",
        "started": "2026-03-01T12:00:00+00:00",
        "ended": "2026-03-01T12:01:15+00:00",
        "status": status,
        "reason": options.get("reason"),
    }
    (run / "manifest.json").write_text(json.dumps(manifest))
    if status == "finished":
        result = {
            "name": name,
            "scale": "cpu",
            "rows": rows,
            "protocol": options.get("protocol", {"seeds": "0 to 9", "tasks": 500}),
            "figures": [str(file) for file in files],
            "seconds": 61.0,
        }
        (run / "result.json").write_text(json.dumps(result))
    return run


def analysed(root, kind="rate", **fields):
    run = root / f"analyze-{kind}" / "20260301-120000-s0"
    run.mkdir(parents=True)
    manifest = {
        "kind": "analyze",
        "analysis": kind,
        "status": "finished",
        "argv": ["innerloop", "analyze", kind],
    }
    (run / "manifest.json").write_text(json.dumps(manifest))
    result = {
        "kind": "lim",
        "alpha": 0.25,
        "settings": {"dim": 8, "width": None},
        "tells": "the inner rate",
        "words": [
            "      risk  on hard",
            "NAL   0.5       0.7",
            "between: 0.1 to 0.4",
            "gain 2 (95 %: 1 to 3)",
        ],
        "keys": [
            {"key": "dim", "value": "8", "default": "20", "meaning": "dimension"},
            {"key": "width", "value": "inf", "default": "inf", "meaning": "of layers"},
        ],
        "seconds": 1.5,
        **fields,
    }
    (run / "result.json").write_text(json.dumps(result))
    return run


def test_a_reproduction_says_what_holds_and_how_it_was_run(tmp_path):
    run = redone(tmp_path)
    out = write_page([run])
    page, text = read(out), out.read_text()
    assert out == run / "report.html"
    assert "landscape-fig1" in page.text
    assert "Landscape, Figure 1: four environments" in page.text
    assert "1 of 3 statements hold here; 2 of 3 findings are as recorded." in page.text
    for words in (
        "gain where hard",
        "about 3",
        "2.881, 3.1",
        "1.235",
        "known slip",
        "unexpected",
        "seeds",
        "0 to 9",
    ):
        assert words in page.text
    for words in ("innerloop reproduce landscape-fig1 --scale cpu", "2.13.0", "Linux-6.1", "1 min 1 s"):
        assert words in page.text
    cells = [re.findall(r">(yes|no)<", line) for line in text.splitlines() if '<tr><th scope="row">' in line]
    assert [row for row in cells if row] == [["yes", "yes"], ["no", "yes"], ["no", "no"]]
    assert "seen in the figure" in embedded(text)
    assert "No metrics yet" not in text
    assert "recipe" not in page.text
    assert write_page([run]).read_text() == text


def test_the_page_stands_alone_and_every_id_is_its_own(tmp_path):
    runs = [redone(tmp_path, figures=("main", "more")), redone(tmp_path, stamp="20260301-130000-s0")]
    out = write_page([*runs, analysed(tmp_path)], tmp_path / "page.html")
    page, text = read(out), out.read_text()
    images = [address for address in page.addresses if address.startswith("data:image/svg+xml;base64,")]
    inside = [address for address in page.addresses if address not in images]
    assert not re.search(r"<script|@import|url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    assert set(inside) <= {f"#{name}" for name in page.ids}
    assert text.count("<figure>") == text.count("<img alt=") == len(images) == 3
    assert all("scope=" in th for th in re.findall(r"<th\b[^>]*>", text))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("interrupted", "It was interrupted"),
        ("failed", "It failed"),
        ("running", "still running, or was killed"),
    ],
)
def test_a_reproduction_that_did_not_finish_says_so(tmp_path, status, words):
    run = redone(tmp_path, status=status, figures=(), reason="no data <there>")
    page = read(write_page([run]))
    assert words in page.text
    assert "no data <there>" in page.text
    assert "statements hold" not in page.text


def test_hostile_words_and_pictures_do_not_reach_the_page(tmp_path):
    rows = [{"what": "<script>alert(1)</script>", "paper": "<b>", "ours": "<i>", "holds": True, "ok": True}]
    run = redone(tmp_path, rows=rows, protocol={"<img src=x>": "<img onerror=y>"})
    (run / "main.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(2)</script></svg>')
    text = write_page([run]).read_text()
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "<img src=x" not in text
    assert text.count('<img alt="Figure main" src="data:image/svg+xml;base64,') == 1  # in which nothing runs
    (run / "main.svg").write_text("<svg")
    assert 'src="data:image/png;base64,' in write_page([run]).read_text()  # the PNG in its place
    (run / "main.png").unlink()
    assert "the figure main is missing, or is not a picture" in read(write_page([run])).text


def test_an_analysis_shows_the_words_of_the_terminal(tmp_path):
    page = read(write_page([analysed(tmp_path)]))
    for words in (
        "analyze rate",
        "the inner rate",
        "NAL 0.5 0.7",
        "between 0.1 to 0.4",
        "gain 2 (95 %: 1 to 3)",
    ):
        assert words in page.text
    assert "width inf inf of layers" in page.text  # JSON has no infinity: settings are kept as typed
    assert "alpha 0.25" in page.text
    assert "1.5 s" in page.text


def test_an_analysis_without_its_words_still_has_its_numbers(tmp_path):
    page = read(write_page([analysed(tmp_path, words=None, keys=None)]))
    assert "were not kept" in page.text
    assert "alpha 0.25" in page.text
    assert "dim 8" in page.text


def test_several_have_an_overview_and_a_section_each(tmp_path):
    good = redone(tmp_path, "bridge-fig1", rows=ROWS[:2])
    lost = redone(tmp_path, "adaptlr-fig3", status="failed", figures=(), reason="no Omniglot")
    page = read(write_page([good, redone(tmp_path), lost], tmp_path / "all.html"))
    assert "3 reproductions" in page.text
    assert "2 of 5 statements hold here; 4 of 5 findings are as recorded." in page.text
    assert "Without rows: adaptlr-fig3" in page.text
    assert "no Omniglot" in page.text
    assert {"run-1", "run-2", "run-3"} <= set(page.ids)
    only = read(write_page([analysed(tmp_path), analysed(tmp_path, "kernels")], tmp_path / "two.html"))
    assert "2 analyses" in only.text
    assert "as recorded" not in only.text


def test_training_runs_do_not_mix_with_others(tmp_path):
    with pytest.raises(UserError, match="page of their own") as error:
        write_page([make_run(tmp_path), redone(tmp_path)], tmp_path / "x.html")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "x.html").exists()


def test_all_of_a_batch_come_with_it(tmp_path):
    runs = [redone(tmp_path, "a"), redone(tmp_path, "b", rows=ROWS[:1])]
    batch = tmp_path / "reproduce-all" / "20260301-110000-s0"
    batch.mkdir(parents=True)
    (batch / "manifest.json").write_text(json.dumps({"kind": "reproduce-all", "status": "interrupted"}))
    entries = [{"name": run.parent.name, "run": run.relative_to(tmp_path).as_posix()} for run in runs]
    (batch / "result.json").write_text(json.dumps({"reproductions": entries}))
    page = read(write_page([batch]))
    assert "2 reproductions" in page.text
    assert "2 of 4 statements hold here" in page.text
    shutil.rmtree(runs[0])
    page = read(write_page([batch]))
    assert "its directory is gone" in page.text
    assert "The statement holds here" in page.text
    (batch / "result.json").write_text(json.dumps({"reproductions": []}))
    with pytest.raises(UserError, match="no reproductions yet"):
        write_page([batch])


def test_the_interactive_page_is_made_from_numbers(tmp_path):
    numbers = {"dim": 6, "shots": 41, "inner_shots": 19, "rho_hard": 0.07, "rho_easy": 0.9, "R": 1.3}
    numbers |= {"r_hard": 0.5, "r_easy": 0.5, "noise": 0.3, "hard_share": 0.5, "inner_lr": None}
    run = analysed(tmp_path, "landscape", words=["gain <1>"])
    (run / "page.html").write_text("<html><body><script>alert(1)</script></body></html>")
    result = json.loads((run / "result.json").read_text())
    full = {**result, "source": "closed form", "settings": numbers, "inner_lr": 1.1, "inner_shots": 19}
    (run / "result.json").write_text(json.dumps(full))
    text = write_page([run]).read_text()
    assert MARKER in text[:500]
    assert '"rho_hard": 0.07' in text
    assert "gain &lt;1&gt;" in text
    assert "alert" not in text
    write_page([run])  # ours, so it may be made again
    # anything but a number: the common page
    for bad in ("</script><script>alert(1)</script>", None, True, [1]):
        (run / "result.json").write_text(json.dumps({**full, "settings": {**numbers, "R": bad}}))
        text = write_page([run]).read_text()
        assert "const START" not in text
        assert "<script" not in text
        assert "gain &lt;1&gt;" in text


def test_damage_is_said(tmp_path):
    run = redone(tmp_path)
    (run / "result.json").write_text("{")
    assert "result.json is not valid JSON" in read(write_page([run])).text
    (run / "result.json").unlink()
    assert "there is no result.json" in read(write_page([run])).text


def test_listings_say_what_a_reproduction_found(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = redone(tmp_path / "runs")
    assert main(["ls", "runs"]) == 0
    assert "1 of 3 hold, 2 of 3 as recorded" in capsys.readouterr().out
    assert main(["show", str(run)]) == 0
    out = capsys.readouterr().out
    assert "1 of 3 hold, 2 of 3 as recorded" in out
    assert "resume" not in out
    assert "seed" not in out


def test_a_huge_picture_is_embedded_as_pixels(tmp_path, monkeypatch):
    run = redone(tmp_path)
    assert "data:image/svg+xml" in write_page([run]).read_text()
    monkeypatch.setattr("innerloop.report.figures.LARGE", 10)
    text = write_page([run]).read_text()
    assert "data:image/svg+xml" not in text
    assert 'alt="Figure main" src="data:image/png;base64,' in text


@pytest.mark.parametrize(
    ("words", "said", "axis", "setting"),
    [
        (
            ["kernels", "depth=2", "repeats=1", "n_tasks=2", "test_tasks=2"],
            "condition number of mtl",
            "rank",
            "width inf inf of hidden layers",
        ),
        (
            ["convergence", "width=inf", "n_tasks=2", "steps=5"],
            "holds at every step",
            "outer steps",
            "width inf 256 of hidden layers",
        ),
    ],
)
def test_saved_analyses_have_their_words_settings_and_figure(
    tmp_path, monkeypatch, capsys, words, said, axis, setting
):
    monkeypatch.chdir(tmp_path)
    assert main(["analyze", *words, "--save", "--json"]) == 0
    run = json.loads(capsys.readouterr().out.splitlines()[-1])["run"]
    assert main(["report", run]) == 0
    page = read(tmp_path / run / "report.html")
    for text in (f"analyze {words[0]}", said, setting):
        assert text in page.text
    assert axis in embedded((tmp_path / run / "report.html").read_text())
