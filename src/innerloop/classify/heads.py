"""How a trained network learns new classes, by its recipe; and what it learned, as tensors by name."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params
from innerloop.evaluation.heads import HEADS
from innerloop.evaluation.labelling import head_learner
from innerloop.evaluation.protocol import FINE_TUNING
from innerloop.experiment.learner import build_learner, in_label_orders, test_steps
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.learners.base import Learner
from innerloop.learners.fine_tuning import fine_tune
from innerloop.learners.table import learns, uses_head
from innerloop.nets.network import Network

Fields = dict[str, bool | list[str]]
"""The fields of what ``adapt`` hands to ``predict``: whether each is a table of tensors or one tensor, or the
names in it if it is a named tuple of tensors itself."""

SEPARATOR = "/"


class Way(NamedTuple):
    """A learner, what reports call it, and which head it is if it is one on frozen features."""

    learner: Learner
    words: str
    head: str | None = None


def way_to_adapt(recipe: Recipe, network: Network, ways: int, outputs: int, source: str) -> Way:
    """As the recipe was trained to adapt, where it was; else, or where ``eval.head`` says so, by a head."""
    wanted, inner = recipe.eval, recipe.inner
    if wanted.head == FINE_TUNING:
        learner = fine_tune(network, ways, wanted.head_lr, wanted.head_steps, wanted.normalise_features)
        return Way(learner, f"finetune, {wanted.head_steps} steps")
    if wanted.head == "learner" and recipe.tasks.family == "few-shot" and learns(inner.method):
        if uses_head(inner.method) and ways > outputs:
            raise UserError(
                f"{source} tells {outputs} classes apart, and here are {ways}: give fewer classes, or fit a "
                "new last layer (add eval.head=logistic; in Python: head='logistic')."
            )
        learner = build_learner(inner, network, test_steps(recipe), ways)
        return Way(in_label_orders(recipe, learner, outputs), inner.method)
    # plain supervision has no way of its own to adapt
    name = "logistic" if wanted.head == "learner" else wanted.head
    learner = head_learner(network, ways, name, wanted.C, wanted.normalise_features)
    return Way(learner, f"{name} head" + (f", C={wanted.C:g}" if HEADS[name].penalised else ""), name)


def pack_state(state: Any, params: Params, buffers: Buffers) -> tuple[Fields, dict[str, Tensor]]:
    """The fields of what a learner adapted, and its tensors by name, without those the network had before."""
    before = {"params": params, "buffers": buffers}
    values: dict[str, Any] = state._asdict() if hasattr(state, "_asdict") else {"state": state}
    fields = {field: _kind(value) for field, value in values.items()}
    tables = {field: _table(value) for field, value in values.items()}
    if not all(isinstance(tensor, Tensor) for table in tables.values() for tensor in table.values()):
        raise UserError(
            f"what this learner adapts ({type(state).__name__}) is not made of tensors alone, and cannot "
            "be kept: save it before it is adapted."
        )
    tensors = {
        f"{field}{SEPARATOR}{name}" if name else field: tensor
        for field, table in tables.items()
        for name, tensor in table.items()
        if before.get(field, {}).get(name) is not tensor
    }
    return fields, tensors


def _kind(value: Any) -> bool | list[str]:
    return list(value._fields) if hasattr(value, "_fields") else isinstance(value, dict)


def _table(value: Any) -> dict[str, Any]:
    """Tensors by name; one that stands alone has none."""
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    return value if isinstance(value, dict) else {"": value}


def unpack_state(fields: Fields, tensors: dict[str, Tensor], params: Params, buffers: Buffers) -> Any:
    """What :func:`pack_state` was given, as a named tuple with the same fields."""
    fields, tensors = _as_kept_today(fields, tensors)
    made: dict[str, Any] = {field: {} for field, table in fields.items() if table}
    for field, value in (("params", params), ("buffers", buffers)):
        if field in made:
            made[field] = dict(value)
    for key, tensor in tensors.items():
        field, _, name = key.partition(SEPARATOR)
        if name:
            made[field][name] = tensor
        else:
            made[field] = tensor
    for field, kind in fields.items():
        if isinstance(kind, list):
            made[field] = namedtuple(field, kind)(**made[field])
    return namedtuple("State", fields)(**{field: made[field] for field in fields})


def _as_kept_today(fields: Fields, tensors: dict[str, Tensor]) -> tuple[Fields, dict[str, Tensor]]:
    """Class means once stood beside the network that they were made by, not in a head of their own."""
    head = ["means", "counts"]
    if set(fields) != {*head, "params", "buffers"}:
        return fields, tensors
    renamed = {f"head{SEPARATOR}{key}" if key in head else key: value for key, value in tensors.items()}
    return {"head": head, "params": True, "buffers": True}, renamed


KEYS = {
    "filters": "model.filters",
    "norm": "model.norm",
    "ways": "tasks.ways",
    "shots": "tasks.shots",
    "queries": "tasks.queries",
    "steps": "outer.steps",
    "batch": "outer.batch",
    "lr": "outer.lr",
    "head": "eval.head",
    "C": "eval.C",
    "normalise": "eval.normalise_features",
    "seed": "run.seed",
}
"""What each argument is called in a recipe; ``augment`` is a word there."""

ADAPTING = ("head", "C", "normalise")
"""What may change after training."""

_SMALLEST_POOLED = 16  # four times 2×2 pooling leaves nothing of less


def recipe_for(arguments: Mapping[str, Any], side: int) -> Recipe:
    """What a ``FewShotClassifier`` trains: a Conv4 as a prototypical network, on pictures of this side.

    >>> recipe = recipe_for({"filters": 8, "head": "svm"}, 28)
    >>> recipe.inner.method, recipe.model.kind, recipe.model.filters, recipe.eval.head
    ('protonet', 'conv4', 8, 'svm')
    """
    data: dict[str, dict[str, Any]] = {
        "data": {"name": "arrays", "augment": "lee2019" if arguments.get("augment") else "none"},
        "tasks": {"family": "few-shot"},
        "model": {"kind": "conv4", "pooling": "max" if side >= _SMALLEST_POOLED else "stride"},
        "inner": {"method": "protonet", "loss": "cross-entropy"},
        "run": {"execution": "threads" if arguments.get("batch", 1) > 1 else "loop", "compile": "off"},
    }
    return _set({"name": "few-shot-classifier", **data}, arguments)


def backbone_recipe(name: str, arguments: Mapping[str, Any]) -> Recipe:
    """How a pretrained backbone of that name adapts, by the ``head`` and its arguments.

    >>> backbone_recipe("efficientnet-lite0", {"head": "svm"}).model.kind
    'efficientnet-lite0'
    """
    recipe = recipe_for(arguments, _SMALLEST_POOLED)
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"kind": name})})


def with_adaptation(recipe: Recipe, arguments: Mapping[str, Any]) -> Recipe:
    """The recipe with the ``head``, ``C`` and ``normalise`` that a classifier has now."""
    return _set(recipe.model_dump(), {name: arguments[name] for name in ADAPTING})


def arguments_of(recipe: Recipe) -> dict[str, Any]:
    """The arguments of a ``FewShotClassifier`` that say the same as this recipe, as far as they can.

    >>> arguments_of(recipe_for({"filters": 8, "augment": True}, 28))["augment"]
    True
    """
    arguments: dict[str, Any] = {"augment": recipe.data.augment != "none"}
    for argument, key in KEYS.items():
        section, _, name = key.partition(".")
        arguments[argument] = getattr(getattr(recipe, section), name)
    return arguments


def _set(data: dict[str, Any], arguments: Mapping[str, Any]) -> Recipe:
    for argument, value in arguments.items():
        if argument in KEYS:
            section, _, name = KEYS[argument].partition(".")
            data.setdefault(section, {})[name] = value.item() if isinstance(value, np.generic) else value
    try:
        return make_recipe(data)
    except UserError as error:
        text = str(error)
        for argument, key in KEYS.items():  # whoever called from Python knows these names only
            text = text.replace(key, argument)
        raise UserError(text) from None
