"""``innerloop sweep``."""

from __future__ import annotations

from typing import Annotated

import typer

from innerloop.cli.options import Json, Quiet, RecipeName, Settings, check_settings
from innerloop.cli.output import Result, carry_out, table, write
from innerloop.core.errors import UserError

Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Runs at a time; by default one per core.")
]


def sweep(
    recipe: RecipeName, settings: Settings = None, jobs: Jobs = None, json: Json = False, quiet: Quiet = False
) -> None:
    r"""Train a grid of runs: every combination of the listed values.

    \b
    Examples (quote lists, or the shell may read the brackets):
      innerloop sweep sine-maml 'inner.lr=[0.003,0.01,0.03]' 'seed=[0,1,2]'
      innerloop sweep sine-maml 'inner.method=[maml,fomaml,anil]' outer.steps=2000 'seed=[0,1]' --jobs 2

    Give the same command again after an interruption: finished runs are not repeated. The table has one row
    per setting, with the interval over seeds and the paired difference to the first row.

    \b
    JSON: runs, table.
    """
    given = check_settings(settings, ("--json", "--quiet", "--jobs", "--help"))

    def work() -> Result:
        from innerloop.recipes.library import load_recipe
        from innerloop.recipes.settings import parse_assignments

        lists = [key for key, value in parse_assignments(given).items() if isinstance(value, list)]
        if not lists:
            raise UserError(
                "a sweep needs a list of values, such as 'inner.lr=[0.003,0.01]' or 'seed=[0,1,2]'."
            )
        load_recipe(recipe)
        from innerloop.recipes.sweep import sweep as run_sweep

        return run_sweep(recipe, given, jobs=jobs, progress=not quiet)

    carry_out(json, work, _render)


def _render(result: Result) -> None:
    rows = result.get("table") or []
    if rows:
        columns = list(rows[0])
        numbers = [column for column in columns if isinstance(rows[0][column], (int, float))]
        table(
            "sweep", columns, [[_cell(row.get(column)) for column in columns] for row in rows], right=numbers
        )
    write(
        f"{len(result.get('runs') or [])} runs; `innerloop report` with their paths compares them on a page"
    )


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
