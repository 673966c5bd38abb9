"""How classes are learned from a few examples: settings, methods, and their results as tensors by name."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params
from innerloop.evaluation.heads import HEADS, check_head, fit_heads, head_scores
from innerloop.evaluation.protocol import FINE_TUNING
from innerloop.experiment.learner import build_learner, in_label_orders, test_steps
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.learners.base import Learner
from innerloop.learners.fine_tuning import fine_tune
from innerloop.learners.metric import protonet
from innerloop.learners.table import learns, uses_head
from innerloop.nets.network import Network
from innerloop.nets.norms import KINDS, statistics_for
from innerloop.solvers.problems import Linear

LEARNER = "learner"
"""The kind that learns as the network was trained to; by prototypes where that is not known."""
KEYS = {
    "head": "eval.head",
    "C": "eval.C",
    "normalise": "eval.normalise_features",
    "lr": "eval.head_lr",
    "steps": "eval.head_steps",
    "seed": "run.seed",
}
"""Settings of a head by the names of ``FewShotClassifier``, and what each is called in a recipe."""
EXAMPLES: dict[str, dict[str, Any]] = {
    "tasks": {"family": "few-shot"},
    "inner": {"method": "protonet", "loss": "cross-entropy"},
}
"""What settings of a head are checked against: tasks of a few examples of every class."""


class HeadSettings(NamedTuple):
    """How classes are learned from examples.

    Attributes:
        kind: one of :data:`innerloop.evaluation.HEADS` on features; ``finetune`` moves the whole network;
            ``learner`` adapts as it was trained to.
        C: inverse penalty of ``logistic``, ``svm``, ``svc`` and ``ridge``.
        normalise: whether features are divided by their norm.
        lr: ``finetune`` only: Adam's rate.
        steps: ``finetune`` only: Adam's steps.
        seed: of how examples are left out.
    """

    kind: str = "logistic"
    C: float = 1.0
    normalise: bool = True
    lr: float = 1e-3
    steps: int = 10
    seed: int = 0

    def as_arguments(self) -> dict[str, Any]:
        """By the names in :data:`KEYS`."""
        return dict(zip(KEYS, self, strict=True))


def check_kind(kind: str) -> None:
    """Refuses a kind of head that there is not."""
    check_head(kind, (LEARNER, FINE_TUNING))


def settings_in(recipe: Recipe) -> HeadSettings:
    """The settings of the head in a recipe."""
    e = recipe.eval
    return HeadSettings(e.head, e.C, e.normalise_features, e.head_lr, e.head_steps, recipe.run.seed)


def head_settings(arguments: Mapping[str, Any], items: Sequence[str] = (), source: str = "") -> HeadSettings:
    """Settings from arguments by the names in :data:`KEYS`, and from ``key=value`` texts, which win."""
    given = {name: value for name, value in arguments.items() if name in KEYS}
    recipe = recipe_with(EXAMPLES, given, KEYS, items, source)
    if recipe.inner.method != EXAMPLES["inner"]["method"]:
        raise UserError(
            "a pretrained backbone learns classes by a head or by prototypes: leave out "
            f"inner.method={recipe.inner.method}."
        )
    return settings_in(recipe)


def recipe_with(
    base: Mapping[str, Any],
    arguments: Mapping[str, Any],
    keys: Mapping[str, str],
    items: Sequence[str] = (),
    source: str = "",
) -> Recipe:
    """A recipe with arguments in it under their keys there; mistakes are called by the arguments' names."""
    data = {name: dict(part) if isinstance(part, Mapping) else part for name, part in base.items()}
    for argument, value in arguments.items():
        section, _, name = keys[argument].partition(".")
        data.setdefault(section, {})[name] = value.item() if isinstance(value, np.generic) else value
    try:
        return make_recipe(data, items, source)
    except UserError as error:
        if items or source:
            raise
        text = str(error)
        for argument, key in keys.items():  # whoever called from Python knows these names only
            text = text.replace(key, argument)
        raise UserError(text) from None


class Adaptation(NamedTuple):
    """A learner, what reports call it, and which head it is if it is one on frozen features."""

    learner: Learner
    words: str
    head: str | None = None


def method_for(
    settings: HeadSettings, recipe: Recipe | None, network: Network, ways: int, outputs: int, source: str
) -> Adaptation:
    """How a network learns this many classes; ``recipe`` is what trained it, None for published weights."""
    kind, C, normalise, lr, steps, _ = settings
    if kind == FINE_TUNING:
        return Adaptation(fine_tune(network, ways, lr, steps, normalise), f"finetune, {steps} steps")
    if kind == LEARNER and recipe is None:
        return Adaptation(protonet(network, ways), "protonet")
    if kind == LEARNER and recipe and recipe.tasks.family == "few-shot" and learns(recipe.inner.method):
        method = recipe.inner.method
        if uses_head(method) and ways > outputs:
            raise UserError(
                f"{source} tells {outputs} classes apart, and here are {ways}: give fewer classes, or fit a "
                "new last layer (add eval.head=logistic; in Python: head='logistic')."
            )
        learner = build_learner(recipe.inner, network, test_steps(recipe), ways)
        return Adaptation(in_label_orders(recipe, learner, outputs), method)
    # plain supervision has no way of its own to adapt
    name = "logistic" if kind == LEARNER else kind
    words = f"{name} head" + (f", C={C:g}" if HEADS[name].penalised else "")
    return Adaptation(head_learner(network, ways, name, C, normalise), words, name)


Fields = dict[str, bool | list[str]]
"""The fields of what ``adapt`` hands to ``predict``: whether each is a table of tensors or one tensor, or the
names in it if it is a named tuple of tensors itself."""


def pack_state(state: Any, params: Params, buffers: Buffers) -> tuple[Fields, dict[str, Tensor]]:
    """The fields of what a learner adapted, and its tensors by name, without those the network had before."""
    before = {"params": params, "buffers": buffers}
    values: dict[str, Any] = state._asdict() if hasattr(state, "_asdict") else {"state": state}
    fields = {field: _shape_of(value) for field, value in values.items()}
    tables = {field: _table(value) for field, value in values.items()}
    if not all(isinstance(tensor, Tensor) for table in tables.values() for tensor in table.values()):
        raise UserError(
            f"what this learner adapts ({type(state).__name__}) is not made of tensors alone, and cannot "
            "be kept: save it before it is adapted."
        )
    tensors = {
        f"{field}/{name}" if name else field: tensor
        for field, table in tables.items()
        for name, tensor in table.items()
        if before.get(field, {}).get(name) is not tensor
    }
    return fields, tensors


def _shape_of(value: Any) -> bool | list[str]:
    return list(value._fields) if hasattr(value, "_fields") else isinstance(value, dict)


def _table(value: Any) -> dict[str, Any]:
    """Tensors by name; one that stands alone has none."""
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    return value if isinstance(value, dict) else {"": value}


def unpack_state(fields: Fields, tensors: Mapping[str, Tensor], params: Params, buffers: Buffers) -> Any:
    """What :func:`pack_state` was given, as a named tuple with the same fields."""
    made: dict[str, Any] = {field: {} for field, table in fields.items() if table}
    for field, value in (("params", params), ("buffers", buffers)):
        if field in made:
            made[field] = dict(value)
    for key, tensor in tensors.items():
        field, _, name = key.partition("/")
        if name:
            made[field][name] = tensor
        else:
            made[field] = tensor
    for field, kind in fields.items():
        if isinstance(kind, list):
            made[field] = namedtuple(field, kind)(**made[field])
    return namedtuple("State", fields)(**{field: made[field] for field in fields})


AT_ONCE = 64  # pictures, where they are judged each on its own


class FittedHead(NamedTuple):
    """A linear classifier on frozen features; its temperature is in ``weight`` and ``bias``."""

    weight: Tensor
    bias: Tensor
    params: Params
    buffers: Buffers


def tempered_head(z: Tensor, y: Tensor, ways: int, head: str, C: float, normalise: bool) -> Linear:
    """One head on features ``(n, d)``, solved in float64; its customary temperature is in its weights."""
    # balanced: else a class of one example among others of twenty would never be named
    fitted = fit_heads(z[None].double(), y[None], ways, head, C, normalise, balanced=True)
    factor = HEADS[head].temperature
    return fitted._replace(weights=factor * fitted.weights, bias=factor * fitted.bias)


def head_learner(
    network: Network, ways: int, head: str = "logistic", C: float = 1.0, normalise: bool = True
) -> Learner:
    """One of the heads on the frozen features as a learner, whose softmax makes probabilities."""

    def adapt(params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> FittedHead:
        """The head that fits the support set's features."""
        z, after = network.features(params, buffers, x, statistics_for(network.norm, "support", training))
        fitted = tempered_head(z, y, ways, head, C, normalise)
        return FittedHead(fitted.weights[0], fitted.bias[0], params, after)

    def predict(adapted: FittedHead, x: Tensor, training: bool = False) -> tuple[Tensor, Buffers]:
        """Scores of queries, and the buffers after this pass."""
        statistics = statistics_for(network.norm, "query", training)
        z, after = network.features(adapted.params, adapted.buffers, x, statistics)
        fitted = Linear(adapted.weight[None], adapted.bias[None], pairs=HEADS[head].pairs)
        return head_scores(fitted, z[None].double(), normalise)[0], after

    return Learner(f"{head} head", adapt, predict)


def in_parts(predict: Callable[[Tensor], Tensor], x: Tensor, norm: str, size: int = AT_ONCE) -> Tensor:
    """``predict`` on all pictures: a few at a time, but together where they normalise one another."""
    with torch.no_grad():
        return torch.cat([predict(part) for part in ([x] if norm in KINDS else x.split(size))])


def check_numbers(probabilities: Tensor, whose: str) -> None:
    """Refuses probabilities that are not numbers: a label from NaN is always the first class."""
    bad = (~torch.isfinite(probabilities).all(-1)).sum()
    if int(bad):
        raise UserError(
            f"{whose} gives no number for {int(bad)} of {len(probabilities)} pictures: its weights, or the "
            "adaptation with these settings, diverged; lower the rate, or train again."
        )


def check_weights(tensors: Params | Buffers, whose: str) -> None:
    """Refuses weights that are not finite, by name."""
    for name, value in tensors.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise UserError(
                f"the weights of {whose} are not finite ({name}): its training diverged, so train again with "
                "a lower rate."
            )
