r"""Basis functions: from inputs to stacks of features, for closed forms and figures."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.core.errors import UserError


def identity(x: Tensor) -> Tensor:
    """The inputs themselves (the paper's random matrices)."""
    return x


def random_matrix(x: Tensor, dim: int, generator: torch.Generator) -> Tensor:
    r""":math:`\varphi(x) = Wx/\sqrt{d_x}` with one normal matrix :math:`W` for all tasks.

    Args:
        x: inputs ``(tasks, K, d_x)``.
        dim: number of features.
        generator: where the matrix is from.

    >>> random_matrix(torch.ones(2, 3, 4), 5, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 5])
    """
    weights = torch.randn(x.shape[-1], dim, generator=generator, dtype=x.dtype, device=x.device)
    return x @ weights / x.shape[-1] ** 0.5


def gaussian_basis(x: Tensor, centres: Tensor, width: float) -> Tensor:
    r""":math:`\varphi_j(x) = \exp(-(x - \mu_j)^2/2s^2)` (§5.2, H.4.2).

    Args:
        x: inputs with one coordinate (last axis of size 1), or one for each centre.
        centres: ``(d,)``.
        width: ``s``.

    >>> gaussian_basis(torch.zeros(1, 1, 1), torch.tensor([0.0, 1.0]), 1.0)
    tensor([[[1.0000, 0.6065]]])
    """
    if x.shape[-1] not in (1, len(centres)):
        raise UserError(
            f"inputs with {x.shape[-1]} coordinates and {len(centres)} centres: give 1, or as many."
        )
    return torch.exp(-((x - centres) ** 2) / (2 * width**2))


def spread_centres(low: float, high: float, dim: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """``dim`` centres at equal distances from ``low`` to ``high``.

    Args:
        low: the first centre.
        high: the last centre.
        dim: how many.
        dtype: of the result.
    """
    return torch.linspace(low, high, dim, dtype=dtype)


def polynomial_basis(x: Tensor, dim: int, scaled: bool = False) -> Tensor:
    r""":math:`\varphi(x) = (1, x, \dots, x^{d-1})` (Example 1), or each over :math:`j!` (H.4.2).

    Args:
        x: inputs ``(tasks, K, 1)``.
        dim: number of features.
        scaled: whether power j is divided by j!.

    >>> polynomial_basis(torch.tensor([[[2.0]]]), 4)
    tensor([[[1., 2., 4., 8.]]])
    """
    if x.shape[-1] != 1:
        raise UserError(f"a polynomial basis needs inputs with one coordinate, not {x.shape[-1]}.")
    exponents = torch.arange(dim, dtype=x.dtype, device=x.device)
    powers = x**exponents
    return powers / torch.exp(torch.lgamma(exponents + 1)) if scaled else powers
