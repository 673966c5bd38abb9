"""``innerloop eval``."""

from __future__ import annotations

from innerloop.cli.options import Json, RunName, Settings, check_settings
from innerloop.cli.output import Result, carry_out, write
from innerloop.cli.train import evaluation_line, render_steps


def evaluate(run: RunName, settings: Settings = None, json: Json = False) -> None:
    r"""Judge a trained run on held-out tasks.

    \b
    Examples:
      innerloop eval last
      innerloop eval last inner.test_steps=10 eval.episodes=2000
      innerloop eval last tasks.shots=5 inner.lr=0.02

    Settings change the protocol that the run was trained with. The result, with the value of every task,
    is added to the run's eval folder; nothing is overwritten.

    \b
    JSON: accuracy or mse, ci95, episodes, protocol, by_step, file.
    """
    given = check_settings(settings, ("--json", "--help"))

    def work() -> Result:
        from innerloop.recipes.settings import parse_assignments
        from innerloop.runs.directory import find_run

        found = find_run(run)
        parse_assignments(given)
        from innerloop.recipes.run import evaluate_run

        return evaluate_run(found, given)

    carry_out(json, work, _render)


def _render(result: Result) -> None:
    write(evaluation_line(result))
    render_steps(result)
    if "file" in result:
        write(f"written to {result['file']}")
