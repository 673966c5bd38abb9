"""Conformance suites: ours pass them, and you can run them on your own learners, objectives and tasks.

Each ``check_…`` raises one ``AssertionError`` that lists everything that failed.

>>> import innerloop
>>> from innerloop.testing import check_tasks
>>> check_tasks(innerloop.make_sampler(innerloop.get_family("sine"), seed=0, shots=5, queries=5))
"""

from innerloop.testing.suites import check_learner as check_learner
from innerloop.testing.suites import check_method as check_method
from innerloop.testing.suites import check_network as check_network
from innerloop.testing.suites import check_objective as check_objective
from innerloop.testing.suites import check_tasks as check_tasks
