"""Known answers of small functions."""

import torch

from innerloop.core.random import Draws
from innerloop.tasks.families import linear
from innerloop.tasks.sampler import full_settings


def test_a_given_covariance():
    batch = linear(Draws(0, [0]), 3, 4, covariances=[[4.0, 0.0]], optima=[[2.0, 1.0]])
    assert torch.equal(batch.y_query, 2 * batch.x_query[..., :1])


def test_defaults_are_filled_in():
    def waves(draws, shots, queries, height=1.0, length=2.0): ...

    assert full_settings(waves, {"length": 3.0}) == {"height": 1.0, "length": 3.0}
