"""Bridge, Lemmas 4 and 5 and Corollary 1.1: what depth does to NTK, NNGP and the inverses of the kernels."""

import math
from typing import Any

import torch
from torch import Tensor

from innerloop.kernels import Descent, mlp_kernel
from innerloop.kernels.meta.kernel import adaptation_of, mtl_cross_kernel, mtl_kernel, stack
from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop.theory.kernels import depth_structure, inverse_gap, log_slope
from innerloop_studies.papers.bridge.corollary import RESIDUAL, residual_spectra, spectra_rows
from innerloop_studies.papers.bridge.shared import bridge_tasks
from innerloop_studies.papers.figures import loglog
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, listed, row

TITLE = "Bridge, Lemmas 4 and 5: spectra of deep kernels, and the gap of their inverses"
VERSION = 1
LIMIT = 9 * math.pi**2 / 2
SIZES = {"smoke": (4, 3, [4, 16, 64, 256]), "cpu": (20, 10, [4, 8, 16, 32, 64, 128, 256, 512, 1024])}
SIZES["paper"] = SIZES["cpu"]
LAST_RESIDUAL = 512  # their kernels double with every block, and 2^1024 is no float64


def run(scale: str, say: Say) -> Reproduction:
    """Kernels of the same inputs at growing depth, Σ¹(x,x) = 1 (‖x‖² = d/2)."""
    tasks, shots, depths = SIZES[scale]
    x = stack(bridge_tasks(0, "train", tasks, shots, 0).x_support) / math.sqrt(2)
    by_measure: dict[str, list[float]] = {}
    for depth in depths:
        base = mlp_kernel(depth)(x, x)
        structure = depth_structure(base.ntk, base.nngp, depth)
        gap = inverse_gap(base.ntk, mtl_kernel(base.ntk, base.nngp, tasks))
        measured = {**structure._asdict(), "inverse_gap": gap, "cross": _cross_norm(depth, x)}
        for key, value in measured.items():
            by_measure.setdefault(key, []).append(value)
        say(f"L = {depth}: Θ_off/L {structure.ntk_off:.4f}, L²(1−K_off) {structure.nngp_gap:.2f}, {gap:.2e}")
    protocol = {
        "inputs": f"{tasks} Bridge tasks × {shots} samples, d = 10, ‖x‖² = d/2 so that Σ¹(x,x) = 1, seed 0",
        "kernels": "analytic, ReLU, He's initialisation, float64",
        "residual networks": f"L − 2 blocks of one layer, sums not scaled, up to L = {LAST_RESIDUAL}",
    }
    deep = [depth for depth in depths if depth <= LAST_RESIDUAL]
    residual = residual_spectra(x, tasks, deep)
    say(f"residual networks up to L = {deep[-1]}")
    rows = _rows(depths, by_measure) + spectra_rows(deep, residual, x)
    data = {"depths": depths, **by_measure, "residual_depths": deep, "residual": residual}
    figures = {"bridge-spectra": _figure(depths, by_measure, deep, residual)}
    return Reproduction(rows, figures, data, protocol)


def _cross_norm(depth: int, x: Tensor) -> float:
    """‖Φ'_MTL‖_op of two test tasks, 10 queries and 5 support samples each, ŝ = 1."""
    test = bridge_tasks(0, "test", 2, 5, 10)
    points = torch.cat([stack(test.x_query), stack(test.x_support)]) / math.sqrt(2)
    kernel = mlp_kernel(depth)
    cross = kernel(points, x)
    blocks = adaptation_of(kernel(points, points).nngp, test.size, 10, Descent(1.0))
    return float(torch.linalg.matrix_norm(mtl_cross_kernel(cross.ntk, cross.nngp, blocks), 2))


def _rows(depths: list[int], by_measure: dict[str, list[float]]) -> list[Row]:
    deep, last = [float(d) for d in depths], {key: values[-1] for key, values in by_measure.items()}
    excess, gaps = by_measure["ntk_excess"], by_measure["inverse_gap"]
    # O(1) would mean no growth; a logarithm adds the same amount at every doubling
    per_doubling = (excess[-1] - excess[-2]) / math.log2(depths[-1] / depths[-2])
    slope, cross = (log_slope(deep[-3:], values[-3:]) for values in (gaps, by_measure["cross"]))
    falls, three = abs(slope + 2) < 0.25, f"slope of the last three depths, {depths[-3:]}"
    off, bulk, top, nngp = (last[key] for key in ("ntk_off", "ntk_bulk", "ntk_top", "nngp_gap"))
    quarter, why = abs(off - 0.25) < 0.03, f"holds within 0.03 at L = {depths[-1]}"
    grows = f"grows by {per_doubling:.2f} per doubling of L: {listed(excess, '.2f')}"
    log = "it is O(log L): the angle of two inputs is 3π/L with corrections of order log L/L²"
    near = abs(nngp / LIMIT - 1) < (0.1 if depths[-1] >= 512 else 0.2)
    order = "the paper gives the order only; the constant within 10 % (20 % below L = 512)"
    said = f"slope {cross:.3f}: {last['cross']:.3g} at L = {depths[-1]}"
    most = f"{three}, at most 0.1 above 1"
    ones, limit = "Lemma 4: K = 11ᵀ − O(1/L²); L²(1 − K_off) → 9π²/2", round(LIMIT, 2)
    return [
        row("Lemma 4: Θ/L between different inputs → ¼", 0.25, round(off, 4), quarter, reason=why),
        row("Lemma 4: the remainder of Θ is O(1)", "bounded", grows, abs(per_doubling) < 0.1, fails=log),
        row("Lemma 4: bulk eigenvalues of Θ over ¾L → 1", 1.0, round(bulk, 4), abs(bulk - 1) < 0.05),
        row("Lemma 4: largest eigenvalue of Θ over (Nn + 3)L/4 → 1", 1.0, round(top, 4), abs(top - 1) < 0.1),
        row(ones, limit, round(nngp, 2), near, reason=order),
        row("Lemma 5: ‖Θ⁻¹ − Φ_MTL⁻¹‖ falls like 1/L²", -2, round(slope, 3), falls, reason=three),
        row("B.5: ‖Φ'_MTL‖_op = O(L)", "at most 1", said, cross < 1.1, reason=most),
    ]


def _figure(depths: list[int], by_measure: Any, residual_depths: list[int], residual: Any) -> Any:
    deep, gaps = [float(d) for d in depths], by_measure["inverse_gap"]
    law = [gaps[-1] * (deep[-1] / d) ** 2 for d in deep]
    to_one = [
        line("Θ: bulk/(¾L)", deep, by_measure["ntk_bulk"]),
        line("Θ: largest/((Nn+3)L/4)", deep, by_measure["ntk_top"]),
        line("K: L²(1−K_off)/(9π²/2)", deep, [v / LIMIT for v in by_measure["nngp_gap"]]),
    ]
    excess = [line("analytic kernel", deep, by_measure["ntk_excess"])]
    inverses = [line("analytic kernels", deep, gaps), line("∝ 1/L²", deep, law)]
    by_network = [line("fully connected", deep, gaps)]
    for name, each in residual.items():
        by_network.append(line(RESIDUAL[name], residual_depths, [one["inverse_gap"] for one in each]))
    panels = [
        panel("depth L", "Lemma 4: ratios that tend to 1", to_one, log_x=True),
        panel("depth L", "Lemma 4: remainder of Θ, max|Θ_off − L/4|", excess, log_x=True),
        loglog("depth L", "Lemma 5: ‖Θ⁻¹ − Φ_MTL⁻¹‖", inverses),
        loglog("depth L", "Corollary 1.1: ‖Θ⁻¹ − Φ_MTL⁻¹‖·K(x,x)", by_network),
    ]
    return panels_figure(panels, columns=2)
