"""Small parts of solvers, each with an answer that can be told without them."""

import pytest
import torch

from innerloop.solvers.inverse import spd_factor, spd_inverse
from innerloop.solvers.krylov import relative
from innerloop.solvers.problems import rounding
from innerloop.solvers.products import gram_matrix, symmetric_product
from innerloop.solvers.ridge import ridge_closed_form
from innerloop.solvers.svc import Boxed, middle_intercept, pairs, solve_boxed
from innerloop.solvers.svm_dual import svm_coefficients, svm_heads


def test_matrices() -> None:
    assert spd_inverse(torch.tensor([[[4.0]], [[0.5]]])).flatten().tolist() == pytest.approx([0.25, 2.0])
    factor, failed = spd_factor(torch.tensor([[[4.0]], [[torch.nan]]]))
    assert (factor.flatten().tolist(), failed.tolist()) == ([2.0, 1.0], [False, True])
    for product in (gram_matrix, symmetric_product):
        assert product(torch.tensor([[1.0], [2.0]])).tolist() == [[1.0, 2.0], [2.0, 4.0]]


def test_errors() -> None:
    assert relative({"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([0.0, 10.0])}) == 0.5
    one = torch.ones(1, 1, 1)  # half of (1 + 1), times the square of twice the roundoff
    assert rounding(one, one[0], one).item() == torch.finfo(torch.float32).eps ** 2


def test_hinges() -> None:
    # every number from −0.7 to 0.5 is best
    middle = middle_intercept(torch.tensor([[0.5, -0.3]]), torch.tensor([[1.0, -1.0]]))
    assert middle.item() == pytest.approx(-0.1)
    gram = torch.tensor([[[1.0, -1.0], [-1.0, 1.0]]], dtype=torch.float64)  # samples 1 and −1
    solution, _ = solve_boxed(Boxed(gram, torch.tensor([[1.0, -1.0]]).double(), 10.0), 1e-12, 50)
    assert solution.beta[0].tolist() == pytest.approx([0.5, -0.5])  # w = 1 puts both on their margins
    assert pairs(3).tolist() == [[0, 0, 1], [1, 2, 2]]


def test_heads() -> None:
    x, labels = torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 1])
    result = svm_coefficients((x @ x.mT)[None], torch.eye(2)[None], C=10.0, rank=1)
    assert (result.A @ x.double()).flatten().tolist() == pytest.approx([-0.5, 0.5])
    heads = svm_heads([x, 2 * x], [labels, labels], ways=2, C=10.0)[0]
    assert torch.cat(heads).flatten().tolist() == pytest.approx([-0.5, 0.5, -0.25, 0.25])
    line = torch.tensor([[1.0], [2.0]])
    assert ridge_closed_form(line, line, penalty=5.0)[0].tolist() == [[0.5]]
