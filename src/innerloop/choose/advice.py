"""What advice is, and how it follows from the table: what to do, how sure that is, and why."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from innerloop.choose.estimates import HardnessPart, LandscapePart, RatePart
from innerloop.choose.method_race import RETRY, MethodRace
from innerloop.choose.problem import AdviceProblem, normalised_together
from innerloop.choose.race import Racer, budget_text, is_beyond_chance, lead
from innerloop.core.files import write_text_atomic
from innerloop.core.formatting import difference_text, duration, score_text
from innerloop.core.statistics import Interval, mean_interval
from innerloop.experiment.picture_record import own_folder
from innerloop.experiment.recipe.settings import recipe_to_toml

if TYPE_CHECKING:
    from innerloop.choose.baselines import FreshTasks

RowKind = Literal["trained", "pretrained", "untrained"]


class Row(NamedTuple):
    """One line of the table: a method, a pretrained network or what needs no training, on the same tasks.

    Attributes:
        method: its name.
        words: what it is called in sentences.
        kind: whether it was trained here, by others, or not at all.
        score: over the validation tasks that it was judged on last; None where it diverged.
        episodes: how many these are.
        fresh: whether these tasks had decided nothing before.
        steps: meta-steps of training.
        seconds: that training and judging took here, on one core.
        parameters: of its network.
        step_seconds: what a meta-step takes on one core; None where nothing is trained.
        whole_seconds: what its whole training would take on one core; None where nothing is trained.
        note: what else is to be known, or nothing.
        scores: task by task, for comparisons.
    """

    method: str
    words: str
    kind: RowKind
    score: Interval | None
    episodes: int
    fresh: bool
    steps: int = 0
    seconds: float = 0.0
    parameters: int | None = None
    step_seconds: float | None = None
    whole_seconds: float | None = None
    note: str = ""
    scores: tuple[float, ...] = ()

    def as_dict(self, name: str) -> dict[str, Any]:
        """For files: ``cost`` is what the whole training would take on one core, in seconds."""
        plain = self._asdict()
        for key in ("score", "scores"):
            del plain[key]
        mean, ci95 = (None, None) if self.score is None else (self.score.mean, self.score.ci95)
        return {**plain, name: mean, "ci95": ci95, "cost": self.whole_seconds}


class Recommendation(NamedTuple):
    """What to do.

    Attributes:
        method: the name of a row.
        sentence: what to do and why, in one sentence.
        sure: how sure that is, in one sentence.
        decided: whether it is beyond chance on these tasks that nothing else in the table is better.
        recipe: the file to train, where something is to be trained.
        command: what to type.
    """

    method: str
    sentence: str
    sure: str
    decided: bool
    recipe: str | None
    command: str


class Advice(NamedTuple):
    """What a problem needs, with its evidence.

    Attributes:
        source: what was asked about.
        tasks: the tasks, in words.
        score: ``accuracy`` or ``mse``.
        rows: methods and baselines, best first.
        rate: the inner rate.
        hardness: which task groups are hard.
        landscape: what closed forms say.
        architecture: parameters and time of what was raced, and whether a search is worth starting.
        recommendation: what to do.
        reasons: sentences, each with its evidence.
        not_examined: what was not looked at.
        seconds: that it took.
        run: its directory.
    """

    source: str
    tasks: str
    score: str
    rows: tuple[Row, ...]
    rate: RatePart
    hardness: HardnessPart
    landscape: LandscapePart
    architecture: str
    recommendation: Recommendation
    reasons: tuple[str, ...]
    not_examined: tuple[str, ...]
    seconds: float
    run: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as the command's JSON and the run's ``result.json`` have it."""
        plain = self._asdict()
        del plain["rows"]
        return {
            **plain,
            "rate": self.rate._asdict(),
            "hardness": {**self.hardness._asdict(), "groups": [g._asdict() for g in self.hardness.groups]},
            "landscape": self.landscape._asdict(),
            "recommendation": self.recommendation._asdict(),
            "pilot": [row.as_dict(self.score) for row in self.rows],
        }


RACES = {
    "pictures": (
        "A race of a minute on one core was tried on ten problems: on 8 of 10 its first choice was within a "
        "point of the best method of a race ten times as long (5.2 points below at worst), and 6 of 8 leads "
        "that were more than chance lasted (`innerloop reproduce advice-race`)."
    ),
    "numbers": (
        "A race of 18 seconds on one core was tried on ten problems: on 8 of 10 its first choice had an "
        "error at most a tenth above that of the best method of a race ten times as long (55% above at "
        "worst), and 2 of 3 leads that were more than chance lasted (`innerloop reproduce advice-numbers`)."
    ),
}
"""By what targets are."""

SEARCH = (
    "A search for another network is worth starting only if it may train its candidates: on CIFAR-FS and "
    "Omniglot no score of untrained networks ranked 40 random cells beyond chance on both, and a random cell "
    "was 2.0 and 7.5 points below the best of them (`innerloop search --validate`)."
)
"""What ``search --validate`` has shown; the whole table is in docs/scores.md."""

RECIPE = "recommended.toml"


def trained_row(racer: Racer, parameters: int) -> Row:
    """A line of the table from how a method did in the race."""
    judged = racer.fresh or racer.last
    note = "query pictures of a task are normalised together" if normalised_together(racer.entrant) else ""
    return Row(
        racer.name,
        racer.entrant.words,
        "trained",
        mean_interval(judged.scores) if judged.scores else None,
        len(judged.scores),
        racer.fresh is not None,
        judged.steps,
        sum(rung.seconds for rung in racer.rungs),
        parameters,
        racer.costs.step,
        racer.whole_seconds,
        note if judged.scores else "it diverged",
        tuple(judged.scores),
    )


def in_order(rows: Sequence[Row], better: int) -> list[Row]:
    """Best first; what diverged comes last. Trained methods that dropped out stand behind the last ones."""

    def key(row: Row) -> tuple[bool, bool, float]:
        score = row.score
        return (score is None, not row.fresh, 0.0 if score is None else -better * score.mean)

    return sorted(rows, key=key)


def row_lead(first: Row, second: Row, better: int) -> Interval | None:
    """By how much one row is better than another, task by task; None where they have no tasks in common."""
    return lead(first.scores, second.scores, better) if first.fresh and second.fresh else None


def choice(rows: Sequence[Row]) -> Row:
    """The best row on fresh tasks, whatever kind it is."""
    return next(row for row in rows if row.score is not None)


def sentence_of(problem: AdviceProblem, chosen: Row, race: MethodRace) -> str:
    """What to do."""
    assert chosen.score is not None
    where = score_words(problem, chosen)
    if chosen.kind == "untrained":
        why = (
            "no method that was raced is better" if race.racers else "no method was raced in so short a time"
        )
        return f"Train nothing yet: {chosen.words} has {where}, and {why}."
    if chosen.kind == "pretrained":
        short = "" if race.racers else "; there was no time to race methods that train"
        return f"Train nothing: {chosen.words} has {where}{short}."
    whole = duration(round(chosen.whole_seconds or 0.0))
    rest = f"its whole training takes about {whole} on one core"
    return f"Use {chosen.words}: {where} after {chosen.steps} steps; {rest}."


def score_words(problem: AdviceProblem, row: Row) -> str:
    """How a row did, and on how many tasks."""
    assert row.score is not None
    said = score_text(problem.score, row.score.mean, row.score.ci95)
    return f"{said} on {row.episodes} fresh validation tasks"


def sureness_of(problem: AdviceProblem, rows: Sequence[Row], race: MethodRace) -> tuple[str, bool]:
    """How sure the choice is, in one sentence, and whether it is beyond chance on these tasks."""
    chosen, others = rows[0], [row for row in rows[1:] if row_lead(rows[0], row, problem.better) is not None]
    if not others:
        return "Nothing else was judged on the same tasks, so that there is no comparison.", False
    second = others[0]
    gap = row_lead(chosen, second, problem.better)
    assert gap is not None
    decided = is_beyond_chance(gap)
    told = f"It leads {second.words} by {lead_text(problem.score, gap)} on the same tasks"
    end = "which is more than chance" if decided else "which may be chance"
    share = _share_trained(chosen, race)
    short = f" This is after {share} of its training: longer training may change the order." if share else ""
    return f"{told}, {end}.{short}", decided


def lead_text(score: str, gap: Interval) -> str:
    """By how much something is better, in the unit of the score."""
    said = difference_text(score, gap.mean, gap.ci95).removeprefix("+")
    return said if score == "accuracy" else f"{said} in {score}"


def _share_trained(chosen: Row, race: MethodRace) -> str:
    steps = next((r.entrant.recipe.outer.steps for r in race.racers if r.name == chosen.method), 0)
    return f"{100 * chosen.steps / steps:.2g} %" if steps else ""


def reasons_of(
    problem: AdviceProblem, rows: Sequence[Row], race: MethodRace, ground: FreshTasks
) -> list[str]:
    """What else the table says, each sentence with its evidence."""
    told, trained = [], [row for row in rows if row.kind == "trained" and row.score is not None]
    floor = next((row for row in rows if row.kind != "trained" and row.score is not None), None)
    best = trained[0] if trained else None
    gap = row_lead(best, floor, problem.better) if best and floor else None
    if best and floor and gap:
        word = "better than" if is_beyond_chance(gap) else "not clearly better than"
        behind = gap._replace(mean=-gap.mean)
        if is_beyond_chance(behind):
            word, gap = "worse than", behind
        said = f"by {lead_text(problem.score, gap)} on {min(len(best.scores), len(floor.scores))} tasks"
        told.append(
            f"After {best.steps} steps {best.words} is {word} the best of what needs no training here, "
            f"{floor.words} ({said})."
        )
    cheap = [row for row in trained[1:] if row.fresh and _is_much_cheaper(row, best)]
    for row in cheap:
        close = row_lead(best, row, problem.better) if best else None
        if best and close and not is_beyond_chance(close):
            told.append(
                f"{row.words} cannot be told apart from {best.words} on these tasks, and its whole training "
                f"takes {duration(round(row.whole_seconds or 0))} on one core instead of "
                f"{duration(round(best.whole_seconds or 0))}."
            )
    if ground.pool:
        shown = ground.data.pictures
        told.append(
            f"All fresh tasks are the same for every row, and draw on {len(shown.images)} pictures of "
            f"{shown.n_classes} validation classes."
        )
    if not race.racers:
        return told
    rungs = ", ".join(f"{s:.3g}" for s in race.rungs.lengths)
    told.append(
        f"{len(race.racers)} methods were trained for {rungs} seconds each, the better half going on, and "
        f"judged on the same {race.rungs.episodes} validation tasks; test classes were not looked at."
    )
    known = RACES.get(problem.asked.kind)
    return [*told, known] if known and len(race.racers) > 1 else told


def _is_much_cheaper(row: Row, best: Row | None) -> bool:
    return best is not None and 2 * (row.whole_seconds or 0.0) < (best.whole_seconds or 0.0)


def architecture_of(rows: Sequence[Row], *, pictures: bool) -> str:
    """What was raced, and whether a search for another network is worth starting."""
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


def recommend(
    problem: AdviceProblem, rows: Sequence[Row], went: MethodRace, run: Path, missing: str
) -> Recommendation:
    """What to do; only a larger budget where a pretrained network is there that was not evaluated."""
    chosen, budget = choice(rows), budget_text(went.needed or RETRY * problem.asked.settings.seconds)
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
    recipe = _recipe_of(problem, chosen, went, run)
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


def _recipe_of(problem: AdviceProblem, chosen: Row, went: MethodRace, run: Path) -> Path | None:
    """The recommended recipe, or that of the best trained method where nothing is to be trained yet."""
    racer = next((r for r in went.racers if r.name == chosen.method), None)
    if racer is None:
        return None
    pictures = problem.asked.kind == "pictures"
    name = Path(problem.recipe.data.name).name if pictures else problem.recipe.tasks.family
    described = f"recommended by `innerloop advise {problem.asked.source}`: {racer.entrant.words}"
    recipe = racer.entrant.recipe.model_copy(
        update={"name": f"{name.replace(':', '-')}-{racer.name}-advised", "description": described}
    )
    path = run / RECIPE
    write_text_atomic(path, recipe_to_toml(recipe, f"innerloop train {path}"))
    return path


def not_examined(problem: AdviceProblem, backbone: str | None) -> list[str]:
    """What was not looked at."""
    told = ["other networks than the one that was raced: `innerloop search` looks for one"]
    told.append("settings of the methods other than those that are listed in their recipes")
    told.append("test classes: judge a trained run with `innerloop eval`")
    if problem.asked.kind == "pictures" and backbone is None:
        told.append("pretrained networks: none is installed here (`pip install 'innerloop[pretrained]'`)")
    if problem.asked.kind == "pictures":
        told.append("MetaOptNet, matching networks, iMAML and distillation, which have recipes of their own")
    return told
