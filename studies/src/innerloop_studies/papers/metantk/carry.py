"""Carries out the runs of MetaNTK-NAS' tables: search, training and test, each kept for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from innerloop_studies.papers.metantk.lines import accuracy, shots_of
from innerloop_studies.papers.metantk.outcomes import CaseRun, Searched, Trained
from innerloop_studies.reproduce.rows import Say

if TYPE_CHECKING:
    from innerloop_studies.papers.metantk.cases import Case

PARTS = "metantk-nas"
"""The tables and the figure share the searches and trainings that they have in common."""


def carry_out(cases: Sequence[Case], say: Say) -> dict[Case, CaseRun]:
    """Every case once, two at a time with one thread each; finished searches and trainings are kept."""
    from innerloop_studies.papers.metantk.searches import pictures
    from innerloop_studies.reproduce.parts import two_at_a_time

    for data in {case.data for case in cases}:
        pictures(data)  # missing data are told at once
    say(f"{len(cases)} runs, two at a time; finished searches and trainings are kept")
    runs = {}
    for case, run in two_at_a_time(one_run, cases):
        runs[case] = run
        scores = ", ".join(f"{accuracy(run, shots):.1f} % ({shots}-shot)" for shots in shots_of(run))
        cost = "" if run.search is None else f"searched for {run.search.seconds:.0f} s, "
        say(f"{case}: {cost}trained for {run.training.seconds:.0f} s: {scores}")
    return runs


def searched(case: Case) -> Searched | None:
    """The case's search, or what it gave before; None if nothing is searched."""
    from innerloop_studies.papers.metantk.cases import search_of
    from innerloop_studies.papers.metantk.searches import found_cell
    from innerloop_studies.reproduce.parts import remembered

    wanted = search_of(case)
    if wanted is None:
        return None
    return Searched(**remembered(PARTS, found_cell, wanted, seen=seen(case)))


def one_run(case: Case) -> CaseRun:
    """Search, training and test of one case, each kept for itself."""
    from innerloop_studies.papers.metantk.cases import heads_of, recipe_of
    from innerloop_studies.papers.metantk.runs import trained
    from innerloop_studies.reproduce.parts import remembered

    search = searched(case)
    genotype = "metanas" if search is None else search.genotype
    wanted = {"recipe": recipe_of(case, genotype), "heads": heads_of(case)}
    training = Trained(**remembered(PARTS, trained, wanted, seen=seen(case)))
    return CaseRun(genotype, search, training)


def seen(case: Case) -> dict[str, str]:
    """What a part depends on besides its settings: the file of the photographs, where they are used."""
    from innerloop_studies.papers.metantk.pictures import TINY, fingerprint

    return {"photographs": fingerprint()} if case.data == TINY else {}
