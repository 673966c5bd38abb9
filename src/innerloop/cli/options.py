"""Arguments and options that several verbs share."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from innerloop.core.errors import UserError

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

# settings such as --steps 5 reach our own message instead of the parser's
LENIENT = {"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}


def _problems_of_recipe_settings(settings: list[str]) -> list[str]:
    from innerloop.experiment.recipe.settings import item_problems

    return item_problems(settings)


def check_settings(
    settings: Sequence[str] | None,
    options: Sequence[str] = ("--json", "--quiet", "--trust", "--help"),
    problems: Callable[[list[str]], list[str]] = _problems_of_recipe_settings,
) -> list[str]:
    """The settings as a list; misspelt options among them are named as such, with what else is wrong.

    Args:
        settings: as typed.
        options: what the verb takes.
        problems: what is wrong with settings, line by line; asked only if an option is misspelt.

    >>> check_settings(["--jsn"])
    Traceback (most recent call last):
    innerloop.core.errors.UserError: there is no option --jsn (did you mean '--json'?)
    >>> check_settings(["page=a.html"], ["--page"])
    Traceback (most recent call last):
    innerloop.core.errors.UserError: 'page' is an option: write --page a.html
    """
    given = list(settings or [])
    dashed = [item for item in given if item.startswith("-")]
    close = {item: difflib.get_close_matches(item, options, n=1, cutoff=0.75) for item in dashed}
    lines = [f"there is no option {item} (did you mean '{near[0]}'?)" for item, near in close.items() if near]
    pages = [item for item in given if item.startswith("page=") and "--page" in options]
    lines += [f"'page' is an option: write --page {shlex.quote(item[len('page=') :])}" for item in pages]
    if lines:
        rest = [item for item in given if not close.get(item) and item not in pages]
        raise UserError("\n".join([*lines, *problems(rest)]))
    return given
