"""Known answers of small functions."""

import errno
import math
import os

import pytest
import torch

from innerloop.core.arguments import checked
from innerloop.core.autodiff import hessian_product, value_and_gradient
from innerloop.core.child_processes import ends_with_parent
from innerloop.core.errors import UserError, did_you_mean, fault_message
from innerloop.core.files import json_line
from innerloop.core.formatting import (
    difference_text,
    printable,
    score_text,
    shorten,
    table_cell,
    visible_text,
)
from innerloop.core.importing import Trusted, foreign_parts, load_object
from innerloop.core.lazy import lazy
from innerloop.core.paths import user_path
from innerloop.core.resources import available_cores, divide_cores
from innerloop.core.trees import first_not_finite, tree_map


def test_arguments_are_refused_together():
    @checked
    def learner(lr: float, steps: int = 1) -> int:
        return steps

    assert learner(0.1, steps=2) == 2
    with pytest.raises(UserError) as told:
        learner("0.1", steps=1.5)
    assert str(told.value).splitlines() == [
        "learner: lr='0.1' must be a finite number, such as 0.01.",
        "learner: steps=1.5 must be a whole number, such as 5.",
    ]


def test_derivatives_with_known_values():
    at = {"w": torch.tensor(3.0)}
    value, more, gradient = value_and_gradient(lambda p: (p["w"] ** 2, {"twice": 2 * p["w"]}), at)
    assert (float(value), float(more["twice"]), float(gradient["w"])) == (9.0, 6.0, 6.0)
    product = hessian_product(lambda p: (p["w"] ** 3).sum(), {"w": torch.tensor([2.0])})
    assert product({"w": torch.tensor([5.0])})["w"].tolist() == [60.0]  # 6 w · v


def test_trees():
    one = {"a": torch.ones(1)}
    assert tree_map(torch.add, one, one)["a"].tolist() == [2.0]
    assert first_not_finite({**one, "b": torch.tensor([1.0, float("nan")])}) == "b"


def test_words_for_people():
    full = OSError(errno.ENOSPC, "No space left on device", "runs/a")
    assert fault_message(full) == "runs/a: the disk is full: free some space, or write to another disk."
    assert fault_message(KeyError("a")) is None
    assert score_text("accuracy", 0.468, 0.009) == "accuracy 46.8 ± 0.9 %"
    assert score_text("mse", 0.1234, None) == "mse 0.1234"
    assert difference_text("accuracy", -0.0528, 0.0071) == "-5.3 ± 0.7 points"
    assert difference_text("mse", 0.25, 0.1) == "+0.25 ± 0.1"
    assert visible_text("a\x1b[2J\u202eb") == "a\\x1b[2J\\u202eb"
    assert visible_text("x" * 50, 9) == "xxxx…xxxx"
    assert shorten("a" * 500, 10) == "aaaaa…aaaa"
    assert printable("a" + chr(0xDCFF)) == "a\\udcff"
    assert printable(b"b") == "b"
    assert [table_cell(cell) for cell in ("=cmd()", -0.5, "a-b")] == ["'=cmd()", -0.5, "a-b"]


def test_words_that_were_meant():
    assert did_you_mean("step", ["steps", "lr"]) == " (did you mean 'steps'?)"
    recipes = ["omniglot-protonet", "mini-imagenet-protonet"]
    assert did_you_mean("mini-protonet", recipes) == " (did you mean 'mini-imagenet-protonet'?)"
    assert did_you_mean("zebra", ["steps"]) == ""


def test_lines_of_json():
    assert json_line({"step": 3, "loss": float("inf")}) == '{"step": 3, "loss": null}'
    assert (json_line("±"), json_line("±", "ascii")) == ('"±"', '"\\u00b1"')


def test_names_that_would_run_code():
    assert foreign_parts("timm:resnet18", {"pretrained": True}) == {}
    assert foreign_parts("timm:resnet18", {"checkpoint_path": "a.pth"}) == {
        "settings.checkpoint_path": "a.pth"
    }


def test_names_that_are_loaded_on_first_use():
    load, _ = lazy("shapes", {"math": "pi tau", "cmath": "phase"})
    assert load("pi") == math.pi
    assert load_object(Trusted("math:sqrt"))(9.0) == 3.0


def test_this_process_and_its_machine():
    assert ends_with_parent() == {"INNERLOOP_PARENT": str(os.getpid())}
    assert user_path("a/b").as_posix() == "a/b"
    before = available_cores()
    try:
        divide_cores(before)
        assert available_cores() == 1
    finally:
        divide_cores(1)
    assert available_cores() == before
