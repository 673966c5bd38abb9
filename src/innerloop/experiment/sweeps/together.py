"""A sweep that processes share through a folder: the study, the work, and one table and page at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.core.faults import printable
from innerloop.core.files import write_json_atomic
from innerloop.experiment.recipe.settings import recipe_to_toml
from innerloop.experiment.sweeps.grid import SEED, Cell, SweepSpace, described, sweep_name
from innerloop.experiment.sweeps.journal import JOURNAL
from innerloop.experiment.sweeps.points import Points
from innerloop.experiment.sweeps.runs import judged, score_of
from innerloop.experiment.sweeps.shared import work_on
from innerloop.experiment.sweeps.study import Ended, SharedStudy
from innerloop.experiment.sweeps.table import SweepResult, SweepRow, SweptRun, check_scores, table_of
from innerloop.runs.directory import MANIFEST, list_runs

ON_PAGE = 24
"""Runs on the page of a sweep, the best ones: more make it slow to open."""

RESULT = "sweep.json"


class How(NamedTuple):
    """How a process works on a sweep."""

    trials: int | None
    sampler: str
    prune: bool
    jobs: int | None
    show: bool


def sweep_together(
    where: Path, space: SweepSpace, cells: list[Cell], notes: list[str], how: How
) -> SweepResult:
    """Works on a sweep beside any number of other processes."""
    scores = sorted({score_of(cell.recipe) for cell in cells})
    if len(scores) > 1:
        raise UserError(f"some runs are judged by {' and some by '.join(scores)}: sweep them apart.")
    base, drawn = space.base, how.trials is not None
    if drawn:
        about = [recipe_to_toml(base), list(space.choices.items()), list(space.ranges.items()), how.sampler]
        name, points = sweep_name(base.name, about), Points(space)
    else:
        name, points = sweep_name(base.name, described(cells)), Points(space, cells)
    study = SharedStudy(where, name, scores[0], points, how.trials or 0, how.sampler)
    ended = work_on(study, how.jobs, how.prune, notes, how.show)
    return _result(study, where, ended, notes, drawn)


def _result(
    study: SharedStudy, where: Path, ended: list[Ended], notes: list[str], drawn: bool
) -> SweepResult:
    newest = {run.parent.name: run for run in list_runs(study.folder)}
    whole = {each.cell.label: each for each in ended if not each.failed and each.cell.label in newest}
    results = [judged(each.cell.settings, newest[label]) for label, each in whole.items()]
    failed = [each for each in ended if each.cell.label not in whole]
    results += [_lost(each.cell) for each in failed]
    rows = table_of(results, by_validation=drawn)
    check_scores(rows, len(results), study.folder)
    runs = [newest[label] for label in sorted(whole, key=lambda label: _place(whole[label].cell, rows))]
    again = [
        f"{each.cell.label} failed ({printable(each.failed)}): the same command again tries it again"
        for each in failed
    ]
    page = _page(study, runs)
    told = [*notes, *again]
    result = SweepResult(study.folder, runs, rows, told, study.name, where / JOURNAL, drawn, page)
    write_json_atomic(study.folder / RESULT, result.as_dict())
    return result


def _lost(cell: Cell) -> SweptRun:
    evaluation: dict[str, Any] = {"score": score_of(cell.recipe), "mean": None, "ci95": None, "scores": []}
    return SweptRun(cell.settings, evaluation, None, "failed")


def _place(cell: Cell, rows: list[SweepRow]) -> int:
    """The row that a run belongs to."""
    rest = {key: value for key, value in cell.settings.items() if key != SEED}
    return next(i for i, row in enumerate(rows) if row.settings == rest)


def _page(study: SharedStudy, runs: list[Path]) -> Path:
    """The page that compares the best runs; of processes that end at the same time, the first writes it."""
    from innerloop.experiment.pages import write_report

    out = study.folder / "report.html"
    with study.claims.alone("page"):
        changed = max((run / MANIFEST).stat().st_mtime for run in runs)
        if not (out.is_file() and out.stat().st_mtime >= changed):
            write_report(runs[:ON_PAGE], out)
    return out
