"""Pictures of none of the classes: those farther from every class than the examples are from theirs."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from innerloop.evaluation.sureness.heldout import HeldOut


class Novelty(NamedTuple):
    """Where "far from every class" begins.

    Attributes:
        threshold: a distance of unit features from the nearest mean of a class.
        false_alarms: the share of pictures of the classes that lie beyond it, at most, if they are like the
            examples.
        examples: how many decided it.
    """

    threshold: float
    false_alarms: float
    examples: int


def novelty_of(held_out: HeldOut, false_alarms: float = 0.05) -> Novelty:
    r"""The threshold from the examples themselves, each measured from means of others (conformal prediction).

    Of :math:`n` examples and one more picture like them, in any order, the last is the farthest with
    probability :math:`1/(n+1)`. So beyond the :math:`\lceil(1-\alpha)(n+1)\rceil`-th smallest distance lie at
    most a share :math:`\alpha` of new pictures. With fewer examples than :math:`1/\alpha - 1` the largest
    distance is taken, and the share is :math:`1/(n+1)`. An example's distances over repeats are averaged.

    Args:
        held_out: from :func:`~innerloop.evaluation.sureness.heldout.hold_out`.
        false_alarms: α.
    """
    places, row = held_out.units.unique(return_inverse=True)
    total = torch.zeros(len(places), dtype=torch.float64).index_add(0, row, held_out.distances.double())
    distances = (total / row.bincount()).sort().values
    n = len(distances)
    rank = math.ceil((1 - false_alarms) * (n + 1) - 1e-9)
    if rank > n:
        return Novelty(float(distances[-1]), 1 / (n + 1), n)
    return Novelty(float(distances[rank - 1]), false_alarms, n)
