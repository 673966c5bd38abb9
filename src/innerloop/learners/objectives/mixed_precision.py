"""Half-precision arithmetic where it pays: bfloat16 products, float32 parameters and optimiser."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.autodiff import is_plain, plain_autograd
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params, Task
from innerloop.learners.objectives.base import Objective
from innerloop.nets.ops import choice as ops
from innerloop.training.execution.probes import bfloat16_works

WORTH_IT = 1.2
"""How much faster bfloat16 must be before it is chosen: its rounding is not free."""


class Choice(NamedTuple):
    """An objective in the precision that was chosen, and why."""

    objective: Objective
    precision: str
    reason: str


def in_bfloat16(objective: Objective, device: str = "cpu") -> Objective:
    """The objective with convolutions and matrix products in bfloat16, pictures channels-last."""
    # bfloat16 has float32's range: no loss scaling; not for Conv4, which has float32 kernels of its own
    check_bfloat16(device)
    if objective.loss is None:
        raise UserError(f"objective '{objective.name}' has no loss to compute in bfloat16: use float32.")
    inner = objective.loss

    def value(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Buffers]:
        """The loss of one task under autocast."""
        if is_plain():  # vmap knows no memory formats
            task = Task(*(_channels_last(field) for field in task))
        with torch.autocast(task.x_support.device.type, torch.bfloat16):
            loss, buffers = inner(params, buffers, task)
        return loss.float(), buffers

    return objective._replace(name=f"{objective.name} in bfloat16", loss=value)


def check_bfloat16(device: str = "cpu") -> None:
    """Refuses bfloat16 where it does not work; a process of its own tries it, once per machine and torch."""
    outcome = bfloat16_works(device)
    if not outcome.works:
        raise UserError(
            f"bfloat16 cannot be used on this machine: {outcome.reason} with torch {torch.__version__}; "
            "set {precision=float32}.",
            names=("precision=float32",),
        )


def _channels_last(field: Tensor) -> Tensor:
    pictures = field.ndim == 4 and field.is_floating_point()
    return field.contiguous(memory_format=torch.channels_last) if pictures else field


class Speedup(NamedTuple):
    """How many times as fast as our float32 bfloat16 is on this processor, and what follows."""

    ratio: float
    pays: bool
    reason: str


@functools.cache
def bfloat16_pays(device: str = "cpu", threads: int | None = None) -> Speedup:
    """Measures one convolution of ResNet-12's second stage, forward and back, both ways; once per process."""
    # processors without bfloat16 arithmetic emulate it, ten times slower than float32 and more
    del threads
    outcome = bfloat16_works(device)
    if not outcome.works:
        return Speedup(0.0, False, f"bfloat16 is left out because {outcome.reason} here: float32 is kept")
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(16, 160, 16, 16, generator=draw).to(device, memory_format=torch.channels_last)
    weight = torch.randn(160, 160, 3, 3, generator=draw).to(device)

    def forward(dtype: torch.dtype) -> None:
        """A small product."""
        F.conv2d(x[:4].to(dtype), weight.to(dtype), padding=1)

    def step(dtype: torch.dtype) -> None:
        """A convolution, forward and back."""
        leaf, kernel = x.detach().requires_grad_(), weight.detach().requires_grad_()
        with plain_autograd(), torch.autocast(x.device.type, dtype, enabled=dtype != torch.float32):
            y = ops.conv2d(leaf, kernel)
        torch.autograd.grad(y, (leaf, kernel), torch.ones_like(y))

    # emulation shows in a single small product; the whole step would take seconds
    ratio = _ratio(forward)
    if ratio >= WORTH_IT / 2:
        ratio = _ratio(step)
    pays = ratio >= WORTH_IT
    words = f"a bfloat16 convolution runs at {ratio:.2g} times the speed of float32 here"
    return Speedup(ratio, pays, f"{words}: {'used' if pays else 'float32 is kept'}")


def _ratio(run: Callable[[torch.dtype], None], repeats: int = 3) -> float:
    """float32's best time over bfloat16's, taking turns."""
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    for i in range(repeats + 1):
        for dtype in best:
            start = time.perf_counter()
            run(dtype)
            if i > 0:  # the first is the warm-up
                best[dtype] = min(best[dtype], time.perf_counter() - start)
    return best[torch.float32] / best[torch.bfloat16]


def at_precision(objective: Objective, precision: str = "auto", device: str = "cpu") -> Choice:
    """The objective at a precision: ``float32``, ``bfloat16``, or ``auto``, whichever was measured faster.

    Args:
        objective: what to train.
        precision: what was asked for.
        device: where it will run.
    """
    if precision == "float32" or (precision == "auto" and objective.loss is None):
        return Choice(objective, "float32", "full precision")
    if precision == "bfloat16":
        return Choice(in_bfloat16(objective, device), "bfloat16", "precision=bfloat16 was asked for")
    if precision != "auto":
        raise UserError(f"unknown precision '{precision}'; there are auto, float32 and bfloat16.")
    verdict = bfloat16_pays(device, torch.get_num_threads())
    if verdict.pays:
        return Choice(in_bfloat16(objective, device), "bfloat16", verdict.reason)
    return Choice(objective, "float32", verdict.reason)
