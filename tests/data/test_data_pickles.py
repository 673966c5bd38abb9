"""Publishers' pickles: plain data is read, everything else is refused."""

from __future__ import annotations

import collections
import datetime
import io
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from innerloop.core.errors import UserError
from innerloop.data.pickles import by_text, load_pickle, text
from support.data_files import old_pickle


def load(blob: bytes) -> Any:
    return load_pickle(io.BytesIO(blob), "'train'")


ARRAYS = [
    np.arange(12, dtype=np.uint8).reshape(3, 4),
    np.asfortranarray(np.arange(12, dtype=np.int64).reshape(3, 4)),
    np.arange(3, dtype=">f4"),
    np.array([b"apple", b"pear"]),
    np.array(["äpfel", "birne"]),
    np.array([True, False]),
    np.zeros((0, 5), np.float64),
]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays_come_back_exactly(array: np.ndarray, protocol: int) -> None:
    back = load(pickle.dumps({"x": array, "n": [1, "two", b"three", (4.5, None, True)]}, protocol))
    read = back[b"x"] if b"x" in back else back["x"]
    np.testing.assert_array_equal(read, array)
    assert read.dtype == array.dtype


def test_both_of_numpys_module_names() -> None:
    array = np.arange(6, dtype=np.int32)
    new = pickle.dumps(array, protocol=2)
    old = old_pickle(array)
    assert b"numpy._core" in new
    assert b"numpy._core" not in old
    for blob in (old, new):
        np.testing.assert_array_equal(load(blob), array)


def test_a_python_2_pickle() -> None:
    # what Python 2 writes for {'labels': [1, 2], 'name': 'train'}: short strings, no bytes
    blob = b"(dp0\nS'labels'\np1\n(lp2\nI1\naI2\nasS'name'\np3\nS'train'\np4\ns."
    table = by_text(load(blob), "'train'")
    assert table["labels"] == [1, 2]
    assert text(table["name"]) == "train"


def test_numpy_scalars_and_object_arrays_of_plain_things() -> None:
    back = load(pickle.dumps([np.int64(7), np.float32(0.5), np.array(["a", 3], dtype=object)], protocol=4))
    assert back == [7, 0.5, ["a", 3]]


class Exploit:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], tuple(self.call[1:])


FORBIDDEN = [
    Exploit(os.system, "touch escaped"),
    Exploit(eval, "1 + 1"),
    Exploit(getattr, "text", "upper"),
    Exploit(np.load, "x.npy"),
    datetime.date(2020, 1, 1),
    collections.OrderedDict(a=1),
    Path("x"),
    os.system,
    np.ndarray,
    np.dtype("u1"),
    np.array([(1, 2)], dtype=[("a", "u1"), ("b", "u1")]),
]


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("value", FORBIDDEN, ids=lambda value: type(value).__name__)
def test_anything_else_is_refused(
    value: Any, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="'train' was refused: it asks for") as caught:
        load(pickle.dumps([1, value], protocol))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_other_codecs_are_refused() -> None:
    blob = b"c_codecs\nencode\n(Vpayload\nVrot13\ntR."
    with pytest.raises(UserError, match="the codec 'rot13'"):
        load(blob)


def test_a_forged_dtype_cannot_turn_bytes_into_pointers() -> None:
    """Numpy's own reader takes a dtype's flags from the pickle; an object array could then hold raw bytes."""
    forged = (
        b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntC\x01btR"
        b"(I1\n(I1\ntcnumpy\ndtype\n(VO8\nI0\nI1\ntR(I3\nV|\nNNNI-1\nI-1\nI0\ntbI00\nC\x08AAAAAAAAtb."
    )
    pickletools.dis(forged, io.StringIO())  # a well-formed pickle
    with pytest.raises(UserError, match="an array of O8"):
        load(forged)


def test_damage_is_one_sentence() -> None:
    whole = pickle.dumps({"data": np.arange(1000)}, protocol=2)
    for blob in (b"", b"not a pickle", whole[: len(whole) // 2], whole[:-1], b"\x80\x7f."):
        with pytest.raises(UserError, match="'train' is damaged or not a pickle") as caught:
            load(blob)
        assert "\n" not in str(caught.value)


def test_a_deep_or_cyclic_pickle_is_refused() -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    deep = b"]" + b"".join(b"]" for _ in range(20_000)) + b"a" * 20_000 + b"."
    for blob in (pickle.dumps(cyclic), deep):
        with pytest.raises(UserError, match="damaged"):
            load(blob)


def test_a_table_is_asked_for() -> None:
    with pytest.raises(UserError, match="holds a list where"):
        by_text([1, 2], "'meta'")
