"""``innerloop sweep``."""

from __future__ import annotations

from typing import Annotated

import typer

from innerloop.cli.options import Json, Quiet, RecipeName, Settings, Trust, check_settings
from innerloop.cli.output import Result, carry_out, table, write
from innerloop.core.words import difference_text, score_text

Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Runs at a time; by default one per core.")
]


def sweep(
    recipe: RecipeName,
    settings: Settings = None,
    jobs: Jobs = None,
    trust: Trust = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    r"""Train a grid of runs: every combination of the listed values.

    \b
    Examples (quote lists, or the shell may read the brackets):
      innerloop sweep sine-maml 'inner.lr=[0.003,0.01,0.03]' 'seed=[0,1,2]'
      innerloop sweep sine-maml 'inner.method=[maml,fomaml,anil]' outer.steps=2000 'seed=[0,1]' --jobs 2

    Give the same command again after an interruption: finished runs are not repeated. The table has one row
    per setting, best first, with its interval over seeds and the paired difference to the best.

    \b
    JSON: runs, table.
    """
    given = check_settings(settings, ("--json", "--quiet", "--trust", "--jobs", "--help"))

    def work() -> Result:
        from innerloop.experiment.sweep import sweep as run_sweep

        return run_sweep(recipe, given, jobs=jobs, trust=trust, progress=not quiet)

    carry_out(json, work, _render)


def _render(result: Result) -> None:
    rows: list[tuple[str, str, str, str]] = []
    for row in result["table"]:
        settings = (
            " ".join(f"{key}={value}" for key, value in row["settings"].items()) or "as the recipe says"
        )
        gap = row.get("difference")
        behind = row.get("reason") or ""
        if gap is not None and rows:
            behind = difference_text(row["score"], gap, row["difference_ci95"])
        rows.append((settings, score_text(row["score"], row["mean"], row["ci95"]), row["over"], behind))
    judged = sorted({row["judged_by"] for row in result["table"]} - {""})
    title = f"best first, judged by: {'; '.join(judged)}" if judged else "best first"
    table(title, ("settings", "score", "95 % interval over", "paired difference to the best"), rows)
    write(
        f"{len(result['runs'])} runs in {result['folder']}; `innerloop report` with their paths compares them"
    )
