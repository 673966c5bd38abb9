"""A hash of the source that a function runs: its module and all that this imports within the same packages.

Numbers that were computed before are only good for the code that computed them. A version does not say which
code that was; this does. Imports are read, not carried out, wherever in a module they stand; a table that
names an object as ``"package.module:name"`` imports it as well.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = __name__.partition(".")[0]
LIBRARIES = ("torch", "numpy")
"""Another version of these rounds differently, and training carries that on."""

_TO_LINE_END = r"(?:[^\n\\]|\\\n)+"
STATEMENT = re.compile(
    rf"^[ \t]*(from[ \t]+[\w.]+[ \t]+import[ \t]*(?:\([^)]*\)|{_TO_LINE_END})|import[ \t]+{_TO_LINE_END})",
    re.MULTILINE,
)
OBJECT = re.compile(r"[\"'](\w+(?:\.\w+)+):\w+[\"']")


def library_versions() -> dict[str, str]:
    """The versions of the libraries that the numbers depend on; they are not imported for it."""
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


@functools.cache
def source_hash(module: str) -> str | None:
    """Sixteen digits that change with the source behind ``module``; None if it has no file, as in a session.

    Followed are imports from the module's own top package and from innerloop. Data files in folders beside
    the modules (splits, recipes) count as source. Line endings do not. A module is looked at once per
    process: what is edited later is not what this process has loaded.

    >>> source_hash("innerloop_studies.reproduce.parts") == source_hash("innerloop_studies.reproduce.parts")
    True
    >>> source_hash("__main__.nothing") is None
    True
    """
    files = files_behind(module)
    if not files:
        return None
    total = hashlib.sha256()
    for name, content in sorted([*files.items(), *_beside(files)]):
        text = content.read_bytes().replace(b"\r\n", b"\n")
        total.update(f"{name} {len(text)}\n".encode() + text)
    return total.hexdigest()[:16]


def files_behind(module: str) -> dict[str, Path]:
    """A module and all that it imports, by name, with their files; empty if it has none."""
    file = _file_of(module)
    if file is None:
        return {}
    tops = {PACKAGE, module.partition(".")[0]}
    files, waiting = {module: file}, [module]
    while waiting:
        here = waiting.pop()
        for name in _imported(files[here], here):
            known = name in files or name.partition(".")[0] not in tops
            target = None if known else _file_of(name)
            if target is not None:
                files[name] = target
                waiting.append(name)
    return files


def _imported(file: Path, module: str) -> Iterator[str]:
    """Names that a file imports, functions included; of ``from a import b`` both ``a`` and ``a.b``."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    text = file.read_text("utf-8")
    yield from OBJECT.findall(text)
    for node in _statements(text):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _statements(text: str) -> Iterator[ast.stmt]:
    """The import statements of a source: parsing only these takes a twentieth of parsing all of it."""
    for match in STATEMENT.finditer(text):
        try:
            yield from ast.parse(match[1]).body
        except SyntaxError:  # a line of prose that begins like one
            continue


def _file_of(module: str) -> Path | None:
    """The source file of a module, found without importing it; None if there is none."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # the main program
        return None
    if spec is None or not rest:
        return _existing(spec.origin if spec else None)
    for folder in spec.submodule_search_locations or ():
        at = Path(folder, *rest)
        for file in (at / "__init__.py", at.parent / f"{at.name}.py"):
            if file.is_file():
                return file
    return None


def _existing(origin: str | None) -> Path | None:
    return Path(origin) if origin and origin.endswith(".py") and Path(origin).is_file() else None


def _beside(files: dict[str, Path]) -> Iterator[tuple[str, Path]]:
    """Data files in folders without modules, beside the modules of packages."""
    folders = {file.parent for name, file in files.items() if "." in name or file.name == "__init__.py"}
    for inner in (one for folder in folders for one in folder.iterdir() if one.is_dir()):
        if inner.name != "__pycache__" and not any(inner.glob("*.py")):
            for file in inner.rglob("*"):
                if file.is_file():
                    yield file.relative_to(inner.parent.parent).as_posix(), file
