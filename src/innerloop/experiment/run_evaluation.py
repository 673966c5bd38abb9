"""Finished runs and backbones: judged again, and compared on the same tasks."""

from __future__ import annotations

from pathlib import Path

from innerloop.core.errors import UserError
from innerloop.evaluation.comparison import Comparison, compare
from innerloop.evaluation.episodes import differences
from innerloop.experiment.evaluation import evaluate_parts
from innerloop.experiment.loading import load_run
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.recipe.grammar import Items
from innerloop.experiment.recipe.library import look_at
from innerloop.experiment.recipe.rules import NOTHING, rate_warnings
from innerloop.experiment.results import ComparedRuns, Judged
from innerloop.experiment.run_data import check_data, seen_notes
from innerloop.runs.directory import refuse_links


def compare_runs(run: Path, other: Path, overrides: list[str], *, trust: bool = False) -> ComparedRuns:
    """Judges two runs by the same protocol, and compares them task by task."""
    first, second = (evaluate_run(each, overrides, trust=trust) for each in (run, other))
    return ComparedRuns(first, other, compare_judged(first, second, (str(run), str(other))))


def compare_backbone(
    backbone: str,
    other: Path,
    overrides: list[str],
    *,
    argv: list[str] | None = None,
    trust: bool = False,
) -> ComparedRuns:
    """Judges a backbone in a run of its own on the tasks of another run, and compares the two."""
    from innerloop.experiment.backbone_run import judge_backbone

    own = judge_backbone(backbone, overrides, other, argv=argv)
    both = [item for item in overrides if item.partition(".")[0] in ("data", "tasks", "inner", "eval")]
    comparison = compare_judged(
        own.evaluation, evaluate_run(other, both, trust=trust), (str(own.run), str(other))
    )
    return ComparedRuns(own.evaluation, other, comparison, own.run)


def compare_judged(first: Judged, second: Judged, names: tuple[str, str]) -> Comparison:
    """Which of two runs is better on the episodes that both saw; ``names`` is what to call them."""
    differing = differences(first.drawn, second.drawn) if first.drawn and second.drawn else []
    if first.score != second.score:
        differing = [f"score {first.score} and {second.score}", *differing]
    if differing:
        raise UserError(
            f"{names[0]} and {names[1]} saw other episodes ({', '.join(differing)}): give settings that make "
            "these alike; what is given here holds for both."
        )
    return compare(first, second)


@recipe_words()
def evaluate_run(run: Path, overrides: Items, *, trust: bool = False) -> Judged:
    """Judges a run by its own protocol, or by one changed with ``key=value`` settings.

    ``trust`` says whether code that the run's recipe names may be imported.

    Args:
        run: the run's directory.
        overrides: ``key=value`` settings; none for its own protocol.
        trust: whether code that the run's recipe names may be imported.

    Raises:
        UserError: the pictures of its test split have changed, or its predictions are not finite.
    """
    refuse_links(run)
    if look_at(run).outer.objective == NOTHING:
        from innerloop.experiment.backbone_run import evaluate_backbone_run

        return evaluate_backbone_run(run, overrides, trust=trust)
    loaded = load_run(run, overrides, trust=trust)
    recipe = loaded.parts.recipe
    notes = [*check_data(recipe, loaded.trained, run, ("test",)), *rate_warnings(recipe), *loaded.unread]
    notes += seen_notes(recipe, loaded.trained)
    weights, used = loaded.weights()
    return evaluate_parts(
        loaded.parts, weights, loaded.plan, run, used, loaded.changed, notes, loaded.trained
    )
