"""Code that a recipe names. Importing a module runs it, so a file alone never decides what is imported.

A recipe may name code outside this library: ``model.kind`` and ``tasks.family`` take
``package.module:attribute``, and some ``timm:`` models read files. Such names are imported if the user typed
them, if the recipe was made in code, or if the caller passes ``trust=True`` (the command: ``--trust``).

Every function that makes a recipe from a file to be *built* calls :func:`admit`; one to be looked at only
comes from :func:`innerloop.recipes.library.read_recipe`. Importing this file does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.telling import tell
from innerloop.recipes.schema import Recipe

_TIMM = "timm:"
_HUGGING_FACE = "hf:"
_PLAIN_NAME = re.compile(r"timm:[\w.]+")


class UntrustedCodeError(UserError):
    """A file names code that nobody has said to trust; ``named`` says which, in words."""

    def __init__(self, source: str, named: str) -> None:
        self.named = named
        super().__init__(
            f"{source} names code from outside innerloop, which would run when it is imported: {named}; "
            "if you know it and where it comes from, add --trust (in Python: trust=True)."
        )


def foreign_code(recipe: Recipe) -> dict[str, str]:
    """The settings that would import code from outside, or let timm read a file, and what each names.

    A plain ``timm:`` name with numbers and truth values as settings is one of timm's own models, and that
    library is named by us. So is transformers (``hf:``), which is told to run no code of a model and to read
    no pickles. Text and tables among the settings of timm may be files and addresses of weights, which
    older versions of timm unpickle.

    >>> from innerloop.recipes.schema import Model, Tasks
    >>> foreign_code(Recipe(model=Model(kind="os:system"), tasks=Tasks(family="mine:lines")))
    {'model.kind': 'os:system', 'tasks.family': 'mine:lines'}
    >>> foreign_code(Recipe(model=Model(kind="timm:resnet18", settings={"pretrained": True})))
    {}
    >>> foreign_code(Recipe(model=Model(kind="timm:resnet18", settings={"checkpoint_path": "a.pth"})))
    {'model.settings.checkpoint_path': 'a.pth'}
    """
    model, named = recipe.model, {}
    if model.kind.startswith(_TIMM):
        if not _PLAIN_NAME.fullmatch(model.kind):
            named["model.kind"] = model.kind
        for key, value in model.settings.items():
            if not _is_number(value):
                named[f"model.settings.{key}"] = str(value)
    elif ":" in model.kind and not model.kind.startswith(_HUGGING_FACE):
        named["model.kind"] = model.kind
    if ":" in recipe.tasks.family:
        named["tasks.family"] = recipe.tasks.family
    return named


def admit(recipe: Recipe, typed: Collection[str], source: str, trust: bool) -> Recipe:
    """The recipe itself, if nothing in it would import code that only its file names.

    Args:
        recipe: with typed settings applied.
        typed: the keys of these settings: the user named them.
        source: the file or the run, for messages.
        trust: whether the user trusts the file; what it names is then told on standard error.

    Raises:
        UntrustedCodeError: it names code, and is not trusted.
    """
    return admit_all([recipe], typed, source, trust)[0]


def admit_all(recipes: list[Recipe], typed: Collection[str], source: str, trust: bool) -> list[Recipe]:
    """As :func:`admit`, for the recipes that a sweep makes of one file: what they name is reported once.

    Args:
        recipes: what the sweep makes of the file.
        typed: keys that the user typed.
        source: what messages call the file.
        trust: whether code that the file names may be imported as well.
    """
    named = {
        f"{key}={_printable(name)} ({_module(key, name)})": None
        for recipe in recipes
        for key, name in foreign_code(recipe).items()
        if not _is_typed(key, typed)
    }
    if named and not trust:
        raise UntrustedCodeError(source, ", ".join(named))
    if named:
        tell(f"trusted: {source} names {', '.join(named)}, which is imported")
    return recipes


def _printable(text: str) -> str:
    """Without characters that would steer a terminal: the text comes from a file."""
    return repr(text)[1:-1]


def _module(key: str, name: str) -> str:
    if key.startswith("model.settings.") or name.startswith(_TIMM):
        return "read by module timm"
    return f"module {_printable(name.partition(':')[0])}"


def _is_typed(key: str, typed: Collection[str]) -> bool:
    """Whether the user typed this key, or a table that holds it whole."""
    parts = key.split(".")
    return any(".".join(parts[:n]) in typed for n in range(2, len(parts) + 1))


def _is_number(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_number(item) for item in value)
    return isinstance(value, (bool, int, float))
