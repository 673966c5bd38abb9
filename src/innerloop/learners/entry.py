"""What an entry of the table of learners says; importing it does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Adapts = Literal["all", "head", "body", "nothing"]
HeldBy = Literal["steps", "l2", "nothing"]
Differentiated = Literal["through", "first order", "implicit", "envelope", "nothing"]
MadeFrom = Literal["network", "kernels"]
Argument = Literal["loss", "lr", "steps", "rule", "truncate", "checkpoint", "head_start", "online", "ways"]


KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
"""What a setting takes, in words."""


class Setting(NamedTuple):
    """A setting of one learner's own, in the free-form table ``inner.settings``.

    Attributes:
        kind: ``int``, ``float``, ``bool`` or ``str``. Limits are the factory's to check.
        meaning: a few words for the documentation.
    """

    kind: type
    meaning: str


class Variant(NamedTuple):
    """A learner under settings that change how it works; what is said here holds instead of its entry."""

    settings: Mapping[str, Any]
    differentiated: Differentiated | None = None


class Entry(NamedTuple):
    """What the rest of the library knows of a learner.

    Four of its fields are the factors of Bridge's unified objective: which parameters ``adapts``, on which
    ``inner_loss``, ``held_by`` what, and how it is ``differentiated``.

    Attributes:
        title: what people call it.
        paper: where it comes from; empty for none.
        factory: ``package.module:function``, loaded on use and called as ``factory(network, **arguments)``.
        adapts: what the inner problem changes: ``all`` parameters, the ``head`` (last layer), the ``body``
            (all but the last layer), or ``nothing`` (class means, no adaptation).
        held_by: what keeps it from going too far: few ``steps``, an ``l2`` penalty, or ``nothing``.
        differentiated: how the outer gradient passes the inner problem: ``through`` its steps, to ``first
            order``, by the ``implicit`` function theorem at its solution, or not at all, because the outer
            loss is the inner problem's own minimum (its ``envelope``); ``nothing`` where there is none.
        reads: which arguments of a recipe's ``inner`` section (and ``ways``) the factory takes.
        fixed: arguments that make it a special case of its factory.
        settings: names in ``inner.settings`` that go to the factory; each has a default there.
        learns_rates: how its inner rates are learned, such as ``one per weight``; empty for fixed rates.
        own_head: whether it puts something else in the place of the network's last layer.
        needs_labels: whether it works on classes only.
        vmap: whether it runs under ``vmap``.
        inner_loss: what the inner problem minimises, where that is not the recipe's ``inner.loss``.
        solved_with: settings of a recipe's ``inner`` section that solve the inner problem of small tasks to
            many digits, for gradients that are exact at a solution only: conformance tests set them.
        variants: what conformance tests try besides, by name.
        made_from: what the factory is given first: a ``network``, or the fitted ``kernels`` of one, which
            leave no parameters to train.
    """

    title: str
    paper: str
    factory: str
    adapts: Adapts
    held_by: HeldBy
    differentiated: Differentiated
    reads: tuple[Argument, ...] = ()
    fixed: Mapping[str, Any] = {}
    settings: Mapping[str, Setting] = {}
    learns_rates: str = ""
    own_head: bool = False
    needs_labels: bool = False
    vmap: bool = True
    inner_loss: str = ""
    solved_with: Mapping[str, Any] = {}
    variants: Mapping[str, Variant] = {}
    made_from: MadeFrom = "network"
