"""Crammer and Singer's dual, one programme at a time, by SciPy's general solver: slow and obvious."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor


def coefficients(gram: Tensor, hot: Tensor, C: float) -> Tensor:
    """``A`` (k, n) of one programme with Gram matrix ``(n, n)`` and one-hot labels ``(k, n)``."""
    K, Y = gram.numpy(), hot.numpy()
    k, n = Y.shape

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        A = flat.reshape(k, n)
        return float(0.5 * (A * (A @ K)).sum() - (A * Y).sum()), (A @ K - Y).ravel()

    sums = np.tile(np.eye(n), k)
    found = minimize(
        value,
        np.zeros(k * n),
        jac=True,
        bounds=[(None, top) for top in (C * Y).ravel()],
        constraints=[{"type": "eq", "fun": lambda a: sums @ a, "jac": lambda a: sums}],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert found.status in (0, 8), found.message  # 8: no way further down, which rounding also does
    return torch.from_numpy(found.x.reshape(k, n))
