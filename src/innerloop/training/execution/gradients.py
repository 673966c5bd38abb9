r"""The meta-gradient :math:`\nabla_\theta \frac1T\sum_t L_t(\theta)` of a batch of tasks, in every mode.

With weights :math:`w_t` that add up to one it is :math:`\nabla_\theta \sum_t w_t L_t(\theta)`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from innerloop.core.autodiff import native_batches, plain_autograd
from innerloop.core.threads import map_in_threads
from innerloop.core.trees import detach, mean_over_tasks
from innerloop.core.types import Batch, Buffers, Params, RaggedBatch, Task, TaskBatch
from innerloop.training.execution.gradient_types import Gradient, MetaGradient, TaskDirection, TaskLoss
from innerloop.training.execution.mapping import ProcessMap, in_processes, map_tasks, native_layers
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.ranks import across_ranks


def meta_gradient(
    loss: TaskLoss | None = None, plan: Plan | None = None, *, direction: TaskDirection | None = None
) -> MetaGradient:
    """A function ``(params, buffers, batch, weights=None) -> Gradient``; all tasks weigh the same without.

    Args:
        loss: the loss of one task, to be differentiated; not needed with ``direction``.
        plan: how to run it; a plain loop if omitted.
        direction: instead of a loss, the pseudo-gradient of one task, to be averaged (Reptile).

    >>> from innerloop.core import stack_tasks
    >>> task = Task(*(torch.ones(1, 1) for _ in range(4)), torch.tensor(0))
    >>> square = lambda p, b, t: ((p["w"] * t.x_query).square().sum(), b)
    >>> meta_gradient(square)({"w": torch.tensor(3.0)}, {}, stack_tasks([task, task])).grads
    {'w': tensor(6.)}
    """
    plan = plan or Plan()
    if plan.ranks > 1:
        return across_ranks(meta_gradient(loss, plan._replace(ranks=1), direction=direction), plan.ranks)
    if direction is not None:
        return _averaged(direction, plan)
    if loss is None:
        raise ValueError("give a loss or a direction")
    if plan.mode == "vmap":
        # a compiled function is worth keeping: measuring it and training with it must not compile it twice
        return _batched(loss, plan._replace(reason=""))
    return InProcesses(loss, plan.threads) if plan.mode == "processes" else _task_by_task(loss, plan)


def _averaged(direction: TaskDirection, plan: Plan) -> MetaGradient:
    several = plan.mode == "processes"
    mapped = in_processes(direction, plan, weights=True) if several else map_tasks(direction, plan)

    def run(params: Params, buffers: Buffers, batch: Batch, weights: Tensor | None = None) -> Gradient:
        """The mean of the tasks' directions, weighted if weights are given."""
        with torch.no_grad():
            grads, losses, after = mapped(params, buffers, batch)
            if weights is None:
                mean = {k: v.mean(0) for k, v in grads.items()}
            else:
                mean = {k: torch.tensordot(weights.to(v), v, 1) for k, v in grads.items()}
        return Gradient(losses, mean, {k: v.mean(0) for k, v in after.items()})

    return run


def _task_by_task(loss: TaskLoss, plan: Plan) -> MetaGradient:
    """Each task's gradient by plain autograd; averaged in task order, so threads never change the result."""
    one_task = _gradient_of_one(loss, native_layers(plan))

    def run(params: Params, buffers: Buffers, batch: Batch, weights: Tensor | None = None) -> Gradient:
        """The meta-gradient of a batch, one task after another or one per thread."""

        def one(task: Task) -> tuple[Tensor, Params, Buffers]:
            """Loss, gradient and buffers of one task."""
            return one_task(params, buffers, task)

        tasks = batch.tasks()
        results = (
            map_in_threads(one, tasks, plan.threads) if plan.mode == "threads" else [one(t) for t in tasks]
        )
        return _gathered(results, weights)

    return run


def _gradient_of_one(
    loss: TaskLoss, native: bool = False
) -> Callable[[Params, Buffers, Task], tuple[Tensor, Params, Buffers]]:
    def one_task(params: Params, buffers: Buffers, task: Task) -> tuple[Tensor, Params, Buffers]:
        """Loss, gradient and buffers of one task by plain autograd, none of them with a graph."""
        with plain_autograd(native), torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
            value, after = loss(leaves, buffers, task)
            grads = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
        after = {name: buffer.detach() for name, buffer in after.items()}
        return value.detach(), dict(zip(leaves, grads, strict=True)), after

    return one_task


def _gathered(results: list[tuple[Tensor, Params, Buffers]], weights: Tensor | None) -> Gradient:
    losses, grads, after = zip(*results, strict=True)
    mean = mean_over_tasks(list(grads)) if weights is None else _weighted(list(grads), weights.tolist())
    return Gradient(torch.stack(losses), mean, mean_over_tasks(list(after)))


class InProcesses:
    """The same in worker processes, which end with this object; the results are the same to the last bit."""

    def __init__(self, loss: TaskLoss, count: int) -> None:
        self.processes = ProcessMap(_gradient_of_one(loss), count, weights=True)

    def __call__(
        self, params: Params, buffers: Buffers, batch: Batch, weights: Tensor | None = None
    ) -> Gradient:
        """The meta-gradient of a batch."""
        results = self.processes(detach(params), detach(buffers), batch)
        gradient = _gathered(results, weights)
        if len(results) > 1:
            return gradient
        # the mean of one task is that task's own gradient, in memory that the next call writes to
        return Gradient(gradient.losses, *({k: v.clone() for k, v in t.items()} for t in gradient[1:]))

    def start(self, params: Params, buffers: Buffers, batch: Batch) -> None:
        """Starts the processes, so that the first call is as any other."""
        self.processes.start(detach(params), detach(buffers), batch)


@functools.lru_cache(maxsize=8)
def _batched(loss: TaskLoss, plan: Plan) -> MetaGradient:
    """``grad(mean ∘ vmap(loss))``: one batched computation for all tasks, in chunks if asked."""

    def total(
        params: Params, buffers: Buffers, batch: TaskBatch, *weights: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Buffers]]:
        """The mean loss of a batch, or its weighted sum; and every task's loss, and the mean buffers."""
        # parameters stay unbatched, so the first inner step runs on shared weights
        losses, after = torch.func.vmap(loss, in_dims=(None, None, 0))(params, buffers, Task(*batch))
        one = (weights[0] * losses).sum() if weights else losses.mean()
        return one, (losses, {name: value.mean(0) for name, value in after.items()})

    def whole(
        params: Params, buffers: Buffers, batch: TaskBatch, *weights: Tensor
    ) -> tuple[Params, tuple[Tensor, Buffers]]:
        """The gradient of ``total``, and what ``total`` gives besides its value."""
        return torch.func.grad(total, has_aux=True)(params, buffers, batch, *weights)

    def on_native_steps(*args: Any) -> Any:
        """The same where networks take all tasks' inner steps in native code."""
        with native_batches():
            return whole(*args)

    step = {"full": compile_whole, "off": lambda fn: fn}.get(plan.compile, capture)(
        on_native_steps if native_layers(plan) else whole
    )

    def run(params: Params, buffers: Buffers, batch: Batch, weights: Tensor | None = None) -> Gradient:
        """The meta-gradient of a batch, chunk by chunk, put together in the order of the tasks."""
        params, buffers = detach(params), detach(buffers)  # or autograd would record all of this once more
        parts = _parts(batch, plan.chunk)
        given = [() if weights is None else (weights[places],) for places, _ in parts]
        results = [step(params, buffers, part, *w) for (_, part), w in zip(parts, given, strict=True)]
        if len(results) == 1:
            grads, (losses, after) = results[0]
            return Gradient(losses, grads, after)
        shares = [part.size / batch.size for _, part in parts]
        places = torch.tensor([i for mine, _ in parts for i in mine])
        losses = torch.cat([aux[0] for _, aux in results])
        return Gradient(
            torch.empty_like(losses).index_copy_(0, places.to(losses.device), losses),
            # weights add up over all parts, means have to be weighed by what they are means of
            _weighted([g for g, _ in results], shares if weights is None else [1.0] * len(parts)),
            _weighted([aux[1] for _, aux in results], shares),
        )

    return run


def _parts(batch: Batch, chunk: int | None) -> list[tuple[list[int], TaskBatch]]:
    """Tasks of equal shape, at most ``chunk`` at a time, with their places in the batch."""
    groups = batch.groups() if isinstance(batch, RaggedBatch) else [(list(range(batch.size)), batch)]
    parts = []
    for places, group in groups:
        size = min(chunk or group.size, group.size)
        for i in range(0, group.size, size):
            end = min(i + size, group.size)
            parts.append((places[i:end], group.slice(i, end)))
    return parts


def _weighted(trees: list[Params], shares: list[float]) -> Params:
    total = {name: value * shares[0] for name, value in trees[0].items()}
    for tree, share in zip(trees[1:], shares[1:], strict=True):
        total = {name: total[name] + share * value for name, value in tree.items()}
    return total


def compile_whole(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.compile`` of the whole second-order function.

    The whole function, because ``torch.compile`` has no double backward across its boundary: a compiled
    model cannot be differentiated twice from outside.
    """
    return torch.compile(fn, fullgraph=True, dynamic=False)


def capture(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Captures the operations of ``fn`` once per input shape, and replays them.

    No autograd, no functional transforms and no Python of ours are left in the replay, which makes small
    networks about twice as fast as eager ``vmap``, for about two seconds of capture and without a C++
    compiler. Python control flow on tensor *values* would be frozen; our losses have none.
    """
    graphs: dict[Any, tuple[Callable[..., Any], Any]] = {}

    def signature(leaves: list[torch.Tensor]) -> tuple[Any, ...]:
        """What a captured graph is valid for: shapes, strides, dtypes and devices of its inputs."""
        return tuple((tuple(x.shape), tuple(x.stride()), x.dtype, x.device) for x in leaves)

    def run(*args: Any) -> Any:
        """Replays the graph for inputs like ``args``; captures it if they are the first of their kind."""
        leaves, spec = pytree.tree_flatten(args)
        key = (signature(leaves), str(spec))
        if key not in graphs:
            graphs[key] = _capture(fn, leaves, spec)
        graph, out_spec = graphs[key]
        with torch.no_grad():
            return pytree.tree_unflatten(graph(*leaves), out_spec)

    return run


def _capture(fn: Callable[..., Any], leaves: list[torch.Tensor], spec: Any) -> tuple[Callable[..., Any], Any]:
    out_specs = []

    def flat(*inputs: torch.Tensor) -> list[torch.Tensor]:
        """``fn`` on a flat list of tensors, which is what can be traced."""
        outputs, out_spec = pytree.tree_flatten(fn(*pytree.tree_unflatten(list(inputs), spec)))
        out_specs.append(out_spec)
        return outputs

    graph = make_fx(flat)(*[x.detach() for x in leaves])
    graph.graph.eliminate_dead_code()
    join_views(graph, leaves)
    return graph, out_specs[0]


def place_of(x: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Where the entries of a tensor lie in its memory."""
    return tuple(x.shape), tuple(x.stride()), int(x.storage_offset())


def join_views(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> None:
    """Replaces views of views by one view each, or by nothing: on few numbers a view costs as much as a sum.

    >>> graph = make_fx(lambda x: x[None].transpose(0, 1)[:, 0].T.T + 1)(torch.ones(2, 3))
    >>> join_views(graph, [torch.ones(2, 3)])
    >>> [node.op for node in graph.graph.nodes]
    ['placeholder', 'call_function', 'output']
    """
    seen = _Places(graph)
    seen.run(*inputs)
    bases: dict[Any, Any] = {}
    joined: dict[Any, Any] = {}

    def instead(node: Any) -> Any:
        """What a node reads in place of a view, inserted before it."""
        base = bases.get(node)
        if base is None or node not in seen.places or base not in seen.places:
            return node
        place = seen.places[node]
        if place == seen.places[base]:
            return base
        if base.op == "placeholder":  # an input may begin elsewhere in its memory at the next call
            return node
        if (base, place) not in joined:
            joined[base, place] = graph.graph.call_function(torch.ops.aten.as_strided.default, (base, *place))
        return joined[base, place]

    for node in list(graph.graph.nodes):
        first = node.args[0] if node.args else None
        is_view = getattr(node.target, "is_view", False)
        if is_view or (node.target is operator.getitem and first in bases):
            bases[node] = bases.get(first, first)
            continue
        with graph.graph.inserting_before(node):
            node.args = torch.fx.map_arg(node.args, instead)
            node.kwargs = torch.fx.map_arg(node.kwargs, instead)
    graph.graph.eliminate_dead_code()
    graph.recompile()


class _Places(torch.fx.Interpreter):
    """Runs a graph and notes where every tensor lies in its memory."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph)
        self.places: dict[Any, Any] = {}

    def run_node(self, node: Any) -> Any:
        """One operation."""
        value = super().run_node(node)
        if isinstance(value, Tensor):
            self.places[node] = place_of(value)
        return value
