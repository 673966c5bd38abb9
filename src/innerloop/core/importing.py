"""Objects by name: how a setting refers to a function of the user's own."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
from typing import Any

from innerloop.core.errors import UserError, did_you_mean


def load_object(path: str) -> Any:
    """The object at ``package.module:name``, with an error that says which part is wrong.

    The current folder is searched only if it is on Python's path: a file there that is called like a module
    of a library would otherwise take its place. The error says how to put it there.

    >>> load_object("math:sqrt")(9.0)
    3.0

    Raises:
        UserError: for a name that is none, a module that is not on the path, or one that lacks the object.
    """
    module, _, attribute = path.partition(":")
    if not attribute or not all(part.isidentifier() for part in module.split(".")):
        raise UserError(f"'{path}' is not the name of an object: write package.module:function.")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise  # a module of the user's own imports something that is missing
        raise UserError(_not_found(path, module)) from None
    if not hasattr(loaded, attribute):
        known = [name for name in vars(loaded) if not name.startswith("_")]
        raise UserError(f"'{path}': module '{module}' has no '{attribute}'{did_you_mean(attribute, known)}.")
    return getattr(loaded, attribute)


def _not_found(path: str, module: str) -> str:
    begin = f"'{path}': there is no module '{module}' on the Python path"
    top = module.partition(".")[0]
    if importlib.machinery.PathFinder.find_spec(top, [os.getcwd()]) is not None:
        return f"{begin}, though '{top}' lies in the current folder: put PYTHONPATH=. before the command."
    return f"{begin}: install it, or put PYTHONPATH=FOLDER before the command, where FOLDER holds '{top}'."
