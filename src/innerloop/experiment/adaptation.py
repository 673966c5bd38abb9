"""How a trained network learns new classes, by its recipe; and what it learned, as tensors by name."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params
from innerloop.evaluation.heads import HEADS
from innerloop.evaluation.labelling import FittedHead, head_learner
from innerloop.evaluation.protocol import FINE_TUNING
from innerloop.experiment.learner import build_learner, test_steps
from innerloop.learners import Learner
from innerloop.learners.base import Adapted
from innerloop.learners.fine_tune import fine_tune
from innerloop.learners.online import OnlineAdapted
from innerloop.learners.prototype import Prototypes
from innerloop.nets import Network
from innerloop.recipes.schema import Recipe

STATES: dict[str, Any] = {cls.__name__: cls for cls in (Adapted, OnlineAdapted, Prototypes, FittedHead)}
"""What ``adapt`` hands to ``predict``: fields are tensors, but for ``params`` and ``buffers``."""

SEPARATOR = "/"


class Way(NamedTuple):
    """A learner, and what reports call it."""

    learner: Learner
    words: str


def way_to_adapt(recipe: Recipe, network: Network, ways: int, outputs: int, source: str) -> Way:
    """As the recipe was trained to adapt, where it was; else, or where ``eval.head`` says so, by a head.

    Args:
        recipe: ``eval.head`` and its settings, ``inner``, and the family it was trained on.
        network: the trained one.
        ways: how many classes there are now.
        outputs: how many its own last layer can tell apart.
        source: where the network comes from, for messages.

    Raises:
        UserError: more classes than outputs.
    """
    wanted, inner = recipe.eval, recipe.inner
    if wanted.head == FINE_TUNING:
        learner = fine_tune(network, ways, wanted.head_lr, wanted.head_steps, wanted.normalise_features)
        return Way(learner, f"finetune, {wanted.head_steps} steps")
    if wanted.head == "learner" and recipe.tasks.family == "few-shot" and inner.method != "none":
        if inner.method != "protonet" and ways > outputs:
            raise UserError(
                f"{source} tells {outputs} classes apart, and here are {ways}: give fewer classes, or fit a "
                "new last layer (add eval.head=logistic; in Python: head='logistic')."
            )
        return Way(build_learner(inner, network, test_steps(recipe), ways), inner.method)
    # plain supervision has no way of its own to adapt
    name = "logistic" if wanted.head == "learner" else wanted.head
    learner = head_learner(network, ways, name, wanted.C, wanted.normalise_features)
    return Way(learner, f"{name} head" + (f", C={wanted.C:g}" if HEADS[name].penalised else ""))


def pack_state(state: Any, params: Params, buffers: Buffers) -> tuple[str, dict[str, Tensor]]:
    """The kind of an adapted state and its tensors by name, without those that the network had before.

    Raises:
        UserError: a learner's state that cannot be kept.
    """
    kind = type(state).__name__
    if STATES.get(kind) is not type(state):
        raise UserError(
            f"what this learner adapts ({kind}) cannot be kept in a file: save it before it is adapted."
        )
    before = {"params": params, "buffers": buffers}
    tensors: dict[str, Tensor] = {}
    for field, value in state._asdict().items():
        if isinstance(value, dict):
            own = before.get(field, {})
            changed = {name: tensor for name, tensor in value.items() if own.get(name) is not tensor}
            tensors |= {f"{field}{SEPARATOR}{name}": tensor for name, tensor in changed.items()}
        else:
            tensors[field] = value
    return kind, tensors


def unpack_state(kind: str, tensors: dict[str, Tensor], params: Params, buffers: Buffers) -> Any:
    """What :func:`pack_state` was given.

    Raises:
        KeyError: there is no such kind, or tensors of it are missing.
    """
    cls = STATES[kind]
    fields: dict[str, Any] = {"params": dict(params), "buffers": dict(buffers)}
    for key, tensor in tensors.items():
        field, _, name = key.partition(SEPARATOR)
        if name:
            fields[field][name] = tensor
        else:
            fields[field] = tensor
    return cls(**{field: fields[field] for field in cls._fields})
