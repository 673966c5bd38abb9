"""``innerloop advise``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from innerloop.cli.options import Cluster, Jobs, Json, Keys, Page, Quiet, Settings, Trust, check_settings
from innerloop.cli.output import (
    Result,
    carry_out,
    score_value,
    table,
    table_of_keys,
    typed_argv,
    write,
    write_part,
)
from innerloop.core.files import write_text_atomic
from innerloop.core.formatting import duration
from innerloop.runs.pages import check_page

if TYPE_CHECKING:
    from innerloop.choose.advice import Advice

Source = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|DATA|FAMILY",
        help="A recipe, its file or a run; a dataset, a folder of pictures, an .npz file; a family of tasks.",
    ),
]


def advise(
    source: Source,
    settings: Settings = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    keys: Keys = False,
    page: Page = None,
    trust: Trust = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    r"""Find out what a few-shot problem needs, before training in earnest.

    \b
    Examples:
      innerloop advise glyphs budget=30s
      innerloop advise my-pictures/ --page advice.html
      innerloop advise cifar-fs budget=5m tasks.shots=1
      innerloop advise sine
      innerloop advise my-recipe.toml methods=[yours,protonet,maml]

    Methods race on the problem's own tasks: each is trained for as many seconds, half of them go on, and the
    last two are judged on fresh validation tasks, beside what needs no training and a pretrained network
    where one is installed. The inner rate, hard groups of classes and the closed forms of the landscape are
    told where they apply, and why not where they do not. The recommended recipe is written to a file. Test
    classes are not looked at.

    Settings of a recipe (tasks.shots=5, seed=1) are taken too; --keys lists those of the advice itself.

    \b
    JSON: rate (alpha, low, high, sweep, convention), hardness, landscape (applies, gain, reason), pilot (each
    method, kind, accuracy or mse, ci95, cost), recommendation, reasons, not_examined, seconds, run, report.
    """
    began = time.monotonic()  # importing torch is part of the budget

    def work() -> Result:
        from innerloop.choose.request import read_advise

        given = check_settings(settings, advise, lambda rest: read_advise(source, rest))
        if keys:
            from innerloop.choose.settings import AdviseSettings
            from innerloop.experiment.recipe.flat import describe

            return {"keys": describe(AdviseSettings)}
        if page is not None:
            check_page(page)
        asked = read_advise(source, given, trust=trust)
        from innerloop.choose.advisor import give_advice

        argv, show = typed_argv(), not quiet
        result = as_result(
            give_advice(asked, workers=jobs, cluster=cluster, argv=argv, show=show, started=began)
        )
        if page is None:
            return result
        write_text_atomic(page, Path(result["report"]).read_text(encoding="utf-8"))
        return {**result, "report": str(page)}

    carry_out(json, work, render)


def as_result(advice: Advice) -> Result:
    """What the command prints with ``--json``."""
    return {**advice.as_dict(), "report": f"{advice.run}/report.html"}


def render(result: Result) -> None:
    """For people: what to do comes first, then the table, then the rest."""
    if "keys" in result:
        table_of_keys("innerloop advise SOURCE key=value", result["keys"])
        return
    from innerloop.report.advice_page import hardness_words, landscape_words, rate_words

    chosen = result["recommendation"]
    write_part("What to do", [chosen["sentence"], chosen["sure"]])
    write(f"\n  {chosen['command']}")
    write("")
    _table(result)
    write_part("Why", result["reasons"])
    write_part("Inner rate", [rate_words(result["rate"])])
    write_part("Closed forms", [landscape_words(result["landscape"])])
    write_part("Groups of classes", [hardness_words(result["hardness"])])
    write_part("Networks", [result["architecture"]])
    write_part("Not looked at", result["not_examined"])
    write(f"\n{duration(result['seconds'])}; run: {result['run']}")
    write(f"page: {result['report']}")


def _table(result: Result) -> None:
    rows, name = [], result["score"]
    for row in result["pilot"]:
        value = score_value(name, row[name], row["ci95"])
        cost = "" if row["cost"] is None else duration(round(row["cost"]))
        tasks = f"{row['episodes']}{'' if row['fresh'] else ' (earlier)'}"
        rows.append((row["method"], value, tasks, row["steps"] or "", cost))
    columns = ("method", name, "tasks", "steps", "whole training")
    table(result["tasks"], columns, rows, right=("tasks", "steps", "whole training"))
    from innerloop.report.advice_page import note_words

    for note in note_words(result["pilot"]):
        write(note)
    if not all(row["fresh"] for row in result["pilot"]):
        write("(earlier): it dropped out before, and was judged on other tasks than those that went on")
