"""AdaptLR, Figure 3: Omniglot 20-way 1-shot with ANIL; the default rate against the online rule of H.3."""

from __future__ import annotations

from typing import Any

from innerloop.plots.panels import line, panel, panels_figure
from innerloop.recipes.schema import Recipe
from innerloop.recipes.settings import make_recipe
from innerloop.reproduce.parts import remembered
from innerloop.reproduce.rows import Reproduction, Row, Say, row
from innerloop.reproduce.short_runs import fitted

NAME = "adaptlr-fig3"
FASTER = {"smoke": True, "cpu": True, "paper": True}
OURS = {"smoke": True, "cpu": True, "paper": True}
"""What is recorded for each scale; nobody has run the last one here."""

DEFAULT = 0.1
WAYS_OF_CHOOSING: dict[str, dict[str, Any]] = {
    f"default, α = {DEFAULT}": {"lr": DEFAULT},
    "H.3, online": {"lr": DEFAULT, "online": "h3"},
    "ours, before training": {"lr": "auto"},
}


def recipe_for(choice: dict[str, Any], scale: str, seed: int) -> Recipe:
    """ANIL with five inner steps; at smoke scale five of the embedded glyphs stand in for Omniglot."""
    smoke = scale == "smoke"
    steps = {"smoke": 10, "cpu": 200, "paper": 15_000}[scale]
    return make_recipe(
        {
            "name": "adaptlr-fig3",
            "data": {"name": "glyphs" if smoke else "omniglot", "rotations": scale == "paper"},
            "tasks": {
                "family": "few-shot",
                "ways": 5 if smoke else 20,
                "shots": 1,
                "queries": 2 if smoke else 5,
            },
            "model": {"kind": "conv4", "pooling": "stride", "filters": 64 if scale == "paper" else 32},
            "inner": {"method": "anil", "steps": 5, "test_steps": 5, "loss": "cross-entropy", **choice},
            "outer": {"steps": steps, "batch": 16 if scale == "paper" else 2},
            "eval": {"validation_episodes": 10 if smoke else 30},
            "run": {"seed": seed},
        }
    )


def run(scale: str, say: Say) -> Reproduction:
    """Accuracy on held-out characters along training, means over seeds."""
    seeds = {"smoke": 1, "cpu": 2, "paper": 3}[scale]
    every = {"smoke": 5, "cpu": 25, "paper": 500}[scale]
    curves: dict[str, Any] = {}
    for name, choice in WAYS_OF_CHOOSING.items():
        curves[name] = last = _curve(choice, scale, seeds, every)
        say(f"{name}: {last['score'][-1]:.3f} after {last['step'][-1]} steps (rate {last['rate']})")
    lines = [line(n, c["step"], c["score"], half=c["half"] if seeds > 1 else None) for n, c in curves.items()]
    panels = [panel("meta-steps", "accuracy on held-out characters, 20-way 1-shot", lines)]
    protocol = {
        "seeds": seeds,
        "inner steps": 5,
        "validation tasks": 10 if scale == "smoke" else 30,
        "data": "glyphs, 5-way" if scale == "smoke" else "Omniglot, 20-way 1-shot",
        "net": "strided Conv4, norm=transductive",
        "band": "deviation over seeds",
    }
    figures = {"adaptlr-fig3": panels_figure(panels, columns=1, width=5.8)}
    return Reproduction(_rows(curves, scale), figures, curves, protocol)


def _rows(curves: dict[str, Any], scale: str) -> list[Row]:
    """From the mean accuracy along training, by way of choosing the rate."""
    early = {name: sum(curve["score"]) / len(curve["score"]) for name, curve in curves.items()}
    default, online, ours = early.values()
    return [
        row(
            "the online estimate of H.3 learns faster than the default rate",
            "faster, then equal",
            "mean accuracy along training: "
            + ", ".join(f"{name} {value:.3f}" for name, value in early.items()),
            online > default,
            expected=FASTER[scale],
            reason="H.3 is blind to the scale of features: on normalised ones its rate hardly moves",
        ),
        row(
            "ours: the rate estimated before training learns at least as fast as the default",
            "–",
            f"{ours:.3f} against {default:.3f}",
            ours > default - 0.01,
            expected=OURS[scale],
        ),
    ]


def _curve(choice: dict[str, Any], scale: str, seeds: int, every: int) -> dict[str, Any]:
    """The mean over seeds; each seed is remembered."""
    runs = []
    for seed in range(seeds):
        settings = {"choice": choice, "scale": scale, "seed": seed, "every": every}
        runs.append(remembered(NAME, _one, settings))
    return _summary(runs)


def _one(choice: dict[str, Any], scale: str, seed: int, every: int) -> dict[str, Any]:
    found = fitted(recipe_for(choice, scale, seed), every)
    online = {
        n: float(b)
        for n, b in (found.state.buffers if found.state else {}).items()
        if n.startswith("online.")
    }
    return {"curve": found.curve, "rate": found.recipe.inner.lr, "online": online}


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    shortest = min(len(run["curve"]) for run in runs)
    steps = [point["step"] for point in runs[0]["curve"][:shortest]]
    columns = [[run["curve"][i]["score"] for run in runs] for i in range(shortest)]
    means = [sum(column) / len(column) for column in columns]
    half = [
        (sum((v - m) ** 2 for v in column) / max(len(column) - 1, 1)) ** 0.5
        for column, m in zip(columns, means, strict=True)
    ]
    rate = [run["online"].get("online.rate", run["rate"]) for run in runs]
    return {"step": steps, "score": means, "half": half, "rate": [round(float(r), 4) for r in rate]}
