"""AdaptLR, Figure 4: α*_lim against the variance of the data, for bumps and for a wide net's tangents."""

from itertools import pairwise

import torch

from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop.theory.rate.estimate import limit_moments
from innerloop.theory.rate.linear import gaussian_basis, spread_centres
from innerloop_studies.papers.adaptlr.shared import same_variance, seeded, tangent_gram, wide_net
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "AdaptLR, Figure 4: α*_lim against the variance of the data"
VERSION = 1
SAMPLES = 20
BUMPS = 5


def run(scale: str, say: Say) -> Reproduction:
    """Widths of the bumps follow the data (the paper: they depend on its range), their centres stay."""
    tasks, width = {"smoke": (200, 512), "cpu": (2000, 10_240), "paper": (5000, 10_240)}[scale]
    rows: list[Row] = []
    bumps = {kind: _bumps(kind, tasks) for kind in ("normal", "uniform", "exponential")}
    nets = {kind: _tangents(kind, min(tasks, 200), width) for kind in ("normal", "uniform")}
    for title, curves in (("Gaussian basis", bumps), ("tangents of a wide net", nets)):
        for kind, (variances, rates) in curves.items():
            falls = all(later < earlier for earlier, later in pairwise(rates))
            r2_pure, r2_floor = _fits(variances, rates)
            said = f"{rates[0]:.3g} → {rates[-1]:.3g}"
            say(f"{title}, {kind}: {said}; R² {r2_pure:.2f} and {r2_floor:.2f}")
            rows.append(row(f"{title}, {kind}: α*_lim falls as the variance grows", "falls", said, falls))
            if title == "Gaussian basis":
                what, paper = f"{title}, {kind}: the curve is c/σ²", "perfectly fitted, c = 0.35"
                said = f"R² = {r2_pure:.2f}; with a floor, a + b/σ²: {r2_floor:.2f}"
                why = "it falls to a floor, not to 0; the paper's own axis runs from 0.375 to 0.2"
                rows.append(row(what, paper, said, r2_pure > 0.95, fails=why))
    lines = [[line(kind, *curve) for kind, curve in curves.items()] for curves in (bumps, nets)]
    panels = [
        panel("variance of x", "(a) Gaussian basis: α*_lim", lines[0]),
        panel("variance of x", "(b) tangents of a wide net: α*_lim", lines[1], log_y=True),
    ]
    data = {"bumps": bumps, "tangents": nets}
    protocol = {"tasks": tasks, "samples": SAMPLES, "bumps": BUMPS, "width of the net": width, "seed": 0}
    return Reproduction(rows, {"adaptlr-fig4": panels_figure(panels)}, data, protocol)


def _bumps(kind: str, tasks: int) -> tuple[list[float], list[float]]:
    variances = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 50.0]
    rates = []
    for variance in variances:
        law = same_variance(kind, variance)
        x = law.draw(seeded(0), tasks, SAMPLES, 1)
        rates.append(limit_moments(gaussian_basis(x, spread_centres(-3, 3, BUMPS), variance**0.5)).rate)
    return variances, rates


def _tangents(kind: str, tasks: int, width: int) -> tuple[list[float], list[float]]:
    """Eq. 3.3 from Grams: tangents of a two-layer net, weights U(−1, 1)."""
    variances = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    net = wide_net(seeded(1), 1, width, "uniform")
    rates = []
    for variance in variances:
        above = below = 0.0
        for x in same_variance(kind, variance).draw(seeded(0), tasks, SAMPLES, 1):
            gram = tangent_gram(net, x, x)
            above += float((gram * gram).sum())
            below += float(((gram @ gram) * gram).sum())
        rates.append(SAMPLES / 2 * above / below)
    return variances, rates


def _fits(variances: list[float], rates: list[float]) -> tuple[float, float]:
    """R² of c/σ² and of a + b/σ²."""
    y = torch.tensor(rates, dtype=torch.float64)
    inverse = 1 / torch.tensor(variances, dtype=torch.float64)
    total = float((y - y.mean()).square().sum())
    shares = []
    for columns in ([inverse], [torch.ones_like(inverse), inverse]):
        x = torch.stack(columns, 1)
        fit = x @ torch.linalg.lstsq(x, y.unsqueeze(1)).solution
        shares.append(1 - float((y - fit[:, 0]).square().sum()) / total)
    return shares[0], shares[1]
