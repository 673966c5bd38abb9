"""``innerloop ls``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from innerloop.cli.options import Json
from innerloop.cli.output import Result, carry_out, console, table, write
from innerloop.cli.studies import benchmarks
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.formatting import duration, score_text
from innerloop.runs.manifest import actual_status

SECTIONS = ("recipes", "runs", "benchmarks")
NEWEST = 10
WIDE = 120  # columns from which a line has room for what a recipe shows
What = Annotated[
    str | None, typer.Argument(metavar="[WHAT]", help="recipes, runs or benchmarks; all of them if omitted.")
]
All = Annotated[bool, typer.Option("--all", "-a", help=f"All runs, not only the newest {NEWEST}.")]


def ls(what: What = None, show_all: All = False, json: Json = False) -> None:
    r"""List the recipes by dataset and method, the runs under ./runs and the benchmarks.

    \b
    Examples:
      innerloop ls
      innerloop ls runs --all

    \b
    JSON: recipes (name, description, dataset, method, minutes), runs (run, recipe, seed, status, steps,
    score, mean, ci95, judged_by, own_protocol, others), benchmarks.
    """

    def work() -> Result:
        """Gathers the sections that are asked for."""
        if what is not None and what not in SECTIONS:
            raise UserError(f"ls knows {', '.join(SECTIONS)}, not '{what}'{did_you_mean(what, SECTIONS)}.")
        from innerloop.runs.directory import list_runs

        first = None if show_all or json else -NEWEST
        wanted = SECTIONS if what is None else (what,)
        listed: Result = {}
        if "recipes" in wanted:
            listed["recipes"] = _recipes()
        if "runs" in wanted:
            listed["runs"] = [run_row(run) for run in list_runs(Path("runs"))[first:]]
        if "benchmarks" in wanted:
            listed["benchmarks"] = [
                {"name": name, "description": one.what} for name, one in benchmarks().items()
            ]
        return listed

    carry_out(json, work, _render)


def _recipes() -> list[dict[str, Any]]:
    from innerloop.experiment.recipe.library import shipped_recipes

    keys = ("name", "description", "dataset", "method", "minutes")
    return [{key: getattr(recipe, key) for key in keys} for recipe in shipped_recipes()]


def run_row(path: Path) -> dict[str, Any]:
    """What a listing says about one run. One that is damaged does not hide the others."""
    try:
        return _sound_row(path)
    except Exception:  # files that are not what we wrote fail in many ways; `show` says what is wrong
        empty = dict.fromkeys(("seed", "started", "score", "mean", "ci95", "own_protocol"))
        words = {"run": str(path), "recipe": path.parent.name, "status": "damaged", "steps": 0}
        return {**empty, **words, "judged_by": "", "others": [], "found": ""}


def _sound_row(path: Path) -> dict[str, Any]:
    from innerloop.experiment.recipe.protocols import brief, is_own
    from innerloop.report.read_run import headline, load_run, others
    from innerloop.report.reproduction_page import found_words

    run = load_run(path)
    judged = headline(run) or {}
    return {
        "run": str(path),
        "recipe": run.name,
        "seed": run.seed,
        "status": actual_status(run.manifest),
        "started": run.manifest.get("started"),
        "steps": run.steps_done,
        "score": judged.get("score"),
        "mean": judged.get("mean"),
        "ci95": judged.get("ci95"),
        "judged_by": brief(judged),
        "own_protocol": is_own(run.recipe, judged) if judged else None,
        "others": [
            {**{key: other.get(key) for key in ("score", "mean", "ci95")}, "judged_by": brief(other)}
            for other in others(run)
            if not is_own(run.recipe, other)  # an earlier evaluation by the same protocol says nothing new
        ],
        "found": found_words(run),
    }


def _render(result: Result) -> None:
    if "recipes" in result:
        _render_recipes(result["recipes"])
    if result.get("runs"):
        shown = [
            (
                row["run"],
                row["status"],
                row["steps"] or "",
                score_text(row["score"], row["mean"], row["ci95"]) if row["score"] else row["found"],
                _judged_by(row),
            )
            for row in result["runs"]
        ]
        columns = ("run", "status", "steps", "result", "judged by")
        table("runs: innerloop show RUN", columns, shown, right=("steps",))
    elif "runs" in result:
        write("no runs under ./runs yet: `innerloop train sine-maml` makes one\n")
    if result.get("benchmarks"):
        rows = [(bench["name"], bench["description"]) for bench in result["benchmarks"]]
        table("benchmarks: innerloop bench NAME", ("name", "measures"), rows)


def _takes(minutes: float | None) -> str:
    """How long, to two digits."""
    return "" if minutes is None else duration(60 * float(f"{minutes:.2g}"))


def _render_recipes(recipes: list[dict[str, Any]]) -> None:
    """Grouped by dataset, then by method; a narrow terminal has no room for what each shows."""
    wide, columns = console().width >= WIDE, ["name", "method", "takes"]
    rows, before = list[list[str]](), ""
    for recipe in sorted(recipes, key=lambda one: (one["dataset"], one["method"], one["name"])):
        if recipe["dataset"] != before:
            rows += [[""] * (3 + wide)] * bool(rows)
            before = recipe["dataset"]
            rows.append([before, *[""] * (2 + wide)])
        cells = [f"  {recipe['name']}", recipe["method"], _takes(recipe["minutes"])]
        rows.append([*cells, recipe["description"]] if wide else cells)
    table("recipes: innerloop train NAME", [*columns, "shows"] if wide else columns, rows)
    write("times are of training alone, as measured on two cores\n")
    write("`innerloop show NAME` says what a recipe does and why\n")


def _judged_by(row: dict[str, Any]) -> str:
    """How the number came about, and the other numbers that the run has."""
    words = row["judged_by"] + ("" if row["own_protocol"] in (True, None) else " (not its own protocol)")
    others = [
        f"{score_text(other['score'], other['mean'], other['ci95'])} by {other['judged_by']}"
        for other in row["others"][-2:]
    ]
    more = len(row["others"]) - len(others)
    return "; also ".join([words, *others]) + (f" and {more} more" if more else "")
