"""``innerloop reproduce``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from innerloop.cli.options import Json
from innerloop.cli.output import Result, carry_out, say, table, write
from innerloop.reproduce import REPRODUCTIONS, SCALES

NOT_AS_RECORDED = 3
Name = Annotated[str, typer.Argument(metavar="ls | NAME", help="`ls` lists the names.")]
Scale = Annotated[
    str, typer.Option("--scale", help="smoke: seconds; cpu: minutes on two cores; paper: as published.")
]


def reproduce(name: Name, scale: Scale = "smoke", json: Json = False) -> None:
    r"""Redo a table or figure of the papers.

    \b
    Examples:
      innerloop reproduce ls
      innerloop reproduce landscape-fig1
      innerloop reproduce bridge-fig1 --scale cpu --json

    Every row sets a statement of the paper beside what is found here. `holds` says whether the statement
    holds, `ok` whether that is what the project records for this scale. Exit code 3: some
    row is not as recorded.
    Figures and numbers go to runs/reproduce-NAME/.

    \b
    JSON: name, scale, rows (what, paper, ours, holds, ok, reason), figure, figures, protocol, seconds, run.
    """

    def work() -> Result:
        if name == "ls":
            named = [{"name": key, "redoes": text} for key, text in REPRODUCTIONS.items()]
            return {"names": named, "scales": list(SCALES)}
        from innerloop.reproduce.carry_out import carry_out as redo

        return redo(name, scale, argv=["innerloop", *sys.argv[1:]], say=say, folder=Path("runs"))

    result = carry_out(json, work, _render)
    if any(not row["ok"] for row in result.get("rows", [])):
        raise typer.Exit(NOT_AS_RECORDED)


def _render(result: Result) -> None:
    if "names" in result:
        rows = [(row["name"], row["redoes"]) for row in result["names"]]
        table(f"innerloop reproduce NAME --scale {'|'.join(result['scales'])}", ("name", "redoes"), rows)
        return
    lines = [
        (row["what"], _cell(row["paper"]), _cell(row["ours"]), _yes(row["holds"]), _yes(row["ok"]))
        for row in result["rows"]
    ]
    table(f"{result['name']} at {result['scale']}", ("what", "paper", "ours", "holds", "as recorded"), lines)
    for row in result["rows"]:
        if row["reason"] and not (row["holds"] and row["ok"]):
            write(f"{row['what']}: {row['reason']}")
    for figure in result["figures"]:
        write(f"figure: {figure}")
    write(f"{result['seconds']:.1f} s, run: {result['run']}")


def _yes(value: bool) -> str:
    return "yes" if value else "NO"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_cell, value))
    return "" if value is None else str(value)
