"""``innerloop bench``."""

from __future__ import annotations

from typing import Annotated

import typer

from innerloop.cli.options import Json
from innerloop.cli.output import Result, carry_out, say, table, write
from innerloop.core.errors import UserError, did_you_mean

BENCHMARKS = {
    "maml-sine": "MAML on sinusoids, MLP 1-40-40-1, 25 tasks, 5 steps, against a plain loop and peers",
    "maml-conv": "MAML on 28×28 pictures, Conv4-64, 5-way 1-shot, 4 tasks, against a plain loop",
    "memory": "peak memory over thousands of meta-steps: it must not grow",
}
Name = Annotated[str, typer.Argument(metavar="NAME", help="maml-sine, maml-conv or memory.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer repeats: a first look, not for quoting.")]
_SHOWN = ("case", "peer", "ours_ms", "peer_ms", "ratio", "ours_mb", "peer_mb", "threads", "repeats")


def bench(name: Name, quick: Quick = False, json: Json = False) -> None:
    r"""Measure ourselves side by side with peers, here and now.

    \b
    Examples:
      innerloop bench maml-sine
      innerloop bench memory --quick --json

    Both sides alternate in one run of the command, each in its own process. Peers that are not installed are
    left out: `pip install 'innerloop[peers]'` brings them. The plain loop is always there.

    \b
    JSON: cases (case, peer, ours_ms, peer_ms, ratio, ours_mb, peer_mb, threads, repeats).
    """

    def work() -> Result:
        if name not in BENCHMARKS:
            raise UserError(
                f"unknown benchmark '{name}'{did_you_mean(name, BENCHMARKS)}: {', '.join(BENCHMARKS)}."
            )
        from innerloop.bench import run

        return run(name, quick=quick, say=say)

    carry_out(json, work, _render)


def _render(result: Result) -> None:
    cases = result.get("cases") or []
    columns = [column for column in _SHOWN if any(column in case for case in cases)]
    rows = [[_cell(column, case.get(column)) for column in columns] for case in cases]
    table(str(result.get("name", "benchmark")), columns, rows, right=_SHOWN[2:])
    for key, value in result.items():
        if key not in ("cases", "name") and isinstance(value, (str, int, float)):
            write(f"{key}: {value:.4g}" if isinstance(value, float) else f"{key}: {value}")


def _cell(column: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.2f}×" if column == "ratio" else f"{value:,.2f}"
    return str(value)
