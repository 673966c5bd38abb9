"""A real training run, for looking at its memory on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from innerloop.learners.gradient import maml
from innerloop.learners.objectives.episodic import episodic
from innerloop.tasks.families import get_family
from innerloop.tasks.sampler import make_sampler
from innerloop.training.execution.plan import Plan
from innerloop.training.loop import fit
from innerloop.training.optimisers import make_optimiser
from innerloop.training.state import initial_state
from innerloop_studies.bench import workloads
from innerloop_studies.bench.messages import Spec


def peaks(spec: Spec, peak_mb: Callable[[], float]) -> dict[int, float]:
    """Sinusoid MAML by :func:`innerloop.training.loop`; the peak memory so far, every ``every`` steps."""
    plan = Plan(spec["mode"], spec["threads"], compile=spec["compile"])
    work = workloads.sine(1, torch.float32)
    learner = maml(work.network, work.loss, work.lr, work.steps)
    seen: dict[int, float] = {}

    def log(record: dict[str, Any]) -> None:
        """Notes the peak memory."""
        seen[record["step"]] = peak_mb()

    fit(
        episodic(learner, work.loss),
        initial_state(work.params, {}),
        make_sampler(get_family("sine"), seed=0, shots=10, queries=10),
        make_optimiser("adam", 1e-3),
        steps=spec["steps"],
        batch=work.batch.size,
        plan=plan,
        log=log,
        log_every=spec["every"],
    )
    return seen
