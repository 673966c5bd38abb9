"""The learner that a recipe's ``inner`` section describes."""

from __future__ import annotations

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.learners import (
    Learner,
    adam,
    anil,
    boil,
    maml,
    maml_lslr,
    meta_sgd,
    momentum,
    non_adaptive,
    protonet,
    sgd,
)
from innerloop.learners.online import online_anil
from innerloop.learners.updates import UpdateRule
from innerloop.nets import Network
from innerloop.recipes.schema import Inner, Recipe


def test_steps(recipe: Recipe) -> int:
    """Inner steps in evaluation."""
    if recipe.inner.method in ("none", "protonet"):
        return 0
    return recipe.inner.steps if recipe.inner.test_steps is None else recipe.inner.test_steps


def build_rule(inner: Inner) -> UpdateRule:
    """The inner update rule."""
    return {"sgd": sgd, "momentum": lambda: momentum(inner.momentum), "adam": adam}[inner.optimiser]()


def build_learner(inner: Inner, network: Network, steps: int, ways: int = 0) -> Learner:
    """The learner with a given number of inner steps (training and testing may differ)."""
    if inner.method == "none":
        return non_adaptive(network)
    if inner.method == "protonet":
        return protonet(network, ways)
    if inner.lr == "auto":
        raise UserError("inner.lr=auto has not been estimated yet: give a number here.")
    loss, rule = get_loss(inner.loss), build_rule(inner)
    if inner.online != "off":
        return online_anil(network, loss, inner.lr, steps, inner.online)
    options = {"truncate": inner.truncate, "checkpoint": inner.checkpoint, "rule": rule}
    if inner.method in ("maml", "fomaml"):
        return maml(network, loss, inner.lr, steps, first_order=inner.method == "fomaml", **options)  # type: ignore[arg-type]
    factory = {"anil": anil, "boil": boil, "meta-sgd": meta_sgd, "maml-lslr": maml_lslr}[inner.method]
    return factory(network, loss, inner.lr, steps, **options)
