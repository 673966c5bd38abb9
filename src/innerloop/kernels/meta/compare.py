"""How far two meta-learners' kernel predictions lie apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from innerloop.core.types import TaskBatch
from innerloop.kernels.meta.descent import Descent
from innerloop.kernels.meta.kernel import Heads, TestHead
from innerloop.kernels.meta.predict import fit, predict_tasks
from innerloop.kernels.types import KernelFunction


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
    """The mean over all values and its standard error, from the scatter of the draws' means.

    Values within a draw share its training tasks and are not independent; a single draw gives the
    scatter of its values, which is too small.

    >>> import torch
    >>> mean_error([torch.tensor([1.0, 3.0]), torch.tensor([4.0, 4.0])])
    MeanError(mean=3.0, error=1.0)
    """
    means = [float(values.mean()) for values in draws] if len(draws) > 1 else draws[0].double().tolist()
    mean = sum(means) / len(means)
    if len(means) < 2:
        return MeanError(mean, math.nan)
    spread = sum((value - mean) ** 2 for value in means) / (len(means) - 1)
    return MeanError(mean, math.sqrt(spread / len(means)))
