"""Sources in memory: arrays, .npz files, torch datasets; and what travels to other processes."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from innerloop.core.errors import UserError
from innerloop.data import ImageSource, classes_of, from_arrays, from_dataset, labels, open_source
from support.data_files import class_folders, picture


@pytest.fixture(autouse=True)
def _data(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path_factory.mktemp("data")))


def check_layout(source: ImageSource) -> None:
    """What every consumer relies on."""
    assert source.images.dtype == np.uint8
    assert source.images.ndim == 4
    assert source.starts[0] == 0
    assert source.starts[-1] == len(source.images)
    assert len(source.starts) == source.n_classes + 1
    assert (np.bincount(labels(source), minlength=source.n_classes) == source.counts).all()
    assert (np.diff(labels(source)) >= 0).all()
    for part in source.splits:
        assert classes_of(source, part).dtype == np.int64
    assert len({source.files(row) for row in range(len(source.images))}) == len(source.images)


def test_arrays_are_sorted_by_class() -> None:
    X = np.arange(6 * 4 * 4, dtype=np.uint8).reshape(6, 4, 4)
    y = np.array([3, 1, 3, 1, 7, 7])
    source = from_arrays(
        X, y, class_names=["one", "three", "seven"], splits={"train": ["one", "three"], "val": ["seven"]}
    )
    check_layout(source)
    np.testing.assert_array_equal(source.images[..., 0], X[[1, 3, 0, 2, 4, 5]])
    assert [source.files(row) for row in range(3)] == ["X[1]", "X[3]", "X[0]"]
    assert source.splits["validation"].tolist() == [2]
    with pytest.raises(UserError, match=r"has no split 'test'.*it has 'train', 'validation'"):
        classes_of(source, "test")


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (np.zeros((4, 8, 9), np.uint8), (8, 9, 1)),
        (np.zeros((4, 8, 9, 3), np.uint8), (8, 9, 3)),
        (np.zeros((4, 3, 8, 9), np.uint8), (8, 9, 3)),
        (np.zeros((4, 1, 8, 9), bool), (8, 9, 1)),
    ],
)
def test_shapes_of_arrays(array: np.ndarray, shape: tuple[int, ...]) -> None:
    assert from_arrays(array, [0, 0, 1, 1]).images.shape[1:] == shape


def test_numbers_of_arrays() -> None:
    values = np.array([[0, 64, 255]] * 4, np.uint8)[:, None, :]
    for array in (values, values / 255, (values / 255).astype(np.float32), values.astype(np.int64)):
        np.testing.assert_array_equal(from_arrays(array, [0, 0, 1, 1]).images[..., 0], values)
    normalised = (values / 255 - 0.5) / 0.2
    with pytest.raises(UserError, match=r"or floats between 0 and 1; .* undo the normalisation"):
        from_arrays(normalised, [0, 0, 1, 1])


def test_arrays_that_do_not_fit() -> None:
    X = np.zeros((4, 8, 8), np.uint8)
    with pytest.raises(UserError, match="not a label for each"):
        from_arrays(X, [0, 1])
    with pytest.raises(UserError, match="2 classes in y and 1 class names"):
        from_arrays(X, [0, 0, 1, 1], class_names=["a"])
    with pytest.raises(UserError, match="2 classes and 3 groups"):
        from_arrays(X, [0, 0, 1, 1], groups=["g", "g", "h"])
    with pytest.raises(UserError, match=r"pictures of shape \(4, 8\)"):
        from_arrays(X[..., 0], [0, 0, 1, 1])


def test_npz_files(tmp_path: Path) -> None:
    X = np.random.default_rng(0).integers(0, 256, (12, 6, 6), dtype=np.uint8)
    y = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2])
    np.savez(tmp_path / "a.npz", images=X, labels=y, names=["x", "y", "z"], groups=["g", "g", "h"])
    source = open_source(tmp_path / "a.npz")
    check_layout(source)
    assert source.class_names == ("x", "y", "z")
    assert source.group_names == ("g", "h")
    assert source.files(0) == "a.npz#0"
    np.testing.assert_array_equal(source.images[:4, ..., 0], X[y == 0])
    np.savez(tmp_path / "b.npz", images=X.reshape(3, 4, 6, 6), names=["x", "y", "z"])
    by_class = open_source(tmp_path / "b.npz")
    np.testing.assert_array_equal(by_class.images[4:8, ..., 0], X[4:8])
    np.savez(tmp_path / "c.npz", X=X, y=np.array(list("xyz"))[y])
    assert open_source(tmp_path / "c.npz").content_sha256 == source.content_sha256
    assert open_source(tmp_path / "c.npz", size=3).images.shape == (12, 3, 3, 1)


def test_npz_files_that_cannot_be_used(tmp_path: Path) -> None:
    X = np.zeros((4, 6, 6), np.uint8)
    np.savez(tmp_path / "a.npz", pixels=X, labels=[0, 0, 1, 1])
    with pytest.raises(UserError, match=r"no array called images \(or X\): it has pixels, labels"):
        open_source(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", images=X)
    with pytest.raises(UserError, match=r"no array called labels \(or y\)"):
        open_source(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", images=X, labels=[0, 0, 1, 5], names=["a", "b"])
    with pytest.raises(UserError, match="names 2 classes, but its labels go up to 5"):
        open_source(tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", images=X, labels=np.array([0, 0, 1, {}], dtype=object))
    with pytest.raises(UserError, match=r"damaged, or not an .npz file of plain arrays"):
        open_source(tmp_path / "d.npz")
    (tmp_path / "e.npz").write_bytes((tmp_path / "b.npz").read_bytes()[:100])
    with pytest.raises(UserError, match="damaged"):
        open_source(tmp_path / "e.npz")


class Pictures(torch.utils.data.Dataset[Any]):
    """As torchvision's datasets: items are (picture, number), and ``classes`` names the numbers."""

    classes = ("ant", "bee", "cat")

    def __init__(self, form: str, sizes: tuple[int, ...] = (12,)) -> None:
        self.form, self.sizes = form, sizes

    def __len__(self) -> int:
        return 9

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        if row >= 9:
            raise IndexError
        array, label = picture(row, self.sizes[row % len(self.sizes)]), (row * 2) % 3
        if self.form == "pillow":
            return Image.fromarray(array), label
        if self.form == "tensor":
            return torch.from_numpy(array.copy()).permute(2, 0, 1).float() / 255, torch.tensor(label)
        return array, label


@pytest.mark.parametrize("form", ["pillow", "tensor", "array"])
def test_torch_datasets(form: str) -> None:
    source = from_dataset(Pictures(form), splits={"train": ["ant", "bee"], "test": ["cat"]})
    check_layout(source)
    assert source.class_names == ("ant", "bee", "cat")
    np.testing.assert_array_equal(source.images[1], picture(3, 12))
    assert source.splits["test"].tolist() == [2]
    assert from_dataset(Pictures(form), size=6, colour="grey").images.shape == (9, 6, 6, 1)
    with pytest.raises(UserError, match="different shapes: give from_dataset a size"):
        from_dataset(Pictures(form, sizes=(12, 14)))
    assert from_dataset(Pictures(form, sizes=(12, 14)), size=8).images.shape == (9, 8, 8, 3)


def test_subsets_and_items_that_are_no_pairs() -> None:
    part = torch.utils.data.Subset(Pictures("pillow"), [0, 1, 3, 4])  # no class 1
    source = from_dataset(part)
    assert source.class_names == ("0", "2")  # a subset has no names
    with pytest.raises(UserError, match="item 0 of the dataset is not a pair"):
        from_dataset([5])
    with pytest.raises(UserError, match=r"the label of item 0 is 0.5"):
        from_dataset([(picture(0), 0.5)])
    with pytest.raises(UserError, match="needs a map-style Dataset"):
        from_dataset(iter([1]))


def _summary(source: ImageSource) -> tuple[str, str, int, int]:
    return source.name, source.files(3), int(source.images[3].sum()), len(source.images)


def test_sources_travel_to_spawned_processes(tmp_path: Path) -> None:
    """Windows and macOS start workers anew: sources are picklable, and mapped pictures stay on disk."""
    mapped = open_source(class_folders(tmp_path / "pets", {"cat": 3, "dog": 3, "owl": 3}))
    memory = from_arrays(np.zeros((4, 8, 8), np.uint8), [0, 0, 1, 1])
    assert len(pickle.dumps(mapped)) < 5_000 < mapped.images.nbytes
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for source in (mapped, memory):
            assert pool.apply(_summary, (source,)) == _summary(source)
    again = pickle.loads(pickle.dumps(mapped))
    assert isinstance(again.images, np.memmap)
    part = mapped._replace(images=mapped.images[2:5])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)).images, part.images)


def test_torch_is_not_imported(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "pets", {"cat": 3, "dog": 3, "owl": 3})
    code = (
        "import sys, innerloop.data, innerloop.cli.data\n"
        f"innerloop.data.open_source({str(root)!r})\n"
        "import innerloop.data.get, innerloop.data.listing, innerloop.data.listing\n"
        "print(sorted({'torch', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_embedded_dataset() -> None:
    source = open_source("glyphs")
    assert source.n_classes >= 400
    assert source.counts.min() >= 20
    assert set(source.splits) == {"train", "validation", "test"}
    assert open_source("glyphs", size=14).images.shape[1:] == (14, 14, 1)
