"""Only the usual kinds of pictures are decoded: other decoders of Pillow start programs."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from innerloop.data.folder import read_heads
from innerloop.data.pictures import SUFFIXES, BadPictureError, decode, open_picture
from innerloop.report.prediction_page import thumbnail
from support.places import ROOT

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n%%EOF\n"


def test_postscript_that_is_called_a_picture_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given, **_: started.append(given))
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **_: started.append(given))
    file = tmp_path / "x.jpg"
    file.write_bytes(POSTSCRIPT)
    for given in (file, POSTSCRIPT):
        with pytest.raises(BadPictureError):
            open_picture(given)
    with pytest.raises(BadPictureError):
        decode(POSTSCRIPT)
    assert thumbnail(file) == ""
    _, bad = read_heads(tmp_path, ["x.jpg"], "skip")
    assert bad == [("x.jpg", "it is of no known format")]
    assert started == []


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_every_documented_kind_is_read(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a{suffix}"
    mode = "L" if suffix == ".pgm" else "RGB"
    Image.fromarray(np.full((8, 8, 3), 200, np.uint8)).convert(mode).save(file)
    assert open_picture(file).size == (8, 8)


def test_no_call_of_pillow_forgets_the_kinds() -> None:
    calls = [
        (file, node)
        for file in (ROOT / "src").rglob("*.py")
        if "Image.open(" in file.read_text()
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Image.open")
    ]
    assert calls
    for file, node in calls:
        assert "formats" in {word.arg for word in node.keywords}, (file, node.lineno)
