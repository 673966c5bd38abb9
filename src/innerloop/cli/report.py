"""``innerloop report``."""

from __future__ import annotations

from typing import Annotated

import typer

from innerloop.cli.options import Json, Page
from innerloop.cli.output import Result, carry_out, write

Runs = Annotated[
    list[str], typer.Argument(metavar="RUN...", help="Runs: paths, beginnings of their names, or `last`.")
]


def report(runs: Runs, page: Page = None, json: Json = False) -> None:
    r"""Write a page about a run, or one that compares several.

    The page is one HTML file with its pictures inside; it may be sent by mail and opened without a network.
    Without --page it is report.html in the run, or here if there are several runs.

    \b
    Examples:
      innerloop report last
      innerloop report runs/sine-maml/2026* runs/sine-erm/2026* --page compare.html

    \b
    JSON: report, runs.
    """

    def work() -> Result:
        """Writes the page."""
        from innerloop.runs.directory import find_run

        paths = [find_run(run) for run in runs]
        from innerloop.experiment.pages import write_report

        return {"report": str(write_report(paths, page)), "runs": [str(run) for run in paths]}

    carry_out(json, work, lambda result: write(f"wrote {result['report']}"))
