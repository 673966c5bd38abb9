"""What the reference lists says what it does and what its arguments mean.

The rest has a line. Nothing is imported.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.places import ROOT

sys.path.insert(0, str(ROOT / "docs" / "hooks"))
from reference import interface

SOURCE = ROOT / "src" / "innerloop"
SHARE = 0.97
"""Of all functions without an underscore, those inside of functions too."""

MANY = 3
"""So many arguments need an ``Args`` section."""

SECTION = re.compile(r"^(?:Args|Returns|Raises|Yields|Examples?):\s*$")
ENTRY = re.compile(r"^    \*{0,2}(\w+): \S")
PRIVATE = re.compile(r"theory\.md|house\.md|style\.md|[Ff]ormula sheet|\b[Rr]ule \d+|\b[Ii]ssue #?\d")
"""References that a reader of the package cannot follow."""


class Function(NamedTuple):
    """A function, where it is, and whether it can be called from outside."""

    where: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    public: bool
    text: str

    @property
    def arguments(self) -> list[str]:
        given = self.node.args
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        return [one.arg for one in named if one.arg not in ("self", "cls")]

    @property
    def starred(self) -> set[str]:
        return {one.arg for one in (self.node.args.vararg, self.node.args.kwarg) if one is not None}


def _statements(node: ast.AST) -> Iterator[ast.stmt | ast.ExceptHandler]:
    """Those right below a node: no function stands in an expression."""
    for field in ("body", "handlers", "orelse", "finalbody"):
        inside = getattr(node, field, None)
        yield from inside if isinstance(inside, list) else ()


@functools.cache
def listed() -> set[tuple[str, str]]:
    """Module and name of everything that the reference lists."""
    waiting, pairs = ["innerloop"], set()
    while waiting:
        package = waiting.pop()
        here = interface(package)
        pairs |= {(home, name) for name, home in here.homes.items()}
        waiting += [f"{package}.{room}" for room in here.rooms]
    return pairs


def _within(node: ast.AST, path: str, names: set[str], public: bool | None = None) -> Iterator[Function]:
    """Functions of a module; ``public`` is None at its top, where ``names`` are."""
    for child in _statements(node):
        here = child.name in names if public is None and hasattr(child, "name") else bool(public)
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            own, text = not child.name.startswith("_"), ast.get_docstring(child) or ""
            yield Function(f"{path}:{child.lineno} {child.name}", child, here and own, text)
            yield from _within(child, path, names, False)
        else:
            yield from _within(child, path, names, here if isinstance(child, ast.ClassDef) else public)


@functools.cache
def functions() -> list[Function]:
    """All functions of the package."""
    return [
        function
        for file in sorted(SOURCE.rglob("*.py"))
        for function in _within(
            ast.parse(file.read_text(encoding="utf-8")), str(file.relative_to(SOURCE)), names_of(file)
        )
    ]


def names_of(file: Path) -> set[str]:
    """What the reference lists of a module."""
    module = ".".join(("innerloop", *file.relative_to(SOURCE).with_suffix("").parts))
    return {name for home, name in listed() if home == module}


def described(text: str) -> list[str] | None:
    """The names in the ``Args`` section of a docstring; None if it has none."""
    lines = iter(text.splitlines())
    if not any(line.strip() == "Args:" for line in lines):
        return None
    names = []
    for line in lines:
        if SECTION.match(line) or (line and not line.startswith(" ")):
            break
        if entry := ENTRY.match(line):
            names.append(entry[1])
    return names


def test_the_section_is_read() -> None:
    text = "One.\n\nArgs:\n    a: this,\n        and more: of it.\n    **b: that.\n\nReturns:\n    c: no."
    assert described(text) == ["a", "b"]
    assert described("One.") is None


def test_public_functions_have_docstrings() -> None:
    missing = [function.where for function in functions() if function.public and not function.text]
    assert missing == []


def test_nearly_all_functions_have_docstrings() -> None:
    named = [function for function in functions() if not function.node.name.startswith("_")]
    share = sum(bool(function.text) for function in named) / len(named)
    assert share >= SHARE, [function.where for function in named if not function.text]


def test_functions_of_several_arguments_describe_them() -> None:
    missing = [
        function.where
        for function in functions()
        if function.public and len(function.arguments) >= MANY and described(function.text) is None
    ]
    assert missing == []


def test_what_is_described_is_an_argument() -> None:
    """Each once, in the order of the signature; what is starred may be left out."""
    wrong = []
    for function in functions():
        names = described(function.text)
        if names is None:
            continue
        plain = [name for name in names if name not in function.starred]
        if plain != function.arguments:
            wrong.append(f"{function.where}: {names} for {function.arguments}")
    assert wrong == []


def test_no_private_references() -> None:
    texts = {str(file.relative_to(SOURCE)): file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py")}
    assert {name: match[0] for name, text in texts.items() if (match := PRIVATE.search(text))} == {}
