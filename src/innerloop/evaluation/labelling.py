"""How pictures are labelled after adapting to a few: heads as learners, batches, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params
from innerloop.evaluation.heads import HEADS, fit_heads, head_scores
from innerloop.evaluation.protocol import KINDS
from innerloop.learners.base import Learner
from innerloop.nets.network import Network
from innerloop.nets.norms import statistics_for
from innerloop.solvers.problems import Linear

AT_ONCE = 64  # pictures, where they are judged each on its own


class FittedHead(NamedTuple):
    """A linear classifier on frozen features; its temperature is in ``weight`` and ``bias``."""

    weight: Tensor
    bias: Tensor
    params: Params
    buffers: Buffers


class Labels(NamedTuple):
    """Per picture: the place of its most probable class, that probability, and whether to disbelieve it."""

    places: list[int]
    confidence: list[float]
    unsure: list[bool]


def tempered_head(z: Tensor, y: Tensor, ways: int, head: str, C: float, normalise: bool) -> Linear:
    """One head on features ``(n, d)``, solved in float64: a softmax of its scores makes probabilities.

    Its customary temperature is in its weights and its intercept. A class of few examples weighs as much as
    one of many: else a class of one example among others of twenty would never be named.
    """
    fitted = fit_heads(z[None].double(), y[None], ways, head, C, normalise, balanced=True)
    factor = HEADS[head].temperature
    return fitted._replace(weights=factor * fitted.weights, bias=factor * fitted.bias)


def head_learner(
    network: Network, ways: int, head: str = "logistic", C: float = 1.0, normalise: bool = True
) -> Learner:
    """One of :data:`innerloop.evaluation.heads.HEADS` on the frozen features, as a learner.

    A softmax of its outputs, which are float64, makes probabilities of them.
    """

    def adapt(params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> FittedHead:
        """The head that fits the support set's features."""
        z, after = network.features(params, buffers, x, statistics_for(network.norm, "support", training))
        fitted = tempered_head(z, y, ways, head, C, normalise)
        return FittedHead(fitted.weights[0], fitted.bias[0], params, after)

    def predict(adapted: FittedHead, x: Tensor, training: bool = False) -> tuple[Tensor, Buffers]:
        """Scores of queries, and the buffers after this pass."""
        statistics = statistics_for(network.norm, "query", training)
        z, after = network.features(adapted.params, adapted.buffers, x, statistics)
        fitted = Linear(adapted.weight[None], adapted.bias[None], pairs=HEADS[head].pairs)
        return head_scores(fitted, z[None].double(), normalise)[0], after

    return Learner(f"{head} head", adapt, predict)


def in_parts(predict: Callable[[Tensor], Tensor], x: Tensor, norm: str, size: int = AT_ONCE) -> Tensor:
    """``predict`` on all pictures: a few at a time, but together where they normalise one another.

    >>> in_parts(lambda part: part - part.mean(), torch.tensor([1.0, 3.0]), "transductive", size=1)
    tensor([-1.,  1.])
    """
    with torch.no_grad():
        return torch.cat([predict(part) for part in ([x] if norm in KINDS else x.split(size))])


def most_probable(probabilities: Tensor, unsure_below: float) -> Labels:
    """The most probable class of each row; one that is no number is never sure.

    >>> most_probable(torch.tensor([[0.2, 0.8], [0.5, torch.nan]]), 0.5).unsure
    [False, True]
    """
    best = probabilities.max(-1)
    confidence = [float(p) for p in best.values]
    return Labels([int(i) for i in best.indices], confidence, [not p >= unsure_below for p in confidence])


def check_numbers(probabilities: Tensor, whose: str) -> None:
    """Refuses probabilities that are not numbers.

    A label from NaN is the first class, whatever the picture.
    """
    bad = (~torch.isfinite(probabilities).all(-1)).sum()
    if int(bad):
        raise UserError(
            f"{whose} gives no number for {int(bad)} of {len(probabilities)} pictures: its weights, or the "
            "adaptation with these settings, diverged; lower the rate, or train again."
        )


def check_weights(tensors: Params | Buffers, whose: str) -> None:
    """Refuses weights that are not finite, by name."""
    for name, value in tensors.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise UserError(
                f"the weights of {whose} are not finite ({name}): its training diverged, so train again with "
                "a lower rate."
            )


class Predicted(NamedTuple):
    """What was said of the queries of one episode, in their order.

    Attributes:
        episode: its number.
        labels: the true labels, which count within the episode.
        said: the labels that were given.
        probability: how probable these were called: the largest entry of a softmax of the outputs.
    """

    episode: int
    labels: list[int]
    said: list[int]
    probability: list[float]

    @property
    def accuracy(self) -> float:
        """The share of queries whose label is right."""
        return sum(a == b for a, b in zip(self.labels, self.said, strict=True)) / len(self.labels)


def marks(outputs: Tensor, labels: Tensor, widest: int | None = None) -> Tensor:
    """``(…, 3, widest)``: of every query its true label, the label it is given, and how probable that is.

    Tasks of unequal size have tables of equal size then: what is missing is nan.

    >>> marks(torch.tensor([[0.0, 0.0], [-99.0, 99.0]]), torch.tensor([0, 0]), widest=3)
    tensor([[0.0000, 0.0000,    nan],
            [0.0000, 1.0000,    nan],
            [0.5000, 1.0000,    nan]])
    """
    sure, said = outputs.float().softmax(-1).max(-1)
    table = torch.stack([labels.float(), said.float(), sure], -2)
    missing = 0 if widest is None else widest - labels.shape[-1]
    return F.pad(table, (0, missing), value=torch.nan) if missing else table


def predicted(tables: Iterable[Tensor], episodes: Sequence[int]) -> list[Predicted]:
    """Reads the tables of :func:`marks`; an episode with outputs that are no numbers is left out.

    >>> predicted([marks(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), widest=2)], [7])
    [Predicted(episode=7, labels=[1], said=[0], probability=[0.5])]
    """
    given = []
    for table, episode in zip(tables, episodes, strict=True):
        labels, said, sure = table[:, table[0].isfinite()].tolist()
        if labels and all(p == p for p in sure):
            told = [round(p, 4) for p in sure]
            given.append(Predicted(int(episode), [int(i) for i in labels], [int(i) for i in said], told))
    return given
