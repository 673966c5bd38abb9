"""``advise``: a run directory with advice, a recipe and a page, every part as long as the budget lasts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from innerloop.choose.advice import (
    Advice,
    Row,
    architecture_of,
    in_order,
    not_examined,
    reasons_of,
    recommend,
    trained_row,
)
from innerloop.choose.baselines import (
    MOST,
    FreshTasks,
    evaluate_pretrained,
    ground_of,
    installed_backbone,
    pool_order,
    task_pictures,
    untrained_baselines,
)
from innerloop.choose.estimates import (
    HardnessPart,
    LandscapePart,
    RatePart,
    hardness_part,
    landscape_part,
    rate_part,
)
from innerloop.choose.method_race import RETRY, race_methods, time_left
from innerloop.choose.problem import AdviceProblem, pose_advice
from innerloop.choose.race import FRESH_SEED, budget_error, budget_text
from innerloop.choose.request import Request, read_advise
from innerloop.choose.session import (
    ADVISE,
    Session,
    Workers,
    begin,
    finish,
    open_session,
    open_workers,
    reopen,
)
from innerloop.choose.settings import AdviseSettings
from innerloop.choose.trials import map_jobs
from innerloop.core.errors import UserError
from innerloop.core.formatting import duration
from innerloop.evaluation.baselines import WORDS
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.parts import build
from innerloop.experiment.pictures import open_pictures
from innerloop.experiment.recipe.grammar import as_items
from innerloop.experiment.recipe.schema import Recipe
from innerloop.runs.executors import OutOfTimeError
from innerloop.runs.process import sole_writer
from innerloop.training.execution.plan import Plan

BACKBONE_SHARE = 0.3
"""Of what is left of the budget, that features of a pretrained network may take."""
ESTIMATES_SHARE = 0.1
"""Of the budget, for estimates after the race."""
ENDING, ENDING_SHARE = 3.0, 0.05
"""Seconds, and share of the budget, in which all is written down and the process ends;"""
ENDING_START = 0.7
"""as a share of what starting took, on a machine so busy that this is more."""
FEWEST_TASKS, MOST_TASKS = 100, 400
"""Fresh tasks: one for every second of the budget, within these bounds."""

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def advise(
    source: str | Path,
    *items: str,
    budget: str = "60s",
    methods: Sequence[str] | None = None,
    backbone: str = "auto",
    workers: int | None = None,
    progress: bool = True,
    trust: bool = False,
    **settings: Any,
) -> Advice:
    """What a few-shot problem needs, before training in earnest.

    Methods race on the problem's own tasks within the budget; what needs no training, and a pretrained
    network where one is installed, stand beside them; what theory can tell is told, and where it cannot, why.

    Args:
        source: a recipe, its file or a run; a dataset, a folder of pictures or an .npz file; or a family of
            tasks.
        items: settings of the recipe as on the command line, such as ``"tasks.shots=1"``.
        budget: time for everything: ``30s``, ``5m``, ``1h``.
        methods: which methods race; all that fit the tasks if omitted.
        backbone: a pretrained network for pictures, ``none``, or ``auto``: one that is installed.
        workers: processes of one thread each; as many as there are cores if omitted.
        progress: whether to show progress on standard error.
        trust: whether code that a recipe's file names may be imported.
        settings: the same as ``items`` in Python: a dict per section, or ``seed``.

    Returns:
        The advice; its run directory holds the recommended recipe and a page.

    Raises:
        UserError: something does not fit, or the budget is too small.
    """
    own = [f"budget={budget}", f"backbone={backbone}"]
    own += [] if methods is None else [f"methods=[{','.join(methods)}]"]
    asked = read_advise(str(source), [*own, *map(str, items), *as_items(settings)], trust=trust)
    return give_advice(asked, workers=workers, show=progress)


@recipe_words()
def give_advice(
    asked: Request[AdviseSettings],
    *,
    workers: int | None = None,
    cluster: str | None = None,
    argv: list[str] | None = None,
    show: bool = True,
    started: float | None = None,
) -> Advice:
    """Looks at a problem, races methods on it, and says what it needs."""
    started = time.monotonic() if started is None else started
    end = _ending(asked, time.monotonic() - started)
    _read_pictures(asked, lambda: time.monotonic() - started + end)
    problem = pose_advice(asked)
    with open_workers(workers, cluster) as found:
        run = begin(asked, argv)
        with sole_writer(run):
            return _carry_on(run, problem, found, show, started, end)


@recipe_words()
def resume_advice(
    run: Path,
    *,
    trust: bool = False,
    workers: int | None = None,
    cluster: str | None = None,
    show: bool = True,
    force: bool = False,
) -> Advice:
    """Goes on with advice that was interrupted: what was measured and trained before is not done again."""
    started = time.monotonic()
    with open_workers(workers, cluster) as found, sole_writer(run) as locked_before:
        problem = pose_advice(reopen(run, trust=trust, alone=locked_before or force))
        return _carry_on(run, problem, found, show, started, _ending(problem.asked, 0.0))


def _ending(asked: Request[AdviseSettings], starting: float) -> float:
    """Seconds of the budget that are kept for the end."""
    settings = asked.settings
    if (1 + ENDING_START) * starting > settings.seconds:
        raise UserError(
            f"budget={settings.budget} is too small: this machine is so busy that starting alone took "
            f"{duration(round(starting))}: set budget={budget_text(RETRY * starting)} or more."
        )
    return max(ENDING + ENDING_SHARE * settings.seconds, ENDING_START * starting)


def _carry_on(
    run: Path, problem: AdviceProblem, workers: Workers, show: bool, started: float, end: float
) -> Advice:
    asked = problem.asked
    lines = (*asked.lines, *(f"warning: {note}" for note in asked.notes))
    with open_session(run, f"{ADVISE} {asked.source}", workers, lines, show=show, started=started) as session:
        advice = _make_advice(problem, session._replace(spent=session.spent + end))
        advice = advice._replace(seconds=session.seconds)
        finish(run, advice.as_dict())
    return advice


def _read_pictures(asked: Request[AdviseSettings], clock: Callable[[], float]) -> None:
    """Pictures that are read for the first time, unless that alone takes longer than the budget."""
    seconds, before = asked.settings.seconds, clock()

    def check(_: str, done: int, total: int) -> None:
        if done and clock() > seconds:
            reading = (clock() - before) * total / done
            needed = min(RETRY * seconds, before + reading) + seconds  # of the first few little can be told
            raise budget_error(asked.settings.budget, needed, f"reading {total:,} pictures and advice")

    if asked.kind == "pictures":
        open_pictures(asked.recipe.data, check)


def _make_advice(problem: AdviceProblem, session: Session) -> Advice:
    backbone, seconds = _backbone(problem), problem.asked.settings.seconds
    episodes = int(min(MOST_TASKS, max(FEWEST_TASKS, seconds)))
    ground = ground_of(problem, episodes, FRESH_SEED, session.here)
    ground, others, left_out = _pretrained_first(problem, session, ground, backbone)
    plain, unfinished = _plain_rows(problem, session, ground)
    went = race_methods(problem, session, ESTIMATES_SHARE * seconds, ground.episodes, ground.pool)
    rows = [trained_row(racer, _parameters(racer.entrant.recipe)) for racer in went.racers]
    rows = in_order([*rows, *others, *plain], problem.better)
    if not rows:
        raise UserError(
            f"budget={problem.asked.settings.budget} is too small for any evaluation here: set "
            f"budget={budget_text(RETRY * seconds)} or more."
        )
    rate, hard, landscape = _estimates(problem, session)
    return Advice(
        problem.asked.source,
        _tasks(problem),
        problem.score,
        tuple(rows),
        rate,
        hard,
        landscape,
        architecture_of(rows, pictures=problem.asked.kind == "pictures"),
        recommend(problem, rows, went, session.run, "" if others else backbone or ""),
        tuple(reasons_of(problem, rows, went, ground)),
        (*left_out, *unfinished, *went.left_out, *not_examined(problem, backbone)),
        0.0,
        str(session.run),
    )


def _backbone(problem: AdviceProblem) -> str | None:
    wanted = problem.asked.settings.backbone
    if problem.asked.kind != "pictures" or wanted == "none":
        return None
    return installed_backbone() if wanted == "auto" else wanted


def _parameters(recipe: Recipe) -> int:
    return sum(value.numel() for value in build(recipe).params.values())


def _tasks(problem: AdviceProblem) -> str:
    recipe = problem.entrants[0].recipe
    judged, tasks = recipe.eval, recipe.tasks
    if problem.score == "mse":
        return f"{tasks.family}, {tasks.shots} shots"
    ways, shots = judged.ways or tasks.ways, judged.shots or tasks.shots
    return f"{recipe.data.name}, {ways}-way {shots}-shot"


def _pretrained_first(
    problem: AdviceProblem, session: Session, ground: FreshTasks, backbone: str | None
) -> tuple[FreshTasks, list[Row], list[str]]:
    """The pictures that all tasks are drawn from, the row of a pretrained network, and why there is none."""
    if problem.asked.kind != "pictures":
        return ground, [], []
    pictures = ground.whole.pictures
    order = pool_order(ground.recipe, pictures)
    few = task_pictures(ground.recipe, pictures, order[:MOST])
    ground = ground._replace(pool=few or task_pictures(ground.recipe, pictures, order))
    if backbone is None:
        return ground, [], []
    session.say(f"features of {backbone}")
    left = time_left(problem, session)
    try:
        ground, row = evaluate_pretrained(problem, ground, backbone, BACKBONE_SHARE * left(), left)
    except UserError as error:
        return ground, [], [str(error)]
    return ground, [row] if row else [], [] if row else [f"{backbone} was not evaluated: no time was left"]


def _plain_rows(problem: AdviceProblem, session: Session, ground: FreshTasks) -> tuple[list[Row], list[str]]:
    """Rows of what needs no training, and what there was no time for."""
    ways, alone = untrained_baselines(problem), ground._replace(plan=Plan("loop", 1))
    found = _in_time([(of, (problem, alone)) for of in ways.values()], problem, session)
    missing = [f"{WORDS.get(name, name)} was not evaluated: no time was left" for name in ways]
    return [*found.values()], [words for place, words in enumerate(missing) if place not in found]


def _estimates(problem: AdviceProblem, session: Session) -> tuple[RatePart, HardnessPart, LandscapePart]:
    """What can be said without training, as far as time allows."""
    parts: list[Callable[[AdviceProblem], Any]] = [rate_part, hardness_part, landscape_part]
    found = _in_time([(part, (problem,)) for part in parts], problem, session)
    why = f"there was no time left for it in budget={problem.asked.settings.budget}."
    rate, hard = found.get(0, RatePart(False, why)), found.get(1, HardnessPart((), "", "", why))
    return rate, hard, found.get(2, LandscapePart(False, why))


def _in_time(jobs: Sequence[Call], problem: AdviceProblem, session: Session) -> dict[int, Any]:
    """The values of calls by their place, each in a process; what time does not suffice for is ended."""
    found: dict[int, Any] = {}
    with suppress(OutOfTimeError):
        for place, value in map_jobs(_called, jobs, session.pool, time_left(problem, session)):
            found[place] = value
    return found


@recipe_words()
def _called(job: Call) -> Any:
    function, given = job
    return function(*given)
