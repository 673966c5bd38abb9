r"""The same task with its labels in other orders, and predictions averaged over these.

An order :math:`\pi` puts class :math:`c` in place :math:`\pi(c)`: the learner adapts to labels :math:`\pi(y)`
and its output for class :math:`c` is the one of that place. The average over a set :math:`\Pi` of orders is

.. math:: p(c \mid x) = \frac{1}{|\Pi|} \sum_{\pi\in\Pi} p_\pi(\pi(c) \mid x),

which for all orders of ``n`` labels does not depend on how these are numbered.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params
from innerloop.learners.base import OWN_PREFIX, Adapted, Learner

PREFIX = f"{OWN_PREFIX}order"


def label_orders(outputs: int, count: int) -> list[Tensor]:
    """The first ``count`` of all orders of the labels, always the same ones, none twice."""
    # in rounds in which every class takes every place once: cyclic shifts, then shifts of shuffled orders
    total = math.factorial(outputs)
    if not 1 <= count <= total:
        raise UserError(
            f"{{label_orders}}={count}: {outputs} labels have {total} orders, so give 1 to {total}.",
            names=("label_orders",),
        )
    source, rounds = random.Random(0), {tuple(range(outputs)): None}
    while len(rounds) * outputs < count:
        others = list(range(1, outputs))
        source.shuffle(others)
        rounds[(0, *others)] = None  # a dict: no round twice, and the order of drawing is kept
    shifted = [[(c + shift) % outputs for c in first] for first in rounds for shift in range(outputs)]
    return [torch.tensor(order) for order in shifted[:count]]


def relabelled(learner: Learner, order: Tensor) -> Learner:
    """The learner as it is when class ``c`` has label ``order[c]``; its outputs are in the classes' order."""

    def adapt(params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> object:
        """Adapts to the labels in the other order."""
        return learner.adapt(params, buffers, x, order.to(y.device)[y], training)

    def predict(adapted: object, x: Tensor, training: bool = False) -> tuple[Tensor, Buffers]:
        """Outputs, put back into the order of the classes."""
        outputs, buffers = learner.predict(adapted, x, training)
        return outputs[..., order.to(outputs.device)], buffers

    return learner._replace(adapt=adapt, predict=predict, together=None)


def mean_prediction(outputs: Sequence[Tensor]) -> Tensor:
    """Logits of the mean of the probabilities that several logits stand for."""
    logs = torch.stack([each.log_softmax(-1) for each in outputs])
    return logs.logsumexp(0) - math.log(len(outputs))


def label_averaged(learner: Learner, orders: Sequence[Tensor]) -> Learner:
    """The learner's probabilities averaged over label orders, given as logits: for testing, not for training.

    Args:
        learner: adapts by parameters and buffers, as gradient learners do.
        orders: from :func:`label_orders`, for as many labels as the network has outputs.
    """
    views = [relabelled(learner, order) for order in orders]

    def adapt(params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> Adapted:
        """Adapts to the labels in every order."""
        each_order = [view.adapt(params, buffers, x, y, training) for view in views]
        return Adapted(
            _joined([each.params for each in each_order], params),
            _joined([each.buffers for each in each_order], buffers),
        )

    def predict(adapted: Adapted, x: Tensor, training: bool = False) -> tuple[Tensor, Buffers]:
        """The mean of the orders' probabilities."""
        each_order = [
            view.predict(Adapted(_part(adapted.params, k), _part(adapted.buffers, k)), x, training)
            for k, view in enumerate(views)
        ]
        return mean_prediction([outputs for outputs, _ in each_order]), each_order[0][1]

    return learner._replace(
        name=f"{learner.name}, {len(orders)} label orders", adapt=adapt, predict=predict, together=None
    )


def _joined(tables: Sequence[dict[str, Tensor]], before: dict[str, Tensor]) -> dict[str, Tensor]:
    """One table of several, by prefixed names; what adaptation did not touch is there once."""
    moved = {
        f"{PREFIX}{k}.{name}": value
        for k, table in enumerate(tables)
        for name, value in table.items()
        if value is not before.get(name)
    }
    return {**before, **moved}


def _part(table: dict[str, Tensor], k: int) -> dict[str, Tensor]:
    """The ``k``-th table of those that were joined."""
    prefix = f"{PREFIX}{k}."
    common = {name: value for name, value in table.items() if not name.startswith(PREFIX)}
    return common | {n.removeprefix(prefix): v for n, v in table.items() if n.startswith(prefix)}
