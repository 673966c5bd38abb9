"""Which inner learning rate? The estimate for a network and its tasks, before training, and how sure it is.

Head-only learners (ANIL) get a bracket and a point. Where all layers move (MAML, BOIL) only an order of
magnitude is known before training: they get a centre and a range to sweep. What was tried, and where each
held, is in ``docs/rate.md``.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import torch

from innerloop.choose.rate_record import SWEEP as SWEEP
from innerloop.choose.rate_record import RateAdvice as RateAdvice
from innerloop.choose.rate_record import warning_for as warning_for
from innerloop.core.errors import UserError, spelt
from innerloop.core.losses import is_classification
from innerloop.core.types import Batch, Buffers, Loss, Params, Task
from innerloop.learners.base import is_own
from innerloop.learners.inner import moving_names
from innerloop.learners.table import LEARNERS, estimated_rates
from innerloop.nets.network import Network, apply
from innerloop.tasks.sampler import Sampler
from innerloop.theory.rate.bracket import Bracket, bracket, gradient_moments, pooled_head, step_divisor
from innerloop.theory.rate.estimate import split_moments
from innerloop.theory.rate.features import (
    gradient_size,
    head_stacks,
    tangent_gradient_moments,
    tangent_gram_moments,
    tangent_trace_moments,
    whole_batch,
)
from innerloop.theory.rate.moments import interval_of

NORMALISED, UNNORMALISED = 5.0, 20.0
"""The factors stated for head-only learners under cross-entropy, with normalisation layers and without.

At least what the six cases each of ``reproduce rate-regret --scale cpu`` need: the factor between the point
and the nearest rate within one point of the best (``docs/rate.md``). Without normalisation more is stated,
because problems that chose nothing need more. That reproduction compares its cases with these numbers.
"""

REGRESSION = 12.0
"""The factor stated for head-only learners under squared error (sinusoids: the best rate was 11 times up)."""

GRADIENT = estimated_rates()
HEAD_ONLY = tuple(name for name in GRADIENT if LEARNERS[name].adapts == "head")
LEARNED = tuple(name for name in GRADIENT if LEARNERS[name].learns_rates)


def how_many(support: int, query: int, pictures: bool) -> int:
    """How many tasks to look at: enough for a few per cent, few enough for seconds."""
    return max(16, min(500, 4000 // (support + query))) if pictures else 500


def advise_rate(
    network: Network,
    params: Params,
    buffers: Buffers,
    sampler: Sampler,
    loss: Loss,
    *,
    method: str,
    steps: int = 1,
    optimiser: str = "sgd",
    momentum: float = 0.9,
    tasks: int | None = None,
    seed: int = 0,
) -> RateAdvice:
    """The estimate for a learner on its own training tasks, at the weights given.

    Args:
        network: the network.
        params: its parameters; learned rates among them are passed over.
        buffers: its buffers.
        sampler: the training tasks; the first ``tasks`` episodes are looked at.
        loss: the inner loss.
        method: a learner that takes gradient steps, by its name in ``inner.method``.
        steps: inner steps.
        optimiser: ``sgd``, ``momentum`` or ``adam``.
        momentum: for ``momentum``.
        tasks: how many tasks to look at; a few dozen for pictures, hundreds otherwise.
        seed: of probes and bootstrap.

    Raises:
        UserError: there is no inner loop, or adaptation does not help here.
    """
    if method not in GRADIENT or steps < 1:
        why = "takes no inner steps" if method in GRADIENT else "has no inner learning rate"
        raise UserError(
            f"{{method}}={method} {why}: there is nothing to estimate; set {{the learner's lr}} to a number.",
            names=("method", "the learner's lr"),
        )
    started = time.perf_counter()
    example = sampler.episode(0)
    pictures = example.x_support.ndim > 2
    known = how_many(len(example.x_support), len(example.x_query), pictures)
    count = tasks or (known if method in HEAD_ONLY else min(known, 16 if pictures else 64))
    batch = sampler.episodes(range(count))
    own = {name: value for name, value in params.items() if not is_own(name)}
    look = Look(network, loss, own, buffers, batch, _classes(network, own, buffers, loss, example))
    moving = moving_names(network, LEARNERS[method].adapts, own)
    if method in HEAD_ONLY:
        advice = _head_only(look, steps, seed)
    else:
        advice = _all_layers(look, moving, steps, method in LEARNED, seed)
    centre = advice.alpha if advice.kind == "bracket" else advice.forms["trace"]
    if optimiser == "adam":
        size = gradient_size(network, loss, own, buffers, batch, moving)
        advice = _other_rule(advice, centre * size, "adam")
    elif optimiser == "momentum":
        way = sum((1 - momentum**t) / (1 - momentum) for t in range(1, steps + 1))
        advice = _other_rule(advice, centre * steps / way, "momentum")
    return advice._replace(tasks=count, seconds=time.perf_counter() - started)


class Look(NamedTuple):
    """What an estimate looks at."""

    network: Network
    loss: Loss
    params: Params
    buffers: Buffers
    batch: Batch
    classes: int | None


def _classes(network: Network, params: Params, buffers: Buffers, loss: Loss, example: Task) -> int | None:
    """How many outputs there are, if they are logits."""
    if not is_classification(loss):
        return None
    return int(apply(network, params, buffers, example.x_support[:2])[0].shape[-1])


def _all_layers(look: Look, moving: list[str], steps: int, learned: bool, seed: int) -> RateAdvice:
    network, loss, params, buffers, batch, classes = look
    if (
        network.norm in ("none", "group") and whole_batch(batch).x_support.ndim == 3
    ):  # vectors: exact, and cheap
        trace = tangent_gram_moments(network, loss, params, buffers, batch, moving, classes)
    else:
        trace = tangent_trace_moments(
            network, loss, params, buffers, batch, moving, seed=seed, classes=classes
        )
    if not learned:
        return _range(trace.rate, interval_of(trace, seed=seed), steps, loss)
    gradients = tangent_gradient_moments(network, loss, params, buffers, batch, moving)
    return _learned(bracket(gradients, trace, steps=steps, factor=4.0, seed=seed), loss)


def _head_only(look: Look, steps: int, seed: int) -> RateAdvice:
    loss, classes, norm = look.loss, look.classes, look.network.norm
    stacks = head_stacks(look.network, look.params, look.buffers, look.batch)
    labels = classes is not None
    trace = split_moments(stacks.support, stacks.query, loss.name, classes, centre=True)
    head = None
    if not labels:
        features = torch.cat([stacks.support, stacks.query], 1)
        head = pooled_head(features, torch.cat([stacks.support_targets, stacks.query_targets], 1))
    gradients = gradient_moments(*stacks, loss.name, head, outputs=classes)
    unsure = (UNNORMALISED if norm == "none" else NORMALISED) if labels else REGRESSION
    bare = labels and norm == "none"
    estimate = bracket(
        gradients, trace, steps=steps, point="trace" if bare else "middle", factor=unsure, seed=seed
    )
    where = "the zero head" if labels else "the head that fits all tasks at once"
    over = f", divided by √{steps} for {steps} inner steps" if steps > 1 else ""
    more = " (no normalisation layer)" if bare else ""
    form = (
        "the centred trace form"
        if bare
        else "the geometric mean of the gradient form and the centred trace form"
    )
    reasons: tuple[str, ...] = (
        f"point: {form}, at the first weights and {where}{over}",
        f"uncertainty: a factor of {unsure:g}{more}; the interval is sampling error only",
    )
    if bare:
        reasons = (
            *reasons,
            "no normalisation: the gradient form asks how well untrained features tell classes apart, which "
            "training changes most here; so the upper end of the bracket is taken",
        )
    if not labels:
        reasons = (
            *reasons,
            "squared error: the forms are for frozen features; trained ones may want much more "
            "(sinusoids: 11 times as much), which shows too late for a short sweep: try larger ones",
        )
    return _advice(estimate, "bracket", (estimate.point,), loss, reasons)


def _learned(estimate: Bracket, loss: Loss) -> RateAdvice:
    reasons = (
        "point: the geometric mean of the gradient form and the trace form (H.1) on tangent features, "
        "both at the first weights",
        "the rates are learned from there: only their order of magnitude matters",
    )
    return _advice(estimate, "bracket", (estimate.point,), loss, reasons)


def _advice(
    estimate: Bracket, kind: str, sweep: tuple[float, ...], loss: Loss, reasons: tuple[str, ...]
) -> RateAdvice:
    forms = {"gradient": estimate.gradient, "trace": estimate.trace}
    ends = (estimate.point, estimate.low, estimate.high, sweep, estimate.interval)
    return RateAdvice(*ends, kind, estimate.factor, loss.convention, forms, reasons, 0, 0.0)


def _range(one_step: float, interval: tuple[float, float], steps: int, loss: Loss) -> RateAdvice:
    divisor = step_divisor(steps)
    centre = one_step / divisor
    sweep = tuple(centre * f for f in SWEEP)
    middle = SWEEP[len(SWEEP) // 2]
    reasons = (
        "range: half to eight times the trace form (H.1) on tangent features at the first weights"
        + (f", divided by √{steps} for {steps} inner steps" if steps > 1 else ""),
        "where all layers move only the order of magnitude is known before training: a short sweep decides",
    )
    scaled = (middle * interval[0] / divisor, middle * interval[1] / divisor)
    ends = (middle * centre, sweep[0], sweep[-1], sweep, scaled)
    return RateAdvice(*ends, "range", 4.0, loss.convention, {"trace": centre}, reasons, 0, 0.0)


def _other_rule(advice: RateAdvice, centre: float, rule: str) -> RateAdvice:
    sweep = tuple(centre * f for f in SWEEP)
    middle = SWEEP[len(SWEEP) // 2]
    shift = centre * middle / advice.alpha
    how = {
        "adam": "a first step as long as plain descent's",
        "momentum": "the same way in all steps together as plain descent",
    }[rule]
    reason = (
        f"{{optimiser}}={rule}: the formulas are for plain gradient steps, so there is no point "
        f"and no bracket; the sweep is centred where it takes {how}"
    )
    return advice._replace(
        alpha=middle * centre,
        low=sweep[0],
        high=sweep[-1],
        sweep=sweep,
        interval=(advice.interval[0] * shift, advice.interval[1] * shift),
        kind="sweep",
        factor=None,
        reasons=(spelt(reason, ("optimiser",)),),
    )
