"""What can be said of a problem without training: the inner rate, hard groups of classes, the landscape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from innerloop.choose.problem import AdviceProblem
from innerloop.choose.rate_advice import warning_for
from innerloop.choose.rates import advice_for
from innerloop.core.errors import UserError
from innerloop.experiment.data import build_data
from innerloop.experiment.model import build_network
from innerloop.experiment.parts import build
from innerloop.experiment.recipe.picture_fit import with_settings
from innerloop.experiment.recipe.schema import Recipe
from innerloop.tasks.hard_groups import group_errors
from innerloop.theory.landscape.features import Step, has_constant, look_at
from innerloop.theory.landscape.permuted import PLAIN, REASON
from innerloop.theory.landscape.tasks import LINEAR, TaskLandscape, task_landscape

GROUPS = (
    "such a ranking agreed with that of trained networks on groups they had not seen with rank "
    "correlations of 0.68 and 0.70 on Omniglot, 0.61 and 0.43 on CIFAR-100"
)
"""Of hard groups of classes (``innerloop reproduce advice-hardness``)."""

GAIN = (
    "of 30 random environments of linear tasks such a gain was within its interval after training in 25, and "
    "off by 10% at most (`innerloop reproduce advice-landscape`)"
)
"""Of the closed-form gain of linear models."""


class RatePart(NamedTuple):
    """The inner rate.

    Attributes:
        applies: whether there is an estimate.
        reason: why not, or what it is an estimate for.
        method: whose rate.
        alpha: the point.
        low: lower end of the bracket or range.
        high: its upper end.
        sweep: rates to try.
        convention: which loss the rate is of.
        factor: how far the truth may be, up and down.
        warning: about the rate that the user gave; nothing if it is fine.
        reasons: where it comes from.
    """

    applies: bool
    reason: str
    method: str = ""
    alpha: float | None = None
    low: float | None = None
    high: float | None = None
    sweep: tuple[float, ...] = ()
    convention: str = ""
    factor: float | None = None
    warning: str = ""
    reasons: tuple[str, ...] = ()


class HardGroup(NamedTuple):
    """A group of classes, or a task, in the ranking of hardness: its name and how it did."""

    name: str
    value: float
    tasks: int


class HardnessPart(NamedTuple):
    """Which groups of tasks are hard, hardest first.

    Attributes:
        groups: the ranking; empty where there are none to rank.
        by: what was measured.
        evidence: how well such a ranking has predicted.
        reason: why there is none, if there is none.
    """

    groups: tuple[HardGroup, ...]
    by: str
    evidence: str
    reason: str = ""


class LandscapePart(NamedTuple):
    """Whether closed forms say what adapting brings.

    Attributes:
        applies: whether they do.
        reason: why, or why not.
        gain: excess risk of non-adaptive learning over that of MAML, where they apply.
        interval: of the gain, 95 %.
        why: the reason in full, where there is more to say.
    """

    applies: bool
    reason: str
    gain: float | None = None
    interval: tuple[float, float] | None = None
    why: str = ""


TASKS = 64
"""Tasks that the rate is estimated from."""

GROUP_EPISODES = 10
"""Tasks of a group that its hardness is measured on."""

SAMPLES = 10
"""Samples of a task for every input dimension, from which the landscape is estimated."""

HEAD_ONLY = "anil"


def rate_part(problem: AdviceProblem) -> RatePart:
    """The inner rate of the user's own method, else of ANIL on the same network; of MAML for numbers."""
    try:
        recipe = _of_the_rate(problem)
        advice = advice_for(build(recipe), tasks=TASKS)
    except UserError as error:
        return RatePart(False, str(error).splitlines()[0])
    given = problem.recipe.inner.lr if problem.asked.named else None
    same = problem.recipe.inner.method == recipe.inner.method
    warning = warning_for(given, advice) if isinstance(given, float) and same else None
    what = f"{recipe.inner.method} with {recipe.inner.steps} inner step{'s' * (recipe.inner.steps != 1)}"
    return RatePart(
        True,
        f"estimated for {what}, from {advice.tasks} training tasks and the network before training",
        recipe.inner.method,
        **{name: getattr(advice, name) for name in ("alpha", "low", "high", "convention", "factor")},
        sweep=worth_trying(advice.sweep, advice.factor),
        warning=warning or "",
        reasons=tuple(advice.reasons),
    )


def _of_the_rate(problem: AdviceProblem) -> Recipe:
    recipes = {entrant.name: entrant.recipe for entrant in problem.entrants}
    for name in ("yours", HEAD_ONLY, "maml"):
        recipe = recipes.get(name)
        if recipe is not None and _has_a_rate(recipe):
            return recipe
    raise UserError("none of the methods that fit these tasks has an inner rate.")


def _has_a_rate(recipe: Recipe) -> bool:
    if recipe.outer.objective != "episodic" or recipe.inner.steps == 0:
        return False
    if recipe.inner.method == HEAD_ONLY:  # under squared error the estimate was 25 times off
        return "mse" not in recipe.inner.loss
    return recipe.inner.method in ("maml", "fomaml")


def worth_trying(sweep: Sequence[float], factor: float | None) -> tuple[float, ...]:
    """Rates for a sweep: the estimate's; around a single point, as far as the truth may be from it."""
    if len(sweep) != 1 or factor is None:
        return tuple(sweep)
    return tuple(sweep[0] * factor**power for power in (-1.0, -0.5, 0.0, 0.5, 1.0))


def hardness_part(problem: AdviceProblem) -> HardnessPart:
    """Groups of classes (alphabets, superclasses) in the order of their difficulty for raw pixels."""
    by = "error of the nearest neighbour of raw pixels in 1-shot tasks within a group of training classes"
    if problem.asked.kind != "pictures":
        return HardnessPart((), by, GROUPS, "these tasks have no named groups to rank.")
    source = build_data(problem.recipe).pictures
    if source.groups is None:
        return HardnessPart((), by, GROUPS, f"{source.name} has no groups of classes to rank.")
    errors = group_errors(source, "train", problem.recipe.tasks.ways, GROUP_EPISODES)
    groups = tuple(HardGroup(name, error, GROUP_EPISODES) for name, error in errors.items())
    return HardnessPart(groups, by, GROUPS)


def landscape_part(problem: AdviceProblem) -> LandscapePart:
    """The closed-form gain of MAML over non-adaptive learning, where the theory speaks of such tasks."""
    if problem.score == "accuracy":
        return LandscapePart(False, PLAIN, why=REASON)
    try:
        closed = closed_forms(problem)
    except UserError as error:
        return LandscapePart(False, str(error).splitlines()[0])
    if closed.applies:
        reason = f"{closed.reason}; one inner step of {closed.inner_lr:.3g}, {closed.rate}; {GAIN}"
        return LandscapePart(True, reason, closed.gain.value, (closed.gain.low, closed.gain.high))
    told = f" (for a linear model they give {closed.gain.value:.3g} times MAML's excess risk)"
    return LandscapePart(False, closed.reason + (told if closed.explained >= LINEAR else ""))


def closed_forms(problem: AdviceProblem) -> TaskLandscape:
    """What the closed forms give for the training tasks, with features of a linear network: the inputs."""
    recipe = _with_more_samples(problem.recipe)
    data = build_data(recipe)
    tasks, network = data.train.episodes(range(TASKS)), build_network(recipe, data.sizes)
    step = Step(problem.recipe.tasks.shots, problem.recipe.tasks.shots)
    features = "affine" if has_constant(network) else "raw"
    return task_landscape(look_at(tasks, network, features), step)


def _with_more_samples(recipe: Recipe) -> Recipe:
    """So many samples of a task that its optimum can be told."""
    example = build_data(recipe).train.episode(0)
    half = max(recipe.tasks.shots, SAMPLES * (example.x_support[0].numel() + 1) // 2)
    return with_settings(recipe, {"tasks": {"shots": half, "queries": half}})
