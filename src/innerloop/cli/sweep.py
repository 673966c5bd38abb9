"""``innerloop sweep``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from innerloop.cli.options import Cluster, Jobs, Json, Quiet, RecipeName, Settings, Trust, check_settings
from innerloop.cli.output import Result, carry_out, score_value, table, write
from innerloop.core.formatting import difference_text, score_text

Trials = Annotated[
    int | None,
    typer.Option("--trials", help="Draw this many runs from the ranges and lists."),
]
Sampler = Annotated[
    str | None,
    typer.Option("--sampler", help="tpe (the default) learns from finished runs, random does not."),
]
Prune = Annotated[
    bool,
    typer.Option("--prune", help="Stop runs that are clearly worse than finished ones at a validation."),
]


def sweep(
    recipe: RecipeName,
    settings: Settings = None,
    cluster: Cluster = None,
    trials: Trials = None,
    sampler: Sampler = None,
    prune: Prune = False,
    jobs: Jobs = None,
    trust: Trust = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    r"""Train many runs: every combination of listed values, or some that are drawn from ranges.

    \b
    Examples (quote lists and ranges, or the shell may read the brackets):
      innerloop sweep sine-maml 'inner.lr=[0.003,0.01,0.03]' 'seed=[0,1,2]'
      innerloop sweep sine-maml 'inner.method=[maml,fomaml,anil]' outer.steps=2000 'seed=[0,1]' --jobs 2
      innerloop sweep sine-maml 'inner.lr=[0.003,0.01,0.03]' 'seed=[0,1,2]' --cluster tcp://node1:8786
      innerloop sweep sine-maml 'inner.lr=log(1e-3,1)' 'inner.steps=int(1,10)' --trials 30 --prune

    Give the same command again after an interruption: finished runs are not repeated. The table has one row
    per setting, best first, with its interval over seeds and the paired difference to the best.

    With --cluster the workers of a Dask cluster train the runs; the folder of runs must be one that all of
    them see. A run whose worker dies is finished by another, from its checkpoint. It needs Dask
    (`pip install 'innerloop[cluster]'`).

    \b
    Ranges, for --trials:
      uniform(0,0.5)   any number between the two, all alike
      log(1e-3,1)      any number between the two, every order of magnitude alike
      int(1,10)        any whole number from the first to the second
      logint(4,64)     the same, every order of magnitude alike
      [maml,anil]      one of these

    Runs that are drawn are chosen by validation, and so ordered; the score beside it is on test tasks. They
    need Optuna (`pip install 'innerloop[optuna]'`), as --prune does.

    \b
    JSON: folder, runs, table, notes; with --trials also drawn, report.
    """
    given = check_settings(settings, sweep)

    def work() -> Result:
        """Carries out the sweep."""
        from innerloop.experiment.sweeps.sweep import sweep as run_sweep

        return run_sweep(
            recipe,
            given,
            jobs=jobs,
            trust=trust,
            progress=not quiet,
            cluster=cluster,
            trials=trials,
            sampler=sampler,
            prune=prune,
        ).as_dict()

    carry_out(json, work, _render)


def _render(result: Result) -> None:
    drawn = bool(result.get("drawn"))
    rows: list[tuple[str, ...]] = []
    for row in result["table"]:
        gap = row.get("difference")
        behind = row.get("reason") or ""
        if gap is not None and rows:
            behind = difference_text(row["score"], gap, row["difference_ci95"])
        # a run that was stopped has no score; one that diverged has one, which is not finite
        none = row["mean"] is None and (drawn or row["reason"] != "not finite")
        score = "" if none else score_text(row["score"], row["mean"], row["ci95"])
        validation = (_validation(row),) if drawn else ()
        rows.append((_settings(row["settings"], drawn), *validation, score, row["over"], behind))
    judged = sorted({row["judged_by"] for row in result["table"]} - {""})
    order = "best validation first" if drawn else "best first"
    title = f"{order}, judged by: {'; '.join(judged)}" if judged else order
    columns = ("settings", *(("validation",) if drawn else ()), "score", "95 % interval over")
    table(title, (*columns, "paired difference to the best"), rows)
    runs = f"{len(result['runs'])} runs in {result['folder']}"
    if "report" not in result:
        write(f"{runs}; `innerloop report` with their paths compares them")
        return
    for line in [*(f"note: {note}" for note in result["notes"]), runs, f"page: {result['report']}"]:
        write(line)


def _settings(settings: dict[str, Any], drawn: bool) -> str:
    """Settings of a row; of drawn numbers four digits, all of which are in the JSON."""
    words = {k: f"{v:.4g}" if drawn and isinstance(v, float) else v for k, v in settings.items()}
    return " ".join(f"{key}={value}" for key, value in words.items()) or "as the recipe says"


def _validation(row: dict[str, Any]) -> str:
    return "" if row["validation"] is None else score_value(row["score"], row["validation"], None)
