"""Streams that nobody reads, characters that they lack, names that no file has: exit codes and sentences."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from innerloop.cli.main import GROUPS, VERBS, main
from innerloop.core.errors import UserError
from innerloop.core.paths import user_cache
from innerloop.data.arrays import from_arrays
from innerloop.data.source import ImageSource
from innerloop.experiment.recipe.grammar import read_value
from innerloop.runs.manifest import read_manifest
from innerloop.tasks.episodes import Kind, check_counts
from oracles.patience import PATIENCE

pytestmark = pytest.mark.usefixtures("own_folder")

TINY = ["outer.steps=2", "eval.episodes=2", "eval.validation_episodes=2", "outer.batch=2", "model.hidden=[8]"]
TINY += ["run.execution=loop", "run.compile=off", "run.threads=1"]


def in_shell(line: str, **variables: str) -> tuple[int, str]:
    """Exit code of the command in a line of the shell, and what it said on standard error."""
    command = line.replace("innerloop", f"{sys.executable} -P -m innerloop")
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **variables},
    )
    return done.returncode, done.stderr


# ---- streams ----


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("innerloop ls | head -1", 0),
        ("innerloop ls --json | true", 0),
        ("innerloop ls >&-", 0),
        ("innerloop ls --json >&-", 0),
        ("innerloop nosuchverb --json >&-", 2),
        ("innerloop nosuchverb 2>&-", 2),
        ("innerloop ls > /dev/full", 2),
        ("innerloop ls --json > /dev/full", 2),
        ("innerloop nosuchverb 2> /dev/full", 2),
    ],
)
@pytest.mark.one_in(3)
def test_streams_that_nobody_reads(line: str, code: int) -> None:
    ended, err = in_shell(line)
    assert (ended, "Traceback" in err, "Exception ignored" in err) == (code, False, False), err


@pytest.mark.slow
def test_files_do_not_take_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    code, err = in_shell(f"innerloop train sine-maml {' '.join(TINY)} --json >&- 2>&-")
    assert code == 0, err
    made = next(Path("runs").glob("*/*"))
    assert read_manifest(made)["status"] == "finished"
    assert all("metrics" not in file.read_text() for file in made.glob("*.txt"))


class Gone(io.StringIO):
    """A pipe whose reader has gone after some lines."""

    lines = 1

    def write(self, text: str) -> int:
        if self.lines <= 0:
            raise BrokenPipeError(32, "Broken pipe")
        self.lines -= 1
        return len(text)


def test_training_goes_on_when_nobody_reads_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Gone())
    assert main(["train", "sine-maml", *TINY, "--json"]) == 0
    made = next(Path("runs").glob("*/*"))
    assert read_manifest(made)["status"] == "finished"
    assert "held-out tasks" in (made / "log.txt").read_text()


def test_standard_output_without_our_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["train", "sine-maml", *TINY, "-q", "name=größe", "--json"]) == 0
    printed = json.loads(raw.getvalue().splitlines()[-1])
    assert "größe" in printed["run"]
    assert main(["ls", "runs"]) == 0
    assert b"gr\\xf6\\xdfe" in raw.getvalue()
    assert main(["show", printed["run"]]) == 0


# ---- names ----

LONG = "a" * 5000
ODD = "b\udcff"


@pytest.mark.parametrize("name", [LONG, ODD, "~nosuchuser/a", "a\0b", f"{LONG}.toml", f"{LONG}/b"])
@pytest.mark.parametrize("verb", ["train", "show", "eval", "resume", "report", "predict"])
def test_names_that_no_file_has(verb: str, name: str, call: Any) -> None:
    code, _, err = call(verb, name, *(["x.png"] if verb == "predict" else []))
    assert code == 2
    assert len(err) < 2000
    code, out, _ = call(verb, name, "--json", *(["x.png"] if verb == "predict" else []))
    assert json.loads(out)["exit_code"] == code == 2


@pytest.mark.parametrize("name", [LONG, "~nosuchuser/a", "c\0d", ODD])
@pytest.mark.parametrize("key", ["run.folder", "data.name", "model.init", "data.split_file", "name"])
def test_settings_that_name_no_file(key: str, name: str, call: Any) -> None:
    pictures = [] if key == "run.folder" else ["tasks.family=few-shot", "model.kind=conv4"]
    pictures += ["inner.loss=cross-entropy", "tasks.ways=2", "tasks.shots=1", "tasks.queries=1"] * bool(
        pictures
    )
    code, _, err = call("train", "sine-maml", *TINY, "-q", *pictures, f"{key}={name}")
    assert code in ((0, 2) if key == "name" else (2,)), err


def test_a_home_in_run_folder_is_the_users(
    call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    code, out, _ = call("train", "sine-maml", *TINY, "-q", "run.folder=~/zz", "--json")
    assert code == 0
    assert Path(json.loads(out)["run"]).is_relative_to(tmp_path / "home" / "zz")
    assert not Path("~").exists()


def test_a_user_without_a_home(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("INNERLOOP_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", none)
    with pytest.raises(UserError, match="INNERLOOP_DATA"):
        user_cache()
    code, _, err = call("data", "ls")
    assert code == 2
    assert "INNERLOOP_DATA" in err
    assert call("ls")[0] == 0


# ---- words ----


@pytest.mark.parametrize("verb", [*VERBS, *GROUPS])
def test_help_in_json_is_json(verb: str, call: Any) -> None:
    for given in ([verb, "--help", "--json"], [verb, "--json", "-h"]):
        code, out, _ = call(*given)
        assert code == 0
        assert "Usage" in json.loads(out)["help"]


def test_the_version_in_json_is_json(call: Any) -> None:
    code, out, _ = call("--version", "--json")
    assert (code, list(json.loads(out))) == (0, ["version"])


def advice(source: ImageSource, kind: Kind, balanced: bool) -> str:
    try:
        check_counts(source, np.arange(3), kind, balanced, "train")
    except UserError as error:
        return str(error)
    return ""


def test_the_advice_is_never_what_is_set_already() -> None:
    for pictures in range(1, 8):
        X, y = np.zeros((3 * pictures, 4, 4), np.uint8), np.repeat(np.arange(3), pictures)
        source = from_arrays(X, y, splits={"train": ["0", "1", "2"]})
        for shots in range(1, 8):
            for queries in range(1, 8):
                for balanced in (True, False):
                    told = advice(source, Kind(2, shots, queries), balanced)
                    assert f"shots to {shots}" not in told
                    assert f"queries to {queries}" not in told


# ---- settings ----

HOSTILE = [
    f"seed={'1' * 5000}",
    f"outer.lr={'1' * 5000}",
    "inner.settings=" + "{a=" * 3000,
    "model.hidden=" + "[" * 3000,
    "model.settings.x=" + "[" * 3000 + "]" * 3000,
    "tasks.shots=1e30",
    "tasks.shots=100000000000000000000000000000000",
    "outer.lr=1e38",
    "outer.lr=1e31",
    'run.folder="a\\u0000b"',
    'name="a\\u0000b"',
    "tasks.family=:x",
    "tasks.family=x:",
    "tasks.family=:",
    "tasks.family=..:x",
    "tasks.family=math:pi",
    "tasks.family=math:sqrt",
    "model.kind=torch.nn:Linear",
    "model.kind=torch.nn:Identity",
    "model.kind=math:pi",
    "model.kind=math:floor",
    "model.kind=:x",
    "model.kind=x:",
    "model.settings.\u0000=1",
    "inner.settings={}",
    "tasks.settings={amplitude=[1e300, 2]}",
]


@pytest.mark.parametrize("item", HOSTILE)
def test_hostile_settings_get_a_sentence(item: str, call: Any) -> None:
    code, _, err = call("train", "sine-maml", *TINY, "-q", item)
    assert code == 2 or (code == 0 and item == "inner.settings={}"), err
    assert len(err) < 3000


@pytest.mark.parametrize(
    "text", [f"seed = {'1' * 5000}", "a = " + "[" * 5000, "a = " + "{a=" * 3000, "\0", "a=1e9999"]
)
def test_hostile_recipes_get_a_sentence(text: str, call: Any) -> None:
    Path("bad.toml").write_text(text)
    for verb in ("train", "show", "sweep"):
        code, _, _ = call(verb, "bad.toml", *(["seed=[0,1]"] if verb == "sweep" else []))
        assert code == 2


def test_a_very_long_number_is_a_word() -> None:
    assert read_value("1" * 5000) == "1" * 5000
