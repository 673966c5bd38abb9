"""Writes the page: one HTML file with its style and pictures inside, which works without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.core.files import write_text_atomic
from innerloop.report.advice_page import advice_view
from innerloop.report.analysis_page import analysis_view
from innerloop.report.comparison_page import comparison_view, labels
from innerloop.report.figures import HeldOut
from innerloop.report.landscape_page import landscape_page
from innerloop.report.read_run import RunData, load_run
from innerloop.report.render import environment, render
from innerloop.report.reproduction_page import overview_view, reproduction_view
from innerloop.report.run_page import run_view
from innerloop.report.search_page import search_view
from innerloop.report.text import View
from innerloop.runs.directory import is_run
from innerloop.runs.pages import MARKER, check_page

OWN_PAGES: dict[str, Callable[[Mapping[str, Any]], str]] = {"landscape": landscape_page}
"""Analyses with an interactive page: it is made from the run's numbers, never copied from its directory."""

MOST_WITH_SAMPLES = 4
"""Runs up to which a page shows sample tasks of each in pictures: beyond, it would grow too large to send."""


class Maker(NamedTuple):
    """What a kind of run shows on its page, and what several of them are called."""

    view: Callable[[RunData, str], View]
    several: str


MAKERS = {
    "reproduce": Maker(reproduction_view, "reproductions"),
    "analyze": Maker(analysis_view, "analyses"),
    "search": Maker(search_view, "searches"),
    "advise": Maker(advice_view, "pieces of advice"),
}


def write_page(runs: list[Path], out: Path | None = None, held_out: HeldOut | None = None) -> Path:
    """Writes a self-contained page about one run, or about several.

    Training runs are compared with each other. Runs of ``reproduce``, ``analyze``, ``search`` and ``advise``
    get a section each, with an overview on top; one of ``reproduce all`` stands for all its members.

    Args:
        runs: run directories. What a run lacks (an evaluation, its end) is said on the page.
        out: the file to write; by default ``report.html`` in the run, or here when there are several.
        held_out: rebuilds a task of a run for its picture; without it there is none.

    Returns:
        The path of the page.

    Raises:
        UserError: no runs are given, one is not a run, they do not belong on one page, or ``out`` exists
            and is not a page of ours.
    """
    if not runs:
        raise UserError("a report needs at least one run: `innerloop report last`, or the path of a run.")
    paths = list(dict.fromkeys(Path(run) for run in runs))
    if out is None:
        out = paths[0] / "report.html" if len(paths) == 1 else Path("report.html")
    out, read = Path(out), [load_run(path) for path in paths]
    check_page(out)
    write_text_atomic(out, page_text(members(read), held_out))
    return out


def members(runs: list[RunData]) -> list[RunData]:
    """The same runs, with the members of ``reproduce all`` in its place, each once."""
    by_path: dict[Path, RunData] = {}
    for run in runs:
        if run.kind != "reproduce-all":
            by_path.setdefault(run.path, run)
            continue
        entries = run.result.get("reproductions")
        names = [str(entry.get("run") or "") for entry in entries] if isinstance(entries, list) else []
        paths = [run.path.absolute().parent.parent / name for name in names if name]
        if not paths:
            raise UserError(f"{run.path} holds no reproductions yet: `innerloop reproduce all` makes them.")
        for path in paths:
            gone = RunData(path, {}, "", {"kind": "reproduce"}, [], [], ["its directory is gone."], {})
            by_path.setdefault(path, load_run(path) if is_run(path) else gone)
    return list(by_path.values())


def page_text(runs: list[RunData], held_out: HeldOut | None = None) -> str:
    """The HTML of the page; the same runs give the same text."""
    training = [run for run in runs if run.kind == "train"]
    if len(training) == len(runs):
        return _training_page(runs, held_out)
    if training:
        other = next(run for run in runs if run.kind != "train")
        raise UserError(
            f"{training[0].path} is a training run and {other.path} one of `{other.kind}`: "
            "report training runs on a page of their own."
        )
    return (own_page(runs[0]) if len(runs) == 1 else "") or _results_page(runs)


def _training_page(runs: list[RunData], held_out: HeldOut | None) -> str:
    names, samples = labels(runs), len(runs) <= MOST_WITH_SAMPLES
    views = [
        run_view(run, f"r{i}", name, held_out, samples)
        for i, (run, name) in enumerate(zip(runs, names, strict=True))
    ]
    comparison = comparison_view(runs, names) if len(runs) > 1 else None
    return render("page.html.j2", runs=views, several=len(runs) > 1, comparison=comparison)


def _results_page(runs: list[RunData]) -> str:
    views = [MAKERS[run.kind].view(run, f"r{i}") for i, run in enumerate(runs)]
    several = len(runs) > 1
    kinds = {view["kind"] for view in views}
    what = MAKERS[kinds.pop()].several if len(kinds) == 1 else "runs"
    overview = overview_view(views, [run.result.get("seconds") for run in runs]) if several else None
    return render(
        "results.html.j2", views=views, several=several, overview=overview, title=f"{len(runs)} {what}"
    )


def own_page(run: RunData) -> str:
    """The interactive page of an analysis, with the terminal's words and the command, or nothing."""
    make = OWN_PAGES.get(str(run.manifest.get("analysis"))) if run.kind == "analyze" else None
    if make is None:
        return ""
    try:
        text = make(run.result)
    except ValueError:
        return ""
    about = environment().get_template("about.html.j2").render(view=analysis_view(run, "r0"))
    head, end, tail = text.rpartition("</body>")
    return (head + about + end + tail).replace("<html", f"{MARKER}\n<html", 1)
