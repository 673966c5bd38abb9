"""All that training carries from step to step, and how it is saved and restored."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params


class TrainState(NamedTuple):
    """Everything a resume needs: with it, the rest of a run is a pure function of the recipe.

    Attributes:
        step: meta-steps taken.
        params: meta-parameters.
        buffers: running statistics.
        optimiser: the meta-optimiser's tensors, ``<parameter>/<entry>``.
        best: best validation so far, and
        best_step: when it was.
        stalled: validations since then.
        since_drop: validations since then or since the last drop of the rate (schedule ``plateau``).
        rate_scale: what plateaus have multiplied the rate with.
    """

    step: int
    params: Params
    buffers: Buffers
    optimiser: dict[str, Tensor]
    best: float | None = None
    best_step: int = 0
    stalled: int = 0
    since_drop: int = 0
    rate_scale: float = 1.0

    def tensors(self) -> dict[str, Tensor]:
        """One flat dict for a safetensors file."""
        groups = {"params": self.params, "buffers": self.buffers, "optimiser": self.optimiser}
        return {f"{group}/{name}": value for group, tree in groups.items() for name, value in tree.items()}

    def scalars(self) -> dict[str, Any]:
        """What goes into the JSON beside it."""
        names = ("step", "best", "best_step", "stalled", "since_drop", "rate_scale")
        return {name: getattr(self, name) for name in names}


def initial_state(params: Params, buffers: Buffers) -> TrainState:
    """Before the first step."""
    return TrainState(0, params, buffers, {})


def group_of(tensors: dict[str, Tensor], group: str) -> dict[str, Tensor]:
    """The tensors saved under ``params``, ``buffers`` or ``optimiser``, by their own names."""
    return {name[len(group) + 1 :]: v for name, v in tensors.items() if name.startswith(group + "/")}


def state_from(tensors: dict[str, Tensor], scalars: dict[str, Any]) -> TrainState:
    """The inverse of :meth:`TrainState.tensors` and :meth:`TrainState.scalars`."""
    known = {name: scalars[name] for name in TrainState._fields if name in scalars}
    wrong = [name for name in ("step", *known) if not _is_sound(name, known.get(name))]
    if wrong:
        raise UserError(
            f"the checkpoint is damaged (its '{wrong[0]}' is {known.get(wrong[0])!r}): train it again with "
            "`innerloop train RUN`."
        )
    return TrainState(
        params=group_of(tensors, "params"),
        buffers=group_of(tensors, "buffers"),
        optimiser=group_of(tensors, "optimiser"),
        **known,
    )


def _is_sound(name: str, value: Any) -> bool:
    if name in ("best", "rate_scale"):
        return isinstance(value, (int, float)) or (name == "best" and value is None)
    return isinstance(value, int) and value >= 0


def in_order(state: TrainState, params: Params, buffers: Buffers) -> TrainState:
    """The state in the order, and on the devices, of the parameters and buffers given."""
    # files sort tensors by name; sums in another order go on with other last bits

    def sort(saved: dict[str, Tensor], like: dict[str, Tensor]) -> dict[str, Tensor]:
        """What was saved, in the order of ``like``; what ``like`` does not name comes last."""
        known = {name: saved[name].to(value.device) for name, value in like.items() if name in saved}
        return {**known, **{name: value for name, value in saved.items() if name not in known}}

    def beside(name: str, value: Tensor) -> Tensor:
        """Moments live where their parameter does; counts of steps stay where the optimiser keeps them."""
        like = params.get(name.rpartition("/")[0])
        return value.to(like.device) if like is not None and value.shape == like.shape else value

    return state._replace(
        params=sort(state.params, params),
        buffers=sort(state.buffers, buffers),
        optimiser={name: beside(name, value) for name, value in state.optimiser.items()},
    )
