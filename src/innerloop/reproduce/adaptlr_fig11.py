"""AdaptLR, Figure 11: Bernacchia's mixed linear regression; the same α throughout, or one fixed."""

from __future__ import annotations

from typing import Any

import torch

from innerloop.core.random import Draws
from innerloop.plots.panels import Line, Panel, line, mark, panel, panels_figure
from innerloop.reproduce.rows import Reproduction, Row, Say, row
from innerloop.tasks.linear import mixed_linear
from innerloop.theory.rate import split_moments
from innerloop.theory.rate_forms import Sums, labelled_sums, maml_solution, risk

TRAIN_SHOTS, QUERIES, TEST_SHOTS, TASKS, DIM = 5, 25, 10, 40, 30
FIXED = 0.2
CONVENTION = 2.0
"""Bernacchia's step has no 2 (½ · mean): his rate is twice that of the mean without ½."""


def run(scale: str, say: Say) -> Reproduction:
    """Least squares over 40 tasks, judged on fresh ones, averaged over repetitions."""
    repeats = {"smoke": 20, "cpu": 200, "paper": 1000}[scale]
    rates = torch.linspace(-0.6, 0.6, 49, dtype=torch.float64).tolist()
    found = _curves(rates, repeats)
    best = {way: rates[found[way]["mean"].index(min(found[way]["mean"]))] for way in ("same", "fixed")}
    say(
        f"same α: best {best['same']:.3g}; test rate {FIXED}: best training rate {best['fixed']:.3g}; "
        f"H.1 {found['estimate']:.3g}"
    )
    protocol = {
        "n_t": TRAIN_SHOTS,
        "n_v": QUERIES,
        "n_r": TEST_SHOTS,
        "m": TASKS,
        "p": DIM,
        "σ": 0.2,
        "ν": 0.2,
        "mean of w": "1/√p in every entry",
        "repetitions": repeats,
        "seeds": f"0 … {repeats - 1}",
        "convention": "½ · mean, as Bernacchia",
    }
    figures = {"adaptlr-fig11": panels_figure(_panels(found, best))}
    return Reproduction(_rows(found, best), figures, found, protocol)


def _rows(found: dict[str, Any], best: dict[str, float]) -> list[Row]:
    rates, same, fixed = found["rates"], found["same"]["mean"], found["fixed"]["mean"]
    near = min(range(len(rates)), key=lambda i: abs(rates[i] - found["estimate"]))
    return [
        row(
            "same α in training and testing: the best is positive",
            "positive",
            f"{best['same']:.3g}",
            best["same"] > 0,
        ),
        row(
            "same α: the estimate is near the best",
            "near",
            f"H.1 {found['estimate']:.3g}, best {best['same']:.3g}; loss {same[near]:.4g}, "
            f"least {min(same):.4g}, without adaptation {found['before']:.4g}",
            same[near] < 1.05 * min(same),
            reason="H.1 knows neither noise nor a mean of w; holds if within 5 % of the least loss",
        ),
        row(
            f"test rate fixed at {FIXED}: the best training rate is negative (Bernacchia)",
            "negative",
            f"{best['fixed']:.3g}",
            best["fixed"] < 0,
            reason="as Bernacchia (2021) finds for a test rate that is not optimal",
        ),
        row(
            "the same α, at its best, beats the fixed test rate at its best",
            "lower",
            f"{min(same):.4g} against {min(fixed):.4g}",
            min(same) < min(fixed),
        ),
    ]


def _panels(found: dict[str, Any], best: dict[str, float]) -> list[Panel]:
    def curve(way: str) -> list[Line]:
        return [line("test loss", found["rates"], found[way]["mean"], half=found[way]["half"])]

    marks = [mark("H.1", found["estimate"]), mark("best", best["same"])]
    return [
        panel("α (½ · mean)", "same α in training and testing", curve("same"), marks),
        panel("training α", f"test α fixed at {FIXED}", curve("fixed"), [mark("best", best["fixed"])]),
    ]


def _draw(seed: int, count: int, shots: int) -> tuple[Any, Sums]:
    draws = Draws(seed, list(range(count)), dtype=torch.float64)
    batch = mixed_linear(draws, shots, QUERIES, dim=DIM, sigma=0.2, nu=0.2, mean=DIM**-0.5)
    return batch, labelled_sums(
        batch.x_support, batch.y_support[..., 0], batch.x_query, batch.y_query[..., 0]
    )


def _curves(rates: list[float], repeats: int) -> dict[str, Any]:
    same, fixed, before = [], [], []
    estimates = []
    for seed in range(repeats):
        batch, train = _draw(seed, TASKS, TRAIN_SHOTS)
        _, test = _draw(100_000 + seed, 100, TEST_SHOTS)
        solutions = [maml_solution(train, rate / CONVENTION) for rate in rates]
        same.append([risk(test, w, rate / CONVENTION) for w, rate in zip(solutions, rates, strict=True)])
        fixed.append([risk(test, w, FIXED / CONVENTION) for w in solutions])
        before.append(risk(test, maml_solution(train, 0.0), 0.0))
        estimates.append(split_moments(batch.x_support, batch.x_query, "half-mse").rate)

    def summary(values: list[list[float]]) -> dict[str, list[float]]:
        table = torch.tensor(values)
        return {"mean": table.mean(0).tolist(), "half": (1.96 * table.std(0) / repeats**0.5).tolist()}

    return {
        "rates": rates,
        "same": summary(same),
        "fixed": summary(fixed),
        "before": sum(before) / repeats,
        "estimate": sum(estimates) / repeats,
    }
