"""The page of several training runs: their table, their seeds together, their pictures over each other."""

from __future__ import annotations

from typing import Any

from innerloop.recipes.protocols import brief, is_own
from innerloop.report.differences import differing_keys, group_label, pair, seed_groups, verdict
from innerloop.report.figures import adaptation_picture, histogram_picture
from innerloop.report.read_run import RunData, flatten, headline, others
from innerloop.report.words import interval, median_text, number

OVERLAID = 6
"""Histograms of more runs than this hide each other and are left out."""

OTHER_PROTOCOL = "; another protocol than the recipe's"


def comparison_view(runs: list[RunData], names: list[str]) -> dict[str, Any]:
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
    ways = {row["by"] for row in rows if row["score"]}
    return {
        "rows": rows,
        "judged": ways.pop() if len(ways) == 1 else "",
        "reference": names[0],
        "groups": [
            {
                "name": group_label(runs, group.members),
                "seeds": ", ".join(map(str, sorted(group.seeds))),
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
    row |= {"difference": "–", "verdict": "", "median": "–", "by": "", "others": "–"}
    if evaluation is None:
        return row
    score = str(evaluation.get("score", "score"))
    row["score"] = score
    row["value"] = interval(evaluation["mean"], evaluation.get("ci95"), score)
    row["by"] = brief(evaluation) + ("" if is_own(run.recipe, evaluation) else OTHER_PROTOCOL)
    row["others"] = number(len(others(run))) if others(run) else "–"
    row["episodes"] = number(evaluation.get("episodes"))
    row["median"] = median_text(evaluation, score)
    if run is reference:
        return {**row, "verdict": "reference"}
    paired = pair(run, reference)
    if paired.difference is None:
        return {**row, "verdict": paired.reason}
    row["difference"] = interval(paired.difference.mean, paired.difference.ci95, score, signed=True)
    return {**row, "verdict": verdict(paired.difference, score)}
