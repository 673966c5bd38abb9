"""The ground floor: types, random numbers, losses, statistics, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.core.autodiff import gradient as gradient
    from innerloop.core.errors import NonFiniteError as NonFiniteError
    from innerloop.core.errors import UserError as UserError
    from innerloop.core.importing import Trusted as Trusted
    from innerloop.core.importing import UntrustedCodeError as UntrustedCodeError
    from innerloop.core.losses import LOSSES as LOSSES
    from innerloop.core.losses import get_loss as get_loss
    from innerloop.core.losses import rate_factor as rate_factor
    from innerloop.core.losses import smoothed as smoothed
    from innerloop.core.random import Draws as Draws
    from innerloop.core.statistics import Interval as Interval
    from innerloop.core.statistics import mean_interval as mean_interval
    from innerloop.core.statistics import paired_difference as paired_difference
    from innerloop.core.types import Buffers as Buffers
    from innerloop.core.types import Loss as Loss
    from innerloop.core.types import Params as Params
    from innerloop.core.types import RaggedBatch as RaggedBatch
    from innerloop.core.types import Task as Task
    from innerloop.core.types import TaskBatch as TaskBatch
    from innerloop.core.types import stack_tasks as stack_tasks
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.core.autodiff": "gradient",
            "innerloop.core.errors": "NonFiniteError UserError",
            "innerloop.core.importing": "Trusted UntrustedCodeError",
            "innerloop.core.losses": "LOSSES get_loss rate_factor smoothed",
            "innerloop.core.random": "Draws",
            "innerloop.core.statistics": "Interval mean_interval paired_difference",
            "innerloop.core.types": "Buffers Loss Params RaggedBatch Task TaskBatch stack_tasks",
        },
    )
