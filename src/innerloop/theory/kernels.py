"""Spectra of kernels, what depth does to them (Bridge, Lemmas 4 and 5), and the gap of ANIL and MTL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.types import TaskBatch
from innerloop.kernels.meta.descent import Descent
from innerloop.kernels.meta.kernel import (
    Heads,
    TestHead,
    anil_kernel,
    anil_kernel_without_split,
    maml_kernel,
    mtl_kernel,
    stack,
)
from innerloop.kernels.meta.predict import mean_error, mtl_anil_gap
from innerloop.kernels.types import KernelFunction

LIMIT_OFF_DIAGONAL = 0.25  # Θ/L between different inputs at large depth; on the diagonal it is 1


def spectrum(kernel: Tensor) -> Tensor:
    """Eigenvalues of a symmetric kernel, largest first.

    >>> spectrum(torch.diag(torch.tensor([1.0, 3.0])))
    tensor([3., 1.])
    """
    return torch.linalg.eigvalsh((kernel + kernel.mT) / 2).flip(-1)


def condition(values: Tensor) -> float:
    """λ_max/λ_min; infinite if the kernel is singular to working precision.

    >>> condition(torch.tensor([4.0, 2.0]))
    2.0
    """
    largest, smallest = float(values.max()), float(values.min())
    floor = torch.finfo(values.dtype).eps * len(values) * largest
    return largest / smallest if smallest > floor else float("inf")


class DepthStructure(NamedTuple):
    r"""How near kernels of depth L are to their deep limit, for inputs with :math:`\Sigma^1(x,x) = q`.

    Attributes:
        ntk_off: mean of Θ between different inputs, over q·L; tends to ¼.
        ntk_excess: largest :math:`|\Theta_{off}/q - L/4|`; the paper says O(1), it grows like log L.
        nngp_gap: mean of :math:`L^2(1 - K_{off}/q)`; tends to 9π²/2.
        ntk_top: largest eigenvalue of Θ over :math:`qL(M+3)/4` for M inputs; tends to 1.
        ntk_bulk: median of the other eigenvalues over :math:`\tfrac34 qL`; tends to 1.
        nngp_bulk: largest of K's other eigenvalues, over q, times L²; stays bounded.
    """

    ntk_off: float
    ntk_excess: float
    nngp_gap: float
    ntk_top: float
    ntk_bulk: float
    nngp_bulk: float


def depth_structure(ntk: Tensor, nngp: Tensor, depth: int) -> DepthStructure:
    r"""Compares kernels over M inputs of equal norm with Bridge's Lemma 4 (eqs. 69 to 71).

    .. math:: \Theta = L(\tfrac14 11^\top + \tfrac34 I) + O(\log L), \qquad K = 11^\top - O(L^{-2})

    for :math:`\Sigma^1(x,x) = 1`; other scales multiply both. The scale q is read off K's diagonal, which
    depth does not change for ReLU networks with He's initialisation.

    Args:
        ntk: Θ ``(M, M)``.
        nngp: K ``(M, M)``.
        depth: L, the readout included.
    """
    m, scale = len(ntk), float(nngp.diagonal().mean())
    different = ~torch.eye(m, dtype=torch.bool, device=ntk.device)
    theta, k = ntk / scale, nngp / scale
    of_theta, of_k = spectrum(theta), spectrum(k)
    return DepthStructure(
        float(theta[different].mean() / depth),
        float((theta[different] - LIMIT_OFF_DIAGONAL * depth).abs().max()),
        float(depth**2 * (1 - k[different]).mean()),
        float(of_theta[0] / (depth * (m + 3) / 4)),
        float(of_theta[1:].median() / (0.75 * depth)),
        float(of_k[1] * depth**2),
    )


def inverse_gap(ntk: Tensor, phi: Tensor) -> float:
    r"""Bridge's Lemma 5: :math:`\|\Theta^{-1} - \Phi^{-1}\|_{op}`, said to be :math:`O(L^{-2})`.

    >>> inverse_gap(torch.eye(2), 2 * torch.eye(2))
    0.5
    """
    return float(torch.linalg.matrix_norm(torch.linalg.inv(ntk) - torch.linalg.inv(phi), 2))


def log_slope(x: list[float], y: list[float]) -> float:
    """The slope of log y over log x by least squares: the exponent of a power law."""
    logs = torch.tensor([x, y], dtype=torch.float64).log()
    centred = logs - logs.mean(1, keepdim=True)
    return float((centred[0] * centred[1]).sum() / centred[0].square().sum())


PROTOCOL = (
    "mean over test tasks and repeats of ‖F_ANIL − F_MTL‖₂ over the query vector; standard "
    "error from the scatter of the repeats' means; eigenvalues of the first repeat"
)


class KernelRepeat(NamedTuple):
    """One repeat: a network's kernels, the tasks it was trained on, and the tasks it is tried on."""

    kernel: KernelFunction
    train: TaskBatch
    test: TaskBatch


class Learning(NamedTuple):
    """How both learners are trained and tested.

    Attributes:
        inner: ANIL's inner loop in training.
        outer: the outer loop of both.
        test: adaptation of test tasks.
        split: whether ANIL adapts to the support and is judged on the query samples of training tasks.
        heads: whether heads are one draw.
        test_head: ANIL's head at test time.
    """

    inner: Descent
    outer: Descent
    test: Descent
    split: bool = False
    heads: Heads = "shared"
    test_head: TestHead = "initial"


class KernelComparison(NamedTuple):
    """The gap over all repeats, and spectra of the first one.

    Attributes:
        mtl_anil_gap: the mean distance of the two predictions.
        mtl_anil_gap_se: its standard error.
        gap_by_repeat: the means of the repeats.
        kernel: whose eigenvalues are reported.
        condition: its condition number.
        eigenvalues: the largest first.
        conditions: condition numbers of all kernels that these settings have.
        protocol: what was averaged over what.
        test_tasks: per repeat.
    """

    mtl_anil_gap: float
    mtl_anil_gap_se: float
    gap_by_repeat: list[float]
    kernel: str
    condition: float
    eigenvalues: list[float]
    conditions: dict[str, float]
    protocol: str
    test_tasks: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {name: value for name, value in self._asdict().items() if name != "test_tasks"}

    def __str__(self) -> str:
        values, repeats = self.eigenvalues, len(self.gap_by_repeat)
        lines = [
            f"‖F_ANIL − F_MTL‖ = {self.mtl_anil_gap:.4g} ± {self.mtl_anil_gap_se:.2g} (standard error, "
            f"{repeats} repeats × {self.test_tasks} test tasks)",
            f"{self.kernel} kernel: eigenvalues {values[0]:.4g}, {values[min(1, len(values) - 1)]:.4g} … "
            f"{values[-1]:.4g}",
            *(f"condition number of {name}: {value:.4g}" for name, value in self.conditions.items()),
        ]
        return "\n".join(lines)


def compare_kernels(
    draws: Iterable[KernelRepeat], learning: Learning, kernel: str = "mtl"
) -> KernelComparison:
    """Eigenvalues of the first repeat's kernels, and the gap over all repeats.

    Args:
        draws: the repeats, one after the other: an iterator holds no more than one of them.
        learning: how both learners are trained and tested.
        kernel: whose eigenvalues to report: ``ntk``, ``nngp``, ``mtl``, ``anil``, or with a split ``maml``.

    >>> from innerloop.kernels import mlp_kernel
    >>> from innerloop import get_family, make_sampler
    >>> sampler = make_sampler(get_family("sine"), seed=0, shots=2, queries=2, dtype=torch.float64)
    >>> drawn = KernelRepeat(mlp_kernel(2, "relu"), sampler.episodes(range(3)), sampler.episodes(range(3, 5)))
    >>> comparison = compare_kernels([drawn], Learning(Descent(0.0), Descent(), Descent(1.0)))
    >>> len(comparison.eigenvalues), sorted(comparison.conditions)
    (12, ['anil', 'mtl', 'nngp', 'ntk'])
    """
    gaps: list[Tensor] = []
    spectra: dict[str, Tensor] = {}
    for drawn in draws:
        gaps.append(
            mtl_anil_gap(
                *drawn,
                inner=learning.inner,
                outer=learning.outer,
                test_descent=learning.test,
                split=learning.split,
                heads=learning.heads,
                test_head=learning.test_head,
            )
        )
        if not spectra:
            spectra = {name: spectrum(matrix) for name, matrix in _meta_kernels(drawn, learning).items()}
    gap = mean_error(gaps)
    return KernelComparison(
        mtl_anil_gap=gap.mean,
        mtl_anil_gap_se=gap.error,
        gap_by_repeat=[float(values.mean()) for values in gaps],
        kernel=kernel,
        condition=condition(spectra[kernel]),
        eigenvalues=spectra[kernel].tolist(),
        conditions={name: condition(values) for name, values in spectra.items()},
        protocol=PROTOCOL,
        test_tasks=len(gaps[0]),
    )


def _meta_kernels(drawn: KernelRepeat, learning: Learning) -> dict[str, Tensor]:
    """All kernels that there are, by name."""
    kernel, train = drawn.kernel, drawn.train
    n, queries = train.size, train.x_query.shape[1]
    whole = stack(torch.cat([train.x_support, train.x_query], 1))
    base = kernel(whole, whole)
    kernels = {
        "ntk": base.ntk,
        "nngp": base.nngp,
        "mtl": mtl_kernel(base.ntk, base.nngp, n, learning.heads),
    }
    if not learning.split:
        return {**kernels, "anil": anil_kernel_without_split(base.ntk, base.nngp, n, learning.inner)}
    x = torch.cat([stack(train.x_query), stack(train.x_support)])
    base = kernel(x, x)
    return {
        **kernels,
        "anil": anil_kernel(base.ntk, base.nngp, n, queries, learning.inner),
        "maml": maml_kernel(base.ntk, n, queries, learning.inner),
    }
