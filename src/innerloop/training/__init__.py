"""The one training loop, its state, optimisers and schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.training.convergence import Convergence as Convergence
    from innerloop.training.convergence import FiniteWidthEffects as FiniteWidthEffects
    from innerloop.training.convergence import MetaMethod as MetaMethod
    from innerloop.training.convergence import WideNetwork as WideNetwork
    from innerloop.training.convergence import follow_bound as follow_bound
    from innerloop.training.execution.auto import choose_plan as choose_plan
    from innerloop.training.execution.gradient_types import Gradient as Gradient
    from innerloop.training.execution.gradients import meta_gradient as meta_gradient
    from innerloop.training.execution.mapping import map_tasks as map_tasks
    from innerloop.training.execution.plan import Plan as Plan
    from innerloop.training.loop import Validation as Validation
    from innerloop.training.loop import fit as fit
    from innerloop.training.optimisers import make_optimiser as make_optimiser
    from innerloop.training.optimisers import make_schedule as make_schedule
    from innerloop.training.state import TrainState as TrainState
    from innerloop.training.state import initial_state as initial_state
    from innerloop.training.task_weights import hard_weights as hard_weights
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.training.convergence": (
                "Convergence FiniteWidthEffects MetaMethod WideNetwork follow_bound"
            ),
            "innerloop.training.execution.auto": "choose_plan",
            "innerloop.training.execution.gradient_types": "Gradient",
            "innerloop.training.execution.gradients": "meta_gradient",
            "innerloop.training.execution.plan": "Plan",
            "innerloop.training.execution.mapping": "map_tasks",
            "innerloop.training.loop": "Validation fit",
            "innerloop.training.optimisers": "make_optimiser make_schedule",
            "innerloop.training.task_weights": "hard_weights",
            "innerloop.training.state": "TrainState initial_state",
        },
    )
