"""``python -m endurance kills`` and ``python -m endurance soak``: a table for people, a file of JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: forked processes have no threads


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if nothing was lost and nothing grew."""
    parser = argparse.ArgumentParser(prog="endurance", description=__doc__)
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    what = parser.add_subparsers(dest="what", required=True)
    kills = what.add_parser("kills", help="random kills of every kind of work")
    kills.add_argument("--each", type=int, default=100, help="kills of every kind")
    kills.add_argument("--kinds", default="", help="some of them, with commas between")
    kills.add_argument("--seed", type=int, default=0, help="of the moments")
    kills.add_argument("--signal", default="KILL", choices=("KILL", "TERM"))
    kills.add_argument("--keep", action="store_true", help="keep the folders of rounds with problems")
    pairs = what.add_parser("pairs", help="two commands at once on one run or data set")
    pairs.add_argument("--each", type=int, default=100, help="pairs of every kind")
    pairs.add_argument("--seed", type=int, default=0)
    soak = what.add_parser("soak", help="long runs with flat memory")
    soak.add_argument("--steps", type=int, default=20_000)
    soak.add_argument("--episodes", type=int, default=10_000)
    soak.add_argument("--modes", default="loop,vmap,trace,processes")
    given = parser.parse_args(arguments)
    rows, good = {"kills": _kills, "pairs": _pairs, "soak": _soak}[given.what](given)
    found = {**_about(), **vars(given), "out": None, "results": rows}
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if good else 1


def _kills(given: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    from endurance.children import adopt_orphans
    from endurance.kinds import KINDS
    from endurance.storm import Tally, storm

    _warm_up()
    adopt_orphans()
    names = given.kinds.split(",") if given.kinds else list(KINDS)
    folder, tallies = Path(tempfile.mkdtemp(prefix="endurance-")), list[Tally]()
    for name in names:
        number = getattr(signal, f"SIG{given.signal}")
        where = folder / name.replace(" ", "-")
        tallies.append(storm(KINDS[name], given.each, given.seed, where, number, _say))
    _write("| work | kills | by the clock | at a file operation | with its children | rounds | refused | s |")
    _write("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for t in tallies:
        _write(
            f"| {t.kind} | {t.kills} | {t.by_clock} | {t.at_file_operations} | {t.with_children} | "
            f"{t.rounds} | {t.refused} | {t.seconds:.0f} |"
        )
    for problem in (problem for tally in tallies for problem in tally.problems):
        _write(problem)
    good = not any(tally.problems for tally in tallies)
    if good and not given.keep:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
    else:
        _write(f"kept: {folder}")
    return [tally.as_dict() for tally in tallies], good


def _pairs(given: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    from endurance.pairs import PAIRS
    from endurance.storm import Damage

    _warm_up()
    rows = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="endurance-") as folder:
        for name, pairs in PAIRS.items():
            try:
                refused, problem = pairs(Path(folder) / name.replace(" ", "-"), given.each, given.seed), None
            except Damage as error:
                refused, problem = 0, str(error)
            rows.append({"pair": name, "times": given.each, "refused": refused, "problem": problem})
    _write("| two at once | times | of which one was refused |")
    _write("| --- | --- | --- |")
    for row in rows:
        _write(f"| `{row['pair']}` | {row['times']} | {row['refused']} |")
        if row["problem"]:
            _write(row["problem"])
    return rows, not any(row["problem"] for row in rows)


def _soak(given: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    from endurance.soak import soak

    with tempfile.TemporaryDirectory(prefix="endurance-") as folder:
        found = soak(Path(folder), given.steps, given.episodes, given.modes.split(","), _say)
    _write("| case | steps or episodes | s | MB | more at the end | open files |")
    _write("| --- | --- | --- | --- | --- | --- |")
    for one in found:
        _write(
            f"| {one.name} | {one.count:,} | {one.seconds:.0f} | {one.megabytes:.0f} | "
            f"{one.growth:+.2f} MB | {one.files[0]} ({one.files[1]:+d}) |"
        )
    return [one.as_dict() for one in found], all(one.flat for one in found)


def _warm_up() -> None:
    """Imports what the commands import, so that every child has it; nothing here starts a thread."""
    import torch
    import torch._dynamo  # torch.func imports it at its first use: seconds that every child would need

    torch.set_num_threads(1)


def _about() -> dict[str, Any]:
    import torch

    from innerloop._version import __version__

    return {
        "innerloop": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": len(os.sched_getaffinity(0)),
    }


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
