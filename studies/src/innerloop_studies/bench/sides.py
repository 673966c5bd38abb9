"""One side of a comparison, built in the process that runs it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from innerloop.core.types import Params
from innerloop.learners.base import Learner
from innerloop.learners.gradient import maml
from innerloop.learners.objectives.episodic import episodic
from innerloop.learners.proximal import imaml
from innerloop.training.execution.gradients import meta_gradient
from innerloop.training.execution.plan import Plan
from innerloop_studies.bench import peers, plain_loop, workloads
from innerloop_studies.bench.messages import Spec

Side = Callable[[], Params]
"""Takes the meta-gradient once, and returns it by parameter name."""


def build(spec: Spec) -> Side:
    """The side that ``spec`` asks for.

    Keys: ``side`` ("ours", "plain-loop", "higher", "torchopt"), ``workload`` ("sine", "conv", "pooled"),
    ``steps``, ``threads``; for ours also ``mode``, ``compile``, ``first_order``, ``checkpoint``, ``implicit``
    (iMAML), ``ranks`` (processes that have met, each of which calls this).
    """
    work = workloads.make(spec)
    if spec["side"] == "ours":
        return ours(work, spec)
    torch.set_num_threads(spec["threads"])
    fields = tuple(work.batch[:4])
    loss = F.mse_loss if work.kind == "mlp" else F.cross_entropy  # torch's own, as a user would
    if spec["side"] == "plain-loop":
        forwards = {"mlp": plain_loop.mlp, "conv": plain_loop.conv, "pooled": plain_loop.pooled}
        forward = forwards[work.kind]
        return lambda: plain_loop.meta_gradient(forward, loss, work.params, work.lr, work.steps, fields)
    factory = {"higher": peers.higher_gradient, "torchopt": peers.torchopt_gradient}[spec["side"]]
    return factory(work.kind, loss, work.params, work.lr, work.steps, fields)


def ours(work: workloads.Workload, spec: Spec) -> Side:
    """The public way: a learner, an objective and a plan."""
    options = {"compile": spec.get("compile", "off"), "ranks": spec.get("ranks", 1)}
    plan = Plan(spec["mode"], spec["threads"], **options)
    torch.set_num_threads(plan.intra_op)
    gradient = meta_gradient(episodic(_learner(work, spec), work.loss).loss, plan)
    return lambda: gradient(work.params, {}, work.batch).grads


def _learner(work: workloads.Workload, spec: Spec) -> Learner:
    if spec.get("implicit"):
        return imaml(work.network, work.loss, work.lr, work.steps)
    options = {name: spec.get(name, False) for name in ("first_order", "checkpoint")}
    return maml(work.network, work.loss, work.lr, work.steps, **options)
