"""Several training runs side by side: names, differences on the same episodes, seeds together, one page."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from innerloop.core.statistics import Interval, mean_interval, paired_difference
from innerloop.evaluation.episodes import drawn_episodes, other_episodes
from innerloop.experiment.recipe.protocols import CHANGED, brief, is_own
from innerloop.report.figures import adaptation_picture, histogram_picture
from innerloop.report.read_run import RunData, flatten, headline, others
from innerloop.report.text import View, interval, median_text, number

OWN = ("name", "description", "run.seed", "run.folder", "run.threads", "run.log_every", "run.save_every")
"""Settings that do not make two runs different experiments."""

SEPARATOR = " · "


class PairedDifference(NamedTuple):
    """A difference on the same episodes, or the reason why there is none."""

    difference: Interval | None
    reason: str


def differing_keys(runs: list[RunData]) -> list[str]:
    """Settings that are not the same in all runs, in the order of the recipe."""
    flats = [flatten(run.recipe) for run in runs]
    keys = dict.fromkeys(key for flat in flats for key in flat if key not in ("description", "run.folder"))
    return [key for key in keys if any(flat.get(key) != flats[0].get(key) for flat in flats)]


def labels(runs: list[RunData]) -> list[str]:
    """Short names, all different: as few of the differing settings as tell the runs apart.

    Two runs of one recipe with the same settings are told apart by their directories.
    """
    keys = ["name", *(key for key in differing_keys(runs) if key != "name")]
    flats = [_flat(run) for run in runs]
    for key in [key for key in reversed(keys) if key != "name"]:
        fewer = [other for other in keys if other != key]
        if len(set(_named(flats, fewer))) == len(set(_named(flats, keys))):
            keys = fewer
    if len(keys) > 1 and len({run.name for run in runs}) == 1:
        keys.remove("name")
    names = _named(flats, keys) if len(keys) <= 4 else [run.name for run in runs]
    if len(set(names)) == len(names):
        return names
    names = [f"{run.name}/{run.path.absolute().name}" for run in runs]
    if len(set(names)) == len(names):
        return names
    return [f"{i}: {name}" for i, name in enumerate(names, start=1)]


def _named(flats: list[dict[str, Any]], keys: list[str]) -> list[str]:
    return [
        SEPARATOR.join(
            str(flat["name"]) if key == "name" else f"{key.removeprefix('run.')}={number(flat.get(key))}"
            for key in keys
        )
        for flat in flats
    ]


def group_label(runs: list[RunData], members: list[int]) -> str:
    """The name of runs that differ in the seed only: their recipe, or what sets them off from the others."""
    # the runs of a sweep are each named after their own settings, so a name counts only if all share it
    first = runs[members[0]]
    names = {runs[i].name for i in members}
    keys = [key for key in differing_keys(runs) if key not in OWN]
    shared = ["name"] if len(names) == 1 else []
    if shared and len({run.name for run in runs}) == len({_named([_flat(run)], keys)[0] for run in runs}):
        keys = []
    return _named([_flat(first)], [*shared, *keys])[0] or "all settings the same"


def _flat(run: RunData) -> dict[str, Any]:
    return {**flatten(run.recipe), "name": run.name}


def same_episodes(first: RunData, second: RunData) -> str:
    """Empty if the headline evaluations of two runs saw the same episodes, else why not."""
    a, b = headline(first), headline(second)
    if a is None or b is None:
        return "not evaluated"
    if a.get("score") != b.get("score"):
        return f"other score ({b.get('score')})"
    return other_episodes(drawn_episodes(a), drawn_episodes(b), ("the reference", "this run"))


def pair(run: RunData, reference: RunData) -> PairedDifference:
    """``run − reference`` over the same episodes, with its interval."""
    reason = same_episodes(reference, run)
    if reason:
        return PairedDifference(None, reason)
    a, b = (headline(each) or {} for each in (run, reference))
    ours, theirs = a.get("scores") or [], b.get("scores") or []
    if len(ours) < 2 or len(ours) != len(theirs):
        return PairedDifference(None, "no scores per episode")
    if not all(isinstance(v, int | float) and math.isfinite(v) for v in [*ours, *theirs]):
        return PairedDifference(None, "some scores are not finite")
    return PairedDifference(paired_difference(ours, theirs), "")


def verdict(difference: Interval, score: str) -> str:
    """``better``, ``worse`` or ``no clear difference``: whether the 95 % interval leaves out zero."""
    if not abs(difference.mean) > difference.ci95:
        return "no clear difference"
    higher_is_better = score == "accuracy"
    return "better" if (difference.mean > 0) == higher_is_better else "worse"


class SeedGroup(NamedTuple):
    """Runs of one recipe that differ only in the seed, with the interval over seeds."""

    members: list[int]
    seeds: list[int]
    score: str
    interval: Interval


def seed_groups(runs: list[RunData]) -> list[SeedGroup]:
    """Groups of two or more evaluated runs that are the same but for ``run.seed``."""
    groups: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        evaluation = headline(run)
        if evaluation is None or run.seed is None or not math.isfinite(float(evaluation["mean"])):
            continue
        if (drawn := drawn_episodes(evaluation)) is None:
            continue
        flat = {key: value for key, value in flatten(run.recipe).items() if key not in OWN}
        changed = evaluation.get(CHANGED) or {}  # such as another inner rate, which no few words tell
        same = (sorted(flat.items()), evaluation.get("score"), drawn, brief(evaluation), changed)
        groups.setdefault(repr(same), []).append(i)
    made = []
    for members in groups.values():
        seeds = [run.seed for run in (runs[i] for i in members) if run.seed is not None]
        if len(set(seeds)) < 2 or len(set(seeds)) != len(seeds):
            continue
        evaluations = [headline(runs[i]) or {} for i in members]
        means = [float(evaluation["mean"]) for evaluation in evaluations]
        score = str(evaluations[0].get("score", "score"))
        made.append(SeedGroup(members, seeds, score, mean_interval(means)))
    return made


OVERLAID = 6  # histograms of more runs than this hide each other and are left out

OTHER_PROTOCOL = "; another protocol than the recipe's"


def comparison_view(runs: list[RunData], names: list[str]) -> View:
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


def _comparison_row(run: RunData, name: str, reference: RunData) -> View:
    """A line of the table; a dash or nothing where something was not judged."""
    nothing = dict.fromkeys(("episodes", "difference", "median", "others"), "–")
    row: View = {"name": name, "status": run.status, **nothing, "score": "", "verdict": "", "by": ""}
    evaluation = headline(run)
    if evaluation is None:
        return {**row, "value": "not evaluated"}
    score = str(evaluation.get("score", "score"))
    row |= {
        "value": interval(evaluation["mean"], evaluation.get("ci95"), score),
        "score": score,
        "episodes": number(evaluation.get("episodes")),
        "median": median_text(evaluation, score),
        "by": brief(evaluation) + ("" if is_own(run.recipe, evaluation) else OTHER_PROTOCOL),
        "others": number(len(others(run))) if others(run) else "–",
    }
    if run is reference:
        return {**row, "verdict": "reference"}
    paired = pair(run, reference)
    if paired.difference is None:
        return {**row, "verdict": paired.reason}
    difference = interval(paired.difference.mean, paired.difference.ci95, score, signed=True)
    return {**row, "difference": difference, "verdict": verdict(paired.difference, score)}
