"""Classifiers by class means: nothing to solve, and hard to beat with one example per class."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from innerloop.solvers.problems import Linear, check_problems, one_hot


def class_means(features: Tensor, labels: Tensor, ways: int) -> Tensor:
    """Mean feature of every class, ``(B, ways, d)``; differentiable.

    Args:
        features: ``(B, n, d)``.
        labels: ``(B, n)``, from 0 to ``ways − 1``; every class needs an example.
        ways: number of classes.
    """
    check_problems(features, labels, ways, every_class=True)
    hot = one_hot(labels, ways, features)
    return (hot / hot.sum(-1, keepdim=True)) @ features


def nearest_centroid(features: Tensor, labels: Tensor, ways: int) -> Linear:
    r"""The class whose mean is nearest, as a linear classifier.

    :math:`-\tfrac12\|x - \mu_c\|^2` equals :math:`\mu_c\cdot x - \tfrac12\|\mu_c\|^2` up to a term that all
    classes share (scikit-learn's ``NearestCentroid``; ProtoNet's rule, Snell et al. 2017,
    at half its temperature).

    Args:
        features: ``(B, n, d)``.
        labels: ``(B, n)``, from 0 to ``ways − 1``; every class needs an example.
        ways: number of classes.

    >>> import torch
    >>> nearest_centroid(torch.tensor([[[1.0], [3.0]]]), torch.tensor([[0, 1]]), 2).bias
    tensor([[-0.5000, -4.5000]])
    """
    means = class_means(features, labels, ways)
    return Linear(means, -0.5 * means.square().sum(-1))


def cosine(features: Tensor, labels: Tensor, ways: int) -> Linear:
    """The class whose mean makes the smallest angle with the query; scores are cosines times its norm.

    Args:
        features: ``(B, n, d)``.
        labels: ``(B, n)``, from 0 to ``ways − 1``; every class needs an example.
        ways: number of classes.

    >>> import torch
    >>> cosine(torch.tensor([[[3.0, 4.0], [0.0, 2.0]]]), torch.tensor([[0, 1]]), 2).weights[0, 0]
    tensor([0.6000, 0.8000])
    """
    directions = F.normalize(class_means(features, labels, ways), dim=-1)
    return Linear(directions, directions.new_zeros(directions.shape[:2]))
