"""Whole searches, timed: there is nothing beside them but a promise."""

from __future__ import annotations

import subprocess
import tempfile
import time
from typing import NamedTuple

from innerloop.core.children import python_command
from innerloop.core.cores import available_cores
from innerloop_studies.bench.child import Child, thread_limits
from innerloop_studies.bench.harness import Say
from innerloop_studies.bench.rows import Row

ROBUST_MINUTES, GLYPHS_MINUTES = 30.0, 5.0
GLYPHS = ("search", "glyphs", "budget=60s")
"""The command as the documentation has it."""


class Robust(NamedTuple):
    """Seconds of a robust search, and how they were measured."""

    seconds: float
    notes: str


def whole_searches(sizes: dict[str, int], quick: bool, say: Say) -> list[Row]:
    """A robust search (if quick, by a few candidates of its first round), and one of the embedded glyphs."""
    return [robust(sizes, quick, say), glyphs(say)]


def robust(sizes: dict[str, int], quick: bool, say: Say) -> Row:
    """A robust search on pictures of noise, in a process of its own."""
    module = "innerloop_studies.bench.search"
    with Child("a robust search", module, thread_limits(1)) as child:
        measured = Robust(**child.ask("whole", sizes=sizes, quick=quick))
    case = (
        f"a robust search, C = {sizes['channels']}, {sizes['cells']} cells, {sizes['side']}×{sizes['side']}"
    )
    return _row(case, measured.seconds, ROBUST_MINUTES, measured.notes, say)


def glyphs(say: Say) -> Row:
    """The whole command on the embedded glyphs: shortlist, pilot and page."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = subprocess.run(
            python_command("-m", "innerloop", *GLYPHS),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"innerloop {' '.join(GLYPHS)} failed:\n{done.stderr[-2000:]}")
    case = f"innerloop {' '.join(GLYPHS)}"
    return _row(case, seconds, GLYPHS_MINUTES, "from the command line to its end", say)


def _row(case: str, seconds: float, minutes: float, notes: str, say: Say) -> Row:
    say(f"{case}: {seconds / 60:.1f} minutes; {notes}")
    return {
        "case": case,
        "peer": f"promised: under {minutes:g} minutes",
        "ours_ms": seconds * 1e3,
        "threads": str(available_cores()),
        "repeats": 1,
        "notes": notes,
    }


def robust_seconds(sizes: dict[str, int], quick: bool) -> Robust:
    """Seconds of the search in this process; if quick, what a few candidates of its first round come to."""
    from innerloop.choose.architectures.methods import METHODS, search
    from innerloop_studies.bench.search_sides import NoiseDraws, part_of_round, space_of

    if not quick:
        start = time.perf_counter()
        result = search("robust", space_of(sizes), NoiseDraws(sizes["side"], sizes["crops"]))
        took = time.perf_counter() - start
        return Robust(took, f"{result.measured} measurements, on pictures of noise")
    call = part_of_round(True, sizes)
    call()
    start = time.perf_counter()
    call()
    each = (time.perf_counter() - start) / (sizes["candidates"] + 1)
    return Robust(
        each * whole_in_first_candidates(METHODS["robust"].settings.budget),
        f"extrapolated from {sizes['candidates'] + 1} measurements of the first round",
    )


def whole_in_first_candidates(budget: float) -> float:
    """What a search by pruning takes, in measurements of its first round.

    An edge has 7 operators at first and one less after every round; a measurement takes time in proportion.
    """
    from innerloop.nets.cells.genotype import EDGES, KINDS, OPERATORS

    edges, most = len(EDGES) * len(KINDS), len(OPERATORS)
    rounds = sum(edges * left * left / most for left in range(2, most + 1))
    at_the_end = 14 / most  # edges of the nodes that have more than two
    return budget * (rounds + at_the_end)
