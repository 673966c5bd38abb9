"""``innerloop bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from innerloop.cli.options import Json
from innerloop.cli.output import Result, carry_out, say, table, write
from innerloop.core.errors import UserError
from innerloop_studies.bench import BENCHMARKS, environments, module_of, run

Name = Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(BENCHMARKS)}.")]
_DRAWN = ", ".join(name for name, one in BENCHMARKS.items() if one.is_drawn)
Quick = Annotated[bool, typer.Option("--quick", help="Fewer repeats: a first look, not for quoting.")]
Install = Annotated[
    bool, typer.Option("--install-peers", help="First install peers that need other packages than ours.")
]
Picture = Annotated[Path | None, typer.Option("--figure", help=f"Also draw it into this file ({_DRAWN}).")]
_SHOWN = (
    *("case", "peer", "ours_ms", "peer_ms", "ratio", "at_least", "ours_mb", "peer_mb"),
    *("gflops", "sgemm_share", "all_reduce_share", "threads", "repeats"),
)


def bench(
    name: Name,
    quick: Quick = False,
    figure: Picture = None,
    install_peers: Install = False,
    json: Json = False,
) -> None:
    r"""Measure innerloop side by side with its peers, here and now.

    \b
    Examples:
      innerloop bench maml-sine
      innerloop bench maml-conv --install-peers
      innerloop bench memory --quick --json
      innerloop bench metakernel --figure growth.png
      innerloop bench ranks --figure cost.png

    Both sides alternate in one run of the command, each in its own process. Peers that are not installed are
    left out. The plain loop is always there; `pip install 'innerloop[peers]'` brings libraries of torch, and
    --install-peers others (JAX, for one), each into an environment of its own.

    \b
    JSON: cases (case, peer, ours_ms, peer_ms, ratio, ours_mb, peer_mb, threads, repeats).
    """

    def work() -> Result:
        module = module_of(name)
        if figure is not None:
            _check_figure(name, figure)
        if install_peers:
            _install_peers(name, module)
        if figure is None:
            return {**run(name, quick=quick, say=say)}
        result = run(name, quick=quick, say=say)
        module.figure(result).savefig(figure, dpi=160, facecolor="white")
        return {**result, "figure": str(figure)}

    carry_out(json, work, _render)


def _check_figure(name: str, figure: Path) -> None:
    """Said before minutes of measuring, not after."""
    if not BENCHMARKS[name].is_drawn:
        raise UserError(f"bench {name} has no picture: --figure is for {_DRAWN}.")
    if figure.exists():
        raise UserError(f"{figure} is already there: name another file, or move it away.")
    if figure.suffix not in (".png", ".svg", ".pdf") or not figure.parent.is_dir():
        raise UserError(
            f"cannot write a picture to {figure}: give a .png, .svg or .pdf in a folder that exists."
        )


def _install_peers(name: str, module: Any) -> None:
    peers = getattr(module, "PEERS", ())
    if not peers:
        raise UserError(f"bench {name} has no peer with packages of its own: leave --install-peers out.")
    for peer in peers:
        environments.install(peer, say)


def _render(result: Result) -> None:
    cases = result.get("cases") or []
    columns = [column for column in _SHOWN if any(column in case for case in cases)]
    rows = [[_cell(column, case.get(column)) for column in columns] for case in cases]
    table(str(result.get("name", "benchmark")), columns, rows, right=_SHOWN[2:])
    for case in cases:
        if case.get("notes"):
            write(f"{case['case']}, {case.get('peer', '')}: {case['notes']}")
    for line in result.get("summary") or []:
        write(line)
    if "figure" in result:
        write(f"figure: {result['figure']}")


def _cell(column: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        if column in ("sgemm_share", "all_reduce_share"):
            return f"{100 * value:.{0 if column == 'sgemm_share' else 1}f} %"
        return f"{value:.2f}×" if column in ("ratio", "at_least") else f"{value:,.2f}"
    return str(value)
