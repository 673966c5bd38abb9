"""Known answers of small functions."""

import os
import warnings

import torch

from innerloop.training.execution.plan import Plan, torch_threads
from innerloop.training.execution.rank_group import process_lives
from innerloop.training.execution.timing import pace_words
from innerloop.training.execution.worker_pool import (
    WorkerWarning,
    describe_exit,
    processor_ticks,
    worker_warnings,
)
from innerloop.training.wide import off_linear, watch_course


def test_torch_gets_its_threads_back():
    before = torch.get_num_threads()
    with torch_threads(Plan("loop", before + 1)):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_words_for_people():
    assert (pace_words(9.71), pace_words(12_600.0)) == ("9.71 ms", "12.6 s")
    assert describe_exit(-9) == "was ended by SIGKILL (kill -9, or a system out of memory)"
    assert describe_exit(3) == "ended with exit code 3"
    lines: list[str] = []
    with worker_warnings(lines.append):
        warnings.warn("worker 1 was ended", WorkerWarning, stacklevel=1)
    assert lines == ["warning: worker 1 was ended"]


def test_processes():
    assert process_lives(os.getpid())
    assert processor_ticks(-1) is None


def test_descent_on_a_parabola():
    course = watch_course(lambda p: p["w"], torch.zeros(1), {"w": torch.ones(1)}, 0.5, 2)
    assert (course.losses, course.path, course.drift) == ([0.5, 0.125, 0.03125], 0.75, 0.0)
    assert off_linear(course, 0.5) == 0.0
