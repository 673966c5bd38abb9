"""Names of classes and files that somebody else chose, and saved models that somebody changed."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from innerloop.classify import Backbone, FewShotClassifier
from innerloop.classify.cache import FeatureFiles
from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.core.preprocessing import Preprocessing
from innerloop.core.tensors import read_tensors, write_tensors
from innerloop.report.render import environment
from support.picture_runs import draw_noise, random_backbone

STEERING = "\x1b]0;owned\x07\u202egnp"


@pytest.fixture
def backbone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backbone:
    monkeypatch.chdir(tmp_path)
    return random_backbone(tmp_path, Preprocessing((16, 16)), channels=3)


def saved(backbone: Backbone, *names: str) -> Path:
    pictures = [np.full((16, 16, 3), 20 * i, np.uint8) for i in range(3 * len(names))]
    labels = [name for name in names for _ in range(3)]
    return FewShotClassifier(backbone, verbose=False).fit(pictures, labels).save("model")


def test_names_do_not_steer_terminals_pages_cards_or_spreadsheets(
    backbone: Backbone, capsys: pytest.CaptureFixture[str]
) -> None:
    enormous = "x" * 2_000_000
    model = saved(backbone, f"=cmd(){STEERING}", enormous)
    deep = Path("new", *["folder" * 20] * 3)  # a path that is as long as this is still one to be copied
    draw_noise(deep, "a", 3)
    capsys.readouterr()
    files = ["--page", "p.html", "--csv", "p.csv", "--save", "again"]
    assert main(["predict", "--model", str(model), "new", *files]) == 0
    out = capsys.readouterr().out
    page, card = Path("p.html").read_text(), Path("again.safetensors.md").read_text()
    for text in (out, page, card):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
        assert len(text) < 100_000
    assert max(map(len, out.splitlines())) < 1500
    assert out.count(f"{deep}/") == 3
    assert r"\x1b]0;owned\x07\u202egnp" in out
    assert r"\u202egnp" in card
    limit = csv.field_size_limit(len(enormous) + 1)
    with open("p.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    csv.field_size_limit(limit)
    assert len(rows) == 3
    for row in rows:
        assert row["label"].startswith(("'=cmd()", "x"))
        assert float(row["probability"]) > 0
    assert main(["predict", "--model", str(model), "new", "--json"]) == 0
    line = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\u202e"} & set(line)
    assert json.loads(line)["classes"] == [f"=cmd(){STEERING}", enormous]
    assert main(["predict", "--model", f"no{STEERING}.safetensors", "new"]) == 2
    said = capsys.readouterr().err
    assert "\\x1b" in said
    assert not {"\x1b", "\x07", "\u202e"} & set(said)


def test_every_text_of_a_page_is_shown_as_it_is_written() -> None:
    made = environment().from_string("{{ text }}").render(text=f"<b>{STEERING}\n")
    assert made == "&lt;b&gt;\\x1b]0;owned\\x07\\u202egnp\n"


def changed(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    with safe_open(file, "pt") as opened:
        about = json.loads(opened.metadata()["innerloop"])
    change(about)
    write_tensors(file, read_tensors(file), {"innerloop": json.dumps(about)})


def set_to(value: Any, *path: Any) -> Callable[[dict[str, Any]], None]:
    def change(about: Any) -> None:
        for key in path[:-1]:
            about = about[key]
        about[path[-1]] = value

    return change


SURENESS = ("classes", "sureness")


@pytest.mark.parametrize(
    "change",
    [
        set_to(-1.0, *SURENESS, "temperature"),
        set_to(0.0, *SURENESS, "temperature"),
        set_to(math.nan, *SURENESS, "temperature"),
        set_to(math.nan, *SURENESS, "novelty", 0),
        set_to(-1.0, *SURENESS, "novelty", 0),
        set_to(7.0, *SURENESS, "expected", "accuracy", 0),
        set_to(math.nan, *SURENESS, "expected", "by_class", 0, 1),
        set_to(["str", "a"], "classes", "names", 1),
        set_to([["str", name] for name in "abc"], "classes", "names"),
        set_to([3], "classes", "counts"),
        set_to([3, -3], "classes", "counts"),
        set_to(math.nan, "arguments", "unsure_below"),
    ],
)
def test_what_would_turn_labels_around_is_damage(
    change: Callable[[dict[str, Any]], None], backbone: Backbone
) -> None:
    model = saved(backbone, "a", "b")
    FewShotClassifier.load(model)
    changed(model, change)
    with pytest.raises(UserError, match="is damaged"):
        FewShotClassifier.load(model)


def short(values: Any) -> Any:
    return values[:1].clone()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("task/bias", short),
        ("task/weight", short),
        ("examples/y", short),
        ("examples/z", short),
        ("sureness/means", short),
        ("sureness/means", lambda values: values * math.nan),
    ],
)
def test_tensors_that_are_not_those_of_the_classes_are_damage(
    name: str, change: Callable[[Any], Any], backbone: Backbone
) -> None:
    model = saved(backbone, "a", "b")
    with safe_open(model, "pt") as opened:
        about = opened.metadata()
    tensors = read_tensors(model)
    write_tensors(model, {**tensors, name: change(tensors[name])}, about)
    with pytest.raises(UserError, match="is damaged"):
        FewShotClassifier.load(model)


def test_numbers_that_are_written_as_text_are_numbers(backbone: Backbone) -> None:
    model = saved(backbone, "a", "b")
    changed(model, set_to("0.9", "arguments", "unsure_below"))
    changed(model, set_to("0.8", *SURENESS, "novelty", 0))
    pictures = [np.full((16, 16, 3), 20, np.uint8)]
    assert FewShotClassifier.load(model).predict_sure(pictures).labels[0] in ("a", "b")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes")
@pytest.mark.parametrize("name", ["0.keys", "0.values", "0.lock"])
def test_a_pipe_among_kept_features_is_not_opened(name: str, tmp_path: Path) -> None:
    digest, row = b"d" * 32, np.ones((1, 4), np.float32)
    if name == "0.values":
        (tmp_path / "0.keys").write_bytes(b"k" * 36)
    os.mkfifo(tmp_path / name)
    with FeatureFiles(tmp_path, 4) as files:
        assert files.find([digest]) == {}
        files.add([digest], row)
    with FeatureFiles(tmp_path, 4) as files:
        assert np.array_equal(files.find([digest])[digest], row[0])


def test_cards_and_exports_keep_no_places(backbone: Backbone, tmp_path: Path) -> None:
    model = saved(backbone, "a", "b")
    assert main(["export", str(model), str(tmp_path / "out.pt2")]) == 0
    card = (tmp_path / "out.pt2.md").read_text()
    assert "| made by | `innerloop export` |" in card
    assert str(tmp_path) not in card
    assert str(tmp_path).encode() not in (tmp_path / "out.pt2").read_bytes()
