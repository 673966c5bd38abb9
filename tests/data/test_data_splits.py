"""The shipped class lists against the published ones, and splits of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from innerloop.core.errors import UserError
from innerloop.data.catalogue import UNKNOWN, catalogue, class_list, published_splits
from innerloop.data.splits import divide, named_splits, read_split_file

PARTS = {"train": "train", "val": "validation", "test": "test"}
FEW_SHOT = {
    ("mini-imagenet", "ravi"): "mini_imagenet_ravi",
    ("mini-imagenet-vinyals", "vinyals"): "mini_imagenet_vinyals",
    ("tiered-imagenet", "ren"): "tiered_imagenet",
    ("cub", "chen"): "cub",
}


@pytest.mark.parametrize("name", catalogue())
def test_every_row_is_consistent(name: str) -> None:
    entry = catalogue()[name]
    classes = class_list(entry.class_list)
    assert len(classes.names) == len(set(classes.names)) == entry.classes
    assert entry.per_class is None or entry.classes * entry.per_class == entry.images
    if classes.groups is not None:
        assert len(classes.groups) == entry.classes
        assert set(classes.groups) == set(range(len(classes.group_names)))
    for split, parts in classes.splits.items():
        numbers = published_splits(entry, split)
        together = np.concatenate(list(numbers.values()))
        assert len(together) == len(set(together.tolist()))  # no class in two parts
        assert {part: len(ids) for part, ids in numbers.items()} == {
            part: len(names) for part, names in parts.items()
        }
        assert split in classes.sources
    for archive in entry.archives:
        assert archive.md5 == UNKNOWN or (len(archive.md5) == 32 and archive.md5_source != UNKNOWN)


def test_the_few_shot_lists_are_the_published_ones(shared_data: Path) -> None:
    published = json.loads((shared_data / "fewshot_splits.json").read_text())
    for (name, split), key in FEW_SHOT.items():
        ours = class_list(name).splits[split]
        for part, theirs in published[key].items():
            names = [row["wnid"] if isinstance(row, dict) else row for row in theirs]
            assert sorted(ours[PARTS[part]]) == sorted(names)
    tiered = class_list("tiered-imagenet")
    assert tiered.groups is not None
    superclass = {
        name: tiered.group_names[group] for name, group in zip(tiered.names, tiered.groups, strict=True)
    }
    for rows in published["tiered_imagenet"].values():
        assert all(superclass[row["wnid"]] == row["superclass"] for row in rows)


def test_the_cifar_lists_are_the_published_ones(shared_data: Path) -> None:
    published = json.loads((shared_data / "cifar100_splits.json").read_text())
    classes = class_list("cifar100")
    assert list(classes.names) == published["fine_names"]
    assert list(classes.groups or ()) == published["fine_to_coarse"]
    assert list(classes.group_names) == published["coarse_names"]
    for name, key in (("cifar-fs", "cifar_fs"), ("fc100", "fc100")):
        numbers = published_splits(catalogue()[name])
        for part, theirs in published[key].items():
            assert numbers[PARTS[part]].tolist() == sorted(theirs["labels"])
            assert set(classes.splits[name][PARTS[part]]) == set(theirs["names"])
    coarse = np.array(classes.groups)
    parts = [set(coarse[ids].tolist()) for ids in published_splits(catalogue()["fc100"]).values()]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 20  # FC100 splits superclasses


def test_omniglots_lists_are_the_published_ones(shared_data: Path) -> None:
    table = np.load(shared_data / "omniglot_28.npz")
    classes = class_list("omniglot")
    assert list(classes.names) == table["char_names"].tolist()
    assert list(classes.groups or ()) == table["alphabet_index"].tolist()
    entry = catalogue()["omniglot"]
    vinyals = published_splits(entry)
    for part, key in (("train", "vinyals_train"), ("validation", "vinyals_val"), ("test", "vinyals_test")):
        assert vinyals[part].tolist() == sorted(table[key].tolist())
    assert [len(ids) for ids in vinyals.values()] == [1028, 172, 423]
    alphabet = published_splits(entry, "alphabet")
    assert alphabet["train"].tolist() == np.flatnonzero(~table["is_evaluation"]).tolist()
    assert alphabet["test"].tolist() == np.flatnonzero(table["is_evaluation"]).tolist()


def test_division_depends_on_the_names_only() -> None:
    names = [f"class {i}" for i in range(50)]
    splits = divide(names)
    assert {part: len(ids) for part, ids in splits.items()} == {"train": 30, "validation": 10, "test": 10}
    turned = divide(names[::-1])
    for part, ids in splits.items():
        assert {names[c] for c in ids} == {names[::-1][c] for c in turned[part]}
    assert divide(["a", "b"]) == {"all": (0, 1)}
    assert [len(ids) for ids in divide(["a", "b", "c"]).values()] == [1, 1, 1]


def test_split_files(tmp_path: Path) -> None:
    names = ["birds/owl", "birds/tit", "fish/eel", "fish/ray"]
    (tmp_path / "a.json").write_text(json.dumps({"train": ["owl", "fish/eel"], "val": ["tit"]}))
    (tmp_path / "b.csv").write_text("class,split\nowl,train\nfish/eel,train\ntit,val\n")
    for file in ("a.json", "b.csv"):
        assert read_split_file(tmp_path / file, names) == {"train": (0, 2), "validation": (1,)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"train": ["owls"]}', r"names the class 'owls' \(did you mean 'owl'\?\), which is not there"),
        ('{"train": ["owl"], "test": ["owl"]}', "puts the class 'owl' in both train and test"),
        ("[1, 2]", "must look like"),
        ("{", "is not valid JSON"),
        ("{}", "lists no classes"),
    ],
)
def test_split_files_that_cannot_be_used(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "splits.json"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_split_file(path, ["owl", "tit"])


def test_a_csv_without_its_columns_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="needs the columns class and split"):
        read_split_file(tmp_path / "x.csv", ["owl"])
    with pytest.raises(UserError, match="cannot be read"):
        read_split_file(tmp_path / "y.csv", ["owl"])


def test_ambiguous_last_names_need_the_whole_name() -> None:
    names = ["greek/1", "latin/1"]
    with pytest.raises(UserError, match="names the class '1'"):
        named_splits({"train": ["1"]}, names, "splits")
    assert named_splits({"train": ["latin/1"]}, names, "splits") == {"train": (1,)}
