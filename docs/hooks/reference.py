"""Writes the pages of the reference from the rooms' ``__init__`` files: ``python docs/hooks/reference.py``.

What a room's ``__init__`` imports ``as`` itself is public, and nothing else is. Files are read, not imported.
A test compares the pages with what this makes of the sources.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

from as_markdown import to_markdown

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
TOP = "innerloop"

OVERVIEW = """\
# Reference

`import innerloop as il` gives everything that is public: what one needs every day by its name, as `il.maml`,
and the rest in rooms, as `il.kernels.mlp_kernel` and `il.theory.rate.best_rate`. Names and rooms are loaded
when they are first used, so the import itself takes no time. What these pages list is public; everything else
may change without notice. [Command line](command-line.md) describes the command, and
[Settings](settings.md) the settings of recipes.
"""


class Interface(NamedTuple):
    """What a package gives to its users.

    Attributes:
        about: its docstring.
        rooms: names of packages inside it that are public as well.
        homes: public name → the module that it is imported from.
    """

    about: str
    rooms: tuple[str, ...]
    homes: dict[str, str]


def interface(package: str) -> Interface:
    """Reads a package's ``__init__.py``."""
    tree = ast.parse(_file_of(package).read_text(encoding="utf-8"))
    rooms, homes = [], {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if node.module == package and alias.asname == alias.name:
                    rooms.append(alias.name)
                elif alias.asname == alias.name and alias.name != "__version__":
                    homes[alias.name] = node.module
    return Interface(ast.get_docstring(tree) or "", tuple(rooms), homes)


def room_of(module: str) -> str:
    """The room that a module is in, or that it is."""
    return module.split(".")[1] if "." in module else ""


def documented(module: str, name: str) -> str:
    """The docstring of what a module defines under a name; empty if it has none.

    A constant is described by the string below it.
    """
    body = ast.parse(_file_of(module).read_text(encoding="utf-8")).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return ast.get_docstring(node) or ""
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return after.value.value if _is_text(after) else ""
    raise LookupError(f"{module} does not define '{name}' itself: import it from where it is defined.")


def pages() -> dict[str, str]:
    """Every page of the reference by its path below ``docs``."""
    top = interface(TOP)
    texts = {f"reference/{room}.md": _page(room, top.homes) for room in sorted(top.rooms)}
    return {"reference.md": _overview(top), **texts}


def _overview(top: Interface) -> str:
    lines = [OVERVIEW, "## Rooms", "", "| room | what is there |", "| --- | --- |"]
    for room in sorted(top.rooms):
        inner = interface(f"{TOP}.{room}")
        lines.append(f"| [`il.{room}`](reference/{room}.md) | {_first_line(inner.about)} |")
        for deeper in sorted(inner.rooms):
            about = interface(f"{TOP}.{room}.{deeper}").about
            lines.append(f"| [`il.{room}.{deeper}`](reference/{room}.md) | {_first_line(about)} |")
    lines += ["", "## Everyday names", "", "| room | names |", "| --- | --- |"]
    by_room: dict[str, list[str]] = {}
    for name, home in top.homes.items():
        by_room.setdefault(room_of(home), []).append(name)
    for room, names in sorted(by_room.items()):
        page = f"reference/{room}.md"
        at = {name: f"{page}#{_definition(f'{TOP}.{room}', name)}" for name in sorted(names)}
        listed = ", ".join(f"[`il.{name}`]({link})" for name, link in at.items())
        lines.append(f"| [{room}]({page}) | {listed} |")
    return "\n".join(lines) + "\n"


def _page(room: str, everyday: dict[str, str]) -> str:
    """The page of a room, with the rooms inside it; ``everyday`` are the names that ``il`` has itself."""
    inner = interface(f"{TOP}.{room}").rooms
    own = {name for name, home in everyday.items() if room_of(home) == room}
    parts = [_part(f"{TOP}.{room}", 1, own), *(_part(f"{TOP}.{room}.{each}", 2, set()) for each in inner)]
    return "\n\n".join(parts) + "\n"


def _part(package: str, level: int, everyday: set[str]) -> str:
    """What a package says of itself, a table of its names, and each of them."""
    here = interface(package)
    lines = [f"{'#' * level} {package}", "", to_markdown(here.about), ""]
    lines += ["| name | what it is |", "| --- | --- |"]
    for name in _in_order(here.homes):
        told = f"il.{name}" if name in everyday else f"il{package.removeprefix(TOP)}.{name}"
        line = _first_line(documented(here.homes[name], name))
        lines.append(f"| [`{told}`](#{_definition(package, name)}) | {line} |")
    for name in _in_order(here.homes):
        lines += ["", *_described(_definition(package, name), f"{package}.{name}", level + 1)]
    return "\n".join(lines)


def _described(definition: str, public: str, level: int) -> list[str]:
    """What makes the site describe an object, under the name by which it is public."""
    options = {"heading": public, "toc_label": public.rpartition(".")[2], "heading_level": level}
    return [
        f"::: {definition}",
        "    options:",
        *(f"      {key}: {value}" for key, value in options.items()),
        "",
    ]


def _in_order(names: dict[str, str]) -> list[str]:
    """Functions, then classes, then constants; each from A to Z."""
    return sorted(names, key=lambda name: (name.isupper(), name[0].isupper(), name.lower()))


def _definition(package: str, name: str) -> str:
    return f"{interface(package).homes[name]}.{name}"


def _first_line(docstring: str) -> str:
    """The first line for the cell of a table, where a bar outside of code would end the cell."""
    line = to_markdown(docstring.strip().split("\n")[0])
    return re.sub(r"(`+).+?\1|\|", lambda match: match[0] if match[1] else "\\|", line)


def _is_text(node: ast.stmt | None) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _file_of(module: str) -> Path:
    at = SOURCE.joinpath(*module.split("."))
    return at / "__init__.py" if at.is_dir() else at.with_suffix(".py")


def write() -> None:
    """Replaces the pages by those of the sources as they are."""
    folder = ROOT / "docs" / "reference"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        old.unlink()
    for path, text in pages().items():
        (ROOT / "docs" / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
