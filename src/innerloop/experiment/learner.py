"""The learner that a recipe's ``inner`` section describes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.core.importing import Trusted, load_object
from innerloop.core.losses import get_loss
from innerloop.experiment.recipe.schema import InnerSettings, Recipe
from innerloop.learners.base import Learner
from innerloop.learners.entry import Argument, Entry
from innerloop.learners.orders import label_averaged, label_orders
from innerloop.learners.table import depends_on_order, entry_of, takes_steps
from innerloop.learners.updates import UpdateRule, adam, momentum, sgd
from innerloop.nets.network import Network


def test_steps(recipe: Recipe) -> int:
    """Inner steps in evaluation."""
    if not takes_steps(recipe.inner.method):
        return 0
    return recipe.inner.steps if recipe.inner.test_steps is None else recipe.inner.test_steps


def build_rule(inner: InnerSettings) -> UpdateRule:
    """The inner update rule."""
    return {"sgd": sgd, "momentum": lambda: momentum(inner.momentum), "adam": adam}[inner.optimiser]()


class LearnerArguments(NamedTuple):
    """Where a learner's arguments come from."""

    inner: InnerSettings
    steps: int
    ways: int


def _rate(given: LearnerArguments) -> float:
    if given.inner.lr == "auto":
        raise UserError("inner.lr=auto has not been estimated yet: give a number here.")
    return given.inner.lr


ARGUMENTS: dict[Argument, Callable[[LearnerArguments], Any]] = {
    "loss": lambda given: get_loss(given.inner.loss),
    "lr": _rate,
    "steps": lambda given: given.steps,
    "rule": lambda given: build_rule(given.inner),
    "truncate": lambda given: given.inner.truncate,
    "checkpoint": lambda given: given.inner.checkpoint,
    "head_start": lambda given: given.inner.head_start,
    "online": lambda given: given.inner.online,
    "ways": lambda given: given.ways,
}
"""What a factory may read, and how it is got."""


def in_label_orders(recipe: Recipe, learner: Learner, outputs: int) -> Learner:
    """The learner as tests use it: averaged over ``eval.label_orders`` orders of the network's outputs."""
    count = recipe.eval.label_orders
    if count == 1 or not depends_on_order(recipe.inner.method):
        return learner
    return label_averaged(learner, label_orders(outputs, count))


def build_learner(inner: InnerSettings, network: Network, steps: int, ways: int = 0) -> Learner:
    """The learner with a given number of inner steps (training and testing may differ)."""
    return from_entry(entry_of(inner.method), LearnerArguments(inner, steps, ways), network)


def from_entry(entry: Entry, given: LearnerArguments, network: Network) -> Learner:
    """The learner of an entry: its factory gets what the entry says that it reads, and its own settings."""
    read = {name: ARGUMENTS[name](given) for name in entry.reads}
    method, settings = given.inner.method, given.inner.settings
    make = load_object(method if ":" in method else Trusted(entry.factory))  # the latter is of our own table
    try:
        inspect.signature(make).bind(network, **read, **entry.fixed, **settings)
    except TypeError as error:
        raise UserError(
            f"inner.method={method} cannot be called with its settings ({error}): give what it takes in "
            "inner.settings."
        ) from None
    learner: Learner = make(network, **read, **entry.fixed, **settings)
    return learner
