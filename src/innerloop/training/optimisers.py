"""Meta-optimisers: any class of ``torch.optim``, with a state that can be saved without pickle."""

from __future__ import annotations

from collections.abc import Callable
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
    """Every optimiser of ``torch.optim`` that works from gradients alone, by lower-case name.

    >>> "radam" in optimiser_classes(), "lbfgs" in optimiser_classes()
    (True, False)
    """
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
