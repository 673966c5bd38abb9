r"""What every estimate of the adaptation rate is made of: two numbers per task, and a ratio of their sums.

An estimate is :math:`\alpha = c \cdot \sum_i p_i / \sum_i q_i` with moments :math:`(p_i, q_i)` of task
``i``. They are kept apart, so that tasks can be streamed, weighted by a bootstrap, or added up over machines.

With :math:`S = \Phi^\top\Phi` and :math:`G = \Phi\Phi^\top`,
:math:`\operatorname{tr} S^k = \operatorname{tr} G^k`: the smaller of the two is formed (``K × K`` or ``d ×
d``), which costs :math:`O(Kd\min(K,d))` per task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.core.errors import UserError


class Moments(NamedTuple):
    """Numerator and denominator of every task (float64), and the constant before their ratio.

    Attributes:
        numerator: ``(tasks,)``.
        denominator: ``(tasks,)``.
        constant: what the ratio is multiplied with; it carries the loss convention.
    """

    numerator: Tensor
    denominator: Tensor
    constant: float

    @property
    def rate(self) -> float:
        """The estimate itself."""
        return self.constant * float(self.numerator.sum() / self.denominator.sum())


def check_stack(features: Tensor, name: str = "features") -> None:
    """Refuses what is not ``(tasks, samples, dimensions)``."""
    if features.ndim != 3 or 0 in features.shape:
        raise UserError(
            f"{name} have shape {tuple(features.shape)}: give (tasks, samples, dimensions), none of them 0."
        )


def power_traces(features: Tensor) -> tuple[Tensor, Tensor]:
    """The traces of S² (‖G‖²_F) and S³ (⟨G², G⟩) of every task."""
    check_stack(features)
    wide = features.shape[2] >= features.shape[1]
    gram = _own_gram(features if wide else features.mT)
    square = gram @ gram
    return _inner(gram, gram), _inner(square, gram)


def split_traces(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    r""":math:`\operatorname{tr} S_uS_t = \|C\|_F^2`, :math:`\operatorname{tr} S_uS_tS_u` of every task."""
    # with C = Φ_u Φ_tᵀ the second is ⟨C Cᵀ, Φ_u Φ_uᵀ⟩; nothing of size d × d is formed unless d is the
    # smallest
    check_stack(support, "support features")
    check_stack(query, "query features")
    if support.shape[0] != query.shape[0] or support.shape[2] != query.shape[2]:
        raise UserError(
            f"support features {tuple(support.shape)} and query features {tuple(query.shape)} "
            "need equal tasks and dimensions."
        )
    if support.shape[2] < min(support.shape[1], query.shape[1]):
        s_u, s_t = support.mT @ support, query.mT @ query
        return _inner(s_u, s_t), _inner(s_u @ s_u, s_t)
    cross = support @ query.mT
    return _inner(cross, cross), _inner(cross @ cross.mT, support @ support.mT)


def _own_gram(rows: Tensor) -> Tensor:
    """``rows @ rows.mT``; on the CPU by numpy, whose ``syrk`` is twice as fast for fifty samples."""
    if rows.device.type != "cpu" or rows.requires_grad:
        return rows @ rows.mT
    array = rows.numpy()
    return torch.from_numpy(np.matmul(array, array.swapaxes(1, 2)))


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩ of every task; the sum over entries in float64."""
    return (a * b).sum((1, 2), dtype=torch.float64)


def centred(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Both minus the mean of the support features."""
    # at the zero head with balanced classes residuals of a class sum to zero, so the gradient is orthogonal
    # to that mean: it takes no part in the step, and would only inflate the curvature
    mean = support.mean(1, keepdim=True)
    return support - mean, query - mean


def stream(moments: Callable[..., Moments], chunks: Iterable[tuple[Tensor, ...]]) -> Moments:
    """The moments of many tasks, a chunk of them in memory at a time.

    Args:
        moments: a function of this room that takes one or two stacks of features.
        chunks: tuples of its arguments.

    >>> from innerloop.theory.rate import limit_moments
    >>> x = torch.randn(6, 4, 3, dtype=torch.float64)
    >>> parts = ((x[i : i + 2],) for i in range(0, 6, 2))
    >>> bool(torch.allclose(stream(limit_moments, parts).numerator, limit_moments(x).numerator))
    True
    """
    parts = [moments(*chunk) for chunk in chunks]
    if not parts:
        raise UserError("there are no tasks to estimate a rate from.")
    constants = {part.constant for part in parts}
    if len(constants) > 1:
        raise UserError("tasks of different sizes have different constants: estimate them apart.")
    return Moments(
        torch.cat([part.numerator for part in parts]),
        torch.cat([part.denominator for part in parts]),
        constants.pop(),
    )


def bootstrap(
    estimates: Callable[[Tensor], Tensor], tasks: int, *, draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """The 2.5 % and 97.5 % quantiles of an estimate when the tasks are drawn again: sampling error only."""
    made = torch.Generator().manual_seed(seed)
    picks = torch.randint(tasks, (draws, tasks), generator=made)
    weights = torch.zeros(draws, tasks, dtype=torch.float64)
    weights.scatter_add_(1, picks, torch.ones_like(picks, dtype=torch.float64))
    values = estimates(weights).double()
    low, high = torch.quantile(values, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return float(low), float(high)


def interval_of(moments: Moments, *, draws: int = 1000, seed: int = 0) -> tuple[float, float]:
    """:func:`bootstrap` of one ratio estimate over its tasks.

    Args:
        moments: two numbers of every task.
        draws: bootstrap samples.
        seed: of the draws.
    """
    tasks = len(moments.numerator)
    return bootstrap(lambda weights: weighted_rates(moments, weights), tasks, draws=draws, seed=seed)


def weighted_rates(moments: Moments, weights: Tensor) -> Tensor:
    """The estimate for every row of weights of the tasks."""
    p, q, c = moments
    return c * (weights @ p.cpu()) / (weights @ q.cpu())
