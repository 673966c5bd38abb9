"""Run directories come by mail as well: nothing in them may run in the page."""

import base64
import html
import json
import re
from xml.etree import ElementTree

import pytest
from test_report import make_run
from test_report_results import analysed, redone

from innerloop.cli.main import main
from innerloop.experiment.pages import write_report as write_page
from innerloop.report.plots import figure_to_svg
from innerloop.report.plots.style import new_figure
from innerloop.report.render import content_policy, environment
from innerloop.runs.pages import MARKER
from oracles.browser import opened

NAMESPACE = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
MARK = "document.title='pwned'"
SCRIPT = f"<script>{MARK}</script>"
PICTURE = f'<svg {NAMESPACE} viewBox="0 0 9 9">%s</svg>'

# every one was written into the page as it was, or would be by a check that is less strict
HOSTILE = [
    f"<!-->{SCRIPT}--><g/>",
    f"<!--x--!>{SCRIPT}--><g/>",
    f"<!---->{SCRIPT}<!---->",
    f"<?php --><!-->{SCRIPT}?><g/>",
    f"<title>&lt;/title&gt;{SCRIPT.replace('<', '&lt;')}</title>",
    f"<desc><![CDATA[</desc>{SCRIPT}]]></desc>",
    f"<text><![CDATA[</text></svg>{SCRIPT}]]></text>",
    f"<style><![CDATA[</style>{SCRIPT}]]></style>",
    r"<style>@\69mport 'http://127.0.0.1:1/a.css';</style>",
    "<style>* { background: image-set('http://127.0.0.1:1/a.png' 1x); }</style>",
    r'<path d="M0 0" style="fill: u\72l(http://127.0.0.1:1/a)"/>',
    '<path d="M0 0" style="fill: url(http://127.0.0.1:1/a#b)"/>',
    '<path d="M0 0" style="background-image: image-set(\'http://127.0.0.1:1/a.png\' 1x)"/>',
    f'<path d="M0 0" onclick="{MARK}" onload="{MARK}"/>',
    f'<image href="x" onerror="{MARK}"/>',
    '<image href="http://127.0.0.1:1/a.png"/>',
    f'<image href="data:image/svg+xml,&lt;svg onload=&quot;{MARK}&quot;/>"/>',
    f"<foreignObject><body xmlns='http://www.w3.org/1999/xhtml'>{SCRIPT}</body></foreignObject>",
    f'<a href="javascript:{MARK}"><text>click</text></a>',
    f'<set attributeName="href" to="javascript:{MARK}"/>',
    f"<animate onbegin=\"{MARK}\" attributeName='x' dur='1s'/>",
    "<use href='http://127.0.0.1:1/a.svg#b'/>",
    "<use href='data:image/svg+xml,x#b'/>",
    "<filter id='f'><feImage href='http://127.0.0.1:1/a.png'/></filter>",
    f"<iframe srcdoc='{html.escape(SCRIPT)}'/>",
    '<path id="a&quot;>&lt;img src=x onerror=1>" d="M0 0"/>',
    '<g transform="url(#a)" clip-path="url(http://127.0.0.1:1/#a)"/>',
]


@pytest.mark.parametrize("inside", HOSTILE)
def test_a_picture_of_a_run_is_an_image_or_nothing(tmp_path, inside):
    """Whatever it holds is data of an ``img``, in which nothing runs; what is not XML is not shown."""
    run = redone(tmp_path, figures=())
    text = PICTURE % inside
    (run / "a.svg").write_text(text)
    page = write_page([run]).read_text()
    image = base64.b64encode(text.encode()).decode()
    try:
        ElementTree.fromstring(text)
    except ElementTree.ParseError:
        assert "the figure a is missing, or is not a picture" in page
        assert image not in page
    else:
        assert page.count(f'<img alt="Figure a" src="data:image/svg+xml;base64,{image}">') == 1
    assert "pwned" not in page
    assert "127.0.0.1" not in page


@pytest.mark.parametrize("text", ["", "<svg", f"<g {NAMESPACE}><svg/></g>", "<svg><path></svg>", "<svg/>"])
def test_what_is_no_picture_is_said(tmp_path, text):
    run = redone(tmp_path, figures=())
    (run / "a.svg").write_text(text)
    page = write_page([run]).read_text()
    assert "the figure a is missing, or is not a picture" in page
    assert "base64," not in page


def test_names_in_our_own_drawings_are_escaped():
    figure, (axes,) = new_figure()
    for name in (SCRIPT, "a $\\alpha$ --><b>", "</svg><img src=x>"):
        axes.plot([0, 1], [0, 1], label=name)
    axes.legend()
    svg = figure_to_svg(figure, "own", f"A title {SCRIPT}", f"Words {SCRIPT}")
    page = environment().from_string("{{ text | svg }}").render(text=svg)
    assert not re.search(r"<script|<img|<b>|<style|<!--", page)
    assert page.count("</svg>") == 1
    for pattern in (r"<path|<use|<text|<tspan|<clipPath", r"style=", r"transform=", r"url\(#", r" d="):
        assert len(re.findall(pattern, svg)) == len(re.findall(pattern, page)), pattern


def test_pages_allow_their_own_style_and_nothing_else(tmp_path):
    for run in (make_run(tmp_path), redone(tmp_path), analysed(tmp_path)):
        text = write_page([run]).read_text()
        (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
        (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
        assert html.unescape(policy) == content_policy(style)
        assert "script-src 'none'" in html.unescape(policy)
        assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<body")


def test_a_file_that_is_no_picture_does_not_get_into_the_page(tmp_path):
    run = redone(tmp_path)
    (run / "main.svg").unlink()
    (run / "main.png").unlink()
    (run / "main.png").write_text("-----BEGIN PRIVATE KEY-----")
    assert "base64," not in write_page([run]).read_text()


# ---- in a browser ----


def test_nothing_hostile_runs_in_a_browser(tmp_path):
    rows = [{"what": SCRIPT, "paper": f"<img src=x onerror={MARK}>", "ours": 1, "holds": True, "ok": True}]
    run = redone(tmp_path, rows=rows, figures=())
    for i, inside in enumerate(HOSTILE):
        (run / f"f{i}.svg").write_text(PICTURE % inside)
    seen = opened(write_page([run]))
    assert "pwned" not in re.search(r"<title>(.*?)</title>", seen.document)[1]
    assert seen.console == []  # nothing was even tried
    (run / "page.html").write_text(f"<html><body>{SCRIPT}</body></html>")
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "kind": "analyze", "analysis": "landscape"}))
    assert "pwned" not in re.search(r"<title>(.*?)</title>", opened(write_page([run])).document)[1]


def test_the_policy_stops_what_might_get_through(tmp_path):
    """The second lock: the same things put into a finished page by hand."""
    inserted = f"{SCRIPT}<style>body {{ color: red }}</style><img src='x' onerror=\"{MARK}\">"
    page = write_page([redone(tmp_path)])
    text = page.read_text()
    assert MARKER in text
    page.write_text(text.replace("</main>", inserted + "</main>"))
    seen = opened(page)
    assert "pwned" not in re.search(r"<title>(.*?)</title>", seen.document)[1]
    assert sum("Content Security Policy" in line for line in seen.console) >= 3
    page.write_text(re.sub(r"<meta http-equiv[^\n]*\n", "", text).replace("</main>", SCRIPT + "</main>"))
    assert "<title>pwned</title>" in opened(page).document  # it would have run


@pytest.mark.slow
def test_our_own_pages_work_under_the_policy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["analyze", "landscape", "--save", "--page", "landscape.html"]) == 0
    (saved,) = (tmp_path / "runs").glob("*/*")
    runs = [make_run(tmp_path), make_run(tmp_path, seed=1, level=0.7)]
    pages = [write_page(runs[:1]), write_page(runs, tmp_path / "both.html"), write_page([redone(tmp_path)])]
    pages += [write_page([saved]), tmp_path / "landscape.html"]
    for page in pages:
        assert opened(page).console == [], page
