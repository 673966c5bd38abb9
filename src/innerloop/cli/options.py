"""Arguments and options that several verbs share."""

from __future__ import annotations

import difflib
import inspect
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from innerloop.core.errors import Problems, UserError

RecipeName = Annotated[
    str,
    typer.Argument(metavar="RECIPE", help="A shipped recipe, a TOML file, a run, or a folder of pictures."),
]
RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's path, the beginning of its name, or `last`.")
]
Settings = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings, such as inner.lr=0.1 seed=1.")
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on standard output and all else on standard error."),
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Import code that the file or the run names: you know where it comes from."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Page = Annotated[
    Path | None,
    typer.Option("--page", metavar="FILE.html", help="Where to write the page: one file, for any browser."),
]

Keys = Annotated[bool, typer.Option("--keys", help="List the settings of this verb, and stop.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="How many to train at a time; by default one per core."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Train on the workers of a Dask scheduler (tcp://host:8786, or its file), or on slurm.",
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        metavar="NAME",
        help="In place of a run: a pretrained network, such as efficientnet-lite0, hf:FOLDER or timm:NAME.",
    ),
]
Support = Annotated[
    Path | None,
    typer.Option(
        "--support",
        metavar="DIR",
        help="A folder with one folder of examples per class. If omitted, the classes are those that a saved "
        "model has learned.",
    ),
]
UnsureBelow = Annotated[
    float | None,
    typer.Option(
        "--unsure-below",
        help="Mark predictions that are less probable than this. Default: as saved, else 0.5.",
        min=0,
        max=1,
    ),
]


def help_text(verb: Callable[..., None]) -> str:
    """A docstring as help, with the character that keeps the line breaks of a paragraph."""
    return (inspect.getdoc(verb) or "").replace("\\b\n", "\b\n")


# settings such as --steps 5 reach our own message instead of the parser's
LENIENT = {"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}


def _check_recipe_settings(settings: list[str]) -> None:
    from innerloop.experiment.recipe.settings import item_problems

    problems = Problems()
    problems.add(*item_problems(settings))
    problems.refuse()


def options_of(verb: Callable[..., None]) -> list[str]:
    """The long options that a verb takes, by its annotations."""
    hints = get_type_hints(verb, include_extras=True).values()
    marks = [mark for hint in hints for mark in getattr(hint, "__metadata__", ())]
    # typer takes the first name for the default, until it looks at the annotation
    names: list[Any] = [name for mark in marks for name in (mark.default, *(mark.param_decls or ()))]
    return [*(name for name in names if isinstance(name, str) and name.startswith("--")), "--help"]


def check_settings(
    settings: Sequence[str] | None,
    verb: Callable[..., None],
    problems: Callable[[list[str]], object] = _check_recipe_settings,
) -> list[str]:
    """The settings as a list; misspelt options among them are named as such, with what else is wrong."""
    given, options = list(settings or []), options_of(verb)
    dashed = [item for item in given if item.startswith("-")]
    close = {item: difflib.get_close_matches(item, options, n=1, cutoff=0.75) for item in dashed}
    lines = [f"there is no option {item} (did you mean '{near[0]}'?)" for item, near in close.items() if near]
    pages = [item for item in given if item.startswith("page=") and "--page" in options]
    lines += [f"'page' is an option: write --page {shlex.quote(item[len('page=') :])}" for item in pages]
    if not lines:
        return given
    wrong = Problems()
    wrong.add(*lines)
    with wrong.collect():
        problems([item for item in given if not close.get(item) and item not in pages])
    raise UserError("\n".join(wrong.lines))
