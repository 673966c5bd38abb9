"""What CONTRIBUTING tells to add is added in a copy of the package, and works."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import innerloop
from oracles.patience import PATIENCE
from support.places import ROOT

BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def section(title: str) -> dict[str, str]:
    """The blocks of a how-to, by the file that each is for."""
    return dict(BLOCK.findall(TEXT.split(f"\n### {title}\n")[1].split("\n### ")[0]))


def follow(title: str, root: Path) -> list[str]:
    """Does what a how-to says in a copy of the package; returns the files that it touches."""
    shutil.copytree(Path(innerloop.__file__).parent, root / "src" / "innerloop", dirs_exist_ok=True)
    touched = []
    for where, code in section(title).items():
        name, _, table = where.partition(": ")
        file = root / name
        if table:
            text = file.read_text(encoding="utf-8")
            head = re.search(rf"^{table}\b[^\n]*= {{\n", text, re.MULTILINE)
            assert head, f"{name} has no {table}"
            made = code.split(":")[1].strip().rstrip(",")
            module = next(other for other in touched if other.endswith(f"/{made}.py"))
            dotted = module.removeprefix("src/").removesuffix(".py").replace("/", ".")
            text = text[: head.end()] + code + text[head.end() :]
            text = text.replace("\nfrom innerloop", f"\nfrom {dotted} import {made}\nfrom innerloop", 1)
            file.write_text(text, encoding="utf-8")
        else:
            assert not file.exists()
            file.write_text(code, encoding="utf-8")
        touched.append(name)
    return touched


def typed(root: Path, *words: str) -> dict[str, object]:
    """What the command of the copy answers."""
    env = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    env["INNERLOOP_DATA"] = str(root / "data")
    command = [sys.executable, "-P", "-m", "innerloop", *words, "--json"]
    done = subprocess.run(
        command, env=env, cwd=root, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_data_set_is_its_loader_and_its_classes(tmp_path: Path) -> None:
    assert len(follow("a data set", tmp_path)) == 2
    drawn = np.random.default_rng(0)
    with zipfile.ZipFile(tmp_path / "dots.zip", "w") as archive:
        for label in ("one", "two", "three"):
            for number in range(4):
                picture = Image.fromarray(drawn.integers(0, 256, (16, 16), dtype=np.uint8))
                picture.save(tmp_path / "one.png")
                archive.write(tmp_path / "one.png", f"{label}/{number}.png")
    got = typed(tmp_path, "data", "get", "dots", "--from", "dots.zip")
    listed = typed(tmp_path, "data", "ls")
    assert "dots" in json.dumps(got)
    assert any(row["name"] == "dots" for row in listed["datasets"])


def test_a_backbone_is_its_file_and_an_entry(tmp_path: Path) -> None:
    assert len(follow("a backbone", tmp_path)) == 2
    short = ["outer.steps=2", "eval.episodes=4", "eval.validation_episodes=2", "run.execution=loop"]
    settings = ["data.name=glyphs", "model.kind=pooled", "model.settings.width=4", "model.norm=none"]
    trained = typed(tmp_path, "train", "omniglot-maml", *settings, *short, "run.compile=off")
    assert (tmp_path / str(trained["run"])).is_dir()


@pytest.mark.parametrize("title", ["a learner", "a data set", "a backbone"])
def test_there_is_a_how_to(title: str) -> None:
    assert f"### {title}" in TEXT
