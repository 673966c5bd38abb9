"""``innerloop demo``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innerloop.cli.options import Json, Quiet
from innerloop.cli.output import Result, carry_out, say, typed_argv, write
from innerloop.core.errors import UserError
from innerloop.core.formatting import score_text

if TYPE_CHECKING:
    from innerloop.choose.advice import Advice, Row
    from innerloop.experiment.recipe.schema import Recipe

FOLDER = "innerloop-demo"
BUDGET = "45s"
SECONDS = 30.0  # of training, for each of the two runs
LEAST_STEPS = 50
TASKS = 200
WHAT = "glyphs"
METHODS = ""  # those that race; all if empty, without those that are too slow for the budget


def demo(json: Json = False, quiet: Quiet = False) -> None:
    r"""See it work: advice, training, evaluation, a page.

    No download, two to three minutes. Methods race on embedded pictures of letters that nobody has seen; the
    one that is advised and the runner-up are trained for half a minute each, learn classes that they were not
    trained on from five examples, and are compared, task by task, on a page in ./innerloop-demo.

    \b
    JSON: report, method, accuracy, ci95, other, lead, baselines, advice, seconds, runs.
    """
    carry_out(json, lambda: run_demo(show=not quiet), _render)


def run_demo(show: bool) -> Result:
    """Asks for advice, trains two methods and writes the page."""
    started = time.perf_counter()
    if show:
        say("letters of made-up alphabets: which method learns new ones from five examples each?")
    advice = _give_advice(show)
    from innerloop.experiment.pages import write_report
    from innerloop.experiment.training import train
    from innerloop.report.comparison_page import pair
    from innerloop.report.read_run import load_run

    methods = _two(advice)
    results = [train(_short(row), argv=typed_argv(), progress=show) for row in methods]
    runs = [result.run for result in results]
    page = write_report(runs, Path(FOLDER) / "report.html")
    first, second = (result.evaluation for result in results)
    lead = pair(load_run(runs[0]), load_run(runs[1])).difference
    return {
        "report": str(page),
        "accuracy": first.mean,
        "ci95": first.ci95,
        "method": methods[0].method,
        "other": {"method": methods[1].method, "accuracy": second.mean, "ci95": second.ci95},
        "lead": None if lead is None else {"mean": lead.mean, "ci95": lead.ci95},
        "baselines": [baseline.as_dict() for baseline in first.baselines],
        "protocol": first.protocol,
        "advice": {"run": advice.run, **advice.recommendation._asdict()},
        "seconds": time.perf_counter() - started,
        "runs": [str(run) for run in runs],
    }


def _give_advice(show: bool) -> Advice:
    from innerloop.choose.advisor import give_advice
    from innerloop.choose.request import read_advise

    items = [f"budget={BUDGET}", "backbone=none", f"run.folder={FOLDER}"]
    items += [f"methods=[{METHODS}]"] if METHODS else []
    asked = read_advise(WHAT, items)
    return give_advice(asked, argv=typed_argv(), show=show)


def _two(advice: Advice) -> list[Row]:
    """The best two methods that were trained; refused where there was no time for two."""
    best = [row for row in advice.rows if row.kind == "trained" and row.score is not None][:2]
    if len(best) < 2:
        raise UserError(
            f"this machine is too busy for the demo: {len(best)} of two methods were trained in {BUDGET}. "
            "Try again when other programs have ended."
        )
    return best


def _short(row: Row) -> Recipe:
    """The recipe of a method for half a minute of training."""
    from innerloop.choose.problem import pose_advice
    from innerloop.choose.request import read_advise
    from innerloop.experiment.recipe.settings import make_recipe

    asked = read_advise(WHAT, [f"methods=[{row.method}]", "backbone=none", f"run.folder={FOLDER}"])
    whole: dict[str, Any] = pose_advice(asked).entrants[0].recipe.model_dump(exclude_none=True)
    steps = max(LEAST_STEPS, int(SECONDS / (row.step_seconds or SECONDS)))
    steps = min(steps, whole["outer"]["steps"])
    whole["outer"] |= {"steps": steps}
    whole["eval"] |= {"episodes": TASKS, "every": steps, "curve": False}
    return make_recipe({**whole, "name": f"{WHAT}-{row.method}"})


def _render(result: Result) -> None:
    other, protocol = result["other"], result["protocol"]
    kind = f"{protocol.get('ways')}-way {protocol.get('shots')}-shot"
    write(f"{TASKS} {kind} tasks of letters that were not trained on, 95 % CI:")
    width = max(len(result["method"]), len(other["method"]))
    advised = "  (advised)" if result["advice"]["method"] == result["method"] else ""
    for one, mark in ((result, advised), (other, "")):
        score = score_text("accuracy", one["accuracy"], one["ci95"])
        write(f"  {one['method']:<{width}}  {score}{mark}")
    for one in result["baselines"]:
        write(f"  {one['words']}: {score_text('accuracy', one['mean'], one['ci95'])}")
    write(f"\nThe page: {result['report']}  ({result['seconds']:.0f} s)")
    write(f"The advice: {Path(result['advice']['run']) / 'report.html'}")
    write(conclusion(result))
    write("Next: `innerloop advise YOUR-FOLDER` for pictures of your own, `innerloop ls` for recipes.")


def conclusion(result: Result) -> str:
    """What the two trainings have shown, in a sentence: whether the race was right, and whether to train."""
    first, other, lead = result["method"], result["other"]["method"], result["lead"]
    if lead is None or abs(lead["mean"]) <= lead["ci95"]:
        ranked = f"cannot be told apart from {other}, the second, after training"
    else:
        word, by = "better" if lead["mean"] > 0 else "worse", _points(lead["mean"], lead["ci95"])
        ranked = f"is {by} {word} than {other} after training"
    best = max(result["baselines"], key=lambda one: one["mean"], default=None)
    if best is None:
        return f"Learnt: {first}, first in the race, {ranked}."
    word = "better" if best["gain"] > 0 else "worse"
    gain = _points(best["gain"], best["gain_ci95"])
    beside = f"it is {gain} {word} than the best without training ({best['words']})"
    return f"Learnt: {first}, first in the race, {ranked}; {beside}."


def _points(mean: float, ci95: float) -> str:
    return f"{100 * abs(mean):.1f} ± {100 * ci95:.1f} points"
