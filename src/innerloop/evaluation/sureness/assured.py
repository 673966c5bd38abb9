"""All that a head can say of itself, from the examples that it was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.evaluation.sureness.calibration import fitted_temperature
from innerloop.evaluation.sureness.expected import Expected, expected_accuracy
from innerloop.evaluation.sureness.heldout import Way, class_means, hold_out, nearest
from innerloop.evaluation.sureness.novelty import Novelty, novelty_of

FALSE_ALARMS = 0.05
"""Share of pictures of the classes that may be called unknown."""


class Sureness(NamedTuple):
    """How sure a head may be.

    Attributes:
        temperature: what its scores are divided by before a softmax makes probabilities of them.
        expected: how often it will be right; None where nothing could be left out.
        novelty: where "far from every class" begins; None likewise.
        means: of the classes, unit features ``(ways, d)``; what far is measured from.
    """

    temperature: float
    expected: Expected | None
    novelty: Novelty | None
    means: Tensor

    def far(self, z: Tensor) -> Tensor:
        """Which features ``(n, d)`` are far from every class; none where that is not known."""
        if self.novelty is None:
            return torch.zeros(len(z), dtype=torch.bool)
        return nearest(self.means, z) > self.novelty.threshold


def sureness_of(
    z: Tensor,
    y: Tensor,
    names: Sequence[Any],
    way: Way | None = None,
    seed: int = 0,
    false_alarms: float = FALSE_ALARMS,
    copies: Tensor | None = None,
) -> Sureness:
    """Judges every example by heads that have not seen it, and draws the conclusions.

    Args:
        z: features of the examples, ``(n, d)``.
        y: their classes, places in ``names``.
        names: of the classes.
        way: how heads are fitted.
        seed: of how examples are left out.
        false_alarms: the share of pictures of the classes that may be called unknown.
        copies: the first copy of every example, see :func:`~innerloop.evaluation.sureness.copies.copies_of`.

    >>> z = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> sureness = sureness_of(z, torch.tensor([0, 0, 1, 1]), ["east", "north"])
    >>> sureness.expected.accuracy.value, sureness.far(torch.tensor([[1.0, 0.05], [-1.0, 0.0]])).tolist()
    (1.0, [False, True])
    """
    means = class_means(z, y, len(names))
    held_out = hold_out(z, y, len(names), way, seed, copies)
    if held_out is None:
        return Sureness(1.0, None, None, means)
    return Sureness(
        fitted_temperature(held_out.scores, held_out.labels, held_out.judged),
        expected_accuracy(held_out, names),
        novelty_of(held_out, false_alarms),
        means,
    )
