"""Probabilities that mean what they say: one temperature, fitted to examples that were left out."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

SPREAD = 1.5
"""Standard deviation of the logarithm of a temperature, before anything was seen."""

_LOWEST, _HIGHEST = math.log(1e-3), math.log(1e3)
_GOLDEN = (math.sqrt(5) - 1) / 2


def fitted_temperature(scores: Tensor, labels: Tensor, examples: int) -> float:
    r"""The number that scores are divided by before a softmax makes probabilities of them.

    It minimises :math:`n\,\overline{\ell(T)} + (\log T)^2/2\sigma^2`: the mean cross-entropy of scores over
    :math:`T` for each of the :math:`n` examples, and a prior that keeps :math:`T` finite where every example
    is right.

    Args:
        scores: ``(rows, ways)`` of examples that the heads had not seen.
        labels: their classes.
        examples: how many different ones; repeats of one count once.

    >>> T = fitted_temperature(torch.tensor([[9.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 1]), 2)
    >>> T > 3  # half of them wrong: less sure than the scores say
    True
    """

    def cost(log_temperature: float) -> float:
        """What is minimised, as a function of the logarithm of the temperature."""
        surprise = F.cross_entropy(scores / math.exp(log_temperature), labels)
        return examples * float(surprise) + log_temperature**2 / (2 * SPREAD**2)

    return math.exp(_smallest(cost, _LOWEST, _HIGHEST))


def _smallest(cost: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of one number with a single valley is smallest, by golden section."""
    a, b = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    fa, fb = cost(a), cost(b)
    while high - low > 1e-6:
        if fa <= fb:
            high, b, fb = b, a, fa
            a = high - _GOLDEN * (high - low)
            fa = cost(a)
        else:
            low, a, fa = a, b, fb
            b = low + _GOLDEN * (high - low)
            fb = cost(b)
    return (low + high) / 2


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    r"""Expected calibration error, :math:`\sum_b \frac{n_b}{n}\,|\text{accuracy}_b - \text{confidence}_b|`.

    Predictions are put into bins of equal width by how probable they are called.

    Args:
        probabilities: ``(n, ways)``.
        labels: the true classes.
        bins: how many.

    >>> calibration_error(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])).__round__(6)
    0.3
    """
    confidence, said = probabilities.double().max(1)
    right = (said == labels).double()
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gap = torch.zeros(bins, dtype=torch.float64).index_add(0, place, right - confidence)
    return float(gap.abs().sum() / len(labels))
