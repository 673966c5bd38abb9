"""Carries out the runs of Bridge's picture tables and gathers them: accuracies, differences, times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from innerloop.core.statistics import Interval, mean_interval, paired_difference
from innerloop_studies.papers.bridge.picture_run import PictureRun, picture_run
from innerloop_studies.reproduce.rows import Row, Say, counts_row

if TYPE_CHECKING:
    from innerloop_studies.papers.bridge.methods import Work

PARTS = "bridge-pictures"
"""All tables share the runs that they have in common."""

SEEDS = {"smoke": 1, "cpu": 3, "paper": 3}
Runs = Mapping["Work", PictureRun]


def carry_out(works: Sequence[Work], say: Say) -> dict[Work, PictureRun]:
    """Every run once, two at a time with one thread each; finished ones are kept."""
    from innerloop.data.opening import open_source
    from innerloop_studies.papers.bridge.methods import recipe_for
    from innerloop_studies.reproduce.parts import two_at_a_time

    for name in {recipe_for(work).data.name for work in works}:
        open_source(name)  # missing data are told at once
    say(f"{len(works)} runs, two at a time; finished ones are kept")
    runs = {}
    for work, run in two_at_a_time(_part, works):
        runs[work] = run
        told = ", ".join(f"{100 * mean(run, shots):.1f} % ({shots} shots)" for shots in run.scores)
        say(f"{work}: {told} after {run.best_seconds:.0f} of {run.seconds:.0f} s of training")
    return runs


def _part(work: Work) -> PictureRun:
    from innerloop_studies.papers.bridge.runs import trained
    from innerloop_studies.reproduce.parts import remembered

    return picture_run(remembered(PARTS, trained, settings_of(work)))


def settings_of(work: Work) -> dict[str, Any]:
    """What a run is given: all that its results depend on."""
    from innerloop_studies.papers.bridge.methods import PENALTIES, recipe_for, shots_for

    recipe = recipe_for(work)
    return {
        "recipe": recipe.model_dump(),
        "shots": shots_for(work, recipe),
        "penalties": PENALTIES if work.method == "MTL" else (),
    }


def mean(run: PictureRun, shots: str) -> float:
    """Accuracy of one run, from 0 to 1."""
    return mean_interval(run.scores[shots]).mean


def percent(accuracy: Interval) -> str:
    """An accuracy for people, with its interval where there is one.

    >>> percent(Interval(0.7, 0.011, 3)), percent(Interval(0.7, float("nan"), 1))
    ('70.0 ± 1.1 %', '70.0 %')
    """
    spread = f" ± {100 * accuracy.ci95:.1f}" if accuracy.ci95 == accuracy.ci95 else ""
    return f"{100 * accuracy.mean:.1f}{spread} %"


def over_seeds(runs: Sequence[PictureRun], shots: str) -> Interval:
    """Accuracy with its interval over training seeds; over test tasks if there is one seed only."""
    if len(runs) == 1:
        return mean_interval(runs[0].scores[shots])
    return mean_interval([mean(run, shots) for run in runs])


class Difference(NamedTuple):
    """How much better one method is than another on the same test tasks."""

    tasks: Interval
    seeds: Interval

    @property
    def points(self) -> float:
        """In percentage points."""
        return 100 * self.tasks.mean

    def __str__(self) -> str:
        text = f"{self.points:+.1f} ± {100 * self.tasks.ci95:.1f} points over tasks"
        if self.seeds.n > 1:
            text += f", ± {100 * self.seeds.ci95:.1f} over seeds"
        return text


def difference(first: Sequence[PictureRun], second: Sequence[PictureRun], shots: str) -> Difference:
    """First minus second, task by task.

    >>> run = lambda *scores: PictureRun([], 60.0, 10, 10, 60.0, {"5": list(scores)}, {})
    >>> str(difference([run(0.6, 0.8)], [run(0.5, 0.7)], "5"))
    '+10.0 ± 0.0 points over tasks'
    """
    pairs = list(zip(first, second, strict=True))
    gaps = [paired_difference(a.scores[shots], b.scores[shots]).mean for a, b in pairs]
    tasks = paired_difference(_mean_by_task(first, shots), _mean_by_task(second, shots))
    return Difference(tasks, mean_interval(gaps))


def _mean_by_task(runs: Sequence[PictureRun], shots: str) -> list[float]:
    return [sum(scores) / len(runs) for scores in zip(*(run.scores[shots] for run in runs), strict=True)]


def time_to_reach(run: PictureRun, accuracy: float) -> float | None:
    """Seconds of training until validation first reaches this accuracy; ``None`` if it never does."""
    return next((p.seconds for p in run.curve if p.validation >= accuracy), None)


def best_validation(run: PictureRun) -> float:
    """The highest accuracy along the curve."""
    return max(float(point.validation) for point in run.curve)


def shares_of_time(
    ours: Sequence[PictureRun], theirs: Sequence[PictureRun], slack: float = 0.0
) -> list[float | None]:
    """Per seed, our time to their best validation accuracy (less ``slack`` points) as a share of theirs.

    Theirs is the time at which they have it; ``None`` where we never get there.

    >>> from innerloop_studies.papers.bridge.picture_run import ValidationPoint
    >>> ours = [ValidationPoint(1, 0.5, 0.01, 2.0), ValidationPoint(2, 0.7, 0.01, 4.0)]
    >>> theirs = [ValidationPoint(1, 0.6, 0.01, 4.0), ValidationPoint(2, 0.7, 0.01, 8.0)]
    >>> run = lambda curve: PictureRun(curve, 9.0, 2, 2, curve[-1].seconds, {}, {})
    >>> shares_of_time([run(ours)], [run(theirs)])
    [0.5]
    """
    shares: list[float | None] = []
    for mine, peer in zip(ours, theirs, strict=True):
        there = time_to_reach(mine, best_validation(peer) - slack / 100)
        shares.append(None if there is None else there / peer.best_seconds)
    return shares


def middle_share(shares: Sequence[float | None]) -> float:
    """The median over seeds; never counts as infinitely long.

    >>> middle_share([0.5, None, 0.7])
    0.7
    """
    return statistics.median(math.inf if share is None else share for share in shares)


def shares_in_words(shares: Sequence[float | None]) -> str:
    """Shares for people.

    >>> shares_in_words([0.5, None])
    '0.50, never'
    """
    return ", ".join("never" if share is None else f"{share:.2f}" for share in shares)


def shots_of(runs: Runs) -> str:
    """The number of shots that all methods are judged on, as a key of ``scores``."""
    return next(iter(next(iter(runs.values())).scores))


def smoke_counts(runs: Runs) -> Row:
    """Whether all accuracies are whole numbers of right answers."""
    from innerloop_studies.papers.bridge.methods import SMOKE_QUERIES, WAYS

    every = [scores for each_run in runs.values() for scores in each_run.scores.values()]
    return counts_row([(sum(each) / len(each), WAYS * SMOKE_QUERIES * len(each)) for each in every])


def protocol(scale: str) -> dict[str, Any]:
    """What a reader needs to judge the numbers."""
    from innerloop_studies.papers.bridge.methods import SIZES

    size = SIZES[scale]
    if scale == "paper":
        training = (
            "the shipped recipes with the published settings, ResNet-12 (MAML, ANIL and ProtoNet: Conv4-64; "
            "R2D2: its own network)"
        )
    else:
        training = (
            "one network for all, a strided Conv4; RAdam, cosine schedule, no augmentation; each method"
        )
        training += " has its own rate, batch and number of steps (the recipes cifar-fs-…-cpu)"
    return {
        "data": "embedded glyphs" if scale == "smoke" else "CIFAR-FS and FC100, made of CIFAR-100, 32×32",
        "training": training,
        "seeds": SEEDS[scale],
        "model selection": f"best of the validations, {size.validation_tasks} tasks each",
        "judged": f"{size.tests} test tasks, the same for every method and seed",
        "heads": "MTL and RFS: ℓ₂ logistic regression on features of length one, penalty 0.33",
        "normalisation": "MAML and ANIL: statistics of the query set, as published; the others: running",
        "time": "processor seconds of one thread, without validation",
    }
