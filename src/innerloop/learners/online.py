r"""ANIL whose inner rate follows the features while they are trained. Off by default: it drifts.

Two rules, both kept in buffers, so that checkpoints hold them and a resume goes on exactly:

``h3``
    AdaptLR's (appendix H.3): :math:`\alpha \leftarrow 0.9\,\alpha + 0.1/(2\,N_{way}N_{shot}\hat\sigma^2)`
    with :math:`\hat\sigma^2` the variance of the entries of the support features, each divided by its norm.
    As in the paper the head adapts on normalised features. It does not see the scale of anything else: for
    reproductions.
``trace``
    Ours: running means of both sides of the trace form (H.1, centred for cross-entropy), divided by the
    root of the number of steps as before training, and never further than a factor of four from the rate
    it started with.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from innerloop.core import autodiff
from innerloop.core.errors import UserError
from innerloop.core.losses import is_classification
from innerloop.core.trees import select
from innerloop.core.types import Buffers, Loss, Params
from innerloop.learners.base import ONLINE_PREFIX as PREFIX
from innerloop.learners.base import Learner
from innerloop.learners.updates import UpdateRule
from innerloop.nets.network import Network
from innerloop.nets.norms import statistics_for
from innerloop.theory.rate import loss_constant
from innerloop.theory.rate_bracket import step_divisor
from innerloop.theory.rate_moments import centred, split_traces

Online = Literal["off", "h3", "trace"]
Rule = Literal["h3", "trace"]
KEEP = 0.9
CLAMP = 4.0


class OnlineAdapted(NamedTuple):
    """Parameters after adaptation, buffers, and the support features that the rule needs."""

    params: Params
    buffers: Buffers
    support: Tensor


def online_buffers(rule: Rule, lr: float, like: Tensor) -> Buffers:
    """The buffers of a rule before the first step; ``like`` gives device and dtype."""
    if rule == "h3":
        return {f"{PREFIX}rate": like.new_full((), lr)}
    return {f"{PREFIX}above": like.new_zeros(()), f"{PREFIX}below": like.new_zeros(())}


def h3_rate(features: Tensor) -> Tensor:
    """H.3's estimate from normalised support features ``(K, d)``; ``K`` is ways times shots.

    >>> h3_rate(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]) / 2**0.5)      # variance ½, K = 2
    tensor(0.5000)
    """
    return 1 / (2 * features.shape[0] * features.var(correction=0))


def online_anil(network: Network, loss: Loss, lr: float, steps: int, rule: Rule) -> Learner:
    """ANIL with a rate that follows its features by ``rule``; ``init_buffers`` adds the buffers it needs.

    Args:
        network: the network.
        loss: the support loss; its convention gives the rate its meaning.
        lr: the rate to start with.
        steps: inner steps.
        rule: ``h3`` or ``trace``.
    """
    labels = is_classification(loss)
    divisor = step_divisor(max(steps, 1))

    def init_buffers(params: Params, buffers: Buffers) -> Buffers:
        return {**buffers, **online_buffers(rule, lr, params[network.head_names[0]])}

    def rate(buffers: Buffers, samples: int, outputs: int) -> Tensor:
        if rule == "h3":
            return buffers[f"{PREFIX}rate"]
        above, below = buffers[f"{PREFIX}above"], buffers[f"{PREFIX}below"]
        seen = below > 0
        ratio = above / torch.where(seen, below, torch.ones_like(below))
        found = ratio * (loss_constant(loss.name, samples, outputs if labels else None) / divisor)
        return torch.where(seen, found, torch.full_like(found, lr)).clamp(lr / CLAMP, lr * CLAMP)

    def seen_features(
        params: Params, buffers: Buffers, x: Tensor, phase: str, training: bool
    ) -> tuple[Tensor, Buffers]:
        own = {n: b for n, b in buffers.items() if not n.startswith(PREFIX)}
        z, after = network.features(params, own, x, statistics_for(network.norm, phase, training))
        z = z / z.norm(dim=-1, keepdim=True).clamp(min=1e-12) if rule == "h3" else z
        return z, {**buffers, **after}

    def adapt(
        params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False
    ) -> OnlineAdapted:
        z, buffers = seen_features(params, buffers, x, "support", training)
        head = select(params, network.head_names)
        alpha = rate(buffers, x.shape[0], head[network.head_names[0]].shape[0])
        for _ in range(steps):
            grads = autodiff.gradient(lambda p: loss.value(network.head(p, z), y), head)
            head = {n: p - alpha * grads[n] for n, p in head.items()}
        return OnlineAdapted({**params, **head}, buffers, z)

    def predict(adapted: OnlineAdapted, x: Tensor, training: bool = False) -> tuple[Tensor, Buffers]:
        z, buffers = seen_features(adapted.params, adapted.buffers, x, "query", training)
        if training:
            buffers = {**buffers, **_followed(rule, buffers, adapted.support.detach(), z.detach(), labels)}
        return network.head(adapted.params, z), buffers

    return Learner(f"anil-online-{rule}", adapt, predict, init_buffers=init_buffers)


def refuse_options(
    rule: UpdateRule | None = None,
    truncate: int | None = None,
    checkpoint: bool = False,
    head_start: str = "learned",
) -> None:
    """Refuses what ANIL can do with a fixed rate only.

    Raises:
        UserError: naming the arguments to leave out.
    """
    given = {"rule": rule is not None and rule.name != "sgd", "truncate": truncate is not None}
    given |= {"checkpoint": checkpoint, "head_start": head_start != "learned"}
    wrong = [name for name, there in given.items() if there]
    if wrong:
        raise UserError(
            "an online rate is for plain gradient steps from a learned head, differentiated through: "
            f"leave out {' and '.join(wrong)}, or set online='off'."
        )


def _followed(rule: Rule, buffers: Buffers, support: Tensor, query: Tensor, centre: bool) -> Buffers:
    """The rule's buffers after one task; training averages them over the tasks of a step."""
    if rule == "h3":
        name = f"{PREFIX}rate"
        return {name: KEEP * buffers[name] + (1 - KEEP) * h3_rate(support)}
    u, t = support.unsqueeze(0), query.unsqueeze(0)
    above, below = split_traces(*(centred(u, t) if centre else (u, t)))
    found = {"above": above[0].to(support.dtype), "below": below[0].to(support.dtype)}
    return {PREFIX + n: KEEP * buffers[PREFIX + n] + (1 - KEEP) * v for n, v in found.items()}
