"""Does a network, a stream of tasks, an objective, a learner, a method of the table behave?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.losses import get_loss, is_classification
from innerloop.core.random import generator
from innerloop.core.types import Buffers, Params, Task, TaskBatch, stack_tasks
from innerloop.experiment.learner import LearnerArguments, from_entry
from innerloop.experiment.recipe.schema import InnerSettings
from innerloop.kernels.analytic.networks import mlp_kernel
from innerloop.kernels.meta.descent import Descent
from innerloop.kernels.meta.predict import Method, fit
from innerloop.learners.base import OWN_PREFIX, Learner, is_own
from innerloop.learners.entry import Variant
from innerloop.learners.kernel import kernel_learner, regression_tasks
from innerloop.learners.objectives.base import Objective
from innerloop.learners.objectives.episodic import episodic
from innerloop.learners.table import LEARNERS, OTHERS
from innerloop.nets.mlp import mlp
from innerloop.nets.network import Network, apply
from innerloop.tasks.families import get_family
from innerloop.tasks.sampler import Sampler, make_sampler
from innerloop.testing.closeness import close
from innerloop.testing.collect import Failures, copied, expect_slope, to_dtype
from innerloop.training.execution.gradient_types import Gradient
from innerloop.training.execution.gradients import meta_gradient
from innerloop.training.execution.mapping import map_tasks
from innerloop.training.execution.plan import Plan


def check_network(network: Network, x: Tensor, reference: Tensor | None = None) -> None:
    """Pure, follows dtypes, draws from its generator only, and its head reads only ``head_names``.

    Args:
        network: the network.
        x: a batch of inputs.
        reference: what a module that the network was made from gives for ``x`` with the same weights.

    Raises:
        AssertionError: listing everything that failed.
    """
    failures = Failures("network")
    failures.attempt("network", lambda: _check_network(network, x, reference, failures))
    failures.report()


def _check_network(network: Network, x: Tensor, reference: Tensor | None, failures: Failures) -> None:
    params, buffers = network.init(generator(0, "check"))
    failures.expect(
        close(network.init(generator(0, "check"))[0], params), "init is not a function of its generator"
    )
    missing = [name for name in network.head_names if name not in params]
    failures.expect(not missing, f"head_names names no parameter: {missing}")
    before = copied((params, buffers, x))
    outputs, after = apply(network, params, buffers, x)
    failures.expect(close((params, buffers, x), before), "a forward pass changed its inputs")
    failures.expect(close(apply(network, params, buffers, x)[0], outputs), "a second forward pass differs")
    failures.expect(after.keys() == buffers.keys(), "the buffers given back have other names")
    if reference is not None:
        failures.expect(close(outputs, reference), "head(features(x)) is not what the module gives")
    features, _ = network.features(params, buffers, x, "batch")
    head_only = network.head({name: params[name] for name in network.head_names}, features)
    failures.expect(close(head_only, outputs), "the head reads parameters that head_names does not name")
    double = torch.float64
    wide, _ = apply(network, to_dtype(params, double), to_dtype(buffers, double), x.to(double))
    failures.expect(wide.dtype == double, f"float64 in gives {wide.dtype} out")


def _same(a: Task, b: Task) -> bool:
    return all(x.shape == y.shape and torch.equal(x, y) for x, y in zip(a, b, strict=True))


def check_tasks(sampler: Sampler, episodes: int = 6) -> None:
    """Episodes are pure, addressable, of equal shape, and not all the same.

    Raises:
        AssertionError: listing everything that failed.
    """
    failures = Failures(f"sampler '{sampler.name}'")
    failures.attempt("episodes", lambda: _check_tasks(sampler, episodes, failures))
    failures.report()


def _check_tasks(sampler: Sampler, n: int, failures: Failures) -> None:
    alone = [sampler.episode(i) for i in range(n)]
    again = sampler.episodes(range(n)).tasks()
    backwards = sampler.episodes(range(n - 1, -1, -1)).tasks()[::-1]
    pure = all(_same(a, b) for a, b in zip(alone, again, strict=True))
    failures.expect(pure, "episode(i) differs between being asked for alone and in a batch")
    ordered = all(_same(a, b) for a, b in zip(alone, backwards, strict=True))
    failures.expect(ordered, "episode(i) depends on the order in which episodes are asked for")
    batch = sampler.batch(1, n // 2)
    same = all(_same(a, b) for a, b in zip(alone[n // 2 : 2 * (n // 2)], batch.tasks(), strict=True))
    failures.expect(same, "batch(step, size) is not episodes step·size and following")
    first = alone[0]
    for name in ("support", "query"):
        x, y = getattr(first, f"x_{name}"), getattr(first, f"y_{name}")
        failures.expect(len(x) == len(y), f"{name}: {len(x)} inputs but {len(y)} targets")
        failures.expect(bool(torch.isfinite(x).all()), f"{name} inputs are not all finite")
        ok = y.is_floating_point() or y.dtype == torch.int64
        failures.expect(ok, f"{name} targets must be floating point or int64, not {y.dtype}")
    failures.expect(first.id.dtype == torch.int64, f"id must be int64, not {first.id.dtype}")
    differ = sampler.n_tasks == 1 or not all(_same(first, other) for other in alone[1:])
    failures.expect(differ, "all episodes are the same")


def check_objective(
    objective: Objective,
    params: Params,
    buffers: Buffers,
    batch: TaskBatch,
    *,
    exact_gradient: bool = True,
    vmap: bool = True,
) -> None:
    """Pure, the same in every execution mode, gradients right and named like the parameters.

    Args:
        objective: the objective.
        params: meta-parameters (``objective.init`` is applied here).
        buffers: the network's buffers.
        batch: a few tasks.
        exact_gradient: whether its gradient should equal finite differences (false for first-order methods).
        vmap: whether it can run under ``vmap``.

    Raises:
        AssertionError: listing everything that failed.
    """
    failures = Failures(f"objective '{objective.name}'")
    params = objective.init(to_dtype(params, torch.float64), generator(0, "check"))
    buffers, batch = to_dtype(buffers, torch.float64), batch.to(dtype=torch.float64)
    failures.expect(
        (objective.loss is None) != (objective.direction is None),
        "give either a loss or a direction, not both",
    )
    failures.attempt("execution", lambda: _objective_modes(objective, params, buffers, batch, vmap, failures))
    if objective.loss is not None and exact_gradient:
        loss, fixed = objective.loss, objective.untrained
        failures.attempt(
            "gradient", lambda: expect_slope(loss, params, buffers, batch, failures, "gradient", fixed)
        )
    failures.report()


def _objective_modes(
    objective: Objective, params: Params, buffers: Buffers, batch: TaskBatch, vmap: bool, failures: Failures
) -> None:
    def run(plan: Plan) -> Gradient:
        """The meta-gradient under a plan."""
        return meta_gradient(objective.loss, plan, direction=objective.direction)(params, buffers, batch)

    before = copied((params, buffers, batch))
    looped = run(Plan("loop"))
    failures.expect(close((params, buffers, batch), before), "it changed its inputs")
    failures.expect(looped.grads.keys() == params.keys(), "gradients and parameters have different names")
    failures.expect(looped.buffers.keys() == buffers.keys(), "the buffers given back have other names")
    failures.expect(looped.losses.shape == (batch.size,), "there is not one scalar loss per task")
    failures.expect(bool(torch.isfinite(looped.losses).all()), "losses are not finite")
    failures.expect(close(run(Plan("threads", 2)), looped), "threads and loop disagree")
    if vmap:
        failures.expect(close(run(Plan("vmap")), looped, scale=100), "vmap and loop disagree")
        failures.expect(
            close(run(Plan("vmap", chunk=2)), looped, scale=100), "chunked vmap and loop disagree"
        )


def check_learner(
    learner: Learner,
    params: Params,
    buffers: Buffers,
    batch: TaskBatch,
    *,
    loss: str = "mse",
    exact_gradient: bool = True,
    vmap: bool = True,
) -> None:
    """Pure, blind to the order of the support set, the same in every execution mode, rightly differentiated.

    Args:
        learner: the learner.
        params: parameters of its network (``learner.init`` is applied here).
        buffers: its network's buffers (``learner.init_buffers`` is applied here).
        batch: a few tasks.
        loss: which loss its outputs are for.
        exact_gradient: whether the meta-gradient should equal finite differences of the query loss (false
            for first-order methods; without parameters there is nothing to compare).
        vmap: whether it can run under ``vmap``.

    Raises:
        AssertionError: listing everything that failed.
    """
    failures = Failures(f"learner '{learner.name}'")
    params, buffers = to_dtype(params, torch.float64), to_dtype(buffers, torch.float64)
    params, buffers = learner.init(params), learner.init_buffers(params, buffers)
    batch = batch.to(dtype=torch.float64)
    failures.attempt(
        "adapt and predict", lambda: _single(learner, params, buffers, batch.task(0), loss, failures)
    )
    failures.attempt("execution", lambda: _modes(learner, params, buffers, batch, vmap, failures))
    if exact_gradient and params:
        failures.attempt("gradient", lambda: _gradient(learner, params, buffers, batch, loss, failures))
    failures.report()


def _outputs(learner: Learner, params: Params, buffers: Buffers, task: Task) -> Tensor:
    adapted = learner.adapt(params, buffers, task.x_support, task.y_support)
    return learner.predict(adapted, task.x_query)[0]


def _single(
    learner: Learner, params: Params, buffers: Buffers, task: Task, loss: str, failures: Failures
) -> None:
    before = copied((params, buffers, task))
    outputs = _outputs(learner, params, buffers, task)
    failures.expect(close((params, buffers, task), before), "adapt or predict changed its inputs")
    failures.expect(close(_outputs(learner, params, buffers, task), outputs), "a second call differs")
    failures.expect(len(outputs) == len(task.x_query), "there is not one output row per query sample")
    failures.expect(outputs.dtype == torch.float64, f"float64 in gives {outputs.dtype} out")
    failures.expect(bool(torch.isfinite(outputs).all()), "outputs are not finite")
    if not is_classification(get_loss(loss)):
        failures.expect(outputs.shape == task.y_query.shape, "outputs and targets differ in shape")
    order = torch.randperm(len(task.x_support), generator=generator(0, "order"))
    moved = task._replace(x_support=task.x_support[order], y_support=task.y_support[order])
    failures.expect(
        close(_outputs(learner, params, buffers, moved), outputs, scale=100),
        "predictions depend on the order of the support set",
    )


def _modes(
    learner: Learner, params: Params, buffers: Buffers, batch: TaskBatch, vmap: bool, failures: Failures
) -> None:
    def one(p: Params, b: Buffers, task: Task) -> Tensor:
        """The outputs of one task."""
        return _outputs(learner, p, b, task)

    with torch.no_grad():
        looped = map_tasks(one, Plan("loop"))(params, buffers, batch)
        for mode in ("threads", "vmap") if vmap else ("threads",):
            other = map_tasks(one, Plan(mode, 2))(params, buffers, batch)
            failures.expect(close(other, looped, scale=100), f"{mode} and loop disagree")


def _gradient(
    learner: Learner, params: Params, buffers: Buffers, batch: TaskBatch, loss: str, failures: Failures
) -> None:
    measure = get_loss(loss)

    def value(p: Params, b: Buffers, task: Task) -> tuple[Tensor, Buffers]:
        """The query loss of one task."""
        return measure.value(_outputs(learner, p, b, task), task.y_query), b

    expect_slope(value, params, buffers, batch, failures, "meta-gradient", learner.untrained)


WAYS = 3


class Case(NamedTuple):
    """A small network without kinks, a loss, and a few tasks for both."""

    network: Network
    loss: str
    batch: TaskBatch
    ways: int


class Made(NamedTuple):
    """A learner with parameters and buffers to start from."""

    learner: Learner
    params: Params
    buffers: Buffers


def check_method(method: str, variant: str = "", **inner: Any) -> None:
    """A learner of the table conforms, and so does episodic training with it.

    Both :func:`check_learner` and :func:`check_objective` are run, on tasks with labels, and with numbers as
    targets unless the learner works on classes only. What it cannot do its entry says.

    Args:
        method: its name in the table of learners.
        variant: one of its entry's variants.
        inner: further settings of a recipe's ``inner`` section.

    Raises:
        AssertionError: listing everything that failed.
    """
    entry = {**LEARNERS, **OTHERS}[method]
    chosen = entry.variants[variant] if variant else Variant({})
    how = chosen.differentiated or entry.differentiated
    exact = how in ("through", "implicit", "nothing")
    for case in (labels(), *(() if entry.needs_labels else (numbers(),))):
        given = {**entry.solved_with, **chosen.settings, **inner}
        made = fitted_kernels(case, **given) if entry.made_from == "kernels" else built(method, case, given)
        learner, params, buffers = made
        check_learner(
            learner, params, buffers, case.batch, loss=case.loss, exact_gradient=exact, vmap=entry.vmap
        )
        more = learner.init(params), learner.init_buffers(params, buffers)
        strange = [n for n in {**more[0], **more[1]} if n not in {**params, **buffers} and not is_own(n)]
        assert not strange, f"learner '{method}' owns {strange[0]}: begin its name with '{OWN_PREFIX}'"
        if not params:
            continue  # nothing to train
        objective, known = episodic(learner, get_loss(case.loss)), exact or how == "envelope"
        check_objective(objective, *more, case.batch, exact_gradient=known, vmap=entry.vmap)


def built(method: str, case: Case, given: Mapping[str, Any]) -> Made:
    """A learner as a recipe builds it, and the first weights of its network."""
    start = {"lr": 0.01, "steps": 2, "loss": case.loss, **given}
    if method in LEARNERS:
        start["method"] = method
    section = InnerSettings(**start)
    entry = {**LEARNERS, **OTHERS}[method]
    learner = from_entry(entry, LearnerArguments(section, section.steps, case.ways), case.network)
    return Made(learner, *case.network.init(generator(0, "check")))


def fitted_kernels(case: Case, method: Method = "mtl") -> Made:
    """The kernel of a meta-learner, fitted to the tasks that it is then tried on."""
    ways = case.ways if is_classification(get_loss(case.loss)) else None
    tasks = case.batch.to(dtype=torch.float64)
    tasks = tasks if ways is None else regression_tasks(tasks, ways)
    inner = None if method == "mtl" else Descent(0.5)
    fitted = fit(mlp_kernel(3, activation="erf"), tasks, method, inner=inner)
    return Made(kernel_learner(fitted, ways), {}, {})


def numbers() -> Case:
    """Sinusoids."""
    sampler = make_sampler(get_family("sine"), seed=0, shots=5, queries=7)
    batch = stack_tasks([sampler.episode(i) for i in range(3)])
    return Case(mlp(1, [8, 8], 1, activation="tanh"), "mse", batch, 1)


def labels() -> Case:
    """Clouds of points, with as many in every class."""
    source = generator(0, "points")
    centres = torch.randn(3, WAYS, 4, generator=source)
    y = torch.arange(WAYS).repeat(3, 2)
    inputs = [
        centres.gather(1, y[..., None].expand(-1, -1, 4)) + torch.randn(3, 2 * WAYS, 4, generator=source)
        for _ in range(2)
    ]
    batch = TaskBatch(inputs[0], y, inputs[1], y, torch.arange(3 * WAYS).reshape(3, WAYS))
    return Case(mlp(4, [8, 6], WAYS, activation="tanh"), "cross-entropy", batch, WAYS)
