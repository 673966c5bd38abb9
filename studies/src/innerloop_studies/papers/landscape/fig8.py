"""Figure 8: logistic regression, in the manner of Figure 2's column with m = 500."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.report.plots.panels import Panel, panel, panels_figure
from innerloop_studies.papers.figures import along
from innerloop_studies.papers.landscape.linear import intervals
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, listed, row

TITLE = "Landscape, Figure 8: logistic regression against ρ_H"
VERSION = 1
F64 = torch.float64
DIM, SHOTS, OUTER, RATE = 10, 500, 25, 4.0
SIZES = {"smoke": (2, 3, 400, 10), "cpu": (5, 8, 3000, 40), "paper": (10, 15, 5000, 200)}
"""Repeats, values of ρ_H, iterations, support sets per evaluation."""
OUTER_RATES = {"nal": 0.5, "maml": 1.0}
Ends = dict[str, Any]  # where SGD ends for every ρ_H: of both methods means with half their intervals


def run(scale: str, say: Say) -> Reproduction:
    """Two tasks with optima **1** and −**1**, the easy one with inputs of variance 1."""
    runs, grid, steps, draws = SIZES[scale]
    settings = {"runs": runs, "grid": grid, "steps": steps, "draws": draws}
    (ends,) = compute_parts("landscape-fig8", VERSION, _measure, [settings])
    say("ratios of the excess risks: " + listed(_ratios(ends), ".2f"))
    protocol = {
        "labels": "drawn from the true logistic model with optima 1 and −1 (not stated in the paper)",
        "inner rate": f"{RATE:g} = 1/(ρ_E/4), one over the easy task's smoothness (not stated)",
        "SGD": f"{steps} iterations of one task, n₁ = 25, n₂ = {SHOTS}, rates {OUTER_RATES}, {runs} repeats",
        "excess risk": f"after a step on {SHOTS} samples, {draws} support sets; loss by quadrature",
    }
    figures = {"landscape-fig8": panels_figure(_panels(ends), width=3.6, height=2.9, shared_legend=True)}
    return Reproduction(_rows(ends), figures, {"found": ends}, protocol)


def _middle(ends: Ends) -> list[int]:
    """The places of the grid that the statements are about."""
    return [i for i, rho in enumerate(ends["rho"]) if 0.1 <= rho <= 0.6]


def _ratios(ends: Ends) -> list[float]:
    return [ends["nal"]["risk"][i] / ends["maml"]["risk"][i] for i in _middle(ends)]


def _rows(ends: Ends) -> list[Row]:
    nal, maml = ends["nal"]["coordinate"], ends["maml"]["coordinate"]
    nearer, ratio = all(maml[i] > nal[i] for i in _middle(ends)), max(_ratios(ends))
    start = "MAML starts nearer the hard task than NAL (ρ_H in 0.1–0.6)"
    smaller = "MAML's excess risk is smaller for suitable ρ_H; largest ratio"
    return [row(start, "yes", nearer, nearer), row(smaller, "smaller", ratio, ratio > 1.05)]


def _panels(ends: Ends) -> list[Panel]:
    optima, top, x = {"hard": 1.0, "easy": -1.0}, 1.2 * max(ends["nal"]["risk"]), "ρ_H (ρ_E = 1)"
    coordinates, risks = (along(ends["rho"], ends["rho"], ends, key) for key in ("coordinate", "risk"))
    return [
        panel(x, "average coordinate", coordinates, heights=optima, limits=(-1.1, 1.1)),
        panel(x, "excess risk after one step", risks, heights={}, limits=(0.0, top)),
    ]


def _measure(runs: int, grid: int, steps: int, draws: int) -> dict[str, Any]:
    rho = torch.linspace(0.05, 0.95, grid, dtype=F64)
    scales = rho.expand(runs, -1)
    one = torch.ones(runs, grid, DIM, dtype=F64)
    found: Ends = {"rho": rho.tolist()}
    for i, method in enumerate(("nal", "maml")):
        w = sgd(method, scales, steps, seed=i)
        hard = risk(w, scales, one, draws, seed=7)
        easy = risk(w, torch.ones_like(scales), -one, draws, seed=8)
        keys = ("coordinate", "coordinate_ci95", "risk", "risk_ci95")
        values = (*intervals(w.mean(-1)), *intervals((hard + easy) / 2))
        found[method] = dict(zip(keys, values, strict=True))
    return found


def draw(rho: Tensor, optima: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Samples ``(…, n, d)`` and labels ``(…, n)`` of tasks with scales ``(…)`` and optima ``(…, d)``."""
    drawn = torch.randn(*rho.shape, n, optima.shape[-1], generator=generator, dtype=F64)
    x = rho.sqrt()[..., None, None] * drawn
    chance = torch.sigmoid((x @ optima[..., None])[..., 0])
    return x, (torch.rand(chance.shape, generator=generator, dtype=F64) < chance).to(F64)


def gradient(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of the mean logistic loss, ``(…, d)``."""
    residual = torch.sigmoid((x @ w[..., None])[..., 0]) - y
    return (x.mT @ residual[..., None])[..., 0] / x.shape[-2]


def maml_gradient(w: Tensor, inner: tuple[Tensor, Tensor], outer: tuple[Tensor, Tensor], lr: float) -> Tensor:
    """Of the outer loss after one inner step: (I − αH_in) ∇f_out(w′)."""
    x, y = inner
    chance = torch.sigmoid((x @ w[..., None])[..., 0])
    moved = w - lr * gradient(w, x, y)
    g = gradient(moved, *outer)
    curved = (chance * (1 - chance))[..., None] * (x @ g[..., None])
    return g - lr * (x.mT @ curved)[..., 0] / x.shape[-2]


def excess_loss(w: Tensor, rho: Tensor, optima: Tensor, points: int = 40) -> Tensor:
    """The population loss of ``w`` beyond that of the optimum, ``(…)``; the labels' own entropy is out."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    z, p = torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())
    size = optima.norm(dim=-1)
    along = (w * optima).sum(-1) / size
    across = (w.square().sum(-1) - along.square()).clamp(min=0).sqrt()
    root = rho.sqrt()[..., None, None]
    t = root * size[..., None, None] * z[:, None]
    s = root * (along[..., None, None] * z[:, None] + across[..., None, None] * z[None])
    chance = torch.sigmoid(t)
    value = F.softplus(s) - chance * s - (F.softplus(t) - chance * t)
    return (value * p[:, None] * p[None]).sum((-2, -1))


def risk(w: Tensor, rho: Tensor, optima: Tensor, draws: int, seed: int) -> Tensor:
    """Excess loss after one step, averaged over ``draws`` support sets, ``(…)``."""
    g = torch.Generator().manual_seed(seed)
    total = torch.zeros(rho.shape, dtype=F64)
    for _ in range(draws):
        moved = w - RATE * gradient(w, *draw(rho, optima, SHOTS, g))
        total += excess_loss(moved, rho, optima)
    return total / draws


def sgd(method: str, rho: Tensor, steps: int, seed: int) -> Tensor:
    """Ends of SGD for every entry of ``rho`` (…, the hard task's scale; the easy one has 1): ``(…, d)``."""
    g = torch.Generator().manual_seed(seed)
    w = torch.zeros(*rho.shape, DIM, dtype=F64)
    for _ in range(steps):
        hard = torch.rand(rho.shape, generator=g) < 0.5
        scale = torch.where(hard, rho, torch.ones_like(rho))
        best = torch.where(hard, 1.0, -1.0).to(F64)[..., None].expand(*rho.shape, DIM)
        if method == "nal":
            step = gradient(w, *draw(scale, best, SHOTS + OUTER, g))
        else:
            step = maml_gradient(w, draw(scale, best, SHOTS, g), draw(scale, best, OUTER, g), RATE)
        w = w - OUTER_RATES[method] * step
    return w
