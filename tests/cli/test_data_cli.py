"""``innerloop data``: what it prints, its JSON, its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from innerloop.cli.main import main
from innerloop.data.catalogue import UNKNOWN, catalogue
from support.data_files import cifar_members, class_folders, encoded, picture, write_tar
from support.places import ROOT

pytestmark = pytest.mark.usefixtures("own_folder", "own_data")

Capture = pytest.CaptureFixture[str]


def answer(capfd: Capture, *arguments: str) -> dict[str, Any]:
    """The JSON of a command that ends well."""
    assert main(["data", *arguments, "--json"]) == 0
    out = capfd.readouterr().out
    assert out.count("\n") == 1
    result: dict[str, Any] = json.loads(out)
    return result


def complaint(capfd: Capture, *arguments: str) -> str:
    """The one line on standard error of a command that a user got wrong."""
    assert main(["data", *arguments]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ")
    return captured.err


def test_ls(capfd: Capture, tmp_path: Path) -> None:
    result = answer(capfd, "ls")
    rows = {row["name"]: row for row in result["datasets"]}
    assert {"omniglot", "cifar-fs", "fc100", "mini-imagenet", "tiered-imagenet", "cub", "glyphs"} <= set(rows)
    assert not rows["omniglot"]["here"]
    assert rows["glyphs"]["here"]
    assert rows["omniglot"]["checksums"]["images_background.zip"].startswith("md5 68d2efa1")
    assert rows["cub"]["checksums"]["CUB_200_2011.tgz"] == "unknown"  # none is invented
    assert rows["tiered-imagenet"]["content_sha256"] == "unknown"
    assert result["folder"] == str(tmp_path / "data")
    assert main(["data", "ls"]) == 0
    assert "Omniglot" in capfd.readouterr().out


def test_get_check_and_inspect_ones_own(capfd: Capture, tmp_path: Path) -> None:
    class_folders(tmp_path / "pets", {"cat": 3, "dog": 4, "owl": 2})
    got = answer(capfd, "get", "pets", "--from", "pets")
    assert {key: got[key] for key in ("name", "classes", "images")} == {
        "name": "pets",
        "classes": 3,
        "images": 9,
    }
    assert len(got["content_sha256"]) == 64
    assert answer(capfd, "get", "pets")["already"]
    assert answer(capfd, "check", "pets")["ok"]
    seen = answer(capfd, "inspect", "pets", "--out", "sheet.png")
    assert seen["per_class"] == {"cat": 3, "dog": 4, "owl": 2}
    assert sum(part["classes"] for part in seen["splits"]) == 3
    assert "pets" in {row["name"] for row in answer(capfd, "ls")["datasets"]}
    sheet = np.asarray(Image.open("sheet.png").convert("RGB"))
    expected = np.kron(picture(0, 20), np.ones((3, 3, 1), np.uint8))  # enlarged threefold
    height, width = expected.shape[:2]
    spots = [
        (y, x)
        for y in range(sheet.shape[0] - height + 1)
        for x in range(180, 200)
        if (sheet[y, x] == expected[0, 0]).all() and (sheet[y : y + height, x : x + width] == expected).all()
    ]
    assert len(spots) == 1  # the first cat is on the sheet, once
    for verb in (["get", "pets"], ["check", "pets"], ["inspect", "pets"]):
        assert main(["data", *verb]) == 0
        assert "pets" in capfd.readouterr().out
    assert Path("pets-sheet.png").is_file()


def test_inspecting_a_folder_and_the_embedded_dataset(capfd: Capture, tmp_path: Path) -> None:
    class_folders(tmp_path / "pets", {"cat": 3, "dog": 4, "owl": 2})
    (tmp_path / "pets" / "cat" / "junk.png").write_bytes(b"x")
    assert "cat/junk.png" in complaint(capfd, "inspect", "./pets")
    assert answer(capfd, "inspect", "./pets", "--skip-bad", "--size", "10")["shape"] == [10, 10, 3]
    glyphs = answer(capfd, "inspect", "glyphs", "--splits", "all")
    assert [part["split"] for part in glyphs["splits"]] == ["all"]
    assert answer(capfd, "check", "glyphs")["content_sha256"] == glyphs["content_sha256"]


def test_mistakes_are_one_line_without_a_traceback(capfd: Capture, tmp_path: Path) -> None:
    (tmp_path / "broken.zip").write_bytes(encoded(picture(0)))
    write_tar(tmp_path / "other.tar.gz", cifar_members(2, 2, ["airplane", "bird"]))
    class_folders(tmp_path / "pets", {"cat": 1, "dog": 2})
    cases = [
        (["get", "omniglt"], "did you mean 'omniglot'?"),
        (["get", "omniglot", "--from", "nowhere.zip"], "there is no file or folder nowhere.zip"),
        (["get", "omniglot", "--from", "broken.zip"], "broken.zip is damaged"),
        (["get", "cifar-fs", "--from", "other.tar.gz"], "this is not CIFAR-100"),
        (["get", "mini-imagenet"], "mini-imagenet-cache-{train,val,test}.pkl"),
        (["check", "fc100"], "innerloop data get fc100"),
        (["check", "../x"], "no dataset is called"),
        (["inspect", "pets"], "too few pictures in 'cat' (1)"),
        (["inspect", "cub"], "--from CUB_200_2011.tgz"),
        (["inspect", "glyphs", "--splits", "vinyals"], "no published split 'vinyals'"),
        (["gte", "omniglot"], "data --help"),
    ]
    for arguments, message in cases:
        assert message in complaint(capfd, *arguments)
    assert not list((tmp_path / "data").glob("*/index.json"))


def test_errors_in_json(capfd: Capture) -> None:
    assert main(["data", "check", "omniglot", "--json"]) == 2
    captured = capfd.readouterr()
    assert json.loads(captured.out)["exit_code"] == 2


@pytest.mark.parametrize("verb", ["ls", "get", "check", "inspect"])
def test_help(verb: str, capfd: Capture) -> None:
    assert main(["data", verb, "--help"]) == 0
    assert "Usage: innerloop data" in capfd.readouterr().out


def test_the_page_about_data_says_what_is_so(capfd: Capture) -> None:
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    commands = [line.split()[2:] for line in page.splitlines() if line.startswith("innerloop data ")]
    assert len(commands) > 5
    for verb, *words in commands:
        assert main(["data", verb, "--help"]) == 0
        shown = capfd.readouterr().out
        assert all(word in shown for word in words if word.startswith("--"))
    for name, entry in catalogue().items():
        assert f"| `{name}` | {entry.classes} | {entry.images:,} |" in page
        for known in (entry.content_sha256, entry.decoded_sha256):
            assert known in (None, UNKNOWN) or f"`{known}`" in page
