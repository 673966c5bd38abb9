"""What builds the site besides Zensical: links that lead nowhere are found, and formulas become MathML."""

import re
import sys

import pytest

from support.places import ROOT

sys.path.insert(0, str(ROOT / "docs" / "hooks"))
from build_site import dead_links
from reference import documented, interface


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "rooms").mkdir()
    (tmp_path / "one.png").touch()
    (tmp_path / "rooms" / "two.html").write_text('<h1 id="top">Two</h1><a href="../one.html#none">up</a>')
    (tmp_path / "one.html").write_text(
        '<a href="rooms/two.html#top">two</a> <a href="https://example.org/no.html">elsewhere</a>'
        '<a href="rooms/three.html">three</a> <img src="one.png"> <img src="two.png"> <a href="#here">x</a>'
    )
    assert sorted(dead_links(tmp_path)) == [
        "one.html: #here",
        "one.html: rooms/three.html",
        "one.html: two.png",
        "rooms/two.html: ../one.html#none",
    ]


def test_formulas_of_public_docstrings_have_mathml():
    pytest.importorskip("latex2mathml")
    from formulas import mathml

    assert "<msup><mi>x</mi><mn>2</mn></msup>" in mathml("x^2", "inline")
    assert "arg</mo>" in mathml(r"\arg\min_w", "block")
    assert "&#x1D4B3;" in mathml(r"\mathcal X", "inline")  # browsers ignore mathvariant
    with pytest.raises(ValueError, match="no MathML"):
        mathml(r"\nosuchthing", "inline")
    for room in interface("innerloop").rooms:
        for name, home in interface(f"innerloop.{room}").homes.items():
            for tex in re.findall(r":math:`([^`]+)`", documented(home, name)):
                mathml(tex, "inline")
