"""Input that nobody meant: whatever a file or a setting holds, it is read or refused with a sentence.

Short versions run in CI; the long ones, of 10,000 cases each, are slow tests.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("hypothesis")

from hypothesis import strategies as st
from typer.main import get_command

from innerloop.classify import FewShotClassifier, Predictor
from innerloop.classify.files import read_predictor
from innerloop.cli import main as command
from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.core.files import read_json, read_object
from innerloop.data.archives import Archive
from innerloop.data.folder import FolderOptions
from innerloop.data.glyphs import glyphs
from innerloop.data.opening import open_path
from innerloop.data.splits import read_split_file
from innerloop.experiment.recipe.library import shipped_names, shipped_text
from innerloop.experiment.recipe.problems import known_settings
from innerloop.experiment.recipe.settings import make_recipe, recipe_from_toml, recipe_to_toml
from innerloop.runs.checkpoints import load_checkpoint
from innerloop.runs.metrics import read_metrics
from innerloop.training.state import state_from
from oracles.mutations import HOSTILE_TEXT, JSON, NUMBERS, damaged_bytes, damaged_json, run_cases
from support.places import FIXTURES

pytestmark = pytest.mark.usefixtures("own_folder", "own_data")

SHORT, LONG = 25, 10_000
AT_ONCE = 10  # damaged runs that are listed together: a list takes as long as a look at one of them
CASES = pytest.mark.parametrize("cases", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
RUN = FIXTURES / "runs-0.1" / "sine-maml"


def answered(work: Callable[[], Any]) -> Any:
    """What the work gives, or None where it refuses with a sentence; every other error is a failure."""
    try:
        return work()
    except UserError as error:
        told = str(error)
    assert 0 < len(told.strip()) < 20_000
    return None


@contextlib.contextmanager
def nothing_else_changes(outside: Path) -> Iterator[None]:
    """Whatever happens inside, files beside it stay as they are."""
    (outside / "precious").mkdir(exist_ok=True)
    (outside / "precious" / "file").write_text("mine")
    before = sorted(outside.rglob("*"))
    yield
    assert sorted(outside.rglob("*")) == before
    assert (outside / "precious" / "file").read_text() == "mine"


# ---- recipes and settings ----


@CASES
def test_recipes(cases: int) -> None:
    texts = [shipped_text(name).encode() for name in shipped_names()[:6]]

    def check(content: bytes) -> None:
        Path("a.toml").write_bytes(content)
        recipe = answered(lambda: recipe_from_toml(Path("a.toml")))
        if recipe is not None:
            assert recipe_from_toml(recipe_to_toml(recipe)) == recipe

    run_cases(cases, check, st.one_of([damaged_bytes(text) for text in texts] + [st.binary(max_size=40)]))


@CASES
def test_settings(cases: int) -> None:
    keys = st.one_of(st.sampled_from(sorted(known_settings())), HOSTILE_TEXT)
    values = st.one_of(HOSTILE_TEXT, NUMBERS.map(str), JSON.map(str))
    items = st.lists(st.builds("{}={}".format, keys, values) | HOSTILE_TEXT, max_size=4)

    def check(given: list[str]) -> None:
        recipe = answered(lambda: make_recipe({}, given))
        if recipe is not None and ":" not in recipe.model.kind + recipe.tasks.family:
            assert recipe_from_toml(recipe_to_toml(recipe)) == recipe

    run_cases(cases, check, items)


# ---- data ----


def packed(kind: str) -> bytes:
    raw = io.BytesIO()
    members = {"a/1.png": b"1" * 50, "a/2.png": b"2" * 50, "b/list.txt": b"a\n"}
    if kind == "zip":
        with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as made:
            for name, content in members.items():
                made.writestr(name, content)
    else:
        with tarfile.open(fileobj=raw, mode=kind) as tar:
            for name, content in members.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


@CASES
def test_archives(cases: int, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    path = inside / "a.archive"
    path.touch()

    def check(content: bytes) -> None:
        path.write_bytes(content)

        def read() -> None:
            archive = Archive(path)
            for name in archive.names:
                content = answered(lambda name=name: archive.read(name))
                assert content is None or isinstance(content, bytes)
            streamed = answered(lambda: list(archive.stream(archive.names)))
            assert streamed is None or {name for name, _ in streamed} <= set(archive.names)

        answered(read)

    kinds = [damaged_bytes(packed(kind)) for kind in ("zip", "w:", "w:gz", "w:xz")]
    with nothing_else_changes(tmp_path):
        run_cases(cases, check, st.one_of([*kinds, st.binary(max_size=60)]))


def picture(shade: int = 77) -> bytes:
    raw = io.BytesIO()
    Image.new("L", (9, 8), shade).save(raw, "png")
    return raw.getvalue()


FILE_NAMES = st.sampled_from(["1.png", "2.png", "3.jpg", "4.gif", "x/5.png", ".6.png", "7.txt", "\udcff.png"])
CONTENTS = st.one_of(
    st.just(picture()),
    damaged_bytes(picture()),
    st.binary(max_size=30),
    st.sampled_from(["pipe", "dangling", "loop", "up", "folder"]),
)


def put(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or path.exists():
        return
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "pipe":
        os.mkfifo(path)
    elif content == "folder":
        path.mkdir()
    else:
        path.symlink_to({"dangling": "nowhere", "loop": path.name, "up": ".."}[content])


@CASES
def test_picture_folders(cases: int, tmp_path: Path) -> None:
    root = tmp_path / "pictures"
    places = st.tuples(st.sampled_from(["ant", "bee", "train/cat", "test/cat"]), FILE_NAMES)

    def check(files: dict[tuple[str, str], Any], skip: bool) -> None:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        for shade, name in ((1, "ant"), (2, "bee")):
            for number in range(2):
                put(root / name / f"good{number}.png", picture(shade))
        for (folder, name), content in files.items():
            put(root / folder / name, content)
        source = answered(lambda: open_path(root, FolderOptions(on_bad="skip" if skip else "refuse")))
        if source is not None:
            assert source.images.dtype == np.uint8
            assert len(source.images) == source.counts.sum()
        shutil.rmtree(tmp_path / "data", ignore_errors=True)

    run_cases(cases, check, st.dictionaries(places, CONTENTS, max_size=4), st.booleans())


@CASES
def test_array_files(cases: int) -> None:
    raw = io.BytesIO()
    np.savez(raw, images=np.zeros((6, 4, 4), np.uint8), labels=np.arange(6) // 2, names=["a", "b", "c"])

    def check(content: bytes) -> None:
        Path("a.npz").write_bytes(content)
        source = answered(lambda: open_path(Path("a.npz"), FolderOptions()))
        if source is not None:
            assert source.images.dtype == np.uint8
            assert len(source.images) == source.counts.sum()
        shutil.rmtree("data", ignore_errors=True)

    run_cases(cases, check, damaged_bytes(raw.getvalue()))


# ---- what runs leave ----


@CASES
def test_json_files(cases: int) -> None:
    path = Path("a.json")

    def splits(file: Path) -> Any:
        return read_split_file(file, ["a", "b"])

    def check(content: bytes) -> None:
        path.write_bytes(content)
        answered(lambda: read_json(path))
        for read, kind in ((read_object, dict), (read_metrics, list), (splits, dict)):
            found = answered(lambda read=read: read(path))
            assert found is None or isinstance(found, kind)

    run_cases(
        cases, check, st.one_of(st.binary(max_size=60), damaged_json(b'{"train": ["a"], "test": ["b"]}'))
    )


def files_of_the_run(names: list[str]) -> Any:
    """A file of a run and what became of it."""
    choices = []
    for name in names:
        content = (RUN / name).read_bytes()
        damage = damaged_json if name.endswith(".json") else damaged_bytes
        choices.append(st.tuples(st.just(name), damage(content)))
    return st.one_of(choices)


@contextlib.contextmanager
def damaged(run: Path, damage: tuple[str, bytes]) -> Iterator[None]:
    """A run with one file that holds something else; afterwards it is whole again."""
    name, content = damage
    (run / name).write_bytes(content)
    try:
        yield
    finally:
        (run / name).write_bytes((RUN / name).read_bytes())


@CASES
def test_checkpoints(cases: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    names = [
        str(file.relative_to(RUN)) for file in sorted((RUN / "checkpoints").rglob("*")) if file.is_file()
    ]

    shutil.copytree(RUN, run)

    def check(damage: tuple[str, bytes]) -> None:
        with damaged(run, damage):
            for tag in ("last", "best"):
                answered(lambda tag=tag: state_from(*found) if (found := load_checkpoint(run, tag)) else None)

    with nothing_else_changes(tmp_path):
        run_cases(cases, check, files_of_the_run(names))


@CASES
def test_run_directories(
    cases: int, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # put together once and not for every call, which is most of what a call takes
    monkeypatch.setattr(command, "app", get_command(command.app))
    names = ["manifest.json", "recipe.toml", "metrics.jsonl"]
    names += [str(file.relative_to(RUN)) for file in (RUN / "eval").glob("*.json")]
    runs = [tmp_path / "runs" / "sine-maml" / f"20260101-000000-s{seed}" for seed in range(AT_ONCE)]
    for run in runs:
        shutil.copytree(RUN, run)

    def check(damages: list[tuple[str, bytes]]) -> None:
        with contextlib.ExitStack() as stack:
            for run, damage in zip(runs, damages, strict=True):
                stack.enter_context(damaged(run, damage))
            listed = [main(["ls", "runs"]), main(["ls", "runs", "--json"])]
            shown = [main(["show", str(run)]) for run in runs]
        err = capfd.readouterr().err
        assert "Traceback" not in err, err
        assert listed == [0, 0]
        assert set(shown) <= {0, 2}

    several = st.lists(files_of_the_run(names), min_size=AT_ONCE, max_size=AT_ONCE)
    with nothing_else_changes(tmp_path):
        run_cases(-(-cases // AT_ONCE), check, several)


@CASES
def test_saved_models(cases: int) -> None:
    path = Path("a.safetensors")
    files = []
    for head, norm in (("logistic", "running"), ("learner", "support")):
        model = FewShotClassifier(head=head, verbose=False)
        model.pretrain(
            glyphs().images[:100], np.repeat(np.arange(5), 20), filters=2, norm=norm, steps=1, ways=2
        )
        model.fit(glyphs().images[8000:8040:5], np.repeat(["ant", "bee"], 4))
        files.append(model.save(path).read_bytes())

    def check(content: bytes) -> None:
        path.write_bytes(content)
        saved = answered(lambda: read_predictor(path))
        assert saved is None or isinstance(saved, Predictor)

    run_cases(cases, check, st.one_of([damaged_bytes(content) for content in files]))
