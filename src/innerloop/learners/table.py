"""Every learner that a recipe can name, in one literal table; importing it does not import torch.

The choices of ``inner.method``, what the builder hands to a factory, which rules between settings apply, what
the advice on rates covers, the tables of the documentation and the conformance tests are all read from
:data:`LEARNERS`. A new learner is a file with its factory, and an entry here.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import get_args

from innerloop.core.errors import UserError
from innerloop.core.importing import Trusted, load_object
from innerloop.learners.entry import Argument, Entry, Setting, Variant

_SCALE = Setting(float, "where the learned factor on the logits starts")
_DESCENT: tuple[Argument, ...] = ("loss", "lr", "steps", "rule", "truncate", "checkpoint", "head_start")
_PROXIMAL: tuple[Argument, ...] = ("loss", "lr", "steps", "rule")
_PENALTY = Setting(float, "λ of the penalty ½λ‖φ − θ‖²; 2 if omitted")

LEARNERS: dict[str, Entry] = {
    "maml": Entry(
        "MAML",
        "Finn et al. 2017",
        "innerloop.learners.gradient:maml",
        "all",
        "steps",
        "through",
        _DESCENT,
        variants={
            "without steps": Variant({"steps": 0}),
            "momentum": Variant({"optimiser": "momentum", "steps": 3}),
            "adam": Variant({"optimiser": "adam"}),
            "truncated": Variant({"truncate": 1, "steps": 3}, differentiated="first order"),
        },
    ),
    "fomaml": Entry(
        "first-order MAML",
        "Finn et al. 2017",
        "innerloop.learners.gradient:maml",
        "all",
        "steps",
        "first order",
        _DESCENT,
        fixed={"first_order": True},
    ),
    "anil": Entry(
        "ANIL",
        "Raghu et al. 2020",
        "innerloop.learners.gradient:anil",
        "head",
        "steps",
        "through",
        (*_DESCENT, "online"),
        variants={rule: Variant({"online": rule, "steps": 3}) for rule in ("h3", "h15", "trace")},
    ),
    "boil": Entry(
        "BOIL", "Oh et al. 2021", "innerloop.learners.gradient:boil", "body", "steps", "through", _DESCENT
    ),
    "meta-sgd": Entry(
        "Meta-SGD",
        "Li et al. 2017",
        "innerloop.learners.gradient:meta_sgd",
        "all",
        "steps",
        "through",
        _DESCENT,
        learns_rates="one per weight",
    ),
    "maml-lslr": Entry(
        "MAML++'s rates (LSLR)",
        "Antoniou et al. 2019",
        "innerloop.learners.gradient:maml_lslr",
        "all",
        "steps",
        "through",
        _DESCENT,
        learns_rates="one per layer and step",
    ),
    "imaml": Entry(
        "iMAML",
        "Rajeswaran et al. 2019",
        "innerloop.learners.proximal:imaml",
        "all",
        "l2",
        "implicit",
        _PROXIMAL,
        settings={
            "penalty": _PENALTY,
            "cg_steps": Setting(int, "steps of conjugate gradients; 5 if omitted"),
            "damping": Setting(float, "δ of ((1 + δ)I + H/λ)g = ∇L; 0 if omitted"),
        },
        solved_with={"lr": 0.02, "steps": 20, "settings": {"penalty": 40.0, "cg_steps": 12}},
    ),
    "minibatchprox": Entry(
        "Meta-MinibatchProx",
        "Zhou et al. 2019",
        "innerloop.learners.proximal:minibatchprox",
        "all",
        "l2",
        "envelope",
        _PROXIMAL,
        settings={"penalty": _PENALTY},
        solved_with={"lr": 0.02, "steps": 20, "settings": {"penalty": 40.0}},
    ),
    "protonet": Entry(
        "ProtoNet",
        "Snell et al. 2017",
        "innerloop.learners.metric:protonet",
        "nothing",
        "nothing",
        "through",
        ("ways",),
        own_head=True,
        needs_labels=True,
    ),
    "matching": Entry(
        "matching networks",
        "Vinyals et al. 2016",
        "innerloop.learners.metric:matching",
        "nothing",
        "nothing",
        "through",
        ("ways",),
        settings={"scale": Setting(float, "factor on the cosines; 10 if omitted, the paper has 1")},
        own_head=True,
        needs_labels=True,
    ),
    "r2d2": Entry(
        "R2D2",
        "Bertinetto et al. 2019",
        "innerloop.learners.heads:r2d2",
        "head",
        "l2",
        "through",
        ("ways",),
        settings={
            "penalty": Setting(float, "where the learned λ starts, per sample; 1 if omitted"),
            "scale": _SCALE,
        },
        own_head=True,
        needs_labels=True,
        inner_loss="squared errors",
    ),
    "metaoptnet-ridge": Entry(
        "MetaOptNet with ridge",
        "Lee et al. 2019",
        "innerloop.learners.heads:metaoptnet_ridge",
        "head",
        "l2",
        "through",
        ("ways",),
        settings={
            "penalty": Setting(float, "λ; 50 if omitted, as released"),
            "scale": _SCALE,
        },
        own_head=True,
        needs_labels=True,
        inner_loss="squared errors",
    ),
    "metaoptnet-svm": Entry(
        "MetaOptNet",
        "Lee et al. 2019",
        "innerloop.learners.heads:metaoptnet_svm",
        "head",
        "l2",
        "implicit",
        ("ways",),
        settings={
            "C": Setting(float, "inverse penalty; 0.1 if omitted, as released"),
            "scale": _SCALE,
            "steps": Setting(int, "interior-point steps in training; if omitted, 0: to the end"),
        },
        own_head=True,
        needs_labels=True,
        vmap=False,
        inner_loss="hinge (Crammer and Singer)",
    ),
    "logistic-head": Entry(
        "logistic head",
        "",
        "innerloop.learners.heads:logistic_head",
        "head",
        "l2",
        "implicit",
        ("ways",),
        settings={
            "C": Setting(float, "inverse penalty; 1 if omitted"),
            "scale": _SCALE,
        },
        own_head=True,
        needs_labels=True,
        vmap=False,
        inner_loss="cross-entropy",
    ),
    "none": Entry(
        "no adaptation", "", "innerloop.learners.gradient:non_adaptive", "nothing", "nothing", "nothing"
    ),
}
"""Learners by their names in ``inner.method``, in the order of the documentation."""

OUTSIDE = Entry("a learner of your own", "", "", "all", "steps", "through", _DESCENT)
"""What is taken for granted of a learner that is named by its code, before that may be imported."""

SETTINGS_OF: dict[Argument, str] = {
    "loss": "",
    "lr": "inner.lr",
    "steps": "inner.steps inner.test_steps",
    "rule": "inner.optimiser inner.momentum",
    "truncate": "inner.truncate",
    "checkpoint": "inner.checkpoint",
    "head_start": "inner.head_start",
    "online": "inner.online",
    "ways": "",
}
"""The settings of a recipe that an argument of a learner is made from, and that only such learners have."""


def entry_of(method: str) -> Entry:
    """The entry of a learner; of one that is named by its code, what its factory says."""
    # a factory may have an attribute ``entry``; without, the names of its arguments say what it reads
    if method in LEARNERS:
        return LEARNERS[method]
    return _outside(method) if isinstance(method, Trusted) else OUTSIDE


@cache
def _outside(method: Trusted) -> Entry:
    factory = load_object(method)
    said = getattr(factory, "entry", None)
    if isinstance(said, Entry):
        return said._replace(factory=method)
    if not callable(factory):
        raise UserError(f"inner.method={method} is no function that makes a learner of a network.")
    names = inspect.signature(factory).parameters
    reads = tuple(name for name in get_args(Argument) if name in names)
    return OUTSIDE._replace(title=method, factory=method, reads=reads)


def reads(method: str, setting: str) -> bool:
    """Whether a setting of a recipe's ``inner`` section reaches a learner."""
    given = entry_of(method).reads
    return setting in given or any(f"inner.{setting}" in SETTINGS_OF[name].split() for name in given)


def takes_steps(method: str) -> bool:
    """Whether a learner has inner steps to count."""
    return "steps" in entry_of(method).reads


def takes_rate(method: str) -> bool:
    """Whether a learner has an inner learning rate."""
    return "lr" in entry_of(method).reads


def uses_head(method: str) -> bool:
    """Whether the network's own last layer predicts; its outputs then limit how many classes there can be."""
    return not entry_of(method).own_head


def depends_on_order(method: str) -> bool:
    """Whether a learner may answer differently when the labels of a task are numbered in another order."""
    return uses_head(method) and learns(method)


def needs_labels(method: str) -> bool:
    """Whether a learner works on classes only."""
    return entry_of(method).needs_labels


def learns(method: str) -> bool:
    """Whether a learner looks at the labels or targets of the support set at all."""
    return entry_of(method).differentiated != "nothing"


def estimated_rates() -> tuple[str, ...]:
    """Learners whose inner rate can be estimated: those that take a few gradient steps of that size."""
    return tuple(name for name, each in LEARNERS.items() if "lr" in each.reads and each.held_by == "steps")


OTHERS: dict[str, Entry] = {
    "finetune": Entry(
        "fine-tuning",
        "Bridge's released code",
        "innerloop.learners.fine_tuning:fine_tune",
        "all",
        "steps",
        "first order",
        ("lr", "steps", "ways"),
        settings={"normalise": Setting(bool, "whether the new layer sees features of length one")},
        own_head=True,
        needs_labels=True,
        inner_loss="cross-entropy",
        variants={"features as they are": Variant({"settings": {"normalise": False}})},
    ),
    "kernel": Entry(
        "the kernel of a meta-learner",
        "Bridge; MetaNTK",
        "innerloop.learners.kernel:kernel_learner",
        "nothing",
        "nothing",
        "nothing",
        ("ways",),
        variants={method: Variant({"method": method}) for method in ("anil", "maml")},
        made_from="kernels",
        inner_loss="squared errors",
    ),
}
"""By name: entries for the conformance suites."""
