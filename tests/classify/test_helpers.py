"""Small functions of the room on known answers."""

from pathlib import Path

import numpy as np
import torch

from innerloop.classify.card import escaped, share
from innerloop.classify.cross_validation import _sizes
from innerloop.classify.graph import resized
from innerloop.classify.heads import head_settings, in_parts
from innerloop.classify.inputs import batch_of, pack_labels, pictures_in, place_labels, unpack_labels
from innerloop.classify.predict import support_options
from innerloop.classify.pretraining import trained_preprocessing
from innerloop.classify.results import _alone, truth_of
from innerloop.classify.sureness import copies_lines, covers, enumerate_names
from innerloop.core.preprocessing import Preprocessing


def test_share():
    assert (share(0.966), share(1.0)) == ("96.6 %", "100 %")


def test_escaped():
    assert (escaped("a|b <i>"), escaped("two\nlines")) == ("a\\|b \\<i\\>", "two lines")


def test_sizes():
    assert (_sizes(5), _sizes(4), _sizes(0)) == ([1, 2, 4, 5], [1, 2, 4], [])


def test_resized():
    assert (
        resized(torch.full((1, 3, 5, 1), 7, dtype=torch.uint8), Preprocessing((2, 2))).flatten().tolist()
    ) == [7.0, 7.0, 7.0, 7.0]


def test_in_parts():
    assert (
        repr(in_parts(lambda part: part - part.mean(), torch.tensor([1.0, 3.0]), "transductive", size=1))
        == "tensor([-1.,  1.])"
    )


def test_head_settings():
    assert (
        repr(head_settings({"head": "svm"}, ["eval.C=2"]))
        == "HeadSettings(kind='svm', C=2.0, normalise=True, lr=0.001, steps=10, seed=0)"
    )


def test_batch_of():
    how = Preprocessing((28, 28), colour="grey")
    assert (
        repr(batch_of(np.full((2, 28, 28), 255, np.uint8), how, torch.float64).shape)
        == "torch.Size([2, 1, 28, 28])"
    )


def test_place_labels():
    assert repr(place_labels(["bee", "ant"], ["ant", "bee"])) == "tensor([1, 0])"


def test_unpack_labels():
    assert repr(unpack_labels([["int", 3], ["str", "cat"], ["int16", 7]])) == "[3, 'cat', np.int16(7)]"


def test_pack_labels():
    assert (pack_labels([3, "cat", np.int16(7)])) == [["int", 3], ["str", "cat"], ["int16", 7]]


def test_pictures_in():
    assert [item.name for item in pictures_in(np.zeros((2, 8, 8, 3), np.uint8))] == [
        "picture 0",
        "picture 1",
    ]


def test_support_options():
    assert support_options(["data.on_bad=skip", "eval.head=ridge"]).on_bad == "skip"


def test_trained_preprocessing():
    assert (trained_preprocessing((28, 28, 1)).shape) == (28, 28, 1)


def test_alone():
    assert (_alone("/home/me/birds"), _alone("hf:./nets/dino"), _alone("hf:facebook/dinov2-small")) == (
        "birds",
        "hf:dino",
        "hf:facebook/dinov2-small",
    )


def test_truth_of():
    files = [Path("new/cat/1.jpg"), Path("new/cat/2.jpg"), Path("new/owl/3.jpg")]
    told = truth_of(files, ["cat", "dog", "dog"], [False, False, True], ["cat", "dog"])
    assert (told.accuracy.value, told.unknown, told.confused[0].said, told.other) == (
        0.5,
        0,
        "dog",
        {"owl": (1, 1)},
    )


def test_copies_lines():
    assert (copies_lines([{"label": "ant", "examples": ["1.jpg", "2.jpg"]}])) == [
        "warning: 2 examples of ant look like copies of one picture, and count as one: 1.jpg, 2.jpg"
    ]


def test_covers():
    assert (
        (covers({"examples": 20, "by_class": {"bee": {}}, "untested": ["ant"]}).partition("; ")[2])
        == "not tested, for want of a second picture: ant"
    )


def test_enumerate_names():
    assert (enumerate_names(["ant", "bee"])) == "ant, bee"
