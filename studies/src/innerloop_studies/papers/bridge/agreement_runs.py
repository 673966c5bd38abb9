"""The trained networks behind ``bridge-agreement``, and what they predict for held-out tasks.

They stand apart from the rows that are made of them, so that finished runs outlive a change of words there
(:func:`innerloop_studies.reproduce.parts.remembered`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from innerloop.core.losses import get_loss
from innerloop.core.types import Params, TaskBatch
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.kernels.empirical.exact import jacobian
from innerloop.kernels.empirical.kernel import empirical_kernel
from innerloop.kernels.meta.descent import Descent, response
from innerloop.kernels.meta.kernel import anil_kernel_without_split, mtl_kernel, stack
from innerloop.learners.gradient import anil
from innerloop.learners.objectives.multitask import multitask
from innerloop.nets.antisymmetric import antisymmetric
from innerloop.nets.mlp import mlp
from innerloop.nets.network import Network
from innerloop.theory.spectra import spectrum
from innerloop.training.wide import descend, episodic_loss, objective_loss
from innerloop_studies.papers.bridge.agreement_jobs import PictureAnswers, Wide, WideAnswers
from innerloop_studies.papers.bridge.shared import (
    DIM,
    SHOTS,
    TASKS,
    TEST_QUERY,
    TEST_SUPPORT,
    TEST_TASKS,
    bridge_tasks,
)
from innerloop_studies.reproduce.short_runs import fitted

INNER = Descent(0.001, 1)
"""ANIL's inner loop in training: λτ, summed loss."""
TEST = Descent(1.0)
"""Adaptation of a test task's head, the same for both methods: gradient flow, in closed form."""
RECIPES = {"anil": "bridge-quadratic-anil", "mtl": "bridge-quadratic-multitask"}


def trained_wide(method: str, depth: int, width: int, seed: int, steps: int, regime: str) -> dict[str, Any]:
    """What a trained network predicts for the queries of the test tasks: ``WideAnswers`` as plain data."""
    job = Wide(method, depth, width, seed, steps, regime)
    outputs, left = _by_theorem(job) if regime == "theorem" else _by_recipe(job)
    return WideAnswers(outputs.squeeze(-1).tolist(), left)._asdict()


def _by_theorem(job: Wide) -> tuple[Tensor, float]:
    train = bridge_tasks(0, "train", TASKS, SHOTS, 0, standard=True, sphere=False)
    test = bridge_tasks(0, "test", TEST_TASKS, TEST_SUPPORT, TEST_QUERY, standard=True, sphere=False)
    plain = mlp(DIM, [job.width] * (job.depth - 1), 1, parametrisation="ntk")
    drawn, _ = plain.init(torch.Generator().manual_seed(job.seed))
    rate = 1 / _largest(job.method, plain, drawn, train)
    net = antisymmetric(plain)
    params, _ = net.init(torch.Generator().manual_seed(job.seed))
    train, test = train.to(dtype=torch.float32), test.to(dtype=torch.float32)
    losses: list[float] = []
    trained = _descend(job, net, params, train, rate, losses)
    started = {**trained, **{name: params[name] for name in net.head_names}}  # the head is reset
    with torch.no_grad():
        return adapted(net, started, test, TEST), losses[-1] / losses[0]


def _largest(method: str, net: Network, params: Params, tasks: TaskBatch) -> float:
    """σ_max of this network's own kernel: narrow and deep ones are far from the limit."""
    x = stack(tasks.x_support).float()
    base = empirical_kernel(net, params)(x, x)
    if method == "mtl":
        return float(spectrum(mtl_kernel(base.ntk, base.nngp, tasks.size))[0])
    return float(spectrum(anil_kernel_without_split(base.ntk, base.nngp, tasks.size, INNER))[0])


def _descend(
    job: Wide, net: Network, params: Params, tasks: TaskBatch, rate: float, losses: list[float]
) -> Params:
    loss, watch = get_loss("half-sse"), lambda _step, _params, value: losses.append(value)
    if job.method == "mtl":
        objective = multitask(net, loss, tasks.size, heads="shared")
        started = objective.init(params, torch.Generator().manual_seed(0))
        trained = descend(objective_loss(objective, tasks), started, rate, job.steps, watch)
        return {name: trained[name] for name in params}
    assert INNER.steps is not None
    learner = anil(net, loss, INNER.time / INNER.steps, INNER.steps)
    same = tasks._replace(x_query=tasks.x_support, y_query=tasks.y_support)
    return descend(episodic_loss(learner, same), params, rate, job.steps, watch)


def adapted(net: Network, params: Params, test: TaskBatch, how: Descent) -> Tensor:
    r"""Query outputs after the head alone has descended on the support set, ``(tests, queries, 1)``.

    The outputs are linear in the head, so :math:`f(X) + K(X,X')\,T_K^{\hat s}(X')(Y'-f(X'))` with the kernel
    K of the head is exact, whatever the features are.
    """
    params = {name: value.double() for name, value in params.items()}

    def tangents(x: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs, and their derivatives by the head."""
        z = net.features(params, {}, x.double(), "batch")[0]
        head = {name: params[name] for name in net.head_names}
        return net.head(params, z), jacobian(lambda own: net.head(own, z), head)

    by_task = []
    for task in test.tasks():
        (first, own), (outputs, cross) = tangents(task.x_support), tangents(task.x_query)
        answer = response(own @ own.mT, how) @ (task.y_support - first)
        by_task.append(outputs + cross @ own.mT @ answer)
    return torch.stack(by_task)


def _by_recipe(job: Wide) -> tuple[Tensor, float]:
    """As shipped but for depth, width and steps; ANIL keeps the head it trained, MTL has only its first."""
    hidden = ",".join([str(job.width)] * (job.depth - 1))
    settings = [f"model.hidden=[{hidden}]", f"outer.steps={job.steps}", f"run.seed={job.seed}"]
    outcome = fitted(load_recipe(RECIPES[job.method], settings))
    batch = outcome.parts.data.test.episodes(range(TEST_TASKS))
    assert isinstance(batch, TaskBatch)
    if outcome.state is None:
        return torch.full_like(batch.y_query, math.nan), math.nan
    names = outcome.parts.params
    params = {name: value for name, value in outcome.state.params.items() if name in names}
    with torch.no_grad():
        return adapted(outcome.parts.network, params, batch, TEST), math.nan


def trained_pictures(
    method: str, seed: int, steps: int, episodes: int, filters: int, data: str
) -> dict[str, Any]:
    """What a trained Conv4 answers to the queries of the test tasks: ``PictureAnswers`` as plain data.

    Both methods adapt in the same way: logistic regression on normalised features (C = 3), as Bridge does.
    """
    recipe = make_recipe(
        {
            "name": "bridge-agreement",
            "data": {"name": data, "standardise": True},
            "tasks": {"family": "few-shot", "ways": 5, "shots": 5, "queries": 5},
            "model": {"kind": "conv4", "filters": filters, "pooling": "max", "norm": "transductive"},
            "inner": {"method": "anil", "lr": 0.1, "steps": 3, "loss": "cross-entropy"},
            "outer": {
                "objective": "multitask" if method == "mtl" else "episodic",
                "steps": steps,
                "batch": 4,
                "lr": 2e-3,
            },
            "eval": {"episodes": episodes, "queries": 10},
            "run": {"seed": seed, "threads": 1},
        }
    )
    outcome = fitted(recipe)
    assert outcome.state is not None
    sampler, network = outcome.parts.data.test, outcome.parts.network
    shares, truth = [], []
    with torch.no_grad():
        for i in range(episodes):
            task = sampler.episode(i)
            shares.append(_probabilities(network, outcome.state.params, outcome.state.buffers, task))
            truth.append(task.y_query)
    all_shares, all_truth = torch.cat(shares), torch.cat(truth)
    right = (all_shares.argmax(1) == all_truth).double().mean()
    return PictureAnswers((1000 * all_shares).round().int().tolist(), float(right))._asdict()


def _probabilities(network: Network, params: Params, buffers: Any, task: Any) -> Tensor:
    from innerloop.evaluation.heads import fit_heads, head_scores

    z, q = (
        network.features(params, buffers, x, "batch")[0].flatten(1)[None].double()
        for x in (task.x_support, task.x_query)
    )
    return head_scores(fit_heads(z, task.y_support[None], 5, "logistic", 3.0, True), q)[0].softmax(1)
