r"""What infinitely wide (or given finite) networks predict after MAML, ANIL or multi-task training.

:func:`fit` solves once for the training tasks; :func:`predict_tasks` then costs one cross Gram per test task.
All methods share one form: with :math:`B = K(X,X')T_K^{\hat s}(X')`

.. math:: F(X, X', Y') = B\,Y' + [\kappa(X,\cdot) - B\,\kappa(X',\cdot)]\;\beta,
          \qquad \beta = M^\top T_\Phi^{\eta t}(\mathcal Y - G)

where Φ is the method's kernel, M what its inner loop leaves of a residual, and κ is Θ or Θ − K. Any number
of outputs are columns of β: no Kronecker product is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import TaskBatch
from innerloop.kernels.meta.descent import Descent, residual, respond
from innerloop.kernels.meta.kernel import (
    Heads,
    TestHead,
    adaptation,
    adaptation_of,
    check_heads,
    diagonal_blocks,
    mtl_kernel,
    project_rows,
    split_kernel,
    stack,
    times_rows,
    unproject,
)
from innerloop.kernels.types import KernelFunction, Kernels

Method = Literal["mtl", "anil", "maml"]
CHUNK_ROWS = 256  # test samples whose Gram is taken at once; only the blocks of single tasks are used of it


class KernelFit(NamedTuple):
    """A trained meta-learner in kernel form.

    Attributes:
        kernel: the base kernels Θ and K.
        x: training samples.
        coefficients: β ``(samples, outputs)``.
        inner: the kernel of the test-time adaptation.
        cross: the kernel between test and training samples; ``none`` where they are independent.
        test: how far a test task adapts.
        initial: the network's first outputs, where they are not taken to be zero.
    """

    kernel: KernelFunction
    x: Tensor
    coefficients: Tensor
    inner: Literal["ntk", "nngp"]
    cross: Literal["ntk", "body", "none"]
    test: Descent
    initial: Callable[[Tensor], Tensor] | None


def fit(
    kernel: KernelFunction,
    tasks: TaskBatch,
    method: Method,
    *,
    inner: Descent | None = None,
    outer: Descent | None = None,
    test: Descent | None = None,
    split: bool | None = None,
    heads: Heads = "shared",
    test_head: TestHead = "initial",
    train_head: bool = True,
    initial: Callable[[Tensor], Tensor] | None = None,
) -> KernelFit:
    r"""Trains in kernel space (Bridge, Lemma 1; MetaNTK, Theorem 2). Rates are of the summed loss ½‖f − y‖².

    Args:
        kernel: base kernels of a network, analytic or empirical.
        tasks: training tasks of equal shape, targets as float columns.
        method: ``mtl``, ``anil`` or ``maml``.
        inner: the inner loop of training, s = λτ. Needed for ``anil`` and ``maml``.
        outer: the outer loop, ηt; to convergence if omitted.
        test: adaptation of a test task, ŝ; like ``inner`` if omitted, to convergence for ``mtl``.
        split: whether tasks adapt to support and are judged on query samples, or both on all of them. MAML
            always splits, multi-task learning never does, ANIL does not unless asked.
        heads: whether heads start from one shared draw (Bridge's kernel) or from independent ones.
        test_head: for ``anil``: a test task starts from the head's first draw, or from the trained one.
        train_head: for ``anil`` with split: whether the outer loop trains the head's first value.
        initial: a given network's outputs before training, which it adds to; zero if omitted.

    >>> import torch
    >>> linear = lambda a, b: Kernels(a @ b.mT, 2 * a @ b.mT)
    >>> x, y = torch.eye(2)[None], torch.tensor([[[1.0], [2.0]]])
    >>> tasks = TaskBatch(x, y, x[:, :0], y[:, :0], torch.zeros(1))
    >>> fit(linear, tasks, "mtl").coefficients.flatten()  # Θ = 2I
    tensor([0.5000, 1.0000])
    """
    split = _check(method, inner, split, heads, test_head, train_head)
    test = test or inner or Descent()
    outer = outer or Descent()
    n = tasks.size
    if initial is not None:
        tasks = tasks._replace(
            y_support=tasks.y_support - _each(initial, tasks.x_support),
            y_query=tasks.y_query - _each(initial, tasks.x_query),
        )
    if split:
        assert inner is not None
        x = torch.cat([stack(tasks.x_query), stack(tasks.x_support)])
        base = kernel(x, x)
        beta = _fit_split(base, tasks, method, inner, outer, train_head)
    else:
        x = stack(torch.cat([tasks.x_support, tasks.x_query], 1))
        y = stack(torch.cat([tasks.y_support, tasks.y_query], 1))
        base = kernel(x, x)
        if method == "mtl":
            beta = respond(mtl_kernel(base.ntk, base.nngp, n, heads), y, outer)
        else:
            assert inner is not None
            beta = _fit_anil_without_split(base, y, n, inner, outer)
    keeps = method == "maml" or (method == "anil" and test_head == "trained")
    cross: Literal["ntk", "body", "none"] = "ntk" if keeps else "body" if heads == "shared" else "none"
    return KernelFit(kernel, x, beta, "ntk" if method == "maml" else "nngp", cross, test, initial)


def _fit_split(
    base: Kernels, tasks: TaskBatch, method: Method, inner: Descent, outer: Descent, train_head: bool
) -> Tensor:
    n, queries = tasks.size, tasks.x_query.shape[1]
    of_inner = base.ntk if method == "maml" else base.nngp
    blocks = adaptation_of(of_inner, n, queries, inner)
    phi = split_kernel(base.ntk if train_head else base.ntk - base.nngp, blocks)
    left = stack(tasks.y_query) - times_rows(blocks, stack(tasks.y_support))
    return unproject(blocks, respond(phi, left, outer))


def _fit_anil_without_split(base: Kernels, y: Tensor, n: int, inner: Descent, outer: Descent) -> Tensor:
    if math.isinf(outer.time) and outer.ridge == 0:
        # Φ⁻¹(Y − G) = (EΘE)⁻¹ E Y: λτ cancels exactly, and E, which is singular to working precision for
        # large λτ, must not be inverted
        return respond(base.ntk, y, outer)
    left = residual(diagonal_blocks(base.nngp, n), inner)
    phi = times_rows(left, times_rows(left, base.ntk).mT)
    return times_rows(left, respond(phi, times_rows(left, y), outer))


def predict_tasks(fitted: KernelFit, x_query: Tensor, x_support: Tensor, y_support: Tensor) -> Tensor:
    """Adapts to each test task's support set and predicts its queries.

    Args:
        fitted: from :func:`fit`.
        x_query: ``(tests, q, …)``.
        x_support: ``(tests, m, …)``.
        y_support: ``(tests, m, outputs)``.

    Returns:
        ``(tests, q, outputs)``.

    Raises:
        UserError: if these are not the same number of tasks, or not a target for every support sample.
    """
    if len(x_query) != len(x_support) or x_support.shape[:2] != y_support.shape[:2]:
        raise UserError(
            f"queries of {len(x_query)} tasks, support inputs {tuple(x_support.shape[:2])} and targets "
            f"{tuple(y_support.shape[:2])} as (tasks, samples): give equally many tasks, and a target each."
        )
    size = max(1, CHUNK_ROWS // max(1, x_query.shape[1] + x_support.shape[1]))
    parts = zip(x_query.split(size), x_support.split(size), y_support.split(size), strict=True)
    return torch.cat([_predict_chunk(fitted, *part) for part in parts])


def _predict_chunk(fitted: KernelFit, x_query: Tensor, x_support: Tensor, y_support: Tensor) -> Tensor:
    tests, queries = x_query.shape[:2]
    if fitted.initial is not None:
        y_support = y_support - _each(fitted.initial, x_support)
    support = stack(x_support)
    between = getattr(fitted.kernel(stack(x_query), support), fitted.inner)
    within = getattr(fitted.kernel(support, support), fitted.inner)
    blocks = adaptation(diagonal_blocks(between, tests), diagonal_blocks(within, tests), fitted.test)
    out = blocks @ y_support
    if fitted.cross != "none":
        base = fitted.kernel(torch.cat([stack(x_query), support]), fitted.x)
        cross = base.ntk if fitted.cross == "ntk" else base.ntk - base.nngp
        trained = project_rows(blocks, cross @ fitted.coefficients)
        out = out + trained.view(tests, queries, -1)
    return out if fitted.initial is None else out + _each(fitted.initial, x_query)


def _each(initial: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """First outputs of the samples of several tasks."""
    return initial(stack(x)).view(*x.shape[:2], -1)


def _check(
    method: str,
    inner: Descent | None,
    split: bool | None,
    heads: str,
    test_head: str,
    train_head: bool,
) -> bool:
    """Whether tasks are split; refuses what contradicts itself."""
    check_heads(heads, test_head)
    if method not in ("mtl", "anil", "maml"):
        raise UserError(f"method '{method}' has no kernel here: give mtl, anil or maml.")
    if method != "mtl" and inner is None:
        raise UserError(
            f"{method} needs an inner loop: give inner=Descent(time), with time the rate × steps."
        )
    if (method == "maml" and split is False) or (method == "mtl" and split):
        raise UserError(f"split={split} does not go with {method}: leave it out.")
    if test_head == "trained" and method != "anil":
        raise UserError(f"test_head='trained' is a choice of anil; with {method} leave it out.")
    split = method == "maml" or bool(split)
    if not train_head and (method != "anil" or not split):
        raise UserError("train_head=False is a choice of anil with split=True.")
    if method == "anil" and not split and inner is not None and math.isinf(inner.time) and inner.ridge == 0:
        raise UserError(
            "anil without a split adapts to the samples it is judged on: nothing is left at time=inf; "
            "give a finite inner time, or split=True."
        )
    return split


class MeanError(NamedTuple):
    """A mean and its standard error."""

    mean: float
    error: float


def mtl_anil_gap(
    kernel: KernelFunction,
    train: TaskBatch,
    test: TaskBatch,
    *,
    inner: Descent,
    test_descent: Descent,
    outer: Descent | None = None,
    split: bool = False,
    heads: Heads = "shared",
    anil_heads: Heads | None = None,
    test_head: TestHead = "initial",
    mtl_train: TaskBatch | None = None,
) -> Tensor:
    r"""Bridge's Theorem 1, measured: :math:`\|F_{ANIL}(X,X',Y') - F_{MTL}(X,X',Y')\|_2` of every test task.

    Args:
        kernel: base kernels.
        train: training tasks; MTL, and ANIL without split, use all their samples.
        test: test tasks.
        inner: ANIL's inner loop in training, s = λτ.
        test_descent: adaptation of test tasks, ŝ, the same for both.
        outer: training time of both; to convergence if omitted.
        split: whether ANIL adapts to the support and is judged on the query samples of training tasks.
        heads: whether MTL's heads are one draw.
        anil_heads: whether ANIL's test head is the draw it was trained from; as ``heads`` if omitted.
        test_head: ANIL's head at test time.
        mtl_train: other training tasks for MTL, such as the query samples alone.

    Returns:
        ``(tests,)``: norms over the query vector.
    """
    anil = fit(
        kernel,
        train,
        "anil",
        inner=inner,
        outer=outer,
        test=test_descent,
        split=split,
        heads=anil_heads or heads,
        test_head=test_head,
    )
    mtl = fit(kernel, mtl_train or train, "mtl", outer=outer, test=test_descent, heads=heads)
    apart = [predict_tasks(one, test.x_query, test.x_support, test.y_support) for one in (anil, mtl)]
    return (apart[0] - apart[1]).flatten(1).norm(dim=1)


def mean_error(draws: Sequence[Tensor]) -> MeanError:
    """The mean over all values and its standard error, from the scatter of the draws' means."""
    # values within a draw share its training tasks: a single draw gives their scatter, which is too small
    means = [float(values.mean()) for values in draws] if len(draws) > 1 else draws[0].double().tolist()
    mean = sum(means) / len(means)
    if len(means) < 2:
        return MeanError(mean, math.nan)
    spread = sum((value - mean) ** 2 for value in means) / (len(means) - 1)
    return MeanError(mean, math.sqrt(spread / len(means)))
