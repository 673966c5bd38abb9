"""Known answers of small functions."""

import math

import torch

from innerloop.learners.base import reported
from innerloop.learners.embedding import class_means, indicators, only_seen
from innerloop.learners.gradient import started
from innerloop.learners.kernel import one_hot_targets
from innerloop.learners.online import h15_rate
from innerloop.learners.orders import mean_prediction
from innerloop.learners.proximal import Proximal, solve
from innerloop.learners.table import estimated_rates, learns, needs_labels, takes_rate, uses_head
from innerloop.learners.updates import sgd
from innerloop.nets.mlp import mlp
from innerloop.testing.closeness import LAST_BITS, SINGLE_BITS, difference


def test_questions_about_methods():
    assert (takes_rate("anil"), takes_rate("none")) == (True, False)
    assert (uses_head("maml"), uses_head("protonet")) == (True, False)
    assert (needs_labels("protonet"), needs_labels("maml")) == (True, False)
    assert (learns("protonet"), learns("none")) == (True, False)
    assert "anil" in estimated_rates()
    assert "protonet" not in estimated_rates()
    names = {"learner.reported.inner_residual": torch.tensor(0.5), "conv0.mean": torch.zeros(2)}
    assert reported(names) == {"learner.inner_residual": 0.5}


def test_labels_as_numbers():
    z, y = torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([0, 0, 1])
    assert class_means(z, y, 2)[0].tolist() == [[2.0], [7.0]]
    assert indicators(torch.tensor([1, 0]), 2, torch.zeros(1)).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert only_seen(torch.zeros(1, 2), torch.tensor([3.0, 0.0])).tolist() == [[0.0, -math.inf]]
    assert one_hot_targets(torch.tensor([1]), 2, torch.zeros(1)).tolist() == [[-0.5, 0.5]]


def test_one_vector_for_all_rows():
    params = {"layer0.weight": torch.tensor([[1.0], [3.0]]), "layer0.bias": torch.tensor([0.0, 1.0])}
    assert started(mlp(1, [], 2), "one-vector", params)["layer0.weight"].tolist() == [[2.0], [2.0]]


def test_rate_from_the_variance():
    features = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64) / 2**0.5
    assert abs(float(h15_rate(features)) - 0.5) <= LAST_BITS  # variance ½, K = 2


def test_probabilities_are_averaged():
    mean = mean_prediction([torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, math.log(3.0)]])]).exp()
    assert (mean - torch.tensor([[0.375, 0.625]])).abs().max() <= SINGLE_BITS


def test_proximal_parabola():
    half = Proximal(penalty=1.0, lr=0.5, steps=20, rule=sgd())  # ½(φ − 4)² + ½ φ²
    solution = solve(half, lambda p: 0.5 * (p["w"] - 4.0) ** 2, {"w": torch.tensor(0.0)})
    assert (float(solution.moved["w"]), float(solution.residual)) == (2.0, 0.0)


def test_differences_in_words():
    assert difference(torch.ones(2), torch.ones(2)) == ""
    assert difference(torch.ones(2), torch.zeros(2)) == "it differs by 1, allowed 1e-05"
