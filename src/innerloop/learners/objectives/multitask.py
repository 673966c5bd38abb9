r"""Multi-task training with one head per task: Bridge's first-order substitute for meta-learning.

Regression: task ``i`` owns the readout :math:`w_i`. Classification: one matrix with a row per class, and
a task's head is the rows of its classes, so tasks share the rows they have in common. The paper says so much
(``heads="independent"``); its released code says how the rows start, and has no bias (``heads="released"``).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss, is_classification
from innerloop.core.trees import split_prefix
from innerloop.core.types import Buffers, Loss, Params, Task, all_samples
from innerloop.learners.objectives.base import Objective
from innerloop.nets.initial import uniform
from innerloop.nets.network import Network

PREFIX = "heads."


HEADS = ("shared", "independent", "released")


@checked
def multitask(
    network: Network, loss: Loss | str, n_heads: int, heads: str = "independent", ways: int | None = None
) -> Objective:
    r"""The loss of a shared body under per-task heads, on all samples of a task; no inner loop.

    .. math:: L(\theta, W) = \ell\big(h_{W_T}(f_\theta(X' \cup X)), Y' \cup Y\big)

    where :math:`W_T` is the head of the task, or the rows of its classes.
    The parameters hold the heads stacked, as ``heads.<name>`` with a leading axis of ``n_heads``: tasks for
    regression (found by ``task.id``), classes for classification (``task.id`` lists the task's classes).
    The network's own head stays in the parameters untouched, as the head that test tasks start from.

    Args:
        network: body and head; the head must be linear in ``weight`` and ``bias``.
        loss: the training loss.
        n_heads: number of training tasks (regression) or classes (classification).
        heads: ``shared``: all start from one draw (what Bridge's kernels assume); ``independent``: each
            from its own. Test tasks start from the network's own head: under ``shared`` that same draw.
            ``released``: class rows as in Bridge's code, :func:`released_rows`, without a bias.
        ways: of ``released``: classes of a training task.
    """
    loss = get_loss(loss)
    _check_heads(heads, is_classification(loss), ways)
    class_rows = is_classification(loss)
    start = _start(heads, n_heads, class_rows, ways)

    def init(params: Params, generator: torch.Generator) -> Params:
        """Adds the stacked heads."""
        own = {name: params[name] for name in network.head_names}
        made = {PREFIX + name: start(first, generator) for name, first in own.items()}
        return {**params, **{name: value for name, value in made.items() if value is not None}}

    def value(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Buffers]:
        """The loss of one task under its own head."""
        x, y = all_samples(task)
        z, buffers = network.features(params, buffers, x, "batch")
        head = task_head(params, task.id)
        # a bias that is not trained is zero, not that of the head for test tasks
        none = {name: z.new_zeros(task.id.shape) for name in network.head_names if name not in head}
        return loss.value(network.head({**head, **none}, z), y), buffers

    return Objective(f"multitask({heads} heads)", loss=value, init=init, untrained=tuple(network.head_names))


def _check_heads(heads: str, class_rows: bool, ways: int | None) -> None:
    if heads not in HEADS:
        raise UserError(f"heads must be {', '.join(map(repr, HEADS[:-1]))} or '{HEADS[-1]}', not '{heads}'.")
    if class_rows and heads == "shared":
        raise UserError(
            "class rows cannot start from one shared draw (a class stands at another place in every task): "
            "set {heads}=independent.",
            names=("heads",),
        )
    if not class_rows and heads == "released":
        raise UserError(
            "{heads}=released is a matrix with a row per class, and targets that are numbers have no "
            "classes: set {heads}=independent.",
            names=("heads",),
        )
    if heads == "released" and ways is None:
        raise UserError(
            "{heads}=released needs the ways of training tasks, such as ways=5.", names=("heads",)
        )


Start = Callable[[Tensor, torch.Generator], Tensor | None]
"""``(the network's own tensor, generator) -> its stack``, or None where heads have no such tensor."""


def _start(heads: str, n_heads: int, class_rows: bool, ways: int | None) -> Start:
    """How the stack of one of the head's tensors is drawn."""

    def shape(first: Tensor) -> tuple[int, ...]:
        """The shape of the stack."""
        return (n_heads, *(first.shape[1:] if class_rows else first.shape))

    def shared(first: Tensor, generator: torch.Generator) -> Tensor:
        """The network's own head, repeated."""
        del generator
        return first.expand(shape(first)).clone()

    def independent(first: Tensor, generator: torch.Generator) -> Tensor:
        """A draw of its own for every task or class."""
        # the spread of the head that was drawn (biases start at zero and stay there)
        draw = torch.randn(shape(first), generator=generator, device=generator.device).to(first)
        return draw * first.square().mean().sqrt()

    def released(first: Tensor, generator: torch.Generator) -> Tensor | None:
        """Rows as in the released code; None for the bias, which it has not."""
        if first.ndim < 2:
            return None
        return released_rows(generator, n_heads, first.shape[1], ways or n_heads).to(first)

    return {"shared": shared, "independent": independent, "released": released}[heads]


def released_rows(generator: torch.Generator, classes: int, features: int, ways: int) -> Tensor:
    """First rows of Bridge's released code: √(classes/ways) · U(±1/√features), Kaiming-uniform, a = √5."""
    return uniform(generator, (classes, features), features) * head_scale(classes, ways)


def head_scale(classes: int, ways: int) -> float:
    """The factor √(classes / ways) on the first rows: 3.58 for 64 classes, 8.38 for 351, 3.46 for 60."""
    return math.sqrt(classes / ways)


def task_head(params: Params, index: Tensor) -> Params:
    """The head of one task, under the network's own names.

    ``index`` is a task number (its own head), or the class numbers of a classification task (their rows).
    """
    stacked, _ = split_prefix(params, PREFIX)
    rows = index.reshape(-1)  # torch 2.6 cannot map indexing by a tensor without dimensions over tasks
    return {
        name[len(PREFIX) :]: value[rows].reshape(*index.shape, *value.shape[1:])
        for name, value in stacked.items()
    }
