"""The landscape's closed forms, slowly: one environment, one task, one matrix at a time, in numpy.

And the paper's own lines, letter by letter: eqs. 6 to 11, and 43 with optima and noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def q_matrix(s: Array, lr: float, samples: float) -> Array:
    """(I − aS) S (I − aS) + (a²/s)(tr(S²) S + S³)."""
    left = np.eye(len(s)) - lr * s
    return left @ s @ left + lr**2 / samples * (np.trace(s @ s) * s + s @ s @ s)


def optimum(curvatures: list[Array], optima: list[Array], shares: list[float]) -> Array:
    """E[C]⁻¹ E[C w*]."""
    total = sum(p * c for p, c in zip(shares, curvatures, strict=True))
    pull = sum(p * c @ w for p, c, w in zip(shares, curvatures, optima, strict=True))
    return np.linalg.solve(np.asarray(total), np.asarray(pull))


def proposition_1(
    covariances: Array, optima: Array, shares: Array, lr: float, shots: float, inner_shots: float
) -> dict[str, tuple[Array, list[float]]]:
    """Solution and ½‖w − w_i*‖² in Q_i^(m) of every task, for NAL and MAML."""
    found = {}
    for name in ("nal", "maml"):
        curvatures = [s if name == "nal" else q_matrix(s, lr, inner_shots) for s in covariances]
        w = optimum(curvatures, list(optima), list(shares))
        risks = [
            0.5 * float((w - best) @ q_matrix(s, lr, shots) @ (w - best))
            for s, best in zip(covariances, optima, strict=True)
        ]
        found[name] = (w, risks)
    return found


def equations_10_and_11(
    d: int, rho_h: float, rho_e: float, R: float, r_h: float, r_e: float, lr: float, m: float
) -> tuple[float, float]:
    """Corollary 1 as printed."""
    a_e = rho_e * (1 - lr * rho_e) ** 2 + (d + 1) / m * lr**2 * rho_e**3
    a_h = rho_h * (1 - lr * rho_h) ** 2 + (d + 1) / m * lr**2 * rho_h**3
    nal = (
        (a_e * rho_e**2 + 2 * a_e * rho_e * rho_h) * r_e
        + a_e * rho_h**2 * (r_e + R**2)
        + (a_h * rho_h**2 + 2 * a_h * rho_e * rho_h) * r_h
        + a_h * rho_e**2 * (r_h + R**2)
    )
    maml = (
        (a_e**3 + 2 * a_e**2 * a_h) * r_e
        + (a_h**3 + 2 * a_e * a_h**2) * r_h
        + a_e * a_h**2 * (r_e + R**2)
        + a_e**2 * a_h * (r_h + R**2)
    )
    return d / (4 * (rho_e + rho_h) ** 2) * nal, d / (4 * (a_e + a_h) ** 2) * maml


def equation_43(x_in: Array, z_in: Array, x_out: Array, z_out: Array, optima: Array, lr: float) -> Array:
    """The empirical MAML solution from optima and noise, term by term as printed."""
    d, n2 = x_in.shape[-1], x_in.shape[-2]
    left, right = np.zeros((d, d)), np.zeros(d)
    for a, za, b, zb, best in zip(x_in, z_in, x_out, z_out, optima, strict=True):
        p = np.eye(d) - lr / n2 * a.T @ a
        q = p @ b.T @ b @ p
        left += q
        right += q @ best + p @ b.T @ zb - lr / n2 * p @ b.T @ b @ a.T @ za
    return np.linalg.solve(left, right)


def simulate_step(
    w: Array, s: Array, best: Array, lr: float, shots: int, noise: float, count: int, seed: int
) -> Array:
    """Loss of ``w`` beyond the task's best, after one step on fresh samples: ``count`` independent values."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, shots, len(s))) @ np.linalg.cholesky(s).T
    y = x @ best + noise * rng.standard_normal((count, shots))
    gradient = np.einsum("cni,cn->ci", x, x @ w - y) / shots
    off = w - lr * gradient - best
    return 0.5 * np.einsum("ci,ij,cj->c", off, s, off)
