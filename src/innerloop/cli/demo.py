"""``innerloop demo``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innerloop.cli.options import Json, Quiet
from innerloop.cli.output import Result, carry_out, say, write
from innerloop.core.words import score_text

if TYPE_CHECKING:
    from innerloop.advisor.result import Advice, Row
    from innerloop.recipes.schema import Recipe

FOLDER = "innerloop-demo"
BUDGET = "45s"
SECONDS = 30.0
"""Of training, for each of the two runs."""
LEAST_STEPS = 50
TASKS = 200
WHAT = "glyphs"
METHODS = ""
"""Those that race; all if empty, without those that are too slow for the budget."""


def demo(json: Json = False, quiet: Quiet = False) -> None:
    r"""See it work: advice, training, evaluation, a page.

    No download, two to three minutes. Methods race on embedded pictures of letters that nobody has seen; the
    one that is advised and the runner-up are trained for half a minute each, learn classes that they were not
    trained on from five examples, and are compared, task by task, on a page in ./innerloop-demo.

    \b
    JSON: report, accuracy, ci95, other, advice, seconds, runs.
    """
    carry_out(json, lambda: run_demo(show=not quiet), _render)


def run_demo(show: bool) -> Result:
    """Asks for advice, trains two methods and writes the page.

    Args:
        show: whether to show progress on standard error.
    """
    started = time.perf_counter()
    if show:
        say("letters of made-up alphabets: which method learns new ones from five examples each?")
    advice = _advised(show)
    from innerloop.experiment.pages import write_report
    from innerloop.experiment.run import train

    recipes = [_short(row) for row in _two(advice)]
    results = [train(recipe, argv=["innerloop", *sys.argv[1:]], progress=show) for recipe in recipes]
    runs = [Path(result["run"]) for result in results]
    page = write_report(runs, Path(FOLDER) / "report.html")
    first, second = (result["metrics"] for result in results)
    return {
        "report": str(page),
        "accuracy": first["mean"],
        "ci95": first["ci95"],
        "method": recipes[0].inner.method,
        "other": {"method": recipes[1].inner.method, "accuracy": second["mean"], "ci95": second["ci95"]},
        "baselines": first.get("baselines") or [],
        "protocol": first["protocol"],
        "advice": {"run": advice.run, **advice.recommendation._asdict()},
        "seconds": time.perf_counter() - started,
        "runs": [str(run) for run in runs],
    }


def _advised(show: bool) -> Advice:
    from innerloop.advisor.asked import understand
    from innerloop.advisor.run import carry_out as advised

    items = [f"budget={BUDGET}", "backbone=none", f"run.folder={FOLDER}"]
    items += [f"methods=[{METHODS}]"] if METHODS else []
    asked = understand(WHAT, items)
    return advised(asked, argv=["innerloop", *sys.argv[1:]], show=show)


def _two(advice: Advice) -> list[Row]:
    """The best two methods that were trained."""
    return [row for row in advice.rows if row.kind == "trained" and row.score is not None][:2]


def _short(row: Row) -> Recipe:
    """The recipe of a method for half a minute of training."""
    from innerloop.advisor.asked import understand
    from innerloop.advisor.problem import pose
    from innerloop.recipes.settings import make_recipe

    asked = understand(WHAT, [f"methods=[{row.method}]", "backbone=none", f"run.folder={FOLDER}"])
    whole: dict[str, Any] = pose(asked).entrants[0].recipe.model_dump(exclude_none=True)
    steps = max(LEAST_STEPS, int(SECONDS / (row.step_seconds or SECONDS)))
    whole["name"] = f"{WHAT}-{row.method}"
    steps = min(steps, whole["outer"]["steps"])
    whole["outer"] = {**whole["outer"], "steps": steps}
    whole["eval"] = {**whole["eval"], "episodes": TASKS, "every": steps, "curve": False}
    return make_recipe(whole)


def _render(result: Result) -> None:
    other, protocol = result["other"], result["protocol"]
    tasks = (
        f"{protocol.get('ways')}-way {protocol.get('shots')}-shot tasks of letters that were not trained on"
    )
    write(f"{TASKS} {tasks}, 95 % CI:")
    write(f"  {result['method']:<10} {score_text('accuracy', result['accuracy'], result['ci95'])}  (advised)")
    write(f"  {other['method']:<10} {score_text('accuracy', other['accuracy'], other['ci95'])}")
    for one in result["baselines"]:
        write(f"  {one['words']}: {score_text('accuracy', one['mean'], one['ci95'])}")
    write(f"\nThe page: {result['report']}  ({result['seconds']:.0f} s)")
    write(f"The advice: {Path(result['advice']['run']) / 'report.html'}")
    write(
        "Learnt: a race of seconds on the problem's own tasks says what is worth training. "
        "Next: `innerloop advise YOUR-FOLDER` for pictures of your own, `innerloop ls` for recipes."
    )
