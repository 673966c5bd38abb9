"""``innerloop resume``."""

from __future__ import annotations

from typing import Annotated

import typer

from innerloop.cli.advise import as_result
from innerloop.cli.advise import render as render_advice
from innerloop.cli.launch import start_ranks
from innerloop.cli.options import Json, Quiet, RunName, Settings, Trust, check_settings
from innerloop.cli.output import Result, carry_out
from innerloop.cli.search import render_search
from innerloop.cli.train import render_training
from innerloop.core.errors import UserError
from innerloop.experiment.recipe.library import look_at
from innerloop.runs.directory import find_run

Force = Annotated[
    bool,
    typer.Option("--force", help="Go on although the run seems to be running still: you know it is not."),
]


def resume(
    run: RunName,
    settings: Settings = None,
    trust: Trust = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    r"""Go on with a run that was interrupted or killed.

    It starts from the last checkpoint, and the result is the same, bit for bit on the same machine, as if
    it had never stopped. It takes the run and nothing else: the settings are in its directory. A run with a
    network or tasks of your own (model.kind=mine:net) needs --trust: its file names them, not you. Only one
    process can work on a run. A killed run of an earlier version may seem to be running, if another
    program now has its process number: --force goes on.

    \b
    Examples:
      innerloop resume last
      innerloop resume runs/sine-maml/20260102-120000-s0

    \b
    JSON: run, steps, metrics, tasks_per_second.
    """
    if check_settings(settings, resume):
        raise UserError(
            "resume takes a run and nothing else: to change settings, start a new run with "
            f"`innerloop train {run} {' '.join(settings or [])}`."
        )

    start_ranks(lambda: look_at(find_run(run)).run.ranks)

    def work() -> Result:
        """Goes on with the advice, the search or the training."""
        place = find_run(run)
        from innerloop.choose.session import is_advice, is_search

        if is_search(place):
            from innerloop.choose.network_search import resume_search

            return resume_search(place, trust=trust, show=not quiet, force=force).as_dict()
        if is_advice(place):
            from innerloop.choose.advisor import resume_advice

            return as_result(resume_advice(place, trust=trust, show=not quiet, force=force))
        from innerloop.experiment.resuming import resume as resume_run

        return resume_run(place, trust=trust, progress=not quiet, force=force).as_dict()

    carry_out(json, work, _render)


def _render(result: Result) -> None:
    """As the command does that began the run."""
    if "recommendation" in result:
        render_advice(result)
    elif "validate" in result:
        render_search(result)
    else:
        render_training(result)
