"""Runs of Bridge's picture tables: how methods train at each scale; accuracies, differences, times."""

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from innerloop.core import Buffers, Interval, Params, mean_interval, paired_difference
from innerloop.data.opening import open_source
from innerloop.experiment import Recipe, load_recipe, make_recipe
from innerloop.experiment.fitting import fit_parts, validation_of
from innerloop.experiment.parts import Parts, build
from innerloop.training import Plan, TrainState
from innerloop_studies.papers.training import mean_by_task, plan_for, rescored
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Row, Say, counts_row

VERSION = 1
WAYS, SMOKE_QUERIES = 5, 2
PENALTY = 0.33  # Bridge's ℓ₂ penalty on the last layer at test; C is its inverse

PENALTIES = (0.0001, 0.001, 0.01, 0.1, PENALTY, 1.0, 3.0)  # those of Bridge's Table 5


class Work(NamedTuple):
    """One training run."""

    scale: str
    data: str
    method: str
    seed: int
    length: float = 1.0
    batch: int = 0
    normalised: bool = True

    def __str__(self) -> str:
        words = [self.method, "glyphs" if self.scale == "smoke" else self.data, f"seed {self.seed}"]
        words += [f"{self.length:g} of the steps"] * (self.length != 1)
        words += [f"{self.batch} tasks a step"] * bool(self.batch)
        words += ["features as they are"] * (self.method == "MTL" and not self.normalised)
        return ", ".join(words)


class JudgingSize(NamedTuple):
    """How much is judged: validations along the way, tasks of each, and test tasks."""

    validations: int
    validation_tasks: int
    tests: int


SIZES = {"smoke": JudgingSize(2, 4, 8), "cpu": JudgingSize(12, 200, 600), "paper": JudgingSize(0, 400, 2000)}
METHODS = ("MAML", "ANIL", "R2D2", "MetaOptNet", "ProtoNet", "RFS", "MTL")
ANY_SHOTS = ("R2D2", "MetaOptNet", "ProtoNet", "RFS", "MTL")
"""Methods whose trained network serves any number of shots; one run is judged on 5 and on 1."""

_SMOKE = (
    *("data.name=glyphs", "model.filters=4", "eval.shots=2", f"eval.queries={SMOKE_QUERIES}"),
    *(f"eval.episodes={SIZES['smoke'].tests}", f"eval.validation_episodes={SIZES['smoke'].validation_tasks}"),
)
_SMOKE_STEPS = 4
_RAMP_TASKS = 40_000  # tasks over which DropBlock's rate rises in Bridge's released code


def recipe_for(work: Work) -> Recipe:
    """What a run trains and how its validation tasks are judged."""
    method = "supervised" if work.method == "RFS" else work.method.lower()
    smoke, paper, judging = work.scale == "smoke", work.scale == "paper", SIZES[work.scale]
    # below `paper` all start from CIFAR-FS: what other pictures change is set here
    name = f"{work.data}-{method}" if paper else f"cifar-fs-{method}-cpu"
    shipped = load_recipe(name)
    steps = max(1, round((_SMOKE_STEPS if smoke else shipped.outer.steps) * work.length))
    items = [f"seed={work.seed}", f"outer.steps={steps}", *[f"outer.batch={work.batch}"] * bool(work.batch)]
    if work.method == "MTL":
        items.append(f"model.last_layer={'normalised' if work.normalised else 'linear'}")
    if paper:
        items += ["eval.shots=5", f"eval.episodes={judging.tests}"]
        items += ["tasks.shots=5"] * (work.method in ("MAML", "ANIL"))
        if work.method == "MTL" and work.batch:
            items.append(f"model.settings.ramp={round(_RAMP_TASKS / work.batch)}")
        return load_recipe(name, items)
    items += [f"eval.every={max(1, steps // judging.validations)}"]
    items += _SMOKE if smoke else [f"data.name={work.data}"]
    if smoke and shipped.tasks.family == "few-shot":
        items += ["tasks.shots=2", f"tasks.queries={SMOKE_QUERIES}"]
    return load_recipe(name, items).model_copy(update={"name": "bridge-pictures", "description": ""})


class PictureRun(NamedTuple):
    """A trained network, its validations along the way (``curve``), and how it was judged."""

    curve: list[dict[str, Any]]
    seconds: float
    steps: int
    best_step: int
    best_seconds: float
    scores: dict[str, list[float]]
    penalties: dict[str, list[float]]


class Watch:
    """Processor seconds of this process, less those :meth:`paused`: other runs share the clock."""

    def __init__(self) -> None:
        self.start, self.elsewhere = time.process_time(), 0.0

    def seconds(self) -> float:
        """Seconds so far."""
        return time.process_time() - self.start - self.elsewhere

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What runs inside does not count."""
        begun = time.process_time()
        yield
        self.elsewhere += time.process_time() - begun


def trained(recipe: Mapping[str, Any], shots: Sequence[int], penalties: Sequence[float]) -> dict[str, Any]:
    """One run: its curve over training time, and scores of the best weights on every test task."""
    wanted = make_recipe(recipe)
    parts, plan = build(wanted), plan_for(wanted)
    curve, best, seconds = _fit(parts, plan)
    best_seconds = next((point["seconds"] for point in curve if point["step"] == best.step), seconds)
    scores = {str(n): rescored(parts, best, shots=n) for n in shots}
    by_penalty = {f"{value:g}": rescored(parts, best, C=1 / value) for value in penalties}
    steps = wanted.outer.steps
    return PictureRun(curve, seconds, steps, best.step, best_seconds, scores, by_penalty)._asdict()


def _fit(parts: Parts, plan: Plan) -> tuple[list[dict[str, Any]], TrainState, float]:
    """Trains; the curve, the best state by validation, and the seconds that training took."""
    watch, best = Watch(), [parts.first]
    curve: list[dict[str, Any]] = []
    validation = validation_of(parts, plan)

    def score(params: Params, buffers: Buffers) -> Interval:
        with watch.paused():
            return validation.score(params, buffers)

    def log(record: dict[str, Any]) -> None:
        if "validation" in record:
            point = {key: record[key] for key in ("step", "validation", "ci95")}
            curve.append({**point, "seconds": watch.seconds()})

    def save(state: TrainState, tags: tuple[str, ...]) -> None:
        if "best" in tags:
            best[0] = state

    fit_parts(parts, plan=plan, validation=validation._replace(score=score), log=log, save=save)
    return curve, best[0], watch.seconds()


PARTS = "bridge-pictures"  # all tables share the runs that they have in common

SEEDS = {"smoke": 1, "cpu": 3, "paper": 3}
Runs = Mapping[Work, PictureRun]


def carry_out(works: Sequence[Work], say: Say) -> dict[Work, PictureRun]:
    """Every run once, two at a time with one thread each; finished ones are kept."""
    for name in {recipe_for(work).data.name for work in works}:
        open_source(name)  # missing data are told at once
    say(f"{len(works)} runs, two at a time; finished ones are kept")
    runs = {}
    values = compute_parts(PARTS, VERSION, trained, [settings_of(work) for work in works])
    for work, value in zip(works, values, strict=True):
        runs[work] = run = PictureRun(**value)
        told = ", ".join(f"{100 * mean(run, shots):.1f} % ({shots} shots)" for shots in run.scores)
        say(f"{work}: {told} after {run.best_seconds:.0f} of {run.seconds:.0f} s of training")
    return runs


def settings_of(work: Work) -> dict[str, Any]:
    """All that a run's results depend on; judged with its recipe's shots, and with one if it serves any."""
    recipe = recipe_for(work)
    shots = [recipe.eval.shots or recipe.tasks.shots] + [1] * (work.method in ANY_SHOTS)
    penalties = PENALTIES if work.method == "MTL" else ()
    return {"recipe": recipe.model_dump(), "shots": shots, "penalties": penalties}


def mean(run: PictureRun, shots: str) -> float:
    """Accuracy of one run, from 0 to 1."""
    return mean_interval(run.scores[shots]).mean


def percent(accuracy: Interval) -> str:
    """An accuracy for people, with its interval where there is one."""
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
    """First minus second, task by task."""
    pairs = list(zip(first, second, strict=True))
    gaps = [paired_difference(a.scores[shots], b.scores[shots]).mean for a, b in pairs]
    means = (mean_by_task([run.scores[shots] for run in some]) for some in (first, second))
    return Difference(paired_difference(*means), mean_interval(gaps))


def time_to_reach(run: PictureRun, accuracy: float) -> float | None:
    """Seconds of training until validation first reaches this accuracy; ``None`` if it never does."""
    return next((p["seconds"] for p in run.curve if p["validation"] >= accuracy), None)


def best_validation(run: PictureRun) -> float:
    """The highest accuracy along the curve."""
    return max(float(point["validation"]) for point in run.curve)


def shares_of_time(
    ours: Sequence[PictureRun], theirs: Sequence[PictureRun], slack: float = 0.0
) -> list[float | None]:
    """By seed, our time to their best validation (less ``slack`` points) over theirs, None if never."""
    pairs = list(zip(ours, theirs, strict=True))
    times = [(time_to_reach(mine, best_validation(peer) - slack / 100), peer) for mine, peer in pairs]
    return [None if time is None else time / peer.best_seconds for time, peer in times]


def middle_share(shares: Sequence[float | None]) -> float:
    """The median over seeds; never counts as infinitely long."""
    return statistics.median(math.inf if share is None else share for share in shares)


def shares_in_words(shares: Sequence[float | None]) -> str:
    """Shares for people."""
    return ", ".join("never" if share is None else f"{share:.2f}" for share in shares)


def shots_of(runs: Runs) -> str:
    """The number of shots that all methods are judged on, as a key of ``scores``."""
    return next(iter(next(iter(runs.values())).scores))


def smoke_counts(runs: Runs) -> Row:
    """Whether all accuracies are whole numbers of right answers."""
    every = [scores for each_run in runs.values() for scores in each_run.scores.values()]
    return counts_row([(sum(each) / len(each), WAYS * SMOKE_QUERIES * len(each)) for each in every])


def protocol(scale: str) -> dict[str, Any]:
    """What a reader needs to judge the numbers."""
    size = SIZES[scale]
    return {
        "data": "embedded glyphs" if scale == "smoke" else "CIFAR-FS and FC100, made of CIFAR-100, 32×32",
        "training": "the shipped recipes with the published settings, ResNet-12 (MAML, ANIL and ProtoNet: "
        "Conv4-64; R2D2: its own network)"
        if scale == "paper"
        else "one network for all, a strided Conv4; RAdam, cosine schedule, no augmentation; each method has "
        "its own rate, batch and number of steps (the recipes cifar-fs-…-cpu)",
        "seeds": SEEDS[scale],
        "model selection": f"best of the validations, {size.validation_tasks} tasks each",
        "judged": f"{size.tests} test tasks, the same for every method and seed",
        "heads": "MTL and RFS: ℓ₂ logistic regression on features of length one, penalty 0.33",
        "normalisation": "MAML and ANIL: statistics of the query set, as published; the others: running",
        "time": "processor seconds of one thread, without validation",
    }
