"""``python -m innerloop_studies.recorded adopt|run|status|write``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from innerloop_studies.recorded.commands import commands, run, state_of
from innerloop_studies.recorded.evaluations import adopt_evaluation
from innerloop_studies.recorded.files import ROOT, adopt


def main() -> int:
    """Carries out one of them."""
    parser = argparse.ArgumentParser(prog="python -m innerloop_studies.recorded", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    words = verbs.add_parser(
        "adopt", help="keep what a run of `innerloop reproduce` found, or a bench printed"
    )
    words.add_argument("paths", nargs="+", type=Path, metavar="RUN|FILE.json")
    words.add_argument("--as", dest="name", help="of an evaluation; the file is what train or sweep printed")
    words = verbs.add_parser("run", help="run what is missing or out of date")
    words.add_argument("names", nargs="*", metavar="NAME|PATTERN")
    verbs.add_parser("status", help="what is recorded, and whether it is up to date")
    verbs.add_parser("write", help="fill the marks of the pages")
    given = parser.parse_args()
    if given.verb == "adopt":
        for path in given.paths:
            tell(f"{path} → {taken_over(path, given.name).relative_to(ROOT)}")
        return 0
    if given.verb == "run":
        return 1 if run(given.names, tell) else 0
    if given.verb == "status":
        for one in commands():
            tell(f"{one.kind.removesuffix('s'):14} {one.name:24} {state_of(one)}")
        return 0
    from innerloop_studies.recorded.marks import write

    for page in write():
        tell(f"{page.relative_to(ROOT)} follows")
    return 0


def taken_over(path: Path, name: str | None) -> Path:
    """Keeps what a path holds: as an evaluation of this name, or as what it says it is."""
    if name is None:
        return adopt(path)
    return adopt_evaluation(name, json.loads(path.read_text(encoding="utf-8")), None, path.resolve().parent)


def tell(line: str) -> None:
    """A line for people."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        tell("interrupted: the same command goes on from here")
        sys.exit(130)
