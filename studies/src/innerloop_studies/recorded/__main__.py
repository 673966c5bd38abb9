"""``python -m innerloop_studies.recorded adopt|run|status|write``."""

import argparse
import sys
from pathlib import Path

from innerloop.cli.output import write as say
from innerloop.core.errors import UserError
from innerloop.core.stderr import tell
from innerloop_studies.recorded import ROOT, write
from innerloop_studies.recorded.commands import adopt, commands, run, state_of


def main() -> int:
    """Carries out one of them; returns its exit code."""
    try:
        return _carry_out()
    except UserError as error:
        tell(f"error: {error}")
        return 2


def _carry_out() -> int:
    """Carries out what was typed."""
    parser = argparse.ArgumentParser(prog="python -m innerloop_studies.recorded", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    adopts = "keep what a run of `innerloop reproduce` found, or a bench printed"
    verb = verbs.add_parser("adopt", help=adopts)
    verb.add_argument("paths", nargs="+", type=Path, metavar="RUN|FILE.json")
    verb.add_argument("--as", dest="name", help="of an evaluation; the file is what train or sweep printed")
    verb = verbs.add_parser("run", help="run what is missing or of another version")
    verb.add_argument("names", nargs="*", metavar="NAME|PATTERN")
    verbs.add_parser("status", help="what is recorded, and whether it is up to date")
    verbs.add_parser("write", help="fill the marks of the pages")
    given = parser.parse_args()
    if given.verb == "adopt":
        for path in given.paths:
            say(f"{path} → {adopt(path, given.name).relative_to(ROOT)}")
    elif given.verb == "run":
        return 1 if run(given.names, say) else 0
    elif given.verb == "status":
        for one in commands():
            say(f"{one.kind.removesuffix('s'):14} {one.name:24} {state_of(one)}")
    else:
        for one in commands():
            if (state := state_of(one)) not in ("missing", "up to date"):
                tell(f"warning: {one.name} is {state}: `make results ONLY={one.name}` runs it again")
        for page in write():
            say(f"{page.relative_to(ROOT)} follows")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted: the same command goes on from here")
        sys.exit(130)
