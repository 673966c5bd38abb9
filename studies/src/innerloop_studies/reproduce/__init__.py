"""``innerloop reproduce``: the papers' tables and figures, one file for each.

A study is a module under ``innerloop_studies.papers`` that states its ``TITLE``, a ``VERSION`` that is raised
by hand when what it computes changes, and ``run(scale, say) -> Reproduction``. Room and file are its name.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from innerloop.core.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from innerloop_studies.reproduce.rows import Reproduction, Say

    Run: TypeAlias = Callable[[str, Say], Reproduction]

SCALES = ("smoke", "cpu", "paper")
PACKAGE = Path(__file__).parents[1]
FURTHER = "further"  # the room of studies that belong to no paper of a room: their names do not begin with it
STATED = re.compile(r"^(TITLE|VERSION) = (.+)$", re.MULTILINE)


def stated(file: Path) -> dict[str, Any]:
    """``TITLE`` and ``VERSION`` as a module states them; it is read, not imported."""
    return {name: ast.literal_eval(value) for name, value in STATED.findall(file.read_text("utf-8"))}


def _name(file: Path) -> str:
    room = file.parent.name
    return (file.stem if room == FURTHER else f"{room}-{file.stem}").replace("_", "-")


def _padded(name: str) -> str:
    """Sorts figure 2 before figure 10."""
    return re.sub(r"\d+", lambda digits: digits[0].zfill(4), name)


_STATED = {_name(file): (file, stated(file)) for file in PACKAGE.glob("papers/*/*.py")}
REPRODUCTIONS: dict[str, str] = {
    name: _STATED[name][1]["TITLE"] for name in sorted(_STATED, key=_padded) if "TITLE" in _STATED[name][1]
}
"""Names of studies and what they redo. Nothing here imports torch."""


def check(name: str, scale: str = SCALES[0]) -> None:
    """Complains about a name or a scale that there is not."""
    if name not in REPRODUCTIONS:
        hint = did_you_mean(name, REPRODUCTIONS)
        raise UserError(f"there is no reproduction '{name}'{hint}: `innerloop reproduce ls` lists them.")
    if scale not in SCALES:
        raise UserError(f"there is no scale '{scale}'{did_you_mean(scale, SCALES)}: {', '.join(SCALES)}.")


def find(name: str) -> Run:
    """The function that redoes it: ``(scale, say) -> Reproduction``."""
    check(name)
    run: Run = import_module(module_name(name)).run
    return run


def module_name(name: str) -> str:
    """Where a study is: in the room of its paper, or among those that belong to none of the four."""
    return ".".join(_STATED[name][0].relative_to(PACKAGE.parent).with_suffix("").parts)


def made_by(name: str) -> dict[str, Any]:
    """What the numbers of a study depend on beside its scale."""
    return {"version": _STATED[name][1]["VERSION"], "torch": torch_version()}


def torch_version() -> str:
    """Another torch rounds differently, and training carries that on. It is not imported for this."""
    return importlib.metadata.version("torch")
