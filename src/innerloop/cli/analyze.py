"""``innerloop analyze``."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from innerloop.cli.analyses import ANALYSES, Analysis, find
from innerloop.cli.options import Json, Keys, Page, Trust, check_settings
from innerloop.cli.output import Result, carry_out, say, table_of_keys, typed_argv, write
from innerloop.core.errors import Problems, UserError
from innerloop.runs.pages import check_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
Save = Annotated[bool, typer.Option("--save", help="Keep the result in a run directory under ./runs.")]


PICTURES = "pictures-maml"
"""The recipe that is analysed where only pictures are named: analyses are about inner loops."""


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
    text = ""

    def work() -> Result:
        nonlocal text
        analysis = find(kind)
        given = check_settings(items, analyze, lambda rest: read_request(kind, analysis.settings, rest))
        if keys:
            from innerloop.experiment.recipe.flat import describe

            return {"kind": kind, "keys": describe(analysis.settings)}
        if page is not None:
            if analysis.page is None:
                raise UserError(f"analyze {kind} has no page: leave out --page, or use --save.")
            check_page(page)
        result, text = _analyse(kind, analysis, given, save, page, trust)
        return result

    carry_out(json, work, lambda result: _render(kind, result, text))


class AnalysisRequest(NamedTuple):
    """What was typed behind ``analyze KIND``: settings, the recipe if there is one, and warnings about it."""

    settings: FlatSettings
    recipe: Recipe | None
    source: str | None
    notes: list[str]


def read_request(
    kind: str, model: type[FlatSettings], items: Sequence[str], *, trust: bool = False
) -> AnalysisRequest:
    """The problem that stands first, if any, with its ``section.key=value``, and the flat settings."""
    from innerloop.experiment.recipe.flat import flat_reading
    from innerloop.experiment.recipe.library import load_recipe, named, shipped_names
    from innerloop.experiment.recipe.rules import unread
    from innerloop.experiment.recipe.schema import Recipe
    from innerloop.experiment.recipe.settings import typed_keys

    problems = Problems()
    source = items[0] if items and "=" not in items[0] and not items[0].startswith("-") else None
    rest = list(items[1:] if source else items)
    late = [item for item in rest if item in shipped_names()]
    if late:
        problems.add(f"the recipe comes first, then settings: `innerloop analyze {kind} {late[0]} …`.")
        source, rest = source or late[0], [item for item in rest if item not in late]
    dotted = [item for item in rest if "." in item.partition("=")[0]]
    recipe: Recipe | None = None
    if source is not None and model.NO_RECIPE:
        with problems.collect():
            if named(source).kind != "family":
                raise UserError(model.NO_RECIPE)
            rest = [f"tasks={source}", *rest]
        source = None
    elif source is not None:
        recipe = Recipe()  # where there is no such recipe, settings are still judged as if there were one
        with problems.collect():
            recipe = load_recipe(source, dotted, trust=trust, pictures=PICTURES)
    else:
        fix = model.NO_RECIPE or f"name one first, as in `analyze {kind} RECIPE …`."
        problems.add(*(f"{item} belongs to a recipe: {fix}" for item in dotted))
    reading: Any = flat_reading(model, [i for i in rest if i not in dotted], f"analyze {kind}", recipe)
    problems.add(*reading.problems)
    problems.refuse()
    notes = [] if recipe is None else unread(recipe, typed_keys(dotted))
    return AnalysisRequest(reading.model, recipe, source, notes)


def _refuse(kind: str, analysis: Analysis, request: AnalysisRequest, page: Path | None, save: bool) -> None:
    """Everything that can be refused before data are opened and anything is computed, at once."""
    problems = Problems()
    if page is not None and request.recipe is not None:
        problems.add("--page shows the closed form: leave out the recipe.")
    if (why := analysis.unfit(request.settings, request.recipe)) is not None:
        problems.add(why)
    for folder in [*([page.parent] if page else []), *([Path("runs")] if save else [])]:
        there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        if not (there.is_dir() and os.access(there, os.W_OK)):
            problems.add(f"analyze {kind} cannot write to {folder}: work in another folder.")
    problems.refuse()


def _analyse(
    kind: str, analysis: Analysis, given: list[str], save: bool, page: Path | None, trust: bool
) -> tuple[Result, str]:
    """The result as plain data, and as text."""
    from innerloop.runs.manifest import now

    request = read_request(kind, analysis.settings, given, trust=trust)
    _refuse(kind, analysis, request, page, save)
    settings, recipe, source, notes = request
    for note in notes:
        say(f"warning: {note}")
    started, began = time.perf_counter(), now()
    estimate = analysis.run(settings, recipe, say)
    result: Result = {"kind": kind, **estimate.as_dict()}
    result |= {"notes": notes} if recipe is not None else {}
    result["settings"] = {**settings.model_dump(), **({"recipe": source} if source else {})}
    result["seconds"] = time.perf_counter() - started
    text = analysis.heading(settings) + str(estimate)
    if page is not None and analysis.page is not None:
        from innerloop.core.files import write_text_atomic

        write_text_atomic(page, analysis.page(result))
        result["page"] = str(page)
    if save:
        run = _save(kind, result, settings, text, analysis.figures(estimate), began)
        result["run"] = str(run)
    return result, text


def _save(
    kind: str, result: Result, settings: FlatSettings, text: str, figures: dict[str, Figure], started: str
) -> Path:
    """A run directory with all that ``report`` reads; settings as text, because JSON has no infinity."""
    from innerloop.core.files import json_line, write_json_atomic
    from innerloop.runs.directory import create_run
    from innerloop.runs.manifest import start_manifest, update_manifest

    run = create_run(Path("runs"), f"analyze-{kind}", int(getattr(settings, "seed", 0)))
    about = {"kind": "analyze", "analysis": kind, "started": started}
    start_manifest(run, typed_argv(), json_line(result["settings"]), about)
    names: list[str] = []
    if figures:
        from innerloop.report.plots.style import write_figures

        names = write_figures(run, figures)
    record = {
        **result,
        "tells": ANALYSES.get(kind, ""),
        "words": text.splitlines(),
        "keys": _keys(settings, result["settings"].get("recipe")),
        "figures": names,
    }
    write_json_atomic(run / "result.json", record)
    update_manifest(run, status="finished")
    return run


def _keys(settings: FlatSettings, recipe: str | None) -> list[dict[str, str]]:
    """Settings, their defaults and meanings."""
    from innerloop.experiment.recipe.flat import describe
    from innerloop.experiment.recipe.problems import show

    def typed(value: Any) -> str:
        return "inf" if value == float("inf") else show(value).strip("'")

    about = "whose tasks were looked at"
    rows = [("recipe", recipe, "none", about)] if recipe else []
    for row in describe(type(settings)):
        key = row["key"]
        rows.append((key, typed(getattr(settings, key)), typed(row["default"]), row["meaning"]))
    return [dict(zip(("key", "value", "default", "meaning"), row, strict=True)) for row in rows]


def _render(kind: str, result: Result, text: str) -> None:
    if "keys" in result:
        table_of_keys(f"analyze {kind} key=value", result["keys"])
        return
    write(text)
    for key in ("page", "run"):
        if key in result:
            write(f"{key}: {result[key]}")
