"""What is killed: the commands, small enough to be carried out thousands of times, and what they must leave.

A new kind of work that lasts gets a class here and a line in :data:`KINDS`; the storm asks no more of it.
"""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from endurance.children import carry_out
from endurance.whole import check_run, check_store, newest_evaluation, run_content, store_content, untimed
from innerloop.data.hashing import content_hash
from innerloop.runs.directory import list_runs

TRAINED = [
    *("run.execution=vmap", "run.compile=off", "run.threads=1", "run.log_every=3", "run.save_every=7"),
    *("tasks.n_tasks=50", "model.hidden=[6]", "outer.steps=60", "outer.batch=2", "outer.optimiser=radam"),
    # every update depends on a sum over all parameters, and the rate on the whole past
    *("outer.clip=2", "outer.schedule=plateau", "outer.plateau_patience=2"),
    *("eval.every=12", "eval.validation_episodes=4", "eval.episodes=10"),
]
RACED = [
    *("space=convnet", "space.depths=[1,2]", "space.widths=[2,3]", "space.kernels=[3]", "tasks.ways=5"),
    *("k=2", "pool=5", "steps=4", "episodes=4", "score=parameters,flops", "repeats=1", "budget=10h"),
]
KEY = struct.Struct("<32sI")
"""Of a kept row: the hash of its picture, and a checksum."""


class Kind(Protocol):
    """Work that is begun by a command, and gone on with by another or by the same."""

    name: str

    def prepare(self, shared: Path) -> None:
        """Makes what all rounds need, once."""

    def begin(self, shared: Path, folder: Path, number: int) -> None:
        """Makes what a round starts from."""

    def words(self, shared: Path, folder: Path) -> list[str]:
        """The command that begins the work, or goes on with it."""

    def environment(self, folder: Path) -> dict[str, str]:
        """Variables of the command."""

    def check(self, shared: Path, folder: Path) -> None:
        """Looks at what a kill has left: whatever has its name is whole."""

    def content(self, folder: Path, output: str) -> Any:
        """What must be the same, bit for bit, however often it was killed."""


class Work:
    """What most kinds have in common: runs in the folder of a round, and nothing to prepare."""

    def prepare(self, shared: Path) -> None:
        """Nothing."""

    def begin(self, shared: Path, folder: Path, number: int) -> None:
        """Nothing."""

    def environment(self, folder: Path) -> dict[str, str]:
        """As it is."""
        return {}

    def check(self, shared: Path, folder: Path) -> None:
        """All runs are whole, and ``show`` reads them."""
        for run in list_runs(folder):
            check_run(run)
            shown = carry_out(["show", str(run), "--json"], folder / "show.txt")
            assert shown.code == 0, shown.output[-500:]


class Training(Work):
    """``train``, then ``resume`` until it is finished."""

    name = "training"

    def words(self, shared: Path, folder: Path) -> list[str]:
        runs = list_runs(folder)
        assert len(runs) <= 1, "more than one run"
        if runs:
            return ["resume", str(runs[0]), "-q"]
        return ["train", "sine-maml", *TRAINED, f"run.folder={folder}", "-q"]

    def content(self, folder: Path, output: str) -> Any:
        (run,) = list_runs(folder)
        left = [path.name for path in (run / "checkpoints").iterdir() if path.name.startswith(".")]
        return {**run_content(run), "left in checkpoints": left}


class Evaluation(Work):
    """``eval`` of a trained run: done again from the start, and nothing of the run is touched."""

    name = "evaluation"

    def prepare(self, shared: Path) -> None:
        few = [item for item in TRAINED if not item.startswith("outer.steps")]
        words = ["train", "sine-maml", *few, "outer.steps=10", f"run.folder={shared / 'runs'}", "-q"]
        made = carry_out(words, shared / "train.txt")
        assert made.code == 0, made.output
        for file in list_runs(shared / "runs")[0].glob("eval/*"):
            file.unlink()

    def begin(self, shared: Path, folder: Path, number: int) -> None:
        shutil.copytree(shared / "runs", folder, dirs_exist_ok=True)

    def words(self, shared: Path, folder: Path) -> list[str]:
        return ["eval", str(list_runs(folder)[0]), "eval.episodes=400", "eval.curve=true"]

    def content(self, folder: Path, output: str) -> Any:
        (run,) = list_runs(folder)
        everything = run_content(run)
        for file in (run / "eval").glob("*.json"):  # also those of evaluations that were killed afterwards
            assert untimed(json.loads(file.read_text())) == newest_evaluation(run), file
        return everything


class Conversion(Work):
    """``data get NAME --from FOLDER --again``: every other time in the place of an older data set."""

    name = "data conversion"

    def prepare(self, shared: Path) -> None:
        for kind, seed in (("new", 1), ("old", 0)):
            _pictures(shared / kind, seed)
        made = carry_out(self._get(shared / "old"), shared / "old.txt", environment=self.environment(shared))
        assert made.code == 0, made.output
        self.allowed = {json.loads(_store(shared).joinpath("index.json").read_text())["content_sha256"]}

    def begin(self, shared: Path, folder: Path, number: int) -> None:
        if number % 2:
            shutil.copytree(_store(shared), _store(folder))

    def words(self, shared: Path, folder: Path) -> list[str]:
        return self._get(shared / "new")

    def environment(self, folder: Path) -> dict[str, str]:
        return {"INNERLOOP_DATA": str(folder / "data")}

    def check(self, shared: Path, folder: Path) -> None:
        check_store(_store(folder), self.allowed | {_pixels(shared / "new")})

    def content(self, folder: Path, output: str) -> Any:
        return store_content(_store(folder))

    @staticmethod
    def _get(pictures: Path) -> list[str]:
        return ["data", "get", "mine", "--from", str(pictures), "--again", "-q"]


class Sweep(Work):
    """``sweep``, the same command until it is finished. Its runs are processes that start afresh."""

    name = "sweep"

    def words(self, shared: Path, folder: Path) -> list[str]:
        few = [item for item in TRAINED if not item.startswith("outer.steps")]
        swept = ["seed=[0,1]", "outer.steps=30", *few, f"run.folder={folder}"]
        return ["sweep", "sine-maml", *swept, "--jobs", "1", "-q", "--json"]

    def content(self, folder: Path, output: str) -> Any:
        found = json.loads(output.strip().splitlines()[-1])
        runs = {run.parent.name: run for run in list_runs(Path(found["folder"]))}  # the last one of each cell
        assert len(runs) == 2, runs
        return {"table": untimed(found["table"]), **{name: run_content(run) for name, run in runs.items()}}


class Search(Work):
    """``search``, then ``resume`` until it is finished; the workers are processes of their own."""

    name = "search"

    def words(self, shared: Path, folder: Path) -> list[str]:
        runs = list_runs(folder)
        assert len(runs) <= 1, "more than one run"
        if runs:
            return ["resume", str(runs[0]), "-q"]
        return ["search", "glyphs", *RACED, f"run.folder={folder}", "--jobs", "2", "-q"]

    def content(self, folder: Path, output: str) -> Any:
        (run,) = list_runs(folder)
        told = json.loads((run / "result.json").read_text(encoding="utf-8"))
        results = {
            str(file.relative_to(run)): untimed(json.loads(file.read_text(encoding="utf-8")))
            for file in sorted((run / "candidates").glob("*/*.json"))
        }
        same = ("shortlist", "chosen", "reliability", "rungs", "sentence")
        return {
            "told": {name: untimed(told[name]) for name in same},
            "recipe": _without_places((run / "chosen.toml").read_text(encoding="utf-8")),
            "trials": results,
        }


class Extraction(Work):
    """``predict`` with a pretrained network: features are kept as they come, and found again."""

    name = "feature extraction"

    def prepare(self, shared: Path) -> None:
        _pictures(shared / "examples", 0, (4, 6))
        _pictures(shared / "new", 1, (1, 40))

    def words(self, shared: Path, folder: Path) -> list[str]:
        words = ["predict", "--support", str(shared / "examples"), str(shared / "new"), "-q", "--json"]
        return [*words, "--backbone", "efficientnet-lite0"]

    def environment(self, folder: Path) -> dict[str, str]:
        return {"INNERLOOP_DATA": str(folder / "data")}

    def check(self, shared: Path, folder: Path) -> None:
        _kept_features(folder)

    def content(self, folder: Path, output: str) -> Any:
        told = json.loads(output.strip().splitlines()[-1])
        return {"told": untimed(told), "features": _kept_features(folder)}


KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (Training(), Evaluation(), Conversion(), Sweep(), Search(), Extraction())
}


def _kept_features(folder: Path) -> dict[str, str]:
    """Every row that is kept, by its picture; one that has a key must be whole."""
    rows: dict[str, str] = {}
    for keys in sorted((folder / "data").rglob("*.keys")):
        about = keys.parent / "about.json"  # what files held is kept in the same way, in eight words, of some
        dimension = json.loads(about.read_text())["features"] if about.exists() else 8
        values = np.fromfile(keys.with_suffix(".values"), "<f4")
        known = keys.read_bytes()
        known = known[: len(known) // KEY.size * KEY.size]  # a kill may leave a part of a key behind
        for row, (digest, checksum) in enumerate(KEY.iter_unpack(known)):
            kept = values[row * dimension : (row + 1) * dimension].tobytes()
            assert zlib.crc32(kept) == checksum, f"row {row} of {keys}"
            if not about.exists():
                continue
            assert rows.setdefault(digest.hex(), kept.hex()) == kept.hex(), f"two features of {digest.hex()}"
    return rows


def _without_places(recipe: str) -> list[str]:
    """The lines of a recipe but for its command and its folder."""
    return [line for line in recipe.splitlines()[1:] if not line.startswith("folder = ")]


def _store(folder: Path) -> Path:
    return folder / "data" / "mine"


def _pictures(root: Path, seed: int, numbers: tuple[int, int] = (10, 8)) -> None:
    """So many classes of so many small pictures."""
    drawn = np.random.default_rng(seed).integers(0, 256, (*numbers, 12, 12), dtype=np.uint8)
    for label, pictures in enumerate(drawn):
        (root / f"class{label}").mkdir(parents=True)
        for number, picture in enumerate(pictures):
            Image.fromarray(picture).save(root / f"class{label}" / f"{number}.png")


def _pixels(root: Path) -> str:
    """The hash that a store of these pictures must have, from the pictures alone."""
    files = sorted(root.rglob("*.png"))
    return content_hash(np.stack([np.asarray(Image.open(file))[..., None] for file in files]))
