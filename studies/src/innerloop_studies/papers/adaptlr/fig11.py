"""AdaptLR, Figure 11: Bernacchia's mixed linear regression; the same α throughout, or one fixed."""

from typing import Any

import torch

from innerloop.core import Draws, TaskBatch
from innerloop.report.plots.panels import Line, Panel, line, mark, panel, panels_figure
from innerloop.tasks.families import mixed_linear
from innerloop.theory.rate import Sums, labelled_sums, maml_solution, risk, split_moments
from innerloop_studies.papers.adaptlr.shared import Excess, seeded
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "AdaptLR, Figure 11: Bernacchia's mixed linear regression, same or fixed rates"
VERSION = 1
TRAIN_SHOTS, QUERIES, TEST_SHOTS, TASKS, DIM = 5, 25, 10, 40, 30
SIGMA, NU, FIXED = 0.2, 0.2, 0.2
WAYS = ("same", "fixed test", "fixed training")
CONVENTION = 2.0  # Bernacchia's step has no 2 (½ · mean): his rate is twice that of the mean without ½


def run(scale: str, say: Say) -> Reproduction:
    """Least squares over 40 tasks, judged on fresh ones, averaged over repetitions."""
    repeats = {"smoke": 20, "cpu": 200, "paper": 1000}[scale]
    rates = torch.linspace(-0.6, 0.6, 49, dtype=torch.float64).tolist()
    curves = _curves(rates, repeats)
    best = curves["best"]
    said = f"same α: best {best['same']:.3g}; test rate {FIXED}: best training rate "
    said += f"{best['fixed test']:.3g}; training rate {FIXED}: best test rate {best['fixed training']:.3g}; "
    say(f"{said}H.1 {curves['estimate']:.3g}")
    sizes = {"n_t": TRAIN_SHOTS, "n_v": QUERIES, "n_r": TEST_SHOTS, "m": TASKS, "p": DIM, "σ": SIGMA, "ν": NU}
    protocol = {
        **sizes,
        "mean of w": "1/√p in every entry",
        "repetitions": repeats,
        "seeds": f"0 … {repeats - 1}",
        "convention": "½ · mean, as Bernacchia",
        "fixed rate": "H.5's text fixes the test rate (α_r), the caption the training rate (α_t): both",
        "Bernacchia's range": "AdaptLR draws two diamonds without numbers; here, derived: the training rates "
        "that are best to first order in 1/m without spread of tasks and without noise",
    }
    figures = {"adaptlr-fig11": panels_figure(_panels(curves), columns=2)}
    return Reproduction(_rows(curves), figures, curves, protocol)


def _nearest(curves: dict[str, Any], rate: float) -> int:
    """The place of the grid nearest to a rate."""
    return min(range(len(curves["rates"])), key=lambda i: abs(curves["rates"][i] - rate))


def _rows(curves: dict[str, Any]) -> list[Row]:
    best, same = curves["best"], curves["same"]["mean"]
    losses = {way: min(curves[way]["mean"]) for way in WAYS}
    near = _nearest(curves, curves["estimate"])
    low, high, both = curves["range"].values()
    ends = [curves["fixed test"]["mean"][_nearest(curves, rate)] for rate in (low, high)]
    step = curves["rates"][1] - curves["rates"][0]
    positive = "same α in training and testing: the best is positive"
    rows = [row(positive, "positive", f"{best['same']:.3g}", best["same"] > 0)]
    said = f"H.1 {curves['estimate']:.3g}, best {best['same']:.3g}; loss {same[near]:.4g}, "
    said += f"least {min(same):.4g}, without adaptation {curves['before']:.4g}"
    why = "H.1 knows neither noise nor a mean of w; holds if within 5 % of the least loss"
    close = 1.05 * min(same)
    rows.append(row("same α: the estimate is near the best", "near", said, same[near] < close, reason=why))
    what = f"test rate fixed at {FIXED} (H.5's text): the best training rate is negative (Bernacchia)"
    why = "the text has α_r = 0.2; on the axis is α_t, the training rate"
    rows.append(row(what, "negative", f"{best['fixed test']:.3g}", best["fixed test"] < 0, reason=why))
    what = f"training rate fixed at {FIXED} (the caption): the best test rate is positive (Bernacchia)"
    why = "the caption has α_t = 0.2, which contradicts its own axis"
    trained = best["fixed training"]
    rows.append(row(what, "positive", f"{trained:.3g}", trained > 0, reason=why))
    for way in WAYS[1:]:
        what = f"the same α, at its best, beats the {way} rate at its best"
        said = f"{losses['same']:.4g} against {losses[way]:.4g}"
        rows.append(row(what, "lower", said, losses["same"] < losses[way]))
    what = f"second row: with the test rate at {FIXED} the best training rate lies in Bernacchia's range"
    said = f"{low:.3g} (no spread of tasks) to {abs(high):.2f} (no noise), {both:.3g} for both; "
    said += f"found {best['fixed test']:.3g}"
    why = "the range is derived here to first order in 1/m, AdaptLR prints none; half a step of the "
    why += "grid is allowed"
    inside = low - step / 2 <= best["fixed test"] <= high + step / 2
    rows.append(row(what, "two diamonds, no numbers", said, inside, reason=why))
    what = "second row: the same α at H.1 has less loss than the ends of that range"
    said = f"{same[near]:.4g} at H.1; {ends[0]:.4g} and {ends[1]:.4g} at the ends, tested at {FIXED}"
    return [*rows, row(what, "lower", said, same[near] < min(ends))]


def _panels(curves: dict[str, Any]) -> list[Panel]:
    def curve(way: str, name: str = "test loss") -> Line:
        return line(name, curves["rates"], curves[way]["mean"], curves[way]["half"])

    best, (no_spread, no_noise, _) = curves["best"], curves["range"].values()
    ends = [mark("no spread of tasks", no_spread), mark("no noise", no_noise)]
    estimate = mark("H.1", curves["estimate"])
    both = [curve("same", "same α"), curve("fixed test", f"test α {FIXED}")]
    panels = [panel("α (½ · mean)", "same α in training and testing", [curve("same")], [estimate])]
    for way, x, y in (
        ("fixed test", "training α", f"test α fixed at {FIXED} (text)"),
        ("fixed training", "test α", f"training α fixed at {FIXED} (caption)"),
    ):
        panels.append(panel(x, y, [curve(way)], [mark("best", best[way])]))
    return [*panels, panel("training α", "both strategies, with Bernacchia's range", both, [estimate, *ends])]


def _draw(seed: int, count: int, shots: int) -> tuple[TaskBatch, Sums]:
    draws = Draws(seed, list(range(count)), dtype=torch.float64)
    batch = mixed_linear(draws, shots, QUERIES, dim=DIM, sigma=SIGMA, nu=NU, mean=DIM**-0.5)
    targets = batch.y_support[..., 0], batch.y_query[..., 0]
    return batch, labelled_sums(batch.x_support, targets[0], batch.x_query, targets[1])


def _curves(rates: list[float], repeats: int) -> dict[str, Any]:
    """Test losses along the rates for every way, and means of the loss without adaptation and of H.1."""
    losses: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    before, estimates = [], []
    for seed in range(repeats):
        batch, train = _draw(seed, TASKS, TRAIN_SHOTS)
        _, test = _draw(100_000 + seed, 100, TEST_SHOTS)
        solutions = [maml_solution(train, rate / CONVENTION) for rate in rates]
        one = maml_solution(train, FIXED / CONVENTION)
        pairs = zip(solutions, rates, strict=True)
        losses["same"].append([risk(test, w, rate / CONVENTION) for w, rate in pairs])
        losses["fixed test"].append([risk(test, w, FIXED / CONVENTION) for w in solutions])
        losses["fixed training"].append([risk(test, one, rate / CONVENTION) for rate in rates])
        before.append(risk(test, maml_solution(train, 0.0), 0.0))
        estimates.append(split_moments(batch.x_support, batch.x_query, "half-mse").rate)

    def summary(values: list[list[float]]) -> dict[str, list[float]]:
        table = torch.tensor(values)
        return {"mean": table.mean(0).tolist(), "half": (1.96 * table.std(0) / repeats**0.5).tolist()}

    by_way = {way: summary(values) for way, values in losses.items()}
    x = torch.randn(4000, TRAIN_SHOTS, DIM, generator=seeded(0), dtype=torch.float64)
    excess = Excess(torch.linalg.eigvalsh(x.mT @ x / TRAIN_SHOTS).clamp(min=0), QUERIES, TRAIN_SHOTS)
    means = {"before": sum(before) / repeats, "estimate": sum(estimates) / repeats}
    best = {way: rates[one["mean"].index(min(one["mean"]))] for way, one in by_way.items()}
    ends = {"ν = 0": excess.least(0, 1), "σ = 0": excess.least(1, 0), "both": excess.least(NU, SIGMA)}
    return {"rates": rates, **by_way, **means, "best": best, "range": ends}
