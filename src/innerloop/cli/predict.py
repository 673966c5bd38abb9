"""``innerloop predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.cli.options import Json, RunName, Trust, check_settings
from innerloop.cli.output import Result, carry_out, write

Support = Annotated[
    Path, typer.Option("--support", metavar="DIR", help="A folder with one folder of pictures per class.")
]
Queries = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="QUERY…", help="Pictures or folders of them; key=value settings may stand among them."
    ),
]
UnsureBelow = Annotated[
    float,
    typer.Option("--unsure-below", help="Mark predictions that are less probable than this.", min=0, max=1),
]


def predict(
    run: RunName,
    support: Support,
    queries: Queries = None,
    unsure_below: UnsureBelow = 0.5,
    trust: Trust = False,
    json: Json = False,
) -> None:
    r"""Label new pictures from a few examples per class.

    \b
    Examples:
      innerloop predict last --support my-classes/ holiday/*.jpg
      innerloop predict last --support my-classes/ unsorted/ --json
      innerloop predict last --support my-classes/ unsorted/ eval.head=logistic

    The run adapts to the classes of the support folder, in the way it was trained to, and labels every
    query. Predictions that are not probable enough are marked as unsure. It only knows the classes you
    show it: a picture of anything else gets one of them, and need not look unsure.

    \b
    JSON: predictions (file, label, probability, unsure, probabilities), classes, support, method, norm.
    """

    def work() -> Result:
        given = check_settings(queries, ("--support", "--trust", "--json", "--help", "--unsure-below"))
        settings = [item for item in given if "=" in item and not Path(item).exists()]
        files = [Path(item).expanduser() for item in given if item not in settings]
        from innerloop.runs.directory import find_run

        found = find_run(run)
        from innerloop.experiment.predict import predict_pictures

        return predict_pictures(found, support.expanduser(), files, settings, unsure_below, trust=trust)

    carry_out(json, work, _render)


def _render(result: Result) -> None:
    shown = ", ".join(f"{name} ({n})" for name, n in result["support"].items())
    write(f"classes (pictures to learn from): {shown}; method: {result['method']}, norm={result['norm']}")
    width = max(len(row["file"]) for row in result["predictions"])
    for row in result["predictions"]:
        mark = "   unsure" if row["unsure"] else ""
        write(f"{row['file']:<{width}}  {row['label']}  {100 * row['probability']:.0f} %{mark}")
