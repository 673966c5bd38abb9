"""What stands behind ``bridge-agreement``: adaptation in closed form, distances, rows that can fail."""

from __future__ import annotations

import pytest
import torch

from innerloop.core.losses import get_loss
from innerloop.kernels.meta.descent import Descent
from innerloop.learners import anil
from innerloop.nets.antisymmetric import antisymmetric
from innerloop.nets.mlp import mlp
from innerloop.testing.closeness import assert_close
from innerloop.training.wide import meta_outputs
from innerloop_studies.papers.bridge.agreement import (
    Apart,
    Wide,
    _apart,
    _tensor,
    adapted,
    picture_rows,
    recipe_rows,
    theorem_rows,
    trained_wide,
)
from innerloop_studies.papers.bridge.shared import bridge_tasks


@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("make", [lambda net: net, antisymmetric])
def test_the_closed_form_is_the_inner_loop_of_anil(make, steps: int) -> None:
    net = make(mlp(10, [12, 12], 1, parametrisation="ntk"))
    params = {n: p.double() for n, p in net.init(torch.Generator().manual_seed(0))[0].items()}
    params = {n: p + 0.1 for n, p in params.items()}  # antisymmetric halves that differ no longer cancel
    test = bridge_tasks(0, "test", 3, 4, 5, standard=True)
    slow = meta_outputs(anil(net, get_loss("half-sse"), 0.02 / steps, steps), params, test)
    assert_close(adapted(net, params, test, Descent(0.02, steps)), slow)


def test_distances_are_those_of_predictions() -> None:
    made = {
        ("anil", 0): [[3.0, 4.0]],
        ("mtl", 0): [[3.0, 4.0]],
        ("anil", 1): [[0.0, 5.0]],
        ("mtl", 1): [[5.0, 0.0]],
    }
    trained = {
        Wide(method, 2, 8, seed, 1, "theorem"): {"outputs": outputs, "left": 0.1 + seed}
        for (method, seed), outputs in made.items()
    }
    apart = _apart((2, 8, 1, "theorem"), trained, 2)
    assert apart.gap == pytest.approx((0 + 50**0.5) / 2 / 5)
    assert apart.anil == pytest.approx(10**0.5 / 5)
    assert apart.mtl == pytest.approx(20**0.5 / 5)
    assert apart.left == 1.1
    assert apart.floor == apart.anil
    assert _tensor([[1.0, None]]).isnan().tolist() == [[False, True]]


def test_one_seed_is_one_start_and_can_be_repeated() -> None:
    one = trained_wide("mtl", 2, 8, 0, 3, "theorem")
    assert one == trained_wide("mtl", 2, 8, 0, 3, "theorem")
    assert one["left"] < 1
    other = trained_wide("mtl", 2, 8, 1, 3, "theorem")
    assert one["outputs"] != other["outputs"]
    # untrained, both methods are the same network with the same head
    start = [trained_wide(method, 3, 8, 0, 0, "theorem")["outputs"] for method in ("anil", "mtl")]
    assert start[0] == start[1]


def test_rows_follow_what_was_found() -> None:
    near, far = Apart(0.1, 0.5, 0.4, 0.0), Apart(0.9, 0.5, 0.4, 0.0)
    good = theorem_rows(
        [2, 4], {64: [far._replace(gap=0.3), near], 256: [near, near._replace(gap=0.05)]}, "cpu"
    )
    assert [one.holds for one in good] == [True, True, True, True]
    bad = theorem_rows([2, 4], {64: [near, far], 256: [near, far]}, "cpu")
    assert [one.holds for one in bad] == [False, False, False, False]
    assert [one.holds for one in recipe_rows([2, 4], [far, near], "cpu")] == [True, False]
    agree = {"agreement": 0.9, "distance": 0.1}
    pictures = {"gap": agree, "accuracy": {"anil": [0.5], "mtl": [0.5]}, "anil": agree, "mtl": agree}
    assert picture_rows(pictures, "cpu")[0].holds
    assert not picture_rows({**pictures, "gap": {"agreement": 0.8, "distance": 0.1}}, "cpu")[0].holds
