"""A meta-learner in kernel form, as a learner: scored on the same episodes as trained networks."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from innerloop.core.arguments import checked
from innerloop.core.types import Batch, Buffers, Params, TaskBatch, stack_tasks
from innerloop.kernels.meta.predict import KernelFit, predict_tasks
from innerloop.learners.base import Learner


class KernelTask(NamedTuple):
    """A support set; the kernel has no parameters to adapt."""

    x: Tensor
    y: Tensor
    buffers: Buffers


def one_hot_targets(y: Tensor, ways: int, like: Tensor) -> Tensor:
    """Labels as regression targets: 1 − 1/ways for the class, −1/ways for the others; rows sum to zero."""
    return F.one_hot(y, ways).to(like) - 1 / ways


def regression_tasks(tasks: Batch, ways: int) -> TaskBatch:
    """Classification tasks of equal shape with :func:`one_hot_targets`, for ``kernels.predict.fit``."""
    whole = tasks if isinstance(tasks, TaskBatch) else stack_tasks(tasks.tasks())
    return whole._replace(
        y_support=one_hot_targets(whole.y_support, ways, whole.x_support),
        y_query=one_hot_targets(whole.y_query, ways, whole.x_query),
    )


@checked
def kernel_learner(fitted: KernelFit, ways: int | None = None, name: str = "kernel") -> Learner:
    """What the kernel of a meta-learner predicts (Bridge, Lemma 1; MetaNTK, Theorem 2), for ``evaluate``.

    It has no parameters: give ``evaluate`` empty dicts.

    Args:
        fitted: from :func:`innerloop.kernels.meta.predict.fit`.
        ways: number of classes, if targets are labels (then fit on :func:`regression_tasks`).
        name: what reports call it.

    >>> import torch
    >>> from innerloop.kernels import Descent
    >>> from innerloop.kernels import fit
    >>> from innerloop.kernels import Kernels
    >>> x, y = torch.ones(1, 1, 1), torch.ones(1, 1, 1)
    >>> tasks = TaskBatch(x, y, x[:, :0], y[:, :0], torch.zeros(1))
    >>> learner = kernel_learner(fit(lambda a, b: Kernels(a @ b.mT, a @ b.mT), tasks, "mtl"))
    >>> adapted = learner.adapt({}, {}, torch.tensor([[2.0]]), torch.tensor([[3.0]]))
    >>> learner.predict(adapted, torch.tensor([[4.0]]))[0]  # linear regression through one point
    tensor([[6.]])
    """

    def adapt(params: Params, buffers: Buffers, x: Tensor, y: Tensor, training: bool = False) -> KernelTask:
        """The support set itself: a kernel predictor has nothing to fit in advance."""
        del params, training
        targets = y if ways is None else one_hot_targets(y, ways, fitted.coefficients)
        return KernelTask(x, targets, buffers)

    def predict(adapted: KernelTask, x: Tensor, training: bool = False) -> tuple[Tensor, Buffers]:
        """What the kernel predicts for queries, and the buffers as they were."""
        del training
        work = fitted.x  # its dtype: a fit in float64 serves episodes in float32
        out = predict_tasks(fitted, x[None].to(work), adapted.x[None].to(work), adapted.y[None].to(work))
        return out[0].to(x.dtype), adapted.buffers

    return Learner(name, adapt, predict)
