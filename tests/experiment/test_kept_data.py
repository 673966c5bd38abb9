"""A run keeps the split of its pictures: a folder that changes does not change what it is tested on."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.data import from_arrays, open_source
from innerloop.experiment import pictures
from innerloop.experiment.picture_record import KEPT
from innerloop.experiment.results import Judged
from innerloop.experiment.resuming import resume
from innerloop.experiment.run_evaluation import evaluate_run
from innerloop.runs.manifest import update_manifest
from innerloop.testing.closeness import ROUNDED
from support.picture_runs import draw_noise, forget_pictures, run_on_folder

WORDS = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kite", "lark", "mole")
NEW = ("quokka", "wolf", "deer", "bison", "puma", "raven", "swan", "nandu", "asp", "wasp", "gull", "jackal")


@pytest.fixture
def animals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "store"))
    folder = tmp_path / "animals"
    for name in WORDS:
        draw_noise(folder, name)
    forget_pictures()
    return folder


def trained(folder: Path, **sections: Any) -> Path:
    return run_on_folder(folder, 3, **sections)


def kept(run: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run / KEPT).read_text())
    return record


def scores(evaluation: Judged) -> list[float]:
    told: list[float] = json.loads(evaluation.file.read_text())["scores"]
    return told


def test_a_run_keeps_its_classes_their_split_and_their_pictures(animals: Path) -> None:
    record = kept(trained(animals))
    assert sorted(name for names in record["splits"].values() for name in names) == sorted(WORDS)
    assert {part: len(names) for part, names in record["splits"].items()} == {
        "train": 7,
        "validation": 3,
        "test": 3,
    }
    assert set(record["sha256"]) == set(WORDS)
    assert record["pictures"] == dict.fromkeys(WORDS, 6)


def test_new_classes_do_not_change_the_test_set(animals: Path) -> None:
    run = trained(animals)
    before = evaluate_run(run, [])
    assert before.notes == []
    for name in NEW:
        draw_noise(animals, name)
    forget_pictures()
    fresh = open_source(str(animals))
    now = {fresh.class_names[c] for c in fresh.splits["test"]}
    assert now & set(kept(run)["splits"]["train"]) == {"fox", "gnu", "kite"}  # what a new division would do
    after = evaluate_run(run, [])
    assert scores(after) == scores(before)
    assert after.protocol == before.protocol
    (note,) = after.notes
    assert "12 classes are new ('asp', 'bison'" in note
    assert "the split that the run kept is used" in note


@pytest.mark.parametrize("what", ["a class is gone", "a picture is gone", "a picture is another"])
def test_a_changed_test_set_is_refused(animals: Path, what: str) -> None:
    run = trained(animals)
    name = kept(run)["splits"]["test"][0]
    if what == "a class is gone":
        shutil.rmtree(animals / name)
        words = f"the test split has lost '{name}'"
    elif what == "a picture is gone":
        (animals / name / "3.png").unlink()
        words = f"the test split has other pictures in '{name}' (6 pictures then, 5 now)"
    else:
        Image.fromarray(np.zeros((16, 16), np.uint8)).save(animals / name / "3.png")
        words = f"the test split has other pictures in '{name}' (6 pictures, not the same)"
    forget_pictures()
    with pytest.raises(UserError) as error:
        evaluate_run(run, [])
    assert words in str(error.value)
    assert "put them back as they were, or choose other classes with data.split_file" in str(error.value)
    assert len(list((run / "eval").glob("*.json"))) == 1


def test_changed_training_pictures_are_said_and_do_not_change_the_scale(animals: Path) -> None:
    run = trained(animals)
    before = evaluate_run(run, [])
    shutil.rmtree(animals / kept(run)["splits"]["train"][0])
    forget_pictures()
    after = evaluate_run(run, [])
    assert scores(after) == scores(before)
    assert "1 classes of the train split are gone or hold other pictures" in after.notes[0]


def test_outputs_counted_by_training_classes_are_kept_when_the_classes_go(animals: Path) -> None:
    run = trained(animals, tasks={"family": "supervised", "minibatch": 4}, outer={"objective": "erm"})
    for name in NEW:
        draw_noise(animals, name)
    forget_pictures()
    before = evaluate_run(run, [])
    for name in kept(run)["splits"]["train"]:
        shutil.rmtree(animals / name)
    forget_pictures()
    assert scores(evaluate_run(run, [])) == scores(before)


def test_a_run_goes_on_only_with_the_pictures_it_began_with(animals: Path) -> None:
    run = trained(animals)
    update_manifest(run, status="interrupted")
    draw_noise(animals, "newt")
    forget_pictures()
    resume(run, progress=False)
    assert "1 classes are new ('newt')" in (run / "log.txt").read_text()
    update_manifest(run, status="interrupted")
    (animals / kept(run)["splits"]["train"][0] / "0.png").unlink()
    forget_pictures()
    with pytest.raises(UserError, match="the train split has other pictures"):
        resume(run, progress=False)


def test_a_folder_that_moved_is_still_the_same(animals: Path) -> None:
    run = trained(animals)
    before = evaluate_run(run, [])
    moved = animals.rename(animals.with_name("moved"))
    forget_pictures()
    after = evaluate_run(run, [f"data.name={moved}"])
    assert scores(after) == scores(before)
    assert after.protocol["test_classes"] == before.protocol["test_classes"]
    for name in NEW:
        draw_noise(moved, name)
    forget_pictures()
    grown = evaluate_run(run, [f"data.name={moved}"])
    assert scores(grown) == scores(before)
    assert "12 classes are new" in grown.notes[0]
    (moved / "lark" / "0.png").unlink()  # now these are other pictures, divided by themselves
    forget_pictures()
    (note,) = evaluate_run(run, [f"data.name={moved}"]).notes
    assert "3 of the 5 test classes have names of classes that the run was trained on" in note


def test_own_split_files_and_rotations_keep_their_split_too(animals: Path, tmp_path: Path) -> None:
    split = tmp_path / "split.json"
    parts = {"train": list(WORDS[:7]), "validation": list(WORDS[7:10]), "test": list(WORDS[10:])}
    split.write_text(json.dumps(parts))
    run = trained(animals, data={"name": str(animals), "split_file": str(split), "rotations": True})
    before = evaluate_run(run, [])
    split.write_text(json.dumps({**parts, "train": list(WORDS[10:]), "test": list(WORDS[:7])}))
    forget_pictures()
    assert scores(evaluate_run(run, [])) == scores(before)


def test_runs_of_earlier_versions_are_judged_and_told_of_changes(animals: Path) -> None:
    run = trained(animals)
    (run / KEPT).unlink()
    assert evaluate_run(run, []).notes == []
    draw_noise(animals, "newt")
    forget_pictures()
    (note,) = evaluate_run(run, []).notes
    assert "kept no split" in note


def test_evaluation_files_begin_with_a_letter(animals: Path) -> None:
    (file,) = (trained(animals) / "eval").glob("*.json")
    assert file.name == "animals-3way-1shot-protonet0-1.json"


def test_other_test_classes_are_not_compared(animals: Path) -> None:
    from innerloop.report.comparison_page import pair
    from innerloop.report.read_run import load_run

    one, two = trained(animals), trained(animals, run={"seed": 1})
    assert pair(load_run(two), load_run(one)).difference is not None
    for name in NEW:
        draw_noise(animals, name)
    forget_pictures()
    three = trained(animals)
    assert pair(load_run(three), load_run(one)).reason == "other episodes (test classes or their pictures)"


def test_the_scale_of_pictures_is_told_without_copies_of_them() -> None:
    """Of mini-ImageNet it took 28 s and gigabytes of numbers before the first line was printed."""
    X = np.random.default_rng(0).integers(0, 256, (700, 32, 32, 3), np.uint8)
    source = from_arrays(X, np.repeat(np.arange(7), 100), splits={"train": [str(c) for c in range(7)]})
    tracemalloc.start()
    mean, std = pictures._channel_statistics(source, source.splits["train"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    whole = X.reshape(-1, 3) / 255
    np.testing.assert_allclose([mean, std], [whole.mean(0), whole.std(0)], rtol=ROUNDED)
    assert peak < X.nbytes
