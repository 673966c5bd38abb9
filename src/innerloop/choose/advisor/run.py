"""``innerloop advise``: from what was asked to a run directory with the advice, a recipe and a page."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from innerloop.choose.advisor.asked import Asked
from innerloop.choose.advisor.beside import estimates, plain_rows, pretrained_first
from innerloop.choose.advisor.evidence import SEARCH
from innerloop.choose.advisor.keep import KIND, begin, reopened
from innerloop.choose.advisor.pretrained import installed_backbone
from innerloop.choose.advisor.problem import Entrant, Problem, pose
from innerloop.choose.advisor.race import FRESH_SEED, RETRY, Race, race
from innerloop.choose.advisor.recommend import (
    choice,
    in_order,
    reasons_of,
    score_words,
    sentence_of,
    sureness_of,
    trained_row,
)
from innerloop.choose.advisor.result import Advice, Recommendation, Row
from innerloop.choose.advisor.untrained import ground_of
from innerloop.choose.pilot.budget import enough, too_small
from innerloop.choose.pilot.keep import RESULT, Sitting, sit_down
from innerloop.core.errors import UserError
from innerloop.core.files import write_json_atomic, write_text_atomic
from innerloop.core.words import duration
from innerloop.experiment.kept import own_folder
from innerloop.experiment.lifetime import ending
from innerloop.experiment.parts import build
from innerloop.experiment.pictures import open_pictures
from innerloop.experiment.recipe.settings import recipe_to_toml
from innerloop.experiment.words import recipe_words
from innerloop.report.page import write_page
from innerloop.runs.manifest import update_manifest
from innerloop.runs.process import sole_writer

RECIPE = "recommended.toml"
ESTIMATES_SHARE = 0.1
"""Of the budget, for estimates after the race."""
ENDING, ENDING_SHARE = 3.0, 0.05
"""Seconds, and share of the budget, in which all is written down and the process ends;"""
ENDING_START = 0.7
"""as a share of what starting took, on a machine so busy that this is more."""
FEWEST, MOST = 100, 400
"""Fresh tasks: one for every second of the budget, within these bounds."""


@recipe_words()
def carry_out(
    asked: Asked,
    *,
    workers: int | None = None,
    argv: list[str] | None = None,
    show: bool = True,
    started: float | None = None,
) -> Advice:
    """Looks at a problem, races methods on it, and says what it needs."""
    started = time.monotonic() if started is None else started
    end = _ending(asked, time.monotonic() - started)
    _read_pictures(asked, lambda: time.monotonic() - started + end)
    problem = pose(asked)
    run = begin(asked, argv)
    with sole_writer(run):
        return _carry_on(run, problem, workers, show, started, end)


@recipe_words()
def resume_advice(
    run: Path, *, trust: bool = False, workers: int | None = None, show: bool = True, force: bool = False
) -> Advice:
    """Goes on with advice that was interrupted: what was measured and trained before is not done again."""
    started = time.monotonic()
    with sole_writer(run) as locked_before:
        problem = pose(reopened(run, trust=trust, alone=locked_before or force))
        return _carry_on(run, problem, workers, show, started, _ending(problem.asked, 0.0))


def _ending(asked: Asked, starting: float) -> float:
    """Seconds of the budget that are kept for the end."""
    settings = asked.settings
    if (1 + ENDING_START) * starting > settings.seconds:
        raise UserError(
            f"budget={settings.budget} is too small: this machine is so busy that starting alone took "
            f"{duration(round(starting))}: set budget={enough(RETRY * starting)} or more."
        )
    return max(ENDING + ENDING_SHARE * settings.seconds, ENDING_START * starting)


def _carry_on(
    run: Path, problem: Problem, workers: int | None, show: bool, started: float, end: float
) -> Advice:
    asked = problem.asked
    sitting, teller, log = sit_down(run, f"{KIND} {asked.source}", workers, show=show, started=started)
    for line in (*asked.lines, *(f"warning: {note}" for note in asked.notes)):
        teller.line(line)
    with ending(run, log, teller):
        try:
            advice = _advised(problem, sitting._replace(spent=sitting.spent + end))
            advice = advice._replace(seconds=sitting.seconds)
        finally:
            update_manifest(run, spent=sitting.seconds)
        write_json_atomic(run / RESULT, advice.as_dict())
        update_manifest(run, status="finished")
        write_page([run])
    return advice


def _read_pictures(asked: Asked, clock: Callable[[], float]) -> None:
    """Pictures that are read for the first time, unless that alone takes longer than the budget."""
    seconds, before = asked.settings.seconds, clock()

    def check(_: str, done: int, total: int) -> None:
        if done and clock() > seconds:
            reading = (clock() - before) * total / done
            needed = min(RETRY * seconds, before + reading) + seconds  # of the first few little can be told
            raise too_small(asked.settings.budget, needed, f"reading {total:,} pictures and advice", "")

    if asked.kind == "pictures":
        open_pictures(asked.recipe.data, check)


def _advised(problem: Problem, sitting: Sitting) -> Advice:
    """What others trained first; then what needs no training, the race and estimates, on the same tasks."""
    backbone, seconds = _backbone(problem), problem.asked.settings.seconds
    episodes = int(min(MOST, max(FEWEST, seconds)))
    ground = ground_of(problem, episodes, FRESH_SEED, sitting.workers)
    ground, others, left_out = pretrained_first(problem, sitting, ground, backbone)
    plain, unfinished = plain_rows(problem, sitting, ground)
    went = race(problem, sitting, ESTIMATES_SHARE * seconds, ground.episodes, ground.pool)
    rows = [trained_row(racer, _parameters(racer.entrant)) for racer in went.racers]
    rows = in_order([*rows, *others, *plain], problem.better)
    if not rows:
        raise UserError(
            f"budget={problem.asked.settings.budget} is too small for any evaluation here: set "
            f"budget={enough(RETRY * seconds)} or more."
        )
    rate, hard, landscape = estimates(problem, sitting)
    return Advice(
        problem.asked.source,
        _tasks(problem),
        problem.score,
        tuple(rows),
        rate,
        hard,
        landscape,
        architecture_of(rows, pictures=problem.asked.kind == "pictures"),
        _recommendation(problem, rows, went, sitting, "" if others else backbone or ""),
        tuple(reasons_of(problem, rows, went, ground)),
        (*left_out, *unfinished, *went.left_out, *not_examined(problem, backbone)),
        0.0,
        str(sitting.run),
    )


def _backbone(problem: Problem) -> str | None:
    wanted = problem.asked.settings.backbone
    if problem.asked.kind != "pictures" or wanted == "none":
        return None
    return installed_backbone() if wanted == "auto" else wanted


def _parameters(entrant: Entrant) -> int:
    return sum(value.numel() for value in build(entrant.recipe).params.values())


def _tasks(problem: Problem) -> str:
    recipe = problem.entrants[0].recipe
    judged, tasks = recipe.eval, recipe.tasks
    if problem.score == "mse":
        return f"{tasks.family}, {tasks.shots} shots"
    ways, shots = judged.ways or tasks.ways, judged.shots or tasks.shots
    return f"{recipe.data.name}, {ways}-way {shots}-shot"


def architecture_of(rows: Sequence[Row], *, pictures: bool) -> str:
    """What was raced, and whether a search for another network is worth starting.

    >>> architecture_of([], pictures=False)
    'No network was trained.'
    """
    search = f" {SEARCH}" if pictures else ""
    raced = [row for row in rows if row.kind == "trained" and row.parameters and row.step_seconds]
    if not raced:
        return f"No network was trained.{search}"
    fast, slow = (f(raced, key=lambda row: row.step_seconds or 0.0) for f in (min, max))
    return (
        f"Networks of {min(r.parameters or 0 for r in raced):,} to {max(r.parameters or 0 for r in raced):,} "
        f"parameters were raced; a meta-step takes {1000 * (fast.step_seconds or 0):.0f} ms ({fast.method}) "
        f"to {1000 * (slow.step_seconds or 0):.0f} ms ({slow.method}) on one core.{search}"
    )


def _recommendation(
    problem: Problem, rows: list[Row], went: Race, sitting: Sitting, missing: str
) -> Recommendation:
    """What to do; only a larger budget where a pretrained network is there that was not evaluated."""
    chosen, budget = choice(rows), enough(went.needed or RETRY * problem.asked.settings.seconds)
    again = f"innerloop advise {shlex.quote(problem.asked.source)} budget={budget}"
    if missing:
        return Recommendation(
            chosen.method,
            f"Ask again with budget={budget}: there was no time to evaluate {missing}, which is installed: "
            f"nothing is recommended before that. Best of what was evaluated: {chosen.words}, "
            f"{score_words(problem, chosen)}.",
            "",
            False,
            None,
            again,
        )
    sure, decided = sureness_of(problem, rows, went)
    recipe = _recipe_of(problem, chosen, went, sitting.run)
    if recipe is not None:
        command = f"innerloop train {shlex.quote(str(recipe))}"
    elif chosen.kind == "pretrained":
        examples = own_folder(problem.recipe.data.name)
        support = "EXAMPLES" if examples is None else shlex.quote(problem.recipe.data.name)
        command = f"innerloop predict --backbone {chosen.method} --support {support} PICTURES"
    else:
        command = again
    path = None if recipe is None else str(recipe)
    return Recommendation(chosen.method, sentence_of(problem, chosen, went), sure, decided, path, command)


def _recipe_of(problem: Problem, chosen: Row, went: Race, run: Path) -> Path | None:
    """The recommended recipe, or that of the best trained method where nothing is to be trained yet."""
    racer = next((r for r in went.racers if r.entrant.name == chosen.method), None)
    if racer is None:
        return None
    pictures = problem.asked.kind == "pictures"
    name = Path(problem.recipe.data.name).name if pictures else problem.recipe.tasks.family
    described = f"recommended by `innerloop advise {problem.asked.source}`: {racer.entrant.words}"
    recipe = racer.entrant.recipe.model_copy(
        update={"name": f"{name.replace(':', '-')}-{racer.entrant.name}-advised", "description": described}
    )
    path = run / RECIPE
    write_text_atomic(path, recipe_to_toml(recipe, f"innerloop train {path}"))
    return path


def not_examined(problem: Problem, backbone: str | None) -> list[str]:
    """What was not looked at."""
    told = ["other networks than the one that was raced: `innerloop search` looks for one"]
    told.append("settings of the methods other than those that are listed in their recipes")
    told.append("test classes: judge a trained run with `innerloop eval`")
    if problem.asked.kind == "pictures" and backbone is None:
        told.append("pretrained networks: none is installed here (`pip install 'innerloop[pretrained]'`)")
    if problem.asked.kind == "pictures":
        told.append("MetaOptNet, matching networks, iMAML and distillation, which have recipes of their own")
    return told
