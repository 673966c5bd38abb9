"""The page of several training runs: their table, their seeds together, their pictures over each other."""

from __future__ import annotations

from innerloop.experiment.recipe.protocols import brief, is_own
from innerloop.report.differences import differing_keys, group_label, pair, seed_groups, verdict
from innerloop.report.figures import adaptation_picture, histogram_picture
from innerloop.report.read_run import RunData, flatten, headline, others
from innerloop.report.run_view import ComparedRow, ComparisonView, SeedsRow
from innerloop.report.words import interval, median_text, number

OVERLAID = 6
"""Histograms of more runs than this hide each other and are left out."""

OTHER_PROTOCOL = "; another protocol than the recipe's"


def comparison_view(runs: list[RunData], names: list[str]) -> ComparisonView:
    """The table of several runs, their seeds taken together, and their pictures laid over each other."""
    keys = [key for key in differing_keys(runs) if key != "name"]  # names stand in every row
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
    rows = [_comparison_row(run, name, runs[0]) for run, name in zip(runs, names, strict=True)]
    ways = {row.by for row in rows if row.score}
    return ComparisonView(
        rows=rows,
        judged=ways.pop() if len(ways) == 1 else "",
        reference=names[0],
        groups=[
            SeedsRow(
                name=group_label(runs, group.members),
                seeds=", ".join(map(str, sorted(group.seeds))),
                value=interval(group.interval.mean, group.interval.ci95, group.score),
                score=group.score,
                n=group.interval.n,
            )
            for group in seed_groups(runs)
        ],
        keys=keys,
        settings=[[number(flat[key]) if key in flat else "–" for key in keys] for flat in flats],
        pictures=[picture for picture in pictures if picture is not None],
    )


def _comparison_row(run: RunData, name: str, reference: RunData) -> ComparedRow:
    evaluation = headline(run)
    if evaluation is None:
        return ComparedRow(name, run.status)
    score = str(evaluation.get("score", "score"))
    row = ComparedRow(
        name,
        run.status,
        value=interval(evaluation["mean"], evaluation.get("ci95"), score),
        score=score,
        episodes=number(evaluation.get("episodes")),
        median=median_text(evaluation, score),
        by=brief(evaluation) + ("" if is_own(run.recipe, evaluation) else OTHER_PROTOCOL),
        others=number(len(others(run))) if others(run) else "–",
    )
    if run is reference:
        return row._replace(verdict="reference")
    paired = pair(run, reference)
    if paired.difference is None:
        return row._replace(verdict=paired.reason)
    difference = interval(paired.difference.mean, paired.difference.ci95, score, signed=True)
    return row._replace(difference=difference, verdict=verdict(paired.difference, score))
