"""``innerloop reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.cli.options import Json
from innerloop.cli.output import Result, carry_out, say, table, typed_argv, write, write_part
from innerloop.core.errors import UserError
from innerloop_studies.reproduce import REPRODUCTIONS, SCALES, check

CRASHED, NOT_RUN, NOT_AS_RECORDED = 1, 2, 3
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="ls | headlines | all | NAME…",
        help="`ls` lists the names; several, `all`, or patterns: 'adaptlr-*'; `headlines`: what came of it.",
    ),
]
Scale = Annotated[
    str, typer.Option("--scale", help="smoke: seconds; cpu: minutes on two cores; paper: as published.")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="ADDRESS", help="Parts go to this Dask cluster: tcp://host:8786, or slurm."
    ),
]
PartsFolder = Annotated[
    Path | None,
    typer.Option("--parts", metavar="FOLDER", help="Keep finished parts here, not in runs/reproduce-parts."),
]
Run = Annotated[
    bool, typer.Option("--run", help="With headlines: first run at cpu what is not recorded or out of date.")
]
HEADLINES = "headlines"


def reproduce(
    names: Names,
    scale: Scale = "smoke",
    cluster: Cluster = None,
    parts: PartsFolder = None,
    run: Run = False,
    json: Json = False,
) -> None:
    r"""Redo one table or figure of the papers, several of them, or all; `headlines` says what came of it.

    \b
    Examples:
      innerloop reproduce ls
      innerloop reproduce headlines
      innerloop reproduce landscape-fig1
      innerloop reproduce bridge-fig1 --scale cpu --json
      innerloop reproduce all --scale smoke
      innerloop reproduce 'adaptlr-*' landscape-fig1 --scale cpu
      innerloop reproduce all --scale cpu --cluster tcp://host:8786

    Every row sets a statement of the paper beside what is found here. `holds` says whether the statement
    holds, `ok` whether that is what the project records for this scale. Exit code 3 means that some row is
    not as recorded. Figures and numbers go to runs/reproduce-NAME/.

    If there are several, one that fails does not stop the others; a page with all of them is written, and
    after an interruption the same command goes on. Exit code 1 or 2 then means that every row is as
    recorded, but that one reproduction crashed or could not run.

    `headlines` has what the four abstracts claim, each with a verdict from the statements that the repository
    has recorded at cpu. `--run` first runs the studies behind them that are missing or of another version.

    Long ones have parts, which are computed two at a time, or on a cluster. Finished parts are kept under
    runs/reproduce-parts and not computed again.

    \b
    JSON: name, scale, rows (what, paper, ours, holds, ok, reason), figure, figures, protocol, seconds, run.
    Of several: scale, reproductions (name, status, reason and the above), statements, hold, as_recorded,
    failed, report, seconds, run. Of headlines: headlines (name, says, where, verdict, why, findings,
    would_decide, figure), out_of_date, failed.
    """

    def work() -> Result:
        """Lists the names, or redoes what is asked for."""
        if names == ["ls"]:
            named = [{"name": key, "redoes": text} for key, text in REPRODUCTIONS.items()]
            return {"names": named, "scales": list(SCALES)}
        if names == [HEADLINES]:
            return _headlines(run)
        if run:
            raise UserError("`--run` is for `innerloop reproduce headlines`; studies run without it.")
        from innerloop_studies.reproduce import runs
        from innerloop_studies.reproduce.parts import CLUSTER, FOLDER

        CLUSTER.set(cluster)
        if parts is not None:
            FOLDER.set(parts)
        if runs.is_batch(names):
            return _several(names, scale)
        return runs.carry_out(names[0], scale, argv=typed_argv(), say=say, folder=Path("runs"))

    code = _exit_code(carry_out(json, work, _render))
    if code:
        raise typer.Exit(code)


def _headlines(run: bool) -> Result:
    """Verdicts on the papers' claims, from what is recorded, and what of that another version found."""
    from innerloop_studies.recorded import commands, headlines

    headlines.check_clone()
    names = headlines.studies()
    failed = commands.run(names, say) if run else 0
    states = {one.name: commands.state_of(one) for one in commands.chosen(names)}
    stale = [name for name, state in states.items() if state not in ("up to date", "missing")]
    found = [one.as_dict() for one in headlines.headlines()]
    return {"headlines": found, "out_of_date": stale, "failed": failed}


def _several(words: list[str], scale: str) -> Result:
    """One after another; the page is written after an interruption as well."""
    from innerloop.experiment.pages import write_report
    from innerloop_studies.reproduce import runs

    names, argv = runs.select(words), typed_argv()
    check(names[0], scale)
    batch = runs.begin_batch(names, scale, argv, Path("runs"))
    try:
        result = runs.carry_out_batch(batch, argv, say)
    except KeyboardInterrupt:
        say(f"page of what is done: {write_report([batch])}; the same command goes on from here")
        raise
    return {**result, "report": str(write_report([batch]))}


def _exit_code(result: Result) -> int:
    members = result.get("reproductions", [result])
    if any(not row["ok"] for one in members for row in one.get("rows", [])):
        return NOT_AS_RECORDED
    if any(one.get("crashed") for one in members):
        return CRASHED
    return NOT_RUN if result.get("failed") else 0


def _render(result: Result) -> None:
    if "names" in result:
        rows = [(row["name"], row["redoes"]) for row in result["names"]]
        table(f"innerloop reproduce NAME --scale {'|'.join(result['scales'])}", ("name", "redoes"), rows)
        write(f"innerloop reproduce {HEADLINES}: what the papers' abstracts claim, and what came of it")
        return
    if "headlines" in result:
        _render_headlines(result)
        return
    if "reproductions" in result:
        _render_several(result)
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


def _render_several(result: Result) -> None:
    from innerloop_studies.reproduce.runs import counted

    members, lines, remarks = result["reproductions"], [], []
    for one in members:
        rows = one.get("rows", [])
        counts = [f"{count} of {len(rows)}" if rows else "" for count in counted(rows)]
        took = f"{one['seconds']:.1f} s" if "seconds" in one else ""
        lines.append((one["name"], one["status"], *counts, took))
        remarks += [f"{one['name']}: {one['reason']}"] if one["status"] != "finished" else []
        for row in rows:
            if not row["ok"]:
                remarks.append(f"{one['name']} is not as recorded: {row['what']}: {_cell(row['ours'])}")
    head, total = ("name", "ended", "hold", "as recorded", "took"), result["statements"]
    table(f"{len(members)} reproductions at {result['scale']}", head, lines, right=head[2:])
    for remark in remarks:
        write(remark)
    write(f"{result['hold']} of {total} statements hold, {result['as_recorded']} of {total} are as recorded")
    write(f"page: {result['report']}")


def _render_headlines(result: Result) -> None:
    from innerloop_studies.recorded.claims import PAPERS

    for paper, title in PAPERS.items():
        told = []
        for one in result["headlines"]:
            if one["name"].startswith(f"{paper}-"):
                claim = f"[{one['verdict']}] {one['says']} ({one['where']})."
                told.append(" ".join([claim, *one["why"]]))
        write_part(title, told)
    if result["out_of_date"]:
        stale = f"{', '.join(result['out_of_date'])} (`innerloop reproduce {HEADLINES} --run`)"
        write_part("Recorded by another version", [stale])


def _yes(value: bool) -> str:
    return "yes" if value else "NO"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_cell, value))
    return "" if value is None else str(value)
