"""Networks that ``bridge-agreement`` trains, and what each of them answers."""

from __future__ import annotations

from typing import NamedTuple


class Wide(NamedTuple):
    """One network on the quadratic tasks.

    Attributes:
        method: ``anil`` or ``mtl``.
        depth: layers with weights.
        width: of hidden layers.
        seed: of the network; tasks are the same for all.
        steps: of training.
        regime: ``theorem`` (full-batch gradient descent from f₀ = 0, heads reset at test) or ``recipe``
            (Adam, as the shipped recipes train).
    """

    method: str
    depth: int
    width: int
    seed: int
    steps: int
    regime: str


class Pictures(NamedTuple):
    """One Conv4 on picture tasks.

    Attributes:
        method: ``anil`` or ``mtl``.
        seed: of the network and of the training tasks.
        steps: meta-steps.
        episodes: test tasks.
        filters: of the Conv4.
        data: name of the pictures.
    """

    method: str
    seed: int
    steps: int
    episodes: int
    filters: int
    data: str


class WideAnswers(NamedTuple):
    """What a network on the quadratic tasks predicts.

    Attributes:
        outputs: for the queries of the test tasks, ``(tests, queries)``; None where training diverged.
        left: the share of the first training loss that remains, in the theorem's regime.
    """

    outputs: list[list[float | None]]
    left: float | None


class PictureAnswers(NamedTuple):
    """Class probabilities, in thousandths, for the queries of the test tasks, and the accuracy."""

    thousandths: list[list[int]]
    accuracy: float
