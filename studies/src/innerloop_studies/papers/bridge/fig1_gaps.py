"""The gaps behind ``bridge-fig1``: ‖F_ANIL − F_MTL‖ of drawn tasks by depth and λτ, for any kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.types import TaskBatch
from innerloop.kernels.analytic.networks import tabulated
from innerloop.kernels.empirical.kernel import empirical_kernel
from innerloop.kernels.meta.descent import Descent, residual
from innerloop.kernels.meta.kernel import (
    adaptation_of,
    anil_cross_kernel,
    anil_kernel_without_split,
    diagonal_blocks,
    mtl_cross_kernel,
    mtl_kernel,
    stack,
    times_rows,
)
from innerloop.kernels.meta.predict import MeanError, mean_error, mtl_anil_gap
from innerloop.kernels.types import KernelFunction, Kernels
from innerloop.nets.mlp import mlp
from innerloop_studies.papers.bridge.shared import DIM, figure_1_tasks, halves, with_support

DEPTHS = [2, 4, 8, 10, 20]
TIMES = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
DEPTH = 10
"""Where λτ is varied."""
LEMMA = "t = ∞, no split (Lemma 1)"


class Variant(NamedTuple):
    """A way in which λτ is varied."""

    outer: Descent | None = None
    split: bool = False
    fresh: bool = False
    moves: bool = False


VARIANTS = {
    LEMMA: Variant(),
    "t = ∞, relative ridge 0.01": Variant(outer=Descent(ridge=1e-2, relative=True)),
    "finite t: ηt = 0.05": Variant(outer=Descent(0.05)),
    "t = ∞, split 5 + 5": Variant(split=True),
    "t = ∞, split 10 + 10": Variant(split=True, fresh=True),
    "t = ∞, ŝ = λτ": Variant(moves=True),
}
PRINTED = {"float32": torch.float32, "float64": torch.float64}
"""Precisions in which Lemma 1 is computed as it is printed, inverse and all."""


class Draw(NamedTuple):
    """One draw of Bridge's synthetic experiment."""

    train: TaskBatch
    test: TaskBatch
    fresh: TaskBatch


def draw(seed: int, *, sphere: bool = True) -> Draw:
    """Tasks by seed; ``sphere`` scales inputs to ‖x‖ = √d, the paper leaves them."""
    train, test = figure_1_tasks(seed, sphere=sphere)
    return Draw(train, test, with_support(train, seed, sphere=sphere))


def depth_gaps(kernel: KernelFunction, draws: list[Draw], **options: Any) -> list[Tensor]:
    """Norms of every test task, by draw, at λτ = 0; ANIL's test head is the draw it was trained from."""
    settings: dict[str, Any] = {"inner": Descent(0.0), "test_descent": Descent(1.0), "anil_heads": "shared"}
    return [mtl_anil_gap(kernel, one.train, one.test, **{**settings, **options}) for one in draws]


def vary(name: str, time: float, one: Draw, kernel: KernelFunction) -> Tensor:
    """Norms of every test task in one of the variants, at one λτ."""
    variant = VARIANTS[name]
    train = one.fresh if variant.fresh else halves(one.train) if variant.split else one.train
    return mtl_anil_gap(
        kernel,
        train,
        one.test,
        inner=Descent(time),
        test_descent=Descent(time if variant.moves else 1.0),
        outer=variant.outer,
        split=variant.split,
        # further support samples for ANIL; MTL trains on the queries alone
        mtl_train=one.train if variant.fresh else None,
    )


def by_time(draws: list[Draw], kernels: list[KernelFunction]) -> dict[str, list[MeanError]]:
    """Means over draws by variant and λτ; each draw has its kernel."""
    return {
        name: [
            mean_error([vary(name, time, one, kernel) for one, kernel in zip(draws, kernels, strict=True)])
            for time in TIMES
        ]
        for name in VARIANTS
    }


class Printed(NamedTuple):
    """Lemma 1 computed as it is printed: the trained part of each prediction."""

    anil: Tensor
    mtl: Tensor


def as_printed(kernel: KernelFunction, one: Draw, time: float, dtype: torch.dtype) -> Printed:
    r""":math:`\Phi'_{ANIL}\Phi_{ANIL}^{-1}(\mathcal Y - G)` and MTL's, every matrix formed in this precision.

    Φ_ANIL = E Θ E is the product of a kernel with matrices whose smallest entries are e^{−λτ‖K‖}: its inverse
    undoes them, exactly in real numbers, and not at all once they are below the rounding of Θ.
    """
    x, y = stack(one.train.x_support), stack(one.train.y_support).to(dtype)
    points = torch.cat([stack(one.test.x_query), stack(one.test.x_support)])
    base, cross, own = (
        Kernels(*(part.to(dtype) for part in kernel(*pair)))
        for pair in ((x, x), (points, x), (points, points))
    )
    n = one.train.size
    blocks = adaptation_of(own.nngp, one.test.size, one.test.x_query.shape[1], Descent(1.0))
    left = residual(diagonal_blocks(base.nngp, n), Descent(time))
    phi = anil_kernel_without_split(base.ntk, base.nngp, n, Descent(time))
    prime = anil_cross_kernel(cross.ntk, cross.nngp, blocks, left)
    mtl = mtl_cross_kernel(cross.ntk, cross.nngp, blocks)
    return Printed(
        prime @ torch.linalg.inv(phi) @ times_rows(left, y),
        mtl @ torch.linalg.inv(mtl_kernel(base.ntk, base.nngp, n)) @ y,
    )


def printed_gap(kernel: KernelFunction, one: Draw, time: float, dtype: torch.dtype) -> Tensor:
    """Norms of every test task from :func:`as_printed`."""
    both = as_printed(kernel, one, time, dtype)
    return (both.anil - both.mtl).double().view(one.test.size, -1).norm(dim=1)


def cancellation(kernel: KernelFunction, one: Draw) -> float:
    """How much F_ANIL at t = ∞ moves with λτ, up to 0.1, if it is computed as Lemma 1 has it."""
    predictions = [as_printed(kernel, one, time, torch.float64).anil for time in (0.0, 0.02, 0.1)]
    return max(float((each - predictions[0]).norm() / predictions[0].norm()) for each in predictions[1:])


def drawn_kernel(one: Draw, seed: int, width: int, depth: int) -> KernelFunction:
    """Empirical kernels of a drawn network, kept for all samples of a draw."""
    net = mlp(DIM, [width] * (depth - 1), 1, parametrisation="ntk")
    params, _ = net.init(torch.Generator().manual_seed(seed))
    return kept(empirical_kernel(net, {name: p.double() for name, p in params.items()}), one)


def kept(kernel: KernelFunction, one: Draw) -> KernelFunction:
    """A kernel computed once for all samples of a draw."""
    samples = (one.train.x_support, one.fresh.x_support, one.test.x_query, one.test.x_support)
    return tabulated(kernel, torch.cat([stack(part) for part in samples]))
