"""``innerloop eval``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.cli.launch import start_ranks
from innerloop.cli.options import Backbone, Json, Trust, check_settings
from innerloop.cli.output import Result, carry_out, say, typed_argv, write
from innerloop.cli.train import render_evaluation
from innerloop.core.errors import UserError
from innerloop.core.formatting import difference_text, score_text
from innerloop.experiment.recipe.judging import has_pictures, with_pictures
from innerloop.experiment.recipe.library import look_at
from innerloop.runs.directory import find_run

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN] KEY=VALUE…",
        help="A run's path, the beginning of its name, or `last`; then settings, such as eval.shots=5, or a "
        "folder of pictures.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option("--against", help="Another run, judged on the same tasks and compared task by task."),
]


def evaluate(
    words: Words = None,
    backbone: Backbone = None,
    against: Against = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    r"""Judge a trained run, or a pretrained backbone, on held-out tasks.

    \b
    Examples:
      innerloop eval last
      innerloop eval last inner.test_steps=10 eval.episodes=2000
      innerloop eval last tasks.shots=5 inner.lr=0.02
      innerloop eval last eval.head=logistic eval.shots=5 eval.copies=5
      innerloop eval last --against runs/omniglot-maml/20260301-120000-s0
      innerloop eval last photos/   (another folder, with one folder of pictures per class)
      innerloop eval last data.name=cifar-fs   (other pictures than it was trained on)
      innerloop eval --backbone efficientnet-lite0 data.name=cifar-fs eval.shots=5
      innerloop eval --backbone efficientnet-lite0 photos/
      innerloop eval --backbone hf:my-dinov2/ --against last   (on the tasks of a run)

    Settings change the protocol that the run was trained with. The result, with the value of every task,
    is added to the run's eval folder; nothing is overwritten. Pictures of another size or colour are
    converted to what the run was trained on. A run with a network or tasks of your own needs --trust.

    A backbone needs no run: its features are computed once and kept, a head (eval.head, by default logistic)
    is fitted to every task, and a new run directory has the result. Tasks of a folder are those that `train`
    and `advise` have there, others are 5-way 1-shot, unless settings or --against say otherwise.

    \b
    JSON: accuracy or mse, ci95, episodes, protocol, drawn, by_step, baselines, changed, notes, file; with
    --against also comparison, with --backbone also run.
    """
    given = check_settings(words, evaluate)
    run = None if backbone is not None else _run_of(given)
    if run is not None:
        start_ranks(lambda: look_at(find_run(run), with_pictures(find_run(run), given[1:])[0]).run.ranks)

    def work() -> Result:
        """Judges the run or the backbone, alone or against another run."""
        if run is None:
            return _judged_backbone(str(backbone), against, given, trust)
        rest = given[1:]
        settings, said = with_pictures(find_run(run), rest) if has_pictures(rest) else (rest, [])
        place, other = _checked(run, against, settings)
        for line in said:
            say(line)
        from innerloop.experiment.run_evaluation import compare_runs, evaluate_run

        if other is None:
            return evaluate_run(place, settings, trust=trust).as_dict()
        return compare_runs(place, other, settings, trust=trust).as_dict()

    carry_out(json, work, _render)


def _run_of(given: list[str]) -> str:
    """The run among the words: the first, unless that is a setting."""
    if given and ("=" not in given[0] or Path(given[0]).exists()):
        return given[0]
    raise UserError(
        "what is to be judged? Name a run (its path, the beginning of its name, or `last`) before the "
        "settings, or a pretrained network with --backbone."
    )


def _judged_backbone(backbone: str, against: str | None, words: list[str], trust: bool) -> Result:
    from innerloop.experiment.recipe.judging import backbone_recipe, with_folder

    other = None if against is None else find_run(against)
    given, said = with_folder(backbone, words) if other is None else with_pictures(other, words)
    stray = [word for word in given if "=" not in word]
    if stray:
        raise UserError(
            f"--backbone is judged in place of a run, and '{stray[0]}' is neither a setting nor a folder of "
            f"pictures: compare with a run by --against {stray[0]}."
        )
    backbone_recipe(backbone, given, None if other is None else look_at(other))  # mistakes are told at once
    for line in said:
        say(line)
    if other is not None:
        from innerloop.experiment.run_evaluation import compare_backbone

        return compare_backbone(backbone, other, given, argv=typed_argv(), trust=trust).as_dict()
    from innerloop.experiment.backbone_run import judge_backbone

    outcome = judge_backbone(backbone, given, argv=typed_argv()).as_dict()
    return {**outcome["metrics"], "run": outcome["run"]}


def _checked(run: str, against: str | None, given: list[str]) -> tuple[Path, Path | None]:
    """The runs; everything that is wrong with them and the settings is reported before torch is imported."""
    from innerloop.core.errors import Problems
    from innerloop.experiment.recipe.settings import item_problems

    problems, runs = Problems(), []
    for name in (run, against) if against is not None else (run,):
        with problems.collect():
            runs.append(find_run(name))
            look_at(runs[-1], given)
    if not runs:
        problems.add(*item_problems(given))
    problems.refuse()
    return runs[0], runs[1] if against is not None else None


def _render(result: Result) -> None:
    for note in result.get("notes") or []:
        say(f"warning: {note}")
    render_evaluation(result)
    if "comparison" in result:
        write(_comparison_line(result))
    if "file" in result:
        write(f"written to {result['file']}")


def _comparison_line(result: Result) -> str:
    told = result["comparison"]
    other = score_text(result["score"], told["second"], None)
    difference = difference_text(result["score"], told["difference"], told["ci95"])
    names = ("backbone", "run") if "run" in result else ("first run", "second run")
    better = {which: f"the {name} is better" for which, name in zip(("first", "second"), names, strict=True)}
    verdict = better.get(told["verdict"], told["verdict"])
    return f"against {told['against']}: {other}; difference {difference} task by task: {verdict}"
