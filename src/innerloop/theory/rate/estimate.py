r"""The adaptation learning rate, estimated from features (AdaptLR, Zou et al. 2022, section 3).

The model is linear in what adapts: :math:`f = \Phi w`, one inner step on ``K`` samples. The paper's loss is
the mean without ½ (``mse``), so its step is :math:`w - (2\alpha/K)\Phi^\top(\Phi w - y)`; every function
here takes ``loss`` and returns the rate for that convention (:data:`innerloop.core.losses.LOSSES`).

For cross-entropy the curvature is the Gauss–Newton matrix at the uniform softmax,
:math:`\tfrac1C(I - \tfrac1C 11^\top)` per sample, which puts the number of classes ``C`` where squared error
has ½.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.losses import rate_factor
from innerloop.theory.rate.moments import Moments, centred, check_stack, power_traces, split_traces


class RateRange(NamedTuple):
    """A lower and an upper end."""

    low: float
    high: float


def loss_constant(loss: str, samples: int, classes: int | None = None) -> float:
    """What multiplies the ratio of traces: ``samples``/2 for ``mse``, C·``samples`` for ``cross-entropy``.

    Args:
        loss: name of the loss.
        samples: K, the samples of the inner step.
        classes: C; needed for cross-entropy only.

    >>> loss_constant("mse", 50), loss_constant("half-mse", 50), loss_constant("half-sse", 50)
    (25.0, 50.0, 1.0)
    >>> loss_constant("cross-entropy", 5, classes=5), loss_constant("cross-entropy-sum", 5, classes=5)
    (25.0, 5.0)
    """
    if loss.startswith("cross-entropy"):
        if classes is None or classes < 2:
            raise UserError(f"loss={loss} needs the number of classes: give classes.")
        return classes * samples * rate_factor("cross-entropy", loss, samples)
    return samples / 2 * rate_factor("mse", loss, samples)


def limit_moments(features: Tensor, loss: str = "mse", classes: int | None = None) -> Moments:
    r"""Moments of :math:`\alpha^*_{lim} = K\operatorname{tr}E[S^2]\,/\,2\operatorname{tr}E[S^3]` (eq. 3.3).

    The minimiser of the population risk of one-step MAML as the number of tasks grows, if optima are
    isotropic, labels realisable, and a task is adapted to and judged on the same samples.

    Args:
        features: ``(tasks, K, d)``.
        loss: the convention of the rate.
        classes: for cross-entropy.

    >>> limit_moments(torch.ones(1, 4, 1)).rate      # S = 4: K/(2·4)
    0.5
    """
    numerator, denominator = power_traces(features)
    return Moments(numerator, denominator, loss_constant(loss, features.shape[1], classes))


def split_moments(
    support: Tensor, query: Tensor, loss: str = "mse", classes: int | None = None, centre: bool = False
) -> Moments:
    r"""Moments of the split form (eqs. H.1, H.6).

    .. math:: \alpha^* = k_1E\operatorname{tr}[S_uS_t]\,/\,2E\operatorname{tr}[S_uS_tS_u]

    With ``centre`` (features minus the support mean) and cross-entropy this is the trace form that held on
    real classification tasks (``C·K`` before the ratio).

    Args:
        support: ``(tasks, k1, d)``.
        query: ``(tasks, k2, d)``.
        loss: the convention of the rate.
        classes: for cross-entropy.
        centre: whether to subtract the mean of the support features first.
    """
    if centre:
        support, query = centred(support, query)
    numerator, denominator = split_traces(support, query)
    return Moments(numerator, denominator, loss_constant(loss, support.shape[1], classes))


def stacked_rate(features: Tensor, loss: str = "mse") -> float:
    r"""The over-parametrised form (eq. H.14), exactly.

    .. math:: NK\operatorname{tr}(\Psi^\top\Psi)^2\,/\,2\operatorname{tr}(\Psi^\top\Psi)^3

    :math:`\Psi` stacks the features of all tasks; the smaller Gram matrix of the two is formed.

    Args:
        features: ``(tasks, K, d)``.
        loss: the convention of the rate, for a step on all ``NK`` samples (as the paper has it).
    """
    check_stack(features)
    tasks, k, d = features.shape
    numerator, denominator = power_traces(features.reshape(1, tasks * k, d))
    return Moments(numerator, denominator, loss_constant(loss, tasks * k)).rate


def entry_variance(features: Tensor) -> float:
    r""":math:`\tilde\sigma^2`: the variance of all entries of the features (the paper's ``Ψ.std()²``)."""
    return float(features.double().var(correction=0))


def variance_rate(features: Tensor, loss: str = "mse") -> float:
    r"""H.15: :math:`1/(2NK\tilde\sigma^2)`.

    It scales as 1/N with ``N`` arbitrary: for reproductions, not an estimate.
    """
    tasks, k, _ = features.shape
    return 1 / (2 * tasks * k * entry_variance(features)) * rate_factor("mse", loss, k)


def merged_rate(features: Tensor, loss: str = "mse") -> float:
    r"""H.18: :math:`1/(2\min(NK, d)\,\tilde\sigma^2)`, the paper's heuristic for networks."""
    tasks, k, d = features.shape
    return 1 / (2 * min(tasks * k, d) * entry_variance(features)) * rate_factor("mse", loss, k)


def merged_range(tasks: int, k: int, d: int, observations: int | None = None, loss: str = "mse") -> RateRange:
    r"""H.19: the merged heuristic for features in [0, 1].

    From :math:`1/(2\tilde n) \le \tilde\sigma^2 \le 1/4`.
    The lower bound of the variance holds only if 0 and 1 are both attained.

    Args:
        tasks: ``N``.
        k: samples per task.
        d: dimension of the features (parameters that adapt).
        observations: :math:`\tilde n`, how many values were seen; ``N·K`` if omitted.
        loss: the convention of the rate.

    >>> merged_range(10, 10, 50)                     # min(NK, d) = 50: 2/50 … 100/50
    RateRange(low=0.04, high=2.0)
    """
    least = min(tasks * k, d)
    factor = rate_factor("mse", loss, k)
    return RateRange(factor * 2 / least, factor * (observations or tasks * k) / least)


class Bounds(NamedTuple):
    r"""Bounds of :math:`\alpha^*_{lim}`.

    Attributes:
        low: :math:`K/(2\lambda_S)`: always holds.
        high: :math:`1/(2v)`, ``v`` the mean square of an entry: always holds.
        corollary_low: :math:`1/(2d\sigma^2)` of Corollary 1: not a theorem (heavy tails break it).
        corollary_high: :math:`d/(2\sigma^2)` of Corollary 1: the same as ``high``.
    """

    low: float
    high: float
    corollary_low: float
    corollary_high: float


def bounds(features: Tensor, loss: str = "mse") -> Bounds:
    r"""Safe bounds :math:`K/(2\lambda_S) \le \alpha^*_{lim} \le 1/(2v)`, and Corollary 1's (eq. 3.5).

    :math:`\lambda_S` is the largest eigenvalue of any task's ``S``, :math:`\sigma^2 = E\|\varphi(x)\|^2`.
    With the same sample in both places the safe ones hold exactly, by Cauchy–Schwarz.

    Args:
        features: ``(tasks, K, d)``.
        loss: the convention of the rate.
    """
    check_stack(features)
    _, k, d = features.shape
    x = features.double()
    gram = x @ x.mT if d >= k else x.mT @ x
    largest = float(torch.linalg.eigvalsh(gram).max())
    square = float(x.square().sum(-1).mean())
    factor = rate_factor("mse", loss, k)
    upper = factor * d / (2 * square)
    return Bounds(factor * k / (2 * largest), upper, factor / (2 * d * square), upper)
