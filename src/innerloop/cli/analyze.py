"""``innerloop analyze``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from innerloop.choose.analysis import ANALYSES, Analysis, find
from innerloop.cli.analyses import WORDS
from innerloop.cli.options import Json, Page, Trust, check_settings
from innerloop.cli.output import Result, carry_out, say, table, write
from innerloop.core.errors import Problems, UserError
from innerloop.runs.pages import check_page

if TYPE_CHECKING:
    from innerloop.experiment.recipe.flat import FlatSettings
    from innerloop.experiment.recipe.schema import Recipe

Kind = Annotated[str, typer.Argument(metavar="KIND", help=f"{', '.join(ANALYSES)}.")]
Items = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE|DATA|FAMILY] KEY=VALUE…",
        help="What to look at, if anything: a recipe, its file or a run; a dataset, a folder of pictures, an "
        ".npz file; a family of tasks. Then settings of the analysis.",
    ),
]
Keys = Annotated[bool, typer.Option("--keys", help="List the settings of this analysis and stop.")]
Save = Annotated[bool, typer.Option("--save", help="Keep the result in a run directory under ./runs.")]
OPTIONS = ("--json", "--help", "--keys", "--save", "--page", "--trust")


class Done(NamedTuple):
    """What an analysis found: as plain data, and in words."""

    result: Result
    words: list[str]


def analyze(
    kind: Kind,
    items: Items = None,
    keys: Keys = False,
    save: Save = False,
    page: Page = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    r"""Closed forms and estimates, before any training.

    \b
    Examples:
      innerloop analyze landscape rho_hard=0.1 rho_easy=0.9
      innerloop analyze rate kind=lim features=identity data=uniform low=-5 high=5 dim=20 shots=50
      innerloop analyze rate sine
      innerloop analyze rate my-pictures/ inner.method=anil
      innerloop analyze kernels bridge-quadratic depth=10 --json
      innerloop analyze landscape --keys

    Settings of the analysis are flat: key=value. If a recipe comes first, its settings can be changed with
    section.key=value, as in `train`; pictures and families are looked at with MAML unless inner.method= says
    otherwise. A setting that would not be read is refused.

    \b
    JSON: always `kind`, `settings` and `seconds`; the documentation lists the rest for each kind.
    """
    words: list[str] = []

    def work() -> Result:
        analysis = find(kind)
        given = check_settings(items, OPTIONS, lambda rest: _problems(kind, analysis, rest))
        if keys:
            from innerloop.experiment.recipe.flat import describe

            return {"kind": kind, "keys": describe(analysis.settings)}
        if page is not None:
            _check_page(kind, analysis, page)
        done = _analyse(kind, analysis, given, save, page, trust)
        words.extend(done.words)
        return done.result

    carry_out(json, work, lambda result: _render(kind, result, words))


def _problems(kind: str, analysis: Analysis, given: list[str]) -> list[str]:
    """What else is wrong, where an option is misspelt: nothing is imported for it."""
    from innerloop.choose.analysis.given import understand

    try:
        understand(kind, analysis.settings, given)
    except UserError as error:
        return str(error).splitlines()
    return []


def _check_page(kind: str, analysis: Analysis, page: Path) -> None:
    if analysis.page is None:
        raise UserError(f"analyze {kind} has no page: leave out --page, or use --save.")
    check_page(page)


def _refuse(
    kind: str,
    analysis: Analysis,
    settings: FlatSettings,
    recipe: Recipe | None,
    page: Path | None,
    save: bool,
) -> None:
    """Everything that can be refused before data are opened and anything is computed, at once."""
    problems = Problems()
    if page is not None and recipe is not None:
        problems.add("--page shows the closed form: leave out the recipe.")
    if analysis.unfit is not None and (why := analysis.unfit(settings, recipe)) is not None:
        problems.add(why)
    for folder in [*([page.parent] if page else []), *([Path("runs")] if save else [])]:
        there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        if not (there.is_dir() and os.access(there, os.W_OK)):
            problems.add(f"analyze {kind} cannot write to {folder}: work in another folder.")
    problems.refuse()


def _analyse(
    kind: str, analysis: Analysis, given: list[str], save: bool, page: Path | None, trust: bool
) -> Done:
    import time

    from innerloop.choose.analysis.given import understand
    from innerloop.runs.manifest import now

    settings, recipe, source, notes = understand(kind, analysis.settings, given, trust=trust)
    _refuse(kind, analysis, settings, recipe, page, save)
    for note in notes:
        say(f"warning: {note}")
    started, began = time.perf_counter(), now()
    told = analysis.run(settings, recipe, say)
    result: Result = {"kind": kind, **told.as_dict()}
    result |= {"notes": notes} if recipe is not None else {}
    result["settings"] = {**settings.model_dump(), **({"recipe": source} if source else {})}
    result["seconds"] = time.perf_counter() - started
    words = WORDS[kind](told, settings)
    if page is not None and analysis.page is not None:
        from innerloop.core.files import write_text_atomic

        write_text_atomic(page, analysis.page(result))
        result["page"] = str(page)
    if save:
        from innerloop.choose.analysis.keep import Kept, keep

        figures = {} if analysis.figures is None else analysis.figures(told)
        argv, folder = ["innerloop", *sys.argv[1:]], Path("runs")
        kept = Kept(kind, result, settings, words, figures)
        result["run"] = str(keep(kept, argv=argv, folder=folder, started=began))
    return Done(result, words)


def _render(kind: str, result: Result, words: list[str]) -> None:
    if "keys" in result:
        rows = [(row["key"], row["default"], row["takes"], row["meaning"]) for row in result["keys"]]
        table(f"analyze {kind} key=value", ("key", "default", "takes", "meaning"), rows)
        return
    for line in words:
        write(line)
    for key in ("page", "run"):
        if key in result:
            write(f"{key}: {result[key]}")
