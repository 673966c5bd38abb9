"""Maps a function over tasks: in a loop, under ``vmap``, in threads or processes; compiled where it pays."""

from innerloop.execution.auto import choose_plan as choose_plan
from innerloop.execution.gradient_types import Gradient as Gradient
from innerloop.execution.gradients import meta_gradient as meta_gradient
from innerloop.execution.plan import Plan as Plan
from innerloop.execution.tasks import map_tasks as map_tasks
