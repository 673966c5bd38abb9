"""Where tasks come from: ``episode(i)`` is a pure function of ``(seed, i)``."""

from innerloop.tasks.families import FAMILIES as FAMILIES
from innerloop.tasks.families import get_family as get_family
from innerloop.tasks.sampler import Family as Family
from innerloop.tasks.sampler import Sampler as Sampler
from innerloop.tasks.sampler import make_sampler as make_sampler
