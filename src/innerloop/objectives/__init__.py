"""What is learned across tasks: ``(params, buffers, task) -> loss``."""

from innerloop.objectives.base import Objective as Objective
from innerloop.objectives.distillation import distilled as distilled
from innerloop.objectives.distillation import teacher_of as teacher_of
from innerloop.objectives.episodic import episodic as episodic
from innerloop.objectives.erm import erm as erm
from innerloop.objectives.mixed_precision import Choice as Choice
from innerloop.objectives.mixed_precision import at_precision as at_precision
from innerloop.objectives.multitask import multitask as multitask
from innerloop.objectives.multitask import task_head as task_head
from innerloop.objectives.reptile import reptile as reptile
