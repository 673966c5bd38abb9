r"""ANIL whose inner rate follows the features while they are trained. Off by default: it drifts.

Three rules, kept in buffers, so that checkpoints hold them and a resume goes on exactly:

``h3``
    AdaptLR's (appendix H.3): :math:`\alpha \leftarrow 0.9\,\alpha + 0.1/(2\,N_{way}N_{shot}\hat\sigma^2)`
    with :math:`\hat\sigma^2` the mean of the covariance :math:`F^\top F` of the normalised feature, whose
    columns :math:`F_c/\|F_c\|` are the classes' (of several shots, their mean): the mean cosine between
    classes. As in the paper the head adapts on normalised features. For reproductions.
``h15``
    The same with :math:`\hat\sigma^2` the variance of all entries of the normalised support features, as
    the paper takes it where features are stacked (H.15). It is another number: on ReLU features of
    twenty classes its rate is about eighty times that of ``h3``.
``trace``
    Ours: running means of both sides of the trace form (H.1, centred for cross-entropy), divided by the
    root of the number of steps as before training, and never further than a factor of four from the rate
    it started with.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

import innerloop.core.autodiff as autodiff
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.losses import get_loss, is_classification
from innerloop.core.trees import select
from innerloop.core.types import Buffers, Loss, Params
from innerloop.learners.base import ONLINE_PREFIX as PREFIX
from innerloop.learners.base import Learner
from innerloop.learners.inner import check_steps
from innerloop.learners.updates import UpdateRule
from innerloop.nets.network import Network
from innerloop.nets.norms import statistics_for
from innerloop.theory.rate.bracket import step_divisor
from innerloop.theory.rate.estimate import loss_constant
from innerloop.theory.rate.moments import centred, split_traces

Online = Literal["off", "h3", "h15", "trace"]
Rule = Literal["h3", "h15", "trace"]
NORMALISED = ("h3", "h15")
"""Rules of a rate that is kept itself, for features of length one."""

KEEP = 0.9
CLAMP = 4.0
TINY = 1e-12


class OnlineAdapted(NamedTuple):
    """Parameters after adaptation, buffers, and what the rule needs of the support set."""

    params: Params
    buffers: Buffers
    support: Tensor
    targets: Tensor


def online_buffers(rule: Rule, lr: float, like: Tensor) -> Buffers:
    """The buffers of a rule before the first step; ``like`` gives device and dtype."""
    if rule in NORMALISED:
        return {f"{PREFIX}rate": like.new_full((), lr)}
    return {f"{PREFIX}above": like.new_zeros(()), f"{PREFIX}below": like.new_zeros(())}


def h3_rate(features: Tensor, labels: Tensor | None = None, classes: int = 0) -> Tensor:
    r"""H.3's estimate: :math:`1/(2K\hat\sigma^2)`, with the mean entry of :math:`F^\top F` as variance."""
    # that mean is ‖1/C Σ_c F_c/‖F_c‖‖²
    samples = features.shape[0]
    if labels is not None:
        members = labels.unsqueeze(0) == torch.arange(classes, device=labels.device).unsqueeze(1)
        features = _unit(members.to(features.dtype) @ features)  # sums have the direction of means
    return 1 / (2 * samples * features.mean(0).square().sum().clamp(min=TINY))


def h15_rate(features: Tensor) -> Tensor:
    """The same with the variance of all entries of the normalised support features ``(K, d)``."""
    return 1 / (2 * features.shape[0] * features.var(correction=0))


def _unit(features: Tensor) -> Tensor:
    return features / features.norm(dim=-1, keepdim=True).clamp(min=TINY)


def online_anil(network: Network, loss: Loss | str, lr: float, steps: int, rule: Rule) -> Learner:
    """ANIL with a rate that follows its features by ``rule``; ``init_buffers`` adds the buffers it needs."""
    if rule not in get_args(Rule):
        hint = did_you_mean(rule, get_args(Online))
        raise UserError(f"online='{rule}' is unknown{hint}; there are {', '.join(get_args(Online))}.")
    loss = get_loss(loss)
    check_steps(steps)
    labels = is_classification(loss)
    divisor = step_divisor(max(steps, 1))

    def init_buffers(params: Params, buffers: Buffers) -> Buffers:
        """Adds the buffers that the rule needs."""
        return {**buffers, **online_buffers(rule, lr, params[network.head_names[0]])}

    def rate(buffers: Buffers, samples: int, outputs: int) -> Tensor:
        """The present rate, kept within a fixed factor of the first one."""
        if rule in NORMALISED:
            return buffers[f"{PREFIX}rate"]
        above, below = buffers[f"{PREFIX}above"], buffers[f"{PREFIX}below"]
        seen = below > 0
        ratio = above / torch.where(seen, below, torch.ones_like(below))
        estimate = ratio * (loss_constant(loss.name, samples, outputs if labels else None) / divisor)
        return torch.where(seen, estimate, torch.full_like(estimate, lr)).clamp(lr / CLAMP, lr * CLAMP)

    def seen_features(
        params: Params, buffers: Buffers, x: Tensor, phase: str, training: bool
    ) -> tuple[Tensor, Buffers]:
        """Features as the rule wants them, and the buffers after this pass."""
        own = {n: b for n, b in buffers.items() if not n.startswith(PREFIX)}
        z, after = network.features(params, own, x, statistics_for(network.norm, phase, training))
        return _unit(z) if rule in NORMALISED else z, {**buffers, **after}

    def adapt(
        params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False
    ) -> OnlineAdapted:
        """The last layer after its steps at the rate of now."""
        z, buffers = seen_features(params, buffers, x, "support", training)
        head = select(params, network.head_names)
        alpha = rate(buffers, x.shape[0], head[network.head_names[0]].shape[0])
        for _ in range(steps):
            grads = autodiff.gradient(lambda p: loss.value(network.head(p, z), y), head)
            head = {n: p - alpha * grads[n] for n, p in head.items()}
        return OnlineAdapted({**params, **head}, buffers, z, y)

    def predict(adapted: OnlineAdapted, x: Tensor, training: bool = False) -> tuple[Tensor, Buffers]:
        """Outputs for queries; in training the rate follows the features."""
        z, buffers = seen_features(adapted.params, adapted.buffers, x, "query", training)
        if training:
            classes = adapted.params[network.head_names[0]].shape[0] if labels else 0
            buffers = {**buffers, **_followed(rule, buffers, adapted, z.detach(), classes)}
        return network.head(adapted.params, z), buffers

    return Learner(f"anil-online-{rule}", adapt, predict, init_buffers=init_buffers)


def refuse_options(
    rule: UpdateRule | None = None,
    truncate: int | None = None,
    checkpoint: bool = False,
    head_start: str = "learned",
) -> None:
    """Refuses what ANIL can do with a fixed rate only."""
    given = {"rule": rule is not None and rule.name != "sgd", "truncate": truncate is not None}
    given |= {"checkpoint": checkpoint, "head_start": head_start != "learned"}
    wrong = [name for name, there in given.items() if there]
    if wrong:
        raise UserError(
            "an online rate is for plain gradient steps from a learned head, differentiated through: "
            f"leave out {' and '.join(wrong)}, or set online='off'."
        )


def _followed(rule: Rule, buffers: Buffers, adapted: OnlineAdapted, query: Tensor, classes: int) -> Buffers:
    """The rule's buffers after one task (no ``classes``: not labels); training averages them over a step."""
    support = adapted.support.detach()
    if rule in NORMALISED:
        name, targets = f"{PREFIX}rate", adapted.targets if classes else None
        rate_here = h3_rate(support, targets, classes) if rule == "h3" else h15_rate(support)
        return {name: KEEP * buffers[name] + (1 - KEEP) * rate_here}
    u, t = support.unsqueeze(0), query.unsqueeze(0)
    above, below = split_traces(*(centred(u, t) if classes else (u, t)))
    sums = {"above": above[0].to(support.dtype), "below": below[0].to(support.dtype)}
    return {PREFIX + n: KEEP * buffers[PREFIX + n] + (1 - KEEP) * v for n, v in sums.items()}
