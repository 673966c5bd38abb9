"""Collecting failures, copies of trees, and differences along a direction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from innerloop.core.random import generator
from innerloop.core.types import Batch, Buffers, Params
from innerloop.testing.closeness import ANY_FINITE_DIFFERENCE
from innerloop.training.execution.gradient_types import TaskLoss
from innerloop.training.execution.gradients import meta_gradient
from innerloop.training.execution.plan import Plan


class Failures:
    """What went wrong so far."""

    def __init__(self, what: str) -> None:
        self.what, self.found = what, list[str]()

    def expect(self, ok: bool, message: str) -> None:
        """Keeps ``message`` unless ``ok``."""
        if not ok:
            self.found.append(message)

    def attempt(self, name: str, check: Callable[[], None]) -> None:
        """Runs a check whose crash counts as a failure of its own."""
        try:
            check()
        except Exception as error:  # a user's code may raise anything: it is reported beside the rest
            self.found.append(
                f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            )

    def report(self) -> None:
        """Raises if anything failed."""
        if self.found:
            raise AssertionError("\n  - ".join([f"{self.what} does not conform:", *self.found]))


def copied(tree: Any) -> Any:
    """A deep copy of a result."""
    return pytree.tree_map(lambda t: t.clone() if isinstance(t, Tensor) else t, tree)


def to_dtype(tree: Mapping[str, Tensor], dtype: torch.dtype) -> Params:
    """Floating point entries in another dtype."""
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in tree.items()}


def random_direction(params: Mapping[str, Tensor]) -> Params:
    """A fixed random direction of unit norm."""
    source = generator(0, "direction")
    draw = {k: torch.randn(v.shape, generator=source, dtype=torch.float64) for k, v in params.items()}
    norm = torch.sqrt(sum((v.square().sum() for v in draw.values()), torch.zeros((), dtype=torch.float64)))
    return {k: v / norm for k, v in draw.items()}


def expect_slope(
    loss: TaskLoss,
    params: Params,
    buffers: Buffers,
    batch: Batch,
    failures: Failures,
    what: str,
    untrained: Collection[str] = (),
) -> None:
    """Compares the gradient of the mean loss of some tasks with finite differences, along a direction."""

    def total(p: Params) -> Tensor:
        """The mean loss of the tasks."""
        return torch.stack([loss(p, buffers, task)[0] for task in batch.tasks()]).mean()

    direction = random_direction(params)
    direction |= {name: torch.zeros_like(direction[name]) for name in untrained if name in direction}
    grads = meta_gradient(loss, Plan("loop"))(params, buffers, batch).grads
    given = float(sum((grads[k] * direction[k]).sum() for k in params))
    with torch.no_grad():
        expected = slope(total, params, direction)
    rtol, atol = ANY_FINITE_DIFFERENCE
    failures.expect(
        abs(given - expected) <= atol + rtol * max(abs(expected), abs(given)),
        f"the {what} along a direction is {given:.9g}, finite differences give {expected:.9g}",
    )


def slope(value: Callable[[Params], Tensor], params: Params, direction: Params) -> float:
    """The derivative of ``value`` along a direction, by central differences of fourth order."""
    h = 1e-5

    def at(t: float) -> float:
        """The value so far along the direction."""
        return float(value({k: v + t * direction[k] for k, v in params.items()}))

    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
