"""Figure 8: logistic regression, in the manner of Figure 2's column with m = 500."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

if TYPE_CHECKING:
    from innerloop.report.plots.panels import Panel

DIM, SHOTS, OUTER, RATE = 10, 500, 25, 4.0
SIZES = {"smoke": (2, 3, 400, 10), "cpu": (5, 8, 3000, 40), "paper": (10, 15, 5000, 200)}
"""Repeats, values of ρ_H, iterations, support sets per evaluation."""
OUTER_RATES = {"nal": 0.5, "maml": 1.0}


class Method(NamedTuple):
    """Means over SGD's ends along ρ_H, each with half its interval."""

    coordinate: list[float]
    coordinate_ci95: list[float]
    risk: list[float]
    risk_ci95: list[float]


class Ends(NamedTuple):
    """Where SGD ends, for every ρ_H."""

    rho: list[float]
    nal: Method
    maml: Method

    @classmethod
    def kept(cls, plain: dict[str, Any]) -> Ends:
        """From plain data."""
        return cls(plain["rho"], Method(**plain["nal"]), Method(**plain["maml"]))

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"rho": self.rho, "nal": self.nal._asdict(), "maml": self.maml._asdict()}


def run(scale: str, say: Say) -> Reproduction:
    """Two tasks with optima **1** and −**1**, the easy one with inputs of variance 1."""
    from innerloop.report.plots.panels import panels_figure
    from innerloop_studies.reproduce.parts import remembered

    runs, grid, steps, draws = SIZES[scale]
    settings = {"runs": runs, "grid": grid, "steps": steps, "draws": draws}
    ends = Ends.kept(remembered("landscape-fig8", _measure, settings))
    say("ratios of the excess risks: " + ", ".join(f"{r:.2f}" for r in _ratios(ends)))
    protocol = {
        "labels": "drawn from the true logistic model with optima 1 and −1 (not stated in the paper)",
        "inner rate": f"{RATE:g} = 1/(ρ_E/4), one over the easy task's smoothness (not stated)",
        "SGD": f"{steps} iterations of one task, n₁ = 25, n₂ = {SHOTS}, rates {OUTER_RATES}, {runs} repeats",
        "excess risk": f"after a step on {SHOTS} samples, {draws} support sets; loss by quadrature",
    }
    figures = {"landscape-fig8": panels_figure(_panels(ends), width=3.6, height=2.9, shared_legend=True)}
    return Reproduction(_rows(ends), figures, {"found": ends.as_dict()}, protocol)


def _middle(ends: Ends) -> list[int]:
    """The places of the grid that the statements are about."""
    return [i for i, rho in enumerate(ends.rho) if 0.1 <= rho <= 0.6]


def _ratios(ends: Ends) -> list[float]:
    return [ends.nal.risk[i] / ends.maml.risk[i] for i in _middle(ends)]


def _rows(ends: Ends) -> list[Row]:
    nal, maml = ends.nal.coordinate, ends.maml.coordinate
    nearer, ratio = all(maml[i] > nal[i] for i in _middle(ends)), max(_ratios(ends))
    start = "MAML starts nearer the hard task than NAL (ρ_H in 0.1–0.6)"
    risk = "MAML's excess risk is smaller for suitable ρ_H; largest ratio"
    return [
        row(start, "yes", nearer, nearer),
        row(risk, "smaller", ratio, ratio > 1.05),
    ]


def _panels(ends: Ends) -> list[Panel]:
    from innerloop.report.plots.panels import Line, line, panel, points
    from innerloop_studies.papers.figures import INKS

    def curve(name: str, values: list[float], ci95: list[float]) -> Line:
        """One method's line, with its points."""
        return line(name, ends.rho, values, ink=INKS[name], points=points(ends.rho, values, ci95))

    methods = {"NAL": ends.nal, "MAML": ends.maml}
    coordinates = [curve(name, one.coordinate, one.coordinate_ci95) for name, one in methods.items()]
    risks = [curve(name, one.risk, one.risk_ci95) for name, one in methods.items()]
    optima, top = {"hard": 1.0, "easy": -1.0}, 1.2 * max(ends.nal.risk)
    x = "ρ_H (ρ_E = 1)"
    return [
        panel(x, "average coordinate", coordinates, heights=optima, limits=(-1.1, 1.1)),
        panel(x, "excess risk after one step", risks, heights={}, limits=(0.0, top)),
    ]


def _measure(runs: int, grid: int, steps: int, draws: int) -> dict[str, Any]:
    import torch

    from innerloop_studies.papers.landscape import logistic
    from innerloop_studies.papers.landscape.linear import intervals

    rho = torch.linspace(0.05, 0.95, grid, dtype=torch.float64)
    scales = rho.expand(runs, -1)
    one = torch.ones(runs, grid, DIM, dtype=torch.float64)
    methods = []
    for i, method in enumerate(("nal", "maml")):
        w = logistic.sgd(method, scales, DIM, RATE, OUTER_RATES[method], (SHOTS, OUTER), steps, seed=i)
        hard = logistic.risk(w, scales, one, RATE, SHOTS, draws, seed=7)
        easy = logistic.risk(w, torch.ones_like(scales), -one, RATE, SHOTS, draws, seed=8)
        methods.append(Method(*intervals(w.mean(-1)), *intervals((hard + easy) / 2)))
    return Ends(rho.tolist(), *methods).as_dict()
