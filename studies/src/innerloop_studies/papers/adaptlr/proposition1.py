"""AdaptLR, Proposition 1: the gap between the population risk of one draw and its mean, against N."""

import math
from typing import Any

import torch
from torch import Tensor

from innerloop.report.plots.panels import Panel, line, panels_figure
from innerloop.theory.kernels import log_slope
from innerloop.theory.rate.estimate import limit_moments
from innerloop_studies.papers.adaptlr import examples
from innerloop_studies.papers.adaptlr.shared import Law, seeded
from innerloop_studies.papers.figures import loglog
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "AdaptLR, Proposition 1: the gap of the population risk to its mean, against N"
VERSION = 1
SAMPLES, DIM = 50, 20
INPUTS, OPTIMA = Law("uniform", -5, 5), Law("normal", 0, 3**0.5)
CHANCE = 0.05  # δ: the bound holds with probability 1 − δ
LIMIT, INSIDE = "α*_lim", "half the proof's end"
Results = dict[str, Any]
"""Gaps at α*_lim and at half the proof's end, there with the bounds; both ends of B.13; ε by rate."""


def run(scale: str, say: Say) -> Reproduction:
    """At α*_lim and at half the largest rate that the proof allows: quantiles over draws of N tasks."""
    top, draws = {"smoke": (8, 60), "cpu": (11, 200), "paper": (13, 1000)}[scale]
    counts = [2**e for e in range(2, top + 1)]
    made = seeded(0)
    pool = INPUTS.draw(made, {"smoke": 2000}.get(scale, 20_000), SAMPLES, DIM)
    limit, known = limit_moments(pool).rate, examples.Eigenvalues.of(pool)
    low, high = known.proved(SAMPLES)
    gaps: dict[str, dict[str, Any]] = {}
    for name, rate in ((LIMIT, limit), (INSIDE, low / 2)):
        gaps[name] = _gaps(pool, rate, counts, draws, made)
        say(f"{name} = {rate:.3g}: 95 % of gaps below {gaps[name]['gap'][-1]:.3g} at N = {counts[-1]}")
    rates = (low / 2, 0.0, 0.99 * low, 10 * high, 100 * high)
    at, *others = (examples.epsilon(known, rate, SAMPLES) for rate in rates)
    norm = gaps[INSIDE]["norm"]
    bounds = [examples.gap_bounds(at, SAMPLES, DIM, n, norm, CHANCE) for n in counts]
    bound, corrected = map(list, zip(*bounds, strict=True))
    results: Results = {"counts": counts, "limit": limit, "proved": (low, high), **known._asdict()}
    results[LIMIT] = gaps[LIMIT]
    results[INSIDE] = {**gaps[INSIDE], "bound": bound, "corrected": corrected}
    results["ε"] = dict(zip(map(str, rates[1:]), others, strict=True))
    protocol = {
        "data": f"{INPUTS}, K = {SAMPLES}, d = {DIM}",
        "optima": "N(0, 3I)",
        "draws of N tasks": draws,
        "tasks for the population": len(pool),
        "mean risk": "over optima, features of the N tasks fixed, as B.2 and C.5",
        "λ_I, λ_S": "least and largest eigenvalue of the pool",
        "constant of Hanson and Wright": "1 (the paper drops it)",
        "seed": 0,
    }
    figures = {"adaptlr-proposition1": panels_figure(_panels(results))}
    return Reproduction(_rows(results), figures, results, protocol)


def _gaps(pool: Tensor, rate: float, counts: list[int], draws: int, made: torch.Generator) -> dict[str, Any]:
    """For every N: 95 % quantiles of |L_m(w_m) − its mean|, the mean, and that above its limit."""
    population = examples.adapted(pool, rate).mean(0)
    gaps, means = [], []
    for n in counts:
        each = []
        for _ in range(draws):
            matrices = examples.adapted(INPUTS.draw(made, n, SAMPLES, DIM), rate)
            each.append(examples.risks(matrices, OPTIMA.draw(made, n, DIM), population, SAMPLES, OPTIMA.b**2))
        table = torch.tensor(each, dtype=torch.float64)
        gaps.append(float((table[:, 0] - table[:, 1]).abs().quantile(1 - CHANCE)))
        means.append(float(table[:, 1].mean()))
    u = torch.einsum("nij,nj->ni", examples.adapted(pool, rate), OPTIMA.draw(made, len(pool), DIM))
    limit = OPTIMA.b**2 * float(population.trace()) / SAMPLES
    excess = [mean - limit for mean in means]
    return {"rate": rate, "gap": gaps, "mean": means, "excess": excess, "norm": examples.sub_gaussian_norm(u)}


def _rows(results: Results) -> list[Row]:
    counts = results["counts"]
    rows = []
    for name in (LIMIT, INSIDE):
        part, gap = results[name], results[name]["gap"]
        slope = log_slope(counts[1:], gap[1:])
        what = f"{name}: the gap of the population risk to its mean vanishes as 1/N"
        said = f"α = {part['rate']:.3g}: 95 % of gaps below {gap[0]:.3g} at N = {counts[0]}, "
        said += f"{gap[-1]:.3g} at {counts[-1]} (mean risk {part['mean'][-1]:.3g}); slope {slope:.2f}"
        why = "holds if the slope of the 95 % quantile is −1 to within 0.15, N = 8 and more"
        rows.append(row(what, "of order 1/N (3.4)", said, abs(slope + 1) < 0.15, reason=why))
    excess = results[LIMIT]["excess"]
    slope = log_slope(counts[1:], excess[1:])
    what = "α*_lim: the mean population risk tends to its limit as 1/N (B.17)"
    ends = f"{excess[0]:.3g} above it at N = {counts[0]}, {excess[-1]:.3g} at {counts[-1]}"
    why = "outside the rates of B.13, for which it is proved; holds as the rows above"
    rows.append(row(what, "of order 1/N", f"{ends}; slope {slope:.2f}", abs(slope + 1) < 0.15, reason=why))
    first = "half the proof's end: 95 % of gaps lie below (3.4) as printed"
    for key, what, reason in (
        ("bound", first, "Hanson–Wright's constant as 1"),
        ("corrected", "the same with ε for √ε in the first term, as C.18 gives", "C.19 loses a square of ε"),
    ):
        looseness = [b / g for b, g in zip(results[INSIDE][key], results[INSIDE]["gap"], strict=True)]
        ours = f"bound / 95 % quantile: {min(looseness):.3g} to {max(looseness):.3g}"
        rows.append(row(what, "below the bound", ours, min(looseness) >= 1, reason=reason))
    limit, (low, high) = results["limit"], results["proved"]
    what = "Proof of Theorem 1, step 6: α*_lim lies in the range of α of step 4 (B.13)"
    said = f"α*_lim {limit:.3g}; the range is below {low:.3g} and above {high:.3g}"
    why = "it never does: K/2λ_S ≤ α*_lim ≤ K/2λ_I, and the gap of B.13 contains all of that. "
    why += "Theorem 1 itself holds in adaptlr-fig8"
    rows.append(row(what, "in the range", said, limit < low or limit > high, fails=why))
    start, near, far, further = results["ε"].values()
    what = "after Proposition 1: large α makes the bound tighter, small α leaves a positive constant"
    said = f"ε = {start:.3g} at 0, {near:.3g} just below the first end of B.13, {far:.3g} and {further:.3g} "
    said += "at ten and a hundred times the second"
    why = "ε has poles at both ends of B.13: it rises up to the first, falls as α⁻² beyond the second"
    return [*rows, row(what, "falls in α", said, near < start and further < far, fails=why)]


def _panels(results: Results) -> list[Panel]:
    counts, inside, gap = results["counts"], results[INSIDE], results[LIMIT]["gap"]
    guide = line("1/N", counts, [gap[0] * counts[0] / n for n in counts])
    bound = [line("(3.4) as printed", counts, inside["bound"]), line("with ε", counts, inside["corrected"])]
    finite = [one for one in bound if math.isfinite(one.y[0])]
    panels = {
        "α*_lim: 95 % quantile of the gap": [line("gap", counts, gap), guide],
        "half the proof's end: gap and bound": [line("gap", counts, inside["gap"]), *finite],
    }
    return [loglog("number of tasks N", title, lines) for title, lines in panels.items()]
