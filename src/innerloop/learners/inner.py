r"""The pieces that inner problems are made of: which parameters move, on which loss, and how one predicts.

Bridge writes meta-learners as one problem (eqs. 10 and 11 for a last layer :math:`w_i`, eq. 21 for all),

.. math:: \min_\theta \sum_i \ell\big(f(X_i; \theta, w_i^*), Y_i\big), \qquad
          w_i^* = \arg\min_w\; \ell\big(f(X_i; \theta, w), Y_i\big) + R(w) ,

so that a learner is a product of four choices, each with its place in the code and in
:class:`~innerloop.learners.entry.Entry`:

======================  =====================================================  ===========================
choice                  made by                                                field of its entry
======================  =====================================================  ===========================
which parameters adapt  :func:`moving_names`                                   ``adapts``
the loss                :func:`network_loss`, :func:`head_loss`                ``reads``, ``inner_loss``
what holds them (R)     few steps (``gradient``); an :math:`\ell_2` penalty     ``held_by``
                        (``proximal``, ``ridge``, ``convex``)
how it is               through the steps (autograd); :func:`reattach` (first  ``differentiated``
differentiated          order); ``implicit``; the envelope (``proximal``)
======================  =====================================================  ===========================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Loss, Params
from innerloop.learners.base import Adapted, Predict, is_own
from innerloop.nets.network import Network, apply
from innerloop.nets.norms import statistics_for

Adapts = Literal["all", "head", "body"]

InnerLoss = Callable[[Params], Tensor]
"""The support loss as a function of the parameters that move."""


def check_steps(steps: int) -> None:
    """Refuses a number of inner steps below zero."""
    if steps < 0:
        raise UserError(f"steps={steps}: a learner takes 0 (none) or more inner steps, such as 5.")


def moving_names(network: Network, adapts: Adapts | Literal["nothing"], params: Params) -> list[str]:
    """The names of the parameters that the inner loop changes."""
    own = [n for n in params if not is_own(n)]
    if adapts == "nothing":
        return []
    if adapts == "head":
        return list(network.head_names)
    return own if adapts == "all" else [n for n in own if n not in network.head_names]


def head_loss(network: Network, loss: Loss, z: Tensor, y: Tensor) -> InnerLoss:
    """The support loss of a last layer, on features that do not move."""

    def inner(head: Params) -> Tensor:
        """The loss of a last layer."""
        return loss.value(network.head(head, z), y)

    return inner


def network_loss(
    network: Network, loss: Loss, params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool
) -> InnerLoss:
    """The support loss of the network, as a function of those of its parameters that move."""
    statistics = statistics_for(network.norm, "support", training)

    def inner(moving: Params) -> Tensor:
        """The loss under some parameters."""
        outputs, _ = apply(network, {**params, **moving}, buffers, x, statistics)
        return loss.value(outputs, y)

    return inner


def settled(network: Network, params: Params, buffers: Buffers, x: Tensor) -> Adapted:
    """The network after all its layers have moved, with the statistics that its queries are normalised by."""
    # under the norm policy ``support`` these are the support set's under the adapted weights
    if network.norm == "support":
        _, buffers = network.features(params, buffers, x, "batch")
    return Adapted(params, buffers)


def reattach(start: Params, moved: Params) -> Params:
    """``moved`` in value, but depending on ``start`` through the identity: the first-order derivative."""
    return {n: p + (moved[n] - p).detach() for n, p in start.items()}


def predictor(network: Network) -> Predict:
    """The network's outputs under the adapted parameters."""

    def predict(adapted: Adapted, x: Tensor, training: bool = False) -> tuple[Tensor, Buffers]:
        """Outputs for queries, and the buffers after this pass."""
        statistics = statistics_for(network.norm, "query", training)
        return apply(network, adapted.params, adapted.buffers, x, statistics)

    return predict
