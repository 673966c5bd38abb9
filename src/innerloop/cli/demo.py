"""``innerloop demo``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from innerloop.cli.options import Json, Quiet
from innerloop.cli.output import Result, carry_out, say, write
from innerloop.core.words import score_text

FOLDER = "innerloop-demo"
STEPS = 2_000
# a fifth of the recipes' steps, at a rate and clipping that make the most of them
SHORT = [
    f"outer.steps={STEPS}",
    "outer.lr=3e-3",
    "outer.schedule=cosine",
    "outer.clip=1",
    "eval.every=500",
    f"run.folder={FOLDER}",
]


def demo(json: Json = False, quiet: Quiet = False) -> None:
    r"""See meta-learning work: train, evaluate, write a page.

    No download, about a minute. Trains MAML and the baseline without an inner loop on the same tasks,
    lets both adapt to 600 new sinusoids from ten points each, and writes a page that compares them into
    ./innerloop-demo.

    \b
    JSON: report, mse, ci95, baseline, seconds, runs.
    """
    carry_out(json, lambda: run_demo(show=not quiet), _render)


def run_demo(show: bool) -> Result:
    """Train both recipes and write the page."""
    from innerloop.recipes.library import load_recipe

    recipes = [load_recipe(name, SHORT) for name in ("sine-maml", "sine-erm")]
    started = time.perf_counter()
    if show:
        say("sinusoids y = a sin(x - b): ten points each, a network with two hidden layers of 40")
    from innerloop.experiment.pages import write_report
    from innerloop.experiment.run import train

    results = [train(recipe, argv=["innerloop", *sys.argv[1:]], progress=show) for recipe in recipes]
    runs = [Path(result["run"]) for result in results]
    page = write_report(runs, Path(FOLDER) / "report.html")
    maml, erm = (result["metrics"] for result in results)
    return {
        "report": str(page),
        "mse": maml["mean"],
        "ci95": maml["ci95"],
        "baseline": {"mse": erm["mean"], "ci95": erm["ci95"]},
        "protocol": maml["protocol"],
        "seconds": time.perf_counter() - started,
        "runs": [str(run) for run in runs],
    }


def _render(result: Result) -> None:
    ours, base = result["mse"], result["baseline"]
    steps = result["protocol"].get("inner_steps")
    write(f"After {steps} gradient steps on ten points of a new sinusoid (600 tasks, 95 % CI):")
    write(f"  MAML       {score_text('mse', ours, result['ci95'])}")
    write(f"  baseline   {score_text('mse', base['mse'], base['ci95'])}  (trained without an inner loop)")
    if ours and base["mse"]:
        write(f"  ratio      {base['mse'] / ours:.1f}×")
    write(f"\nThe page: {result['report']}  ({result['seconds']:.0f} s)")
    write("Next: `innerloop ls` for other recipes, `innerloop train sine-maml` for the full run.")
