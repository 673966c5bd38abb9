r"""Which tasks are hard, as a ranking: loss after a few head steps, nearest neighbours, λ_min.

Before training, the loss after 1 and 10 steps of a linear head on given features, and the error of the
nearest neighbour, order tasks much as trained learners do; :math:`\lambda_{min}` of the features does not,
and is reported beside them for comparison (it is the hardness of Landscape's §3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError


def head_rate(x: Tensor, classes: bool) -> float:
    r"""A safe rate for linear heads on these features: :math:`1/\lambda_{max}` of the steepest task.

    Twice that for cross-entropy, whose curvature is at most half the features' second moment.
    """
    largest = torch.linalg.eigvalsh(x.mT @ x / x.shape[1])[:, -1].max()
    return (2.0 if classes else 1.0) / float(largest)


def losses_after_steps(
    x_support: Tensor,
    y_support: Tensor,
    x_query: Tensor,
    y_query: Tensor,
    lr: float,
    steps: Sequence[int] = (1, 10),
    ways: int | None = None,
) -> Tensor:
    """Query loss of every task after gradient steps of a linear head from zero, ``(T, len(steps))``.

    Args:
        x_support: features ``(T, n, d)``.
        y_support: ``(T, n, k)`` for half the mean squared error, labels ``(T, n)`` for cross-entropy.
        x_query: features of the queries.
        y_query: their targets.
        lr: of the head.
        steps: when to look.
        ways: number of classes, for labels.

    >>> x, y = torch.ones(1, 1, 1), torch.ones(1, 1, 1)
    >>> losses_after_steps(x, y, x, y, lr=0.5, steps=(0, 1))   # ½·1², then ½·½²
    tensor([[0.5000, 0.1250]])
    """
    classes = not y_support.is_floating_point()
    if classes:
        if ways is None:
            raise UserError("labels need to know how many classes there are: give ways.")
        y_support, y_query = (
            torch.nn.functional.one_hot(y, ways).to(x_support.dtype) for y in (y_support, y_query)
        )
    head = x_support.new_zeros(x_support.shape[0], x_support.shape[2], y_support.shape[2])
    seen = []
    for step in range(max(steps) + 1):
        if step in steps:
            seen.append(_loss(x_query @ head, y_query, classes))
        outputs = x_support @ head
        residual = (outputs.softmax(-1) if classes else outputs) - y_support
        head = head - lr * x_support.mT @ residual / x_support.shape[1]
    order = sorted(set(steps))
    return torch.stack([seen[order.index(s)] for s in steps], -1)


def _loss(outputs: Tensor, targets: Tensor, classes: bool) -> Tensor:
    if classes:
        return -(targets * outputs.log_softmax(-1)).sum(-1).mean(-1)
    return 0.5 * (outputs - targets).square().sum(-1).mean(-1)


def nearest_neighbour_error(x_support: Tensor, y_support: Tensor, x_query: Tensor, y_query: Tensor) -> Tensor:
    """Error of the nearest support sample's label (or target: half the mean squared error), ``(T,)``.

    Args:
        x_support: ``(T, K, d)``.
        y_support: labels ``(T, K)`` or targets ``(T, K, k)``.
        x_query: ``(T, n, d)``.
        y_query: labels or targets of the queries.

    >>> x = torch.tensor([[[0.0], [1.0]]])
    >>> labels, queries = torch.tensor([[0, 1]]), torch.tensor([[[0.2], [0.4]]])
    >>> nearest_neighbour_error(x, labels, queries, labels)
    tensor([0.5000])
    """
    nearest = torch.cdist(x_query, x_support).argmin(-1)
    if not y_support.is_floating_point():
        return (y_support.gather(1, nearest) != y_query).to(x_query.dtype).mean(-1)
    index = nearest[..., None].expand(-1, -1, y_support.shape[2])
    return 0.5 * (y_support.gather(1, index) - y_query).square().sum(-1).mean(-1)


def smallest_eigenvalue(x: Tensor) -> Tensor:
    r""":math:`\lambda_{min}` of every task's second moment, ``(T,)``; 0 with too few samples."""
    return torch.linalg.eigvalsh(x.mT @ x / x.shape[1])[:, 0].clamp(min=0)


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's: the correlation of ranks, ties sharing their mean rank.

    >>> rank_correlation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 30.0, 20.0]))
    0.5
    """
    ranks = torch.stack([_ranks(a), _ranks(b)])
    spread = ranks.std(1)
    if bool((spread == 0).any()):
        return float("nan")
    return round(float(torch.corrcoef(ranks)[0, 1]), 12)


def _ranks(values: Tensor) -> Tensor:
    values = values.double()
    below = (values[:, None] > values[None]).sum(1)
    return below + ((values[:, None] == values[None]).sum(1) - 1) / 2.0


STEPS = (1, 10)
JUDGE = "loss after 10 steps"  # the measure that ranks


class Hardness(NamedTuple):
    """Tasks by hardness.

    Attributes:
        ranking: numbers of the tasks, the hardest first, by :data:`JUDGE`.
        measures: of every task, by name.
        agreement: rank correlation of each measure with the judge.
        head_rate: the rate of the steps.
        by_kind: mean measures of each kind of task; None where there is one kind only.
    """

    ranking: list[int]
    measures: dict[str, list[float]]
    agreement: dict[str, float]
    head_rate: float
    by_kind: dict[str, dict[str, float]] | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        plain = self._asdict()
        if self.by_kind is None:
            del plain["by_kind"]
        return plain

    def __str__(self) -> str:
        first = ", ".join(map(str, self.ranking[:8]))
        shown = ", ".join(f"{name} {value:.2f}" for name, value in self.agreement.items() if "10" not in name)
        kinds = (self.by_kind or {}).items()
        return "\n".join(
            [
                f"hardest tasks first (loss after 10 head steps): {first}, …",
                f"rank correlation with that: {shown}",
                *(
                    f"{kind}: " + ", ".join(f"{name} {value:.3g}" for name, value in row.items())
                    for kind, row in kinds
                ),
            ]
        )


def rank_tasks(
    z: Tensor, y: Tensor, cut: int, ways: int | None = None, kinds: Sequence[str] = ()
) -> Hardness:
    """Measures of every task, from a head that takes a few steps on features.

    Args:
        z: features ``(tasks, samples, d)``.
        y: numbers ``(tasks, samples, k)``, or labels ``(tasks, samples)``.
        cut: so many samples are adapted to, the others judged on.
        ways: classes, for labels.
        kinds: what kind each task is of, if there are kinds.

    >>> z = torch.tensor([[[1.0], [2.0], [1.5], [0.5]], [[1.0], [2.0], [1.5], [0.5]]])
    >>> rank_tasks(z, torch.stack([z[0], 5 * z[1]]), cut=2).ranking
    [1, 0]
    """
    parts = z[:, :cut], y[:, :cut], z[:, cut:], y[:, cut:]
    lr = head_rate(z, ways is not None)
    losses = losses_after_steps(*parts, lr, STEPS, ways)
    measures = {
        "loss after 1 step": losses[:, 0],
        JUDGE: losses[:, 1],
        "nearest-neighbour error": nearest_neighbour_error(*parts),
        "smallest eigenvalue": smallest_eigenvalue(z),
    }
    judge = measures[JUDGE]
    return Hardness(
        ranking=judge.argsort(descending=True).tolist(),
        measures={name: value.tolist() for name, value in measures.items()},
        agreement={name: rank_correlation(value, judge) for name, value in measures.items()},
        head_rate=lr,
        by_kind=_by_kind(measures, kinds) if len(set(kinds)) > 1 else None,
    )


def _by_kind(measures: dict[str, Tensor], kinds: Sequence[str]) -> dict[str, dict[str, float]]:
    known = sorted(set(kinds))
    which = torch.tensor([known.index(kind) for kind in kinds])
    return {
        kind: {name: float(value[which == i].mean()) for name, value in measures.items()}
        for i, kind in enumerate(known)
    }
