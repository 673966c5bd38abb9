"""Inverses of many small positive definite matrices at once."""

from __future__ import annotations

import torch
from torch import Tensor

SMALL = 32  # beyond this side, and below this many matrices, LAPACK one by one is faster
MANY = 400


def times(matrices: Tensor, vectors: Tensor) -> Tensor:
    """``M v`` for matrices ``(…, n, m)`` and vectors ``(…, m)``."""
    return (matrices @ vectors[..., None]).squeeze(-1)


def spd_inverse(matrices: Tensor) -> Tensor:
    """``M⁻¹`` for symmetric positive definite ``M`` of shape ``(…, n, n)``."""
    # small ones together by Gauss–Jordan, the batch innermost: 1,000 of 10×10 in half of LAPACK's time
    n = matrices.shape[-1]
    batch = matrices.shape[:-2]
    count = matrices.numel() // max(n * n, 1)
    if n > SMALL or count < MANY or matrices.requires_grad:  # what is done in place has no derivative
        return _by_cholesky(matrices)
    batch_last = matrices.reshape(count, n, n).permute(1, 2, 0)
    inverse = _gauss_jordan(batch_last.clone(memory_format=torch.contiguous_format))
    return inverse.permute(2, 0, 1).contiguous().reshape(*batch, n, n)


def _gauss_jordan(work: Tensor) -> Tensor:
    """In place on ``(n, n, batch)``."""
    for j in range(work.shape[0]):
        pivot = work[j, j].reciprocal()
        row = work[j] * pivot
        row[j] = pivot
        column = work[:, j].clone()
        column[j] = 0
        work[:, j] = 0
        work[j] = row
        work.addcmul_(column[:, None], row[None], value=-1)
    return work


def _by_cholesky(matrices: Tensor) -> Tensor:
    """LAPACK; a matrix that rounding has made indefinite is given a small ridge, one with NaN gives NaN."""
    factor, failed = spd_factor(matrices)
    inverse = torch.cholesky_inverse(factor)
    return torch.where(failed[..., None, None], torch.nan, inverse) if bool(failed.any()) else inverse


def spd_factor(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Cholesky factors (with the least ridge, in tenfold steps, that mends rounding); where there is none."""
    factor, failed = torch.linalg.cholesky_ex(matrices)
    weak = failed != 0
    if not bool(weak.any()):
        return factor, weak
    size = torch.finfo(matrices.dtype).eps * matrices.diagonal(dim1=-2, dim2=-1).mean(-1)
    for tenfold in range(1, 9):
        weak = weak | (failed != 0)
        ridge = torch.where(weak, size * 10.0**tenfold, 0.0)
        lifted = matrices + torch.diag_embed(ridge[..., None].expand(matrices.shape[:-1]))
        factor, failed = torch.linalg.cholesky_ex(lifted)
        if not bool((failed != 0).any()):
            return factor, failed != 0
    bad = failed != 0
    eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    return torch.where(bad[..., None, None], eye, factor), bad
