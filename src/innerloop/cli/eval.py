"""``innerloop eval``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.cli.options import Json, RunName, Settings, Trust, check_settings
from innerloop.cli.output import Result, carry_out, say, write
from innerloop.cli.ranks import start_ranks
from innerloop.cli.train import render_steps
from innerloop.core.words import difference_text, score_text
from innerloop.recipes.other_pictures import has_pictures, with_pictures
from innerloop.recipes.started import look_at
from innerloop.runs.directory import find_run

Against = Annotated[
    str | None,
    typer.Option("--against", help="another run: judged on the same tasks, and compared task by task"),
]


def evaluate(
    run: RunName,
    settings: Settings = None,
    against: Against = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    r"""Judge a trained run on held-out tasks.

    \b
    Examples:
      innerloop eval last
      innerloop eval last inner.test_steps=10 eval.episodes=2000
      innerloop eval last tasks.shots=5 inner.lr=0.02
      innerloop eval last eval.head=logistic eval.shots=5 eval.copies=5
      innerloop eval last --against runs/omniglot-maml/20260301-120000-s0
      innerloop eval last photos/   (another folder, with one folder of pictures per class)

    Settings change the protocol that the run was trained with. The result, with the value of every task,
    is added to the run's eval folder; nothing is overwritten. A run with a network or tasks of your own needs
    --trust.

    \b
    JSON: accuracy or mse, ci95, episodes, protocol, drawn, by_step, baselines, changed, notes, file; with
    --against also comparison.
    """
    given = check_settings(settings, ("--against", "--trust", "--json", "--help"))

    start_ranks(lambda: look_at(find_run(run), with_pictures(find_run(run), given)[0]).run.ranks)

    def work() -> Result:
        settings, said = with_pictures(find_run(run), given) if has_pictures(given) else (given, [])
        found, other = _checked(run, against, settings)
        for line in said:
            say(line)
        from innerloop.experiment.compare import compare_runs
        from innerloop.experiment.run import evaluate_run

        if other is None:
            return evaluate_run(found, settings, trust=trust)
        return compare_runs(found, other, settings, trust=trust)

    carry_out(json, work, _render)


def _checked(run: str, against: str | None, given: list[str]) -> tuple[Path, Path | None]:
    """The runs; everything that is wrong with them and the settings is told before torch is imported."""
    from innerloop.core.errors import Problems
    from innerloop.recipes.settings import item_problems

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
    from innerloop.recipes.protocols import baselines_line, evaluation_line

    for note in result.get("notes") or []:
        say(f"warning: {note}")
    write(evaluation_line(result))
    render_steps(result)
    if beside := baselines_line(result):
        write(beside)
    if "comparison" in result:
        write(_comparison_line(result))
    if "file" in result:
        write(f"written to {result['file']}")


def _comparison_line(result: Result) -> str:
    told = result["comparison"]
    other = score_text(result["score"], told["second"], None)
    difference = difference_text(result["score"], told["difference"], told["ci95"])
    better = {"first": "the first run is better", "second": "the second run is better"}
    verdict = better.get(told["verdict"], told["verdict"])
    return f"against {told['against']}: {other}; difference {difference} task by task: {verdict}"
