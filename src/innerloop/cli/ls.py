"""``innerloop ls``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from innerloop.bench import BENCHMARKS
from innerloop.cli.options import Json
from innerloop.cli.output import Result, carry_out, score_text, table, write
from innerloop.core.errors import UserError, did_you_mean
from innerloop.runs.manifest import actual_status

SECTIONS = ("recipes", "runs", "benchmarks")
NEWEST = 10
What = Annotated[
    str | None, typer.Argument(metavar="[WHAT]", help="recipes, runs or benchmarks; all when left out.")
]
All = Annotated[bool, typer.Option("--all", "-a", help=f"All runs, not only the newest {NEWEST}.")]


def ls(what: What = None, show_all: All = False, json: Json = False) -> None:
    r"""List the recipes, the runs under ./runs and the benchmarks.

    \b
    Examples:
      innerloop ls
      innerloop ls runs --all

    \b
    JSON: recipes (name, description), runs (run, recipe, seed, status, steps, score, mean, ci95), benchmarks.
    """

    def work() -> Result:
        if what is not None and what not in SECTIONS:
            raise UserError(f"ls knows {', '.join(SECTIONS)}, not '{what}'{did_you_mean(what, SECTIONS)}.")
        wanted = SECTIONS if what is None else (what,)
        found: Result = {}
        if "recipes" in wanted:
            found["recipes"] = _recipes()
        if "runs" in wanted:
            found["runs"] = _runs(Path("runs"), None if show_all or json else NEWEST)
        if "benchmarks" in wanted:
            found["benchmarks"] = [{"name": name, "description": text} for name, text in BENCHMARKS.items()]
        return found

    carry_out(json, work, _render)


def _recipes() -> list[dict[str, str]]:
    from innerloop.recipes.library import shipped_recipes

    return [{"name": recipe.name, "description": recipe.description} for recipe in shipped_recipes()]


def _runs(folder: Path, newest: int | None) -> list[dict[str, Any]]:
    from innerloop.runs.directory import list_runs

    runs = list_runs(folder)
    return [run_row(run) for run in (runs if newest is None else runs[-newest:])]


def run_row(path: Path) -> dict[str, Any]:
    """What a listing says about one run."""
    from innerloop.report.load import headline, load_run
    from innerloop.report.redone import found_words

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
        "found": found_words(run),
    }


def _render(result: Result) -> None:
    if "recipes" in result:
        rows = [(recipe["name"], recipe["description"]) for recipe in result["recipes"]]
        table("recipes: innerloop train NAME", ("name", "shows"), rows)
    if result.get("runs"):
        shown = [
            (
                row["run"],
                row["status"],
                row["steps"] or "",
                score_text(row["score"], row["mean"], row["ci95"]) if row["score"] else row["found"],
            )
            for row in result["runs"]
        ]
        table("runs: innerloop show RUN", ("run", "status", "steps", "result"), shown, right=("steps",))
    elif "runs" in result:
        write("no runs under ./runs yet: `innerloop train sine-maml` makes one\n")
    if "benchmarks" in result:
        rows = [(bench["name"], bench["description"]) for bench in result["benchmarks"]]
        table("benchmarks: innerloop bench NAME", ("name", "measures"), rows)
