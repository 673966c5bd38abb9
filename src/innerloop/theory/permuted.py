r"""Why the closed forms say nothing about N-way classification with permuted labels: their gain is 1.

Regress one-hot labels on features that contain a constant. A task whose ``C`` classes get their label numbers
at random is ``C!`` tasks, with optima :math:`W_iP_\pi`. Both solutions weigh the average over :math:`\pi`, in
which every column is :math:`\bar w_i=\tfrac1C\sum_cw_{ic}`: the regression of
:math:`\tfrac1C\sum_cy_c=\tfrac1C`, a constant. So
:math:`\bar w_i` predicts :math:`1/C` for *every* task, both :math:`E[\Sigma]^{-1}E[\Sigma\bar w]` and
:math:`E[Q]^{-1}E[Q\bar w]` are that one vector, and the gain is exactly 1 whatever the tasks are. What one
measures on such tasks is feature learning, which these forms do not contain.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.theory.landscape.data import TaskFits, fit_tasks, sample_curvature

PLAIN = "no formula predicts it for classification; only training does"
"""The same for whoever has pictures to label."""

REASON = (
    "labels are permuted at random from task to task: averaged over permutations all class columns are "
    "equal, both optima are the constant 1/C, and the closed forms predict a gain of exactly 1; what "
    "training shows there is feature learning, which they do not model"
)


class Symmetric(NamedTuple):
    """Both solutions ``(d, C)``, their excess risks, and the gain, averaged over all labellings."""

    nal: Tensor
    maml: Tensor
    nal_risk: Tensor
    maml_risk: Tensor
    gain: Tensor


def with_constant(x: Tensor) -> Tensor:
    """Features with a column of ones behind them."""
    return torch.cat([x, torch.ones_like(x[..., :1])], -1)


def permuted_landscape(
    x: Tensor, labels: Tensor, ways: int, lr: float, shots: float, inner_shots: float
) -> Symmetric:
    """NAL and MAML over tasks whose labels are permuted at random, for squared loss on one-hot targets.

    Args:
        x: features ``(T, n, d)`` without a constant; more samples than ``d + 1``.
        labels: ``(T, n)``.
        ways: C.
        lr: α, for half the mean squared error.
        shots: m.
        inner_shots: n₂.
    """
    targets = torch.nn.functional.one_hot(labels, ways).to(x.dtype)
    fits = fit_tasks(with_constant(x), targets)
    test = sample_curvature(fits, lr, shots)
    nal = _solution(fits, fits.covariances)
    maml = _solution(fits, sample_curvature(fits, lr, inner_shots))
    before, after = (_risk(fits, test, w) for w in (nal, maml))
    return Symmetric(nal, maml, before, after, before / after)


def _solution(fits: TaskFits, curvature: Tensor) -> Tensor:
    averaged = fits.optima.mean(-1, keepdim=True).expand_as(fits.optima)
    return torch.linalg.solve(curvature.mean(0), (curvature @ averaged).mean(0))


def _risk(fits: TaskFits, test: Tensor, w: Tensor) -> Tensor:
    """Equal columns of ``w`` see every labelling alike, so one labelling is enough."""
    v = w - fits.optima
    return 0.5 * ((test @ v) * v).sum((1, 2)).mean()
