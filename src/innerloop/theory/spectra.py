r"""Spectra of kernels, and what depth does to them (Bridge, Lemmas 4 and 5). On arrays only."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LIMIT_OFF_DIAGONAL = 0.25
"""Θ/L between different inputs at large depth; on the diagonal it is 1."""


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
    """The slope of log y over log x by least squares: the exponent of a power law.

    >>> round(log_slope([1.0, 2.0, 4.0], [8.0, 4.0, 2.0]), 6)
    -1.0
    """
    logs = torch.tensor([x, y], dtype=torch.float64).log()
    centred = logs - logs.mean(1, keepdim=True)
    return float((centred[0] * centred[1]).sum() / centred[0].square().sum())
