"""Writes the page: one HTML file with its style and pictures inside, which works without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop._version import __version__
from innerloop.core.errors import UserError
from innerloop.plots.style import COLOURS, DARK_COLOURS
from innerloop.report.compare import differing_keys, group_label, labels, pair, seed_groups, verdict
from innerloop.report.figures import adaptation_picture, histogram_picture
from innerloop.report.load import RunData, flatten, headline, load_run
from innerloop.report.single import run_view
from innerloop.report.words import interval, median_text, number
from innerloop.runs.files import write_text_atomic

MARKER = "<!-- innerloop:report -->"
"""Stands in every page we write; a file without it is not ours to overwrite."""

OVERLAID = 6
"""Histograms of more runs than this hide each other and are left out."""


def write_page(runs: list[Path], out: Path | None = None) -> Path:
    """Writes a self-contained page about one run, or a comparison of several.

    Args:
        runs: run directories. What a run lacks (an evaluation, its end) is said on the page.
        out: the file to write; by default ``report.html`` in the run, or here when there are several.

    Returns:
        The path of the page.

    Raises:
        UserError: no runs are given, one is not a run, or ``out`` exists and is not a page of ours.
    """
    if not runs:
        raise UserError("a report needs at least one run: `innerloop report last`, or the path of a run.")
    paths = list(dict.fromkeys(Path(run) for run in runs))
    if out is None:
        out = paths[0] / "report.html" if len(paths) == 1 else Path("report.html")
    out = Path(out)
    _check_target(out)
    text = page_text([load_run(path) for path in paths])
    write_text_atomic(out, text)
    return out


def _check_target(out: Path) -> None:
    if out.is_dir():
        raise UserError(f"{out} is a folder: name a file in it, such as {out / 'report.html'}.")
    if not out.parent.is_dir():
        raise UserError(f"there is no folder {out.parent} to write {out.name} into: make it first.")
    if out.exists():
        with out.open(encoding="utf-8", errors="replace") as file:
            start = file.read(500)
        if MARKER not in start:
            raise UserError(f"{out} exists and is not a page of ours: choose another name with --out.")


def page_text(runs: list[RunData]) -> str:
    """The HTML of the page; the same runs give the same text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = Markup  # our own figures: matplotlib escaped what stands in them
    names = labels(runs)
    views = [run_view(run, f"r{i}", name) for i, (run, name) in enumerate(zip(runs, names, strict=True))]
    template = environment.get_template("page.html.j2")
    return template.render(
        marker=Markup(MARKER),
        version=__version__,
        runs=views,
        dark_colours=list(zip(COLOURS, DARK_COLOURS, strict=True)),
        comparison=comparison_view(runs, names) if len(runs) > 1 else None,
    )


def comparison_view(runs: list[RunData], names: list[str]) -> dict[str, Any]:
    """The table of several runs, their seeds taken together, and their pictures laid over each other."""
    keys = differing_keys(runs)
    flats = [flatten(run.recipe) for run in runs]
    evaluated = {
        name: evaluation for name, run in zip(names, runs, strict=True) if (evaluation := headline(run))
    }
    scores = {str(evaluation.get("score", "score")) for evaluation in evaluated.values()}
    pictures = []
    if len(scores) == 1:
        pictures = [adaptation_picture(evaluated, "all")]
        if len(evaluated) <= OVERLAID:
            pictures.append(histogram_picture(evaluated, "all"))
    return {
        "rows": [_comparison_row(run, name, runs[0]) for run, name in zip(runs, names, strict=True)],
        "reference": names[0],
        "groups": [
            {
                "name": group_label(runs, group.members),
                "seeds": ", ".join(map(str, group.seeds)),
                "value": interval(group.interval.mean, group.interval.ci95, group.score),
                "score": group.score,
                "n": group.interval.n,
            }
            for group in seed_groups(runs)
        ],
        "keys": keys,
        "settings": [[number(flat[key]) if key in flat else "–" for key in keys] for flat in flats],
        "pictures": [picture for picture in pictures if picture is not None],
    }


def _comparison_row(run: RunData, name: str, reference: RunData) -> dict[str, str]:
    evaluation = headline(run)
    row = {"name": name, "status": run.status, "value": "not evaluated", "score": "", "episodes": "–"}
    row |= {"difference": "–", "verdict": "", "median": "–"}
    if evaluation is None:
        return row
    score = str(evaluation.get("score", "score"))
    row["score"] = score
    row["value"] = interval(evaluation["mean"], evaluation.get("ci95"), score)
    row["episodes"] = number(evaluation.get("episodes"))
    row["median"] = median_text(evaluation, score)
    if run is reference:
        return {**row, "verdict": "reference"}
    paired = pair(run, reference)
    if paired.difference is None:
        return {**row, "verdict": paired.reason}
    row["difference"] = interval(paired.difference.mean, paired.difference.ci95, score, signed=True)
    return {**row, "verdict": verdict(paired.difference, score)}
