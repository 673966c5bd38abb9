"""The one step from a name to code: importing runs a module, so text alone never decides what is imported."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import re
from collections.abc import Mapping
from typing import Any

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.formatting import printable
from innerloop.core.stderr import tell

_PLAIN_TIMM = re.compile(r"timm:[\w.]+")


class Trusted(str):
    """The name of code that may be imported: ``kind=Trusted("mypackage.nets:small")``.

    Names that are typed as settings become one by themselves, names in a file with ``trust=True``.
    """

    __slots__ = ()


class UntrustedCodeError(UserError):
    """A file names code that nobody has said to trust; ``named`` says which, in words."""

    def __init__(self, source: str, named: str) -> None:
        self.named = named
        super().__init__(
            f"{source} names code from outside innerloop, which would run when it is imported: {named}; "
            "if you know it and where it comes from, add --trust (in Python: trust=True, or Trusted(name))."
        )


def foreign_parts(kind: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """What of a network's name (``kind``) and settings would import code or read files; nothing if empty."""
    # text and tables among settings may be files and addresses of weights, which older timm unpickles
    if kind.startswith("timm:"):
        texts = {f"settings.{key}": str(v) for key, v in settings.items() if not _is_number(v)}
        return texts if _PLAIN_TIMM.fullmatch(kind) else {"kind": kind, **texts}
    return {"kind": kind} if ":" in kind else {}


def check_trust(named: Mapping[str, str], source: str, trust: bool) -> None:
    """The gate for what a file names: refuses it, or says on standard error what is trusted."""
    words = ", ".join(f"{key}={printable(name)} ({_module(key, name)})" for key, name in named.items())
    if words and not trust:
        raise UntrustedCodeError(source, words)
    if words:
        tell(f"trusted: {source} names {words}, which is imported")


def _module(key: str, name: str) -> str:
    for prefix, library in (("timm:", "timm"), ("hf:", "transformers")):
        if name.startswith(prefix) or (prefix == "timm:" and ".settings." in f".{key}"):
            return f"read by module {library}"
    return f"module {printable(name.partition(':')[0])}"


def _is_number(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_number(item) for item in value)
    return isinstance(value, (bool, int, float))


def load_object(path: str) -> Any:
    """The object at ``package.module:name``, with an error that says which part is wrong."""
    # the current folder is searched only if it is on Python's path, or its files could replace a library's
    if not isinstance(path, Trusted):
        raise UntrustedCodeError("a plain string", printable(path))
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
