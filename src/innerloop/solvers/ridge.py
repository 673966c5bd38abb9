r"""Ridge regression, many at once, in closed form and differentiable: scikit-learn's ``Ridge``, batched.

.. math:: \min_{W,b}\;\sum_i\|Wx_i + b - y_i\|^2 + \lambda\|W\|^2

The primal form solves :math:`(X^\top X + \lambda I)W^\top = X^\top Y`, the dual one
:math:`W^\top = X^\top(XX^\top + \lambda I)^{-1}Y`; they are equal, and the smaller system is
taken. An unpenalised intercept is the same problem on centred data.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.solvers.problems import check_positive


class RidgeResult(NamedTuple):
    """``weights`` (B, k, d) and ``bias`` (B, k): predictions are ``x @ weightsᵀ + bias``."""

    weights: Tensor
    bias: Tensor


def ridge(
    features: Tensor,
    targets: Tensor,
    penalty: float | Tensor,
    intercept: bool = False,
    form: Literal["auto", "primal", "dual"] = "auto",
) -> RidgeResult:
    """Fits one regression per problem; differentiable in features, targets and penalty.

    Args:
        features: ``(B, n, d)``.
        targets: ``(B, n, k)``.
        penalty: λ, scikit-learn's ``alpha``; a tensor (scalar) may be learned.
        intercept: whether to fit one (unpenalised).
        form: which system to solve; the smaller one if ``auto``.

    >>> x, y = torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[1.0], [2.0]]])
    >>> ridge(x, y, penalty=5.0).weights  # Σxy / (Σx² + λ)
    tensor([[[0.5000]]])
    """
    if features.ndim != 3 or targets.ndim != 3 or features.shape[:2] != targets.shape[:2]:
        raise UserError(
            f"features of shape {tuple(features.shape)} with targets of shape {tuple(targets.shape)}: "
            "give (problems, samples, dimensions) and (problems, samples, outputs)."
        )
    check_positive("penalty", float(penalty.detach() if isinstance(penalty, Tensor) else penalty))
    x_mean, y_mean = features.mean(1, keepdim=True), targets.mean(1, keepdim=True)
    x, y = (features - x_mean, targets - y_mean) if intercept else (features, targets)
    n, d = x.shape[1:]
    if form == "dual" or (form == "auto" and n <= d):
        weights = _solve(x @ x.mT, penalty, y).mT @ x
    else:
        weights = _solve(x.mT @ x, penalty, x.mT @ y).mT
    if not intercept:
        return RidgeResult(weights, weights.new_zeros(weights.shape[:2]))
    return RidgeResult(weights, (y_mean - x_mean @ weights.mT).squeeze(1))


def _solve(gram: Tensor, penalty: float | Tensor, right: Tensor) -> Tensor:
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return torch.cholesky_solve(right, torch.linalg.cholesky(gram + penalty * eye))
