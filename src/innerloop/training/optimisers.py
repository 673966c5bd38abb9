"""Meta-optimisers: any class of ``torch.optim``, with a state that can be saved without pickle."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import Params

MakeOptimiser: TypeAlias = Callable[[Params], torch.optim.Optimizer]

OPTIONS = ("options", "meta-optimiser")
_LARGEST_RATE = 1e30  # what optimisers make of more, such as ten times it, single precision cannot hold


def optimiser_classes() -> dict[str, type[torch.optim.Optimizer]]:
    """Every optimiser of ``torch.optim`` that works from gradients alone, by lower-case name."""
    classes = {
        name.lower(): value
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
    }
    # these need a closure, or gradients of another kind
    return {k: v for k, v in classes.items() if k not in ("optimizer", "lbfgs", "sparseadam", "muon")}


@checked
def make_optimiser(name: str, lr: float, **options: Any) -> MakeOptimiser:
    """A function that sets the optimiser up on given parameters.

    Args:
        name: a class of ``torch.optim``, in lower case.
        lr: the meta learning rate.
        options: further arguments of the class, such as ``weight_decay``.
    """
    known = optimiser_classes()
    if name.lower() not in known:
        raise UserError(
            f"unknown {{meta-optimiser}} '{name}'{did_you_mean(name.lower(), known)}; "
            f"there are {', '.join(sorted(known))}.",
            names=("meta-optimiser",),
        )
    if not abs(lr) <= _LARGEST_RATE:
        raise UserError(
            f"{{the optimiser's lr}}={lr:g} is not a rate to learn at: give at most {_LARGEST_RATE:g}.",
            names=("the optimiser's lr",),
        )
    chosen = known[name.lower()]

    def make(params: Params) -> torch.optim.Optimizer:
        """The optimiser on these parameters."""
        try:
            return chosen(list(params.values()), lr=lr, **options)  # type: ignore[call-arg]
        except TypeError as error:
            raise UserError(
                f"{{options}} do not fit the {{meta-optimiser}} {name}: {error}.", names=OPTIONS
            ) from None
        except ValueError as error:
            raise UserError(
                f"{{options}} of the {{meta-optimiser}} {name}: {error}.", names=OPTIONS
            ) from None

    return make


def optimiser_tensors(optimiser: torch.optim.Optimizer, params: Params) -> dict[str, Tensor]:
    """The optimiser's state as named tensors, ``<parameter>/<entry>``."""
    out: dict[str, Tensor] = {}
    for name, leaf in params.items():
        for key, value in optimiser.state.get(leaf, {}).items():
            if isinstance(value, Tensor):
                out[f"{name}/{key}"] = value
            elif isinstance(value, (int, float)):
                out[f"{name}/{key}"] = torch.tensor(value, dtype=torch.float64)
            elif value is not None:
                raise UserError(
                    f"{type(optimiser).__name__} keeps state that cannot be saved ({key}): "
                    "choose another optimiser."
                )
    return out


def restore_optimiser(optimiser: torch.optim.Optimizer, params: Params, saved: dict[str, Tensor]) -> None:
    """Puts saved tensors back as the optimiser's state."""
    for name, leaf in params.items():
        entries = {key.rpartition("/")[2]: v for key, v in saved.items() if key.rpartition("/")[0] == name}
        if entries:
            optimiser.state[leaf] = {key: value.clone() for key, value in entries.items()}


Schedule: TypeAlias = Callable[[int], float]
"""Step (from 0) → factor on the learning rate."""


def make_schedule(
    kind: str,
    steps: int,
    milestones: Sequence[float] = (),
    factor: float = 0.1,
    warmup: int = 0,
    factors: Sequence[float] = (),
) -> Schedule:
    """The factor by which the rate is multiplied at each step.

    Args:
        kind: ``constant``, ``cosine`` (to zero at the end), ``step`` (times ``factor`` at each milestone);
            ``plateau`` is constant here, training lowers it when validation stalls.
        steps: length of the run.
        milestones: for ``step``, as fractions of the run.
        factor: for ``step``.
        warmup: steps of linear rise from zero.
        factors: for ``step``: the share of the first rate from each milestone on, in place of ``factor``.

    >>> [round(make_schedule("step", 100, [0.5], 0.1)(s), 3) for s in (0, 49, 50, 99)]
    [1.0, 1.0, 0.1, 0.1]
    >>> metaoptnet = make_schedule("step", 60, [1 / 3, 2 / 3, 5 / 6], factors=[0.06, 0.012, 0.0024])
    >>> [metaoptnet(epoch) for epoch in (0, 19, 20, 39, 40, 50, 59)]
    [1.0, 1.0, 0.06, 0.06, 0.012, 0.0024, 0.0024]
    >>> [round(make_schedule("cosine", 100)(s), 3) for s in (0, 50, 100)]
    [1.0, 0.5, 0.0]
    """
    if kind not in ("constant", "cosine", "step", "plateau"):
        raise UserError(f"unknown schedule '{kind}'; there are constant, cosine, step and plateau.")
    if factors and len(factors) != len(milestones):
        raise UserError(f"{len(milestones)} milestones and {len(factors)} factors: give one for each.")

    def schedule(step: int) -> float:
        """The factor at a step."""
        rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
        if kind == "cosine":
            return rise * 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))
        if kind == "step":
            passed = sum(step >= m * steps for m in milestones)
            return rise * ((1.0, *factors)[passed] if factors else factor**passed)
        return rise

    return schedule
