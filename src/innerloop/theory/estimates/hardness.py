"""Which tasks are hard? Four measures of every task in a feature space, and how far they agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import innerloop.theory.hardness as hardness

STEPS = (1, 10)
JUDGE = "loss after 10 steps"
"""The measure that ranks."""


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
    lr = hardness.head_rate(z, ways is not None)
    losses = hardness.losses_after_steps(*parts, lr, STEPS, ways)
    measures = {
        "loss after 1 step": losses[:, 0],
        JUDGE: losses[:, 1],
        "nearest-neighbour error": hardness.nearest_neighbour_error(*parts),
        "smallest eigenvalue": hardness.smallest_eigenvalue(z),
    }
    judge = measures[JUDGE]
    return Hardness(
        ranking=judge.argsort(descending=True).tolist(),
        measures={name: value.tolist() for name, value in measures.items()},
        agreement={name: hardness.rank_correlation(value, judge) for name, value in measures.items()},
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
