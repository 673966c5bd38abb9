"""Which inner learning rate? The estimate for a network and its tasks before training, and how sure it is.

Head-only learners (ANIL) get a bracket and a point. Where all layers move (MAML, BOIL) only an order of
magnitude is known before training: they get a centre and a range to sweep. What was tried, and where each
held, is in ``docs/rate.md``.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch

from innerloop.core.errors import UserError, spell
from innerloop.core.losses import is_classification
from innerloop.core.types import Batch, Buffers, Loss, Params, Task
from innerloop.experiment.inner_rate import HEAD_ONLY
from innerloop.learners.base import is_own
from innerloop.learners.inner import moving_names
from innerloop.learners.table import LEARNERS, entry_of, estimated_rates
from innerloop.nets.network import Network, apply
from innerloop.tasks.sampler import Sampler
from innerloop.theory.rate.bracket import Bracket, bracket, gradient_moments, pooled_head, step_divisor
from innerloop.theory.rate.estimate import split_moments
from innerloop.theory.rate.linear import describe_rate
from innerloop.theory.rate.moments import interval_of
from innerloop.theory.rate.tangent_features import (
    gradient_size,
    head_stacks,
    tangent_gradient_moments,
    tangent_gram_moments,
    tangent_trace_moments,
    whole_batch,
)

SWEEP = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Where the best rate of full MAML lay around the centre."""

FAR = 4.0
"""A user's rate this many times outside the bracket is warned about; above it also by the stated factor."""


class RateAdvice(NamedTuple):
    """An inner learning rate, with what stands behind it.

    Attributes:
        alpha: the rate to start with.
        low: lower end of the bracket, or of the range to sweep.
        high: upper end.
        sweep: rates to try; a single one where the point stands by itself.
        interval: 95 % bootstrap interval of ``alpha``: sampling error only.
        kind: ``bracket``, ``range``, or ``sweep`` (inner optimisers other than plain descent).
        factor: the stated uncertainty: a factor up and down; none where nothing is known.
        convention: the loss convention that gives the rate its meaning.
        forms: the estimates behind it, by name.
        reasons: sentences.
        tasks: how many tasks were looked at.
        seconds: how long that took.
    """

    alpha: float
    low: float
    high: float
    sweep: tuple[float, ...]
    interval: tuple[float, float]
    kind: str
    factor: float | None
    convention: str
    forms: dict[str, float]
    reasons: tuple[str, ...]
    tasks: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in self._asdict().items()}

    def __str__(self) -> str:
        lines = describe_rate(self)
        if self.factor:
            lines.append(f"stated uncertainty: a factor of {self.factor:g} up and down")
        if len(self.sweep) > 1:
            lines.append("try: " + ", ".join(f"{rate:.3g}" for rate in self.sweep))
        return "\n".join([*lines, *self.reasons])


def doubtful_outside(advice: RateAdvice) -> tuple[float, float]:
    """Outside, a user's rate is warned about: [low/4, 4·high], or further up, where best rates have lain."""
    return advice.low / FAR, max(FAR, advice.factor or FAR) * advice.high


def warning_for(rate: float, advice: RateAdvice) -> str | None:
    """One sentence if a user's own rate lies far outside the bracket (:func:`doubtful_outside`), else None.

    For head-only learners under cross-entropy, where the bracket is known to be worth it; None for ranges.
    """
    low, high = doubtful_outside(advice)
    if advice.kind != "bracket" or low <= rate <= high:
        return None
    side, times = ("below", FAR) if rate < low else ("above", high / advice.high)
    warning = (
        f"{{rate}}={rate:g} is far {side} the estimated bracket [{advice.low:.3g}, {advice.high:.3g}] "
        f"(more than {times:g} times outside): {{the estimate}} takes a point inside it."
    )
    return spell(warning, ("rate", "the estimate"))


class RateCheck(NamedTuple):
    """An estimate, and what it says about a user's own rate.

    Attributes:
        advice: the estimate.
        low: below it, a user's rate is warned about.
        high: above it, likewise.
        warning: the warning about the user's own rate, or None.
        method: of the learner.
    """

    advice: RateAdvice
    low: float
    high: float
    warning: str | None
    method: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        bounds = {"low": self.low, "high": self.high, "meaning": "outside, a user's rate is warned about"}
        return {**self.advice.as_dict(), "bounds": bounds, "warning": self.warning, "method": self.method}

    def __str__(self) -> str:
        return "\n".join([str(self.advice), *([f"warning: {self.warning}"] if self.warning else [])])


def judge_rate(advice: RateAdvice, own: float | None, method: str) -> RateCheck:
    """The advice with a warning if a user's ``own`` rate, if any, lies far outside it.

    Args:
        advice: the estimate, with its bracket.
        own: the rate that the user has set; None if there is none.
        method: the learner's name in ``inner.method``.
    """
    warning = None if own is None else warning_for(own, advice)
    return RateCheck(advice, *doubtful_outside(advice), warning, method)


NORMALISED, UNNORMALISED = 5.0, 20.0
"""The factors stated for head-only learners under cross-entropy, with normalisation layers and without.

At least what the six cases each of ``reproduce rate-regret --scale cpu`` need: the factor between the point
and the nearest rate within one point of the best (``docs/rate.md``). Without normalisation more is stated,
because problems that chose nothing need more. That reproduction compares its cases with these numbers.
"""

REGRESSION = 12.0
"""The factor stated for head-only learners under squared error (sinusoids: the best rate was 11 times up)."""

GRADIENT = estimated_rates()
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
    look = RateProblem(network, loss, own, buffers, batch, _classes(network, own, buffers, loss, example))
    moving = moving_names(network, entry_of(method).adapts, own)
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


class RateProblem(NamedTuple):
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


def _all_layers(look: RateProblem, moving: list[str], steps: int, learned: bool, seed: int) -> RateAdvice:
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


def _head_only(look: RateProblem, steps: int, seed: int) -> RateAdvice:
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
    form = "the geometric mean of the gradient form and the centred trace form"
    reasons = [
        f"point: {'the centred trace form' if bare else form}, at the first weights and {where}{over}",
        f"uncertainty: a factor of {unsure:g}{more}; the interval is sampling error only",
    ]
    if bare:
        reasons.append(
            "no normalisation: the gradient form asks how well untrained features tell classes apart, which "
            "training changes most here; so the upper end of the bracket is taken"
        )
    if not labels:
        reasons.append(
            "squared error: the forms are for frozen features; trained ones may want much more "
            "(sinusoids: 11 times as much), which shows too late for a short sweep: try larger ones"
        )
    return _advice(estimate, "bracket", (estimate.point,), loss, tuple(reasons))


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
        reasons=(spell(reason, ("optimiser",)),),
    )
