"""Bridge, Corollary 1.1: what residual connections and LayerNorm leave of Lemmas 4 and 5 and of Theorem 1."""

import math
from typing import Any

import torch
from torch import Tensor

from innerloop.kernels import Descent, Kernels, mtl_kernel, network_kernel
from innerloop.kernels.meta.predict import MeanError, mean_error, mtl_anil_gap
from innerloop.theory.kernels import LIMIT_OFF_DIAGONAL, inverse_gap, log_slope
from innerloop_studies.reproduce.rows import Row, listed, row

RESIDUAL = {  # names of networks, and what rows call them
    "residual": "residual ReLU",
    "residual-norm": "residual ReLU, LayerNorm on the stream",
    "residual-prenorm": "residual ReLU, LayerNorm in the branches",
}
DEEP = [20, 40, 80]
"""Depths whose gaps say whether they fall like 1/L; residual networks are slower to get there."""
LOG_DEPTH = (
    "a stream whose variance grows with every block is changed by 1/L of itself in the last one: its depth "
    "counts as log L"
)


def structure(base: Kernels, tasks: int) -> dict[str, float]:
    """What Lemmas 4 and 5 speak of, without the common factor K(x,x) of all kernels, their ``scale``."""
    scale = float(base.nngp.diagonal().mean())
    ntk, nngp = base.ntk / scale, base.nngp / scale
    different = ~torch.eye(len(ntk), dtype=torch.bool)
    off = float(ntk[different].mean() / ntk.diagonal().mean())
    return {"scale": scale, "off": off, "inverse_gap": inverse_gap(ntk, mtl_kernel(ntk, nngp, tasks))}


def residual_spectra(x: Tensor, tasks: int, depths: list[int]) -> dict[str, list[dict[str, float]]]:
    """By network and depth."""
    return {name: [structure(network_kernel(name, d)(x, x), tasks) for d in depths] for name in RESIDUAL}


def spectra_rows(depths: list[int], structures: dict[str, list[dict[str, float]]], x: Tensor) -> list[Row]:
    """Rows of ``bridge-spectra``."""
    rows = [_factor_row(depths, structures["residual"], x)]
    for name, words in RESIDUAL.items():
        off = structures[name][-1]["off"]
        gaps = [one["inverse_gap"] for one in structures[name][-3:]]
        slope, expected = log_slope([float(d) for d in depths[-3:]], gaps), name != "residual-prenorm"
        within = f"holds within 0.03 at L = {depths[-1]}"
        of = f"slope of the last three depths, {depths[-3:]}"
        for what, limit, ours, digits, near, why in (
            ("Θ between different inputs over Θ(x,x) → ¼", LIMIT_OFF_DIAGONAL, off, 4, 0.03, within),
            ("‖Θ⁻¹ − Φ_MTL⁻¹‖·K(x,x) falls like 1/L²", -2, slope, 3, 0.25, of),
        ):
            what, why = f"Corollary 1.1, {words}: {what}", why if expected else LOG_DEPTH
            holds = abs(ours - limit) < near
            rows.append(row(what, limit, round(ours, digits), holds, expected=expected, reason=why))
    return rows


def _factor_row(depths: list[int], plain: list[dict[str, float]], x: Tensor) -> Row:
    """All kernels of a residual network have one factor; the rest is that of LayerNorm on the stream."""
    depth = depths[-1]
    growth = (math.log(plain[-1]["scale"]) - math.log(plain[-2]["scale"])) / (depth - depths[-2])
    own, normed = network_kernel("residual", depth)(x, x), network_kernel("residual-norm", depth)(x, x)
    size = own.nngp.diagonal().sqrt()
    pairs = [(one / size[:, None] / size[None], other) for one, other in zip(own, normed, strict=True)]
    apart = max(float((one - other).abs().max() / other.abs().max()) for one, other in pairs)
    what = "Corollary 1.1: residual connections put one factor, exponential in L, on both kernels"
    said = f"{math.exp(growth):.4g}^L for sums that are not scaled; without it both are the same to "
    said += f"{apart:.0e} as with LayerNorm on the stream"
    why = "e^L is the factor of sums in infinitely small steps"
    return row(what, "e^L", said, growth > 0.1 and apart < 1e-9, reason=why)


def residual_gaps(tasks: list[Any]) -> dict[str, list[MeanError]]:
    """‖F_ANIL − F_MTL‖ at λτ = 0 and ŝ = 1, by network and depth."""

    def gap(name: str, depth: int) -> MeanError:
        kernel, inner, test = network_kernel(name, depth), Descent(0.0), Descent(1.0)
        return mean_error([mtl_anil_gap(kernel, *pair, inner=inner, test_descent=test) for pair in tasks])

    return {name: [gap(name, depth) for depth in DEEP] for name in RESIDUAL}


def gap_rows(gaps: dict[str, list[MeanError]]) -> list[Row]:
    """Rows of ``bridge-fig1``."""
    rows = []
    for name, words in RESIDUAL.items():
        means = [one.mean for one in gaps[name]]
        slope, slow = log_slope([float(d) for d in DEEP], means), name == "residual-prenorm"
        what, holds = f"Corollary 1.1, {words}: the gap falls like 1/L", -1.25 < slope < -0.8
        said = f"{listed(means, '.2f')} at L = {DEEP}; slope {slope:.2f}"
        why = LOG_DEPTH if slow else "holds if the slope lies between −1.25 and −0.8"
        rows.append(row(what, "slope −1", said, holds, expected=not slow, reason=why))
    return rows
