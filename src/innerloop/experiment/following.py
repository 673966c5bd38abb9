"""What ranks other than 0 do: the calls that rank 0 announces, with parts of their own."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from torch import Tensor

from innerloop.experiment.fitting import fit_parts, judge
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.trust import admit, foreign_code
from innerloop.experiment.sizes import sizes_from
from innerloop.experiment.together import IN_STEP, at_work
from innerloop.experiment.validation import validation_of
from innerloop.experiment.words import recipe_words
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.rank_group import RankGroup
from innerloop.training.state import TrainState, group_of, in_order, state_from

Call = Callable[[Parts, Plan, dict[str, Tensor], dict[str, Any]], None]


@recipe_words()
def carry_out(group: RankGroup, told: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """One call of rank 0; errors that all ranks meet alike are told there, and end only the call."""
    group.timeout = told["timeout"]
    parts = _parts(json.dumps(told["recipe"]), json.dumps(told["sizes"]))
    try:
        with at_work(group):
            CALLS[told["kind"]](parts, Plan(**told["plan"]), tensors, told["arguments"])
    except IN_STEP:
        pass


@functools.lru_cache(maxsize=2)
def _parts(recipe: str, sizes: str) -> Parts:
    """Parts are kept from call to call: compiled functions and opened data belong to them."""
    read = Recipe.model_validate_json(recipe)
    trusted = admit(read, foreign_code(read), "rank 0", trust=False)  # rank 0 has asked
    return Parts(trusted, sizes=sizes_from(json.loads(sizes)))


def _fit(parts: Parts, plan: Plan, tensors: dict[str, Tensor], told: dict[str, Any]) -> None:
    state = in_order(state_from(tensors, told["scalars"]), parts.params, parts.buffers)
    validation = validation_of(parts, plan) if told["validated"] else None
    # rank 0 logs and keeps checkpoints; where it looks at the parameters before it does, so do the others
    save = _keep_nothing if told["saved"] else None
    fit_parts(parts, state, plan=plan, steps=told["steps"], validation=validation, save=save)


def _keep_nothing(state: TrainState, tags: tuple[str, ...]) -> None:
    del state, tags


def _judge(parts: Parts, plan: Plan, tensors: dict[str, Tensor], told: dict[str, Any]) -> None:
    device = parts.recipe.run.device
    params, buffers = (
        {n: v.to(device) for n, v in group_of(tensors, g).items()} for g in ("params", "buffers")
    )
    judge(parts, params, buffers, told["split"], told["episodes"], plan, told["steps"])


CALLS: dict[str, Call] = {"fit": _fit, "judge": _judge}
"""By the kind that rank 0 announces."""
