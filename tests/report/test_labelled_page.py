"""The page of ``innerloop predict --page``: what it shows is what the JSON says, and nothing in it runs."""

from __future__ import annotations

import base64
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import innerloop.classify.predict as predict_page
from innerloop.classify import FewShotClassifier
from innerloop.classify.cross_validation import HeldOut
from innerloop.classify.sureness import confusion_table, mistakes_in
from innerloop.cli.main import main
from innerloop.core.preprocessing import Preprocessing
from innerloop.data.glyphs import glyphs
from innerloop.report.prediction_page import SIDE, labelled_page, thumbnail, thumbnails
from innerloop.report.text import percent
from oracles.browser import opened
from support.picture_runs import random_backbone

pytestmark = pytest.mark.usefixtures("own_folder", "own_data")

NAMES = ("ant", "bee", "<b>cow&'")
HOSTILE = "<img src=x onerror=alert(1)>.png"


@pytest.fixture
def made(tmp_path: Path, own_folder: None) -> None:
    """A model without classes, examples in folders, and pictures to label."""
    backbone = random_backbone(tmp_path, Preprocessing((28, 28), "fill", colour="grey"))
    FewShotClassifier(backbone, verbose=False).save("model")
    for i, image in enumerate(glyphs().images[8000:8060]):
        place = tmp_path / "examples" / NAMES[i // 20] if i % 20 < 4 else tmp_path / "new"
        if i % 20 < 8:
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[..., 0]).save(place / (HOSTILE if i == 5 else f"{i:02}.png"))


class Reader(HTMLParser):
    """Tags with their attributes, and the words of every figure."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.figures: list[str] = []
        self.words = ""
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag == "figure":
            self.figures.append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "figure"

    def handle_data(self, data: str) -> None:
        self.words += data
        if self._inside:
            self.figures[-1] += data


def written(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict[str, Any], Reader, str]:
    capsys.readouterr()
    assert main(["predict", *words, "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    text = Path(told["page"]).read_text(encoding="utf-8")
    return told, Reader(text), text


@pytest.mark.usefixtures("made")
def test_it_shows_what_the_json_says(capsys: pytest.CaptureFixture[str]) -> None:
    told, page, text = written(
        capsys, "model.safetensors", "--support", "examples", "new", "--page", "labels.html"
    )
    rows = sorted(told["predictions"], key=lambda row: (not row["unsure"], row["probability"]))
    assert len(rows) == 12
    for row, words in zip(rows, page.figures, strict=False):
        said = " ".join(words.split())
        assert said.startswith(f"{row['label']} {percent(row['probability'])}")
        assert ("unsure" in said or "unknown?" in said) == row["unsure"]
        assert said.endswith(Path(row["file"]).name)
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert [image["alt"] for image in images[:12]] == [row["file"] for row in rows]
    assert len(images) == 12 + 12  # the examples, too
    for image in images:
        head, _, data = image["src"].partition(",")
        assert head == "data:image/jpeg;base64"
        assert max(Image.open(io.BytesIO(base64.b64decode(data))).size) <= SIDE
    expected = told["expected"]
    assert percent(expected["accuracy"]) in page.words
    assert f"{percent(expected['low'])} to {percent(expected['high'])}" in page.words
    for pair in expected["confused"]:
        assert f"{pair['true']} was taken for {pair['said']} in {percent(pair['share'])}" in page.words
    for point in told["curve"]:
        assert f"{percent(point['accuracy'])} with {point['shots']}" in page.words
    assert page.words.count("4 examples;") == 3
    assert "innerloop predict model.safetensors --support examples new --page labels.html" in page.words
    assert len(text) < 400_000


@pytest.mark.usefixtures("made")
def test_nothing_runs_in_it_and_nothing_is_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    _, page, text = written(
        capsys, "model.safetensors", "--support", "examples", "new", "--page", "labels.html"
    )
    assert {"<b>", "<img src=x", "<script"} & set(re.findall(r"<b>|<img src=x|<script", text)) == set()
    assert "<b>cow&'" in page.words
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", text)
    policy = next(a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "script-src 'none'" in policy
    assert any(a.get("name") == "viewport" for t, a in page.tags if t == "meta")
    assert "prefers-color-scheme: dark" in text


@pytest.mark.usefixtures("made")
def test_a_browser_has_nothing_to_complain_of(capsys: pytest.CaptureFixture[str]) -> None:
    written(capsys, "model.safetensors", "--support", "examples", "new", "--page", "labels.html")
    seen = opened(Path("labels.html"))
    assert seen.console == []
    assert "Pictures, the least sure first" in seen.document


@pytest.mark.usefixtures("made")
def test_a_saved_model_has_a_page_too_and_only_the_first_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--support", "examples", "new", "--save", "kept", "--quiet"]
    assert main(["predict", "model.safetensors", *words]) == 0
    assert Path("kept.safetensors.md").read_text(encoding="utf-8").startswith("# kept.safetensors\n")
    monkeypatch.setattr(predict_page, "MOST_PICTURES", 5)
    told, page, _ = written(capsys, "--model", "kept.safetensors", "new", "--page", "labels.html")
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 5
    assert "Only the 5 least sure are shown" in page.words
    assert "the other 7 are in the output" in page.words
    assert "their pictures are not in the model's file" in page.words
    assert percent(told["expected"]["accuracy"]) in page.words


@pytest.mark.usefixtures("made")
def test_mistakes_get_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    Path("there.html").write_text("mine")
    Path("there.safetensors.md").write_text("mine")
    for words, sentence in (
        (["--page", "there.html"], "there.html is there already"),
        (["--page", "labels.pdf"], "must end in .html"),
        (["--page", "nowhere/labels.html"], "there is no folder nowhere"),
        (["--save", "there"], "there.safetensors.md is there already"),
    ):
        capsys.readouterr()
        assert main(["predict", "model.safetensors", "--support", "examples", "new", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert sentence in line
    assert Path("there.html").read_text() == "mine"


def test_there_is_room_for_so_many_and_what_cannot_be_shown_is_left_out(tmp_path: Path) -> None:
    Image.new("RGBA", (400, 90), (255, 0, 0, 0)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no picture")
    one = thumbnail(tmp_path / "a.png")
    small = Image.open(io.BytesIO(base64.b64decode(one)))
    assert small.size == (SIDE, 29)
    assert small.getpixel((0, 0)) == (255, 255, 255)
    assert thumbnail(tmp_path / "b.png") == ""
    files = [tmp_path / "a.png"] * 4
    assert thumbnails(files, 2 * len(one) + 1) == [one, one]


def test_confusions_and_examples_that_are_mistaken() -> None:
    scores = torch.tensor([[2.0, 1.0], [1.0, 2.0], [0.0, 1.0], [0.0, 1.0]])
    held_out = HeldOut(
        scores, torch.tensor([0, 0, 1, 1]), torch.tensor([3, 3, 7, 7]), torch.zeros(4), judged=2
    )
    assert confusion_table(held_out, 2).tolist() == [[1.0, 1.0], [0.0, 2.0]]
    assert mistakes_in(held_out) == {3: (0.5, 1)}


def test_many_classes_have_no_table_and_odd_names_are_shown() -> None:
    names = [f"class {i}" for i in range(30)]
    row = {
        "file": "a\udcff.png",
        "label": "class 3",
        "probability": 0.9996,
        "unsure": False,
        "unknown": False,
    }
    told = {
        "predictions": [{**row, "probabilities": {}}],
        "classes": names,
        "expected": None,
        "curve": [],
        "copies": [],
    }
    text = labelled_page(told, [""], [], [[1.0] * 30] * 30)
    assert "<table" not in text
    assert "99.9 %" in text
    assert "cannot be shown" in text
    assert "a\\udcff.png" in text
    assert "is not known" in text
