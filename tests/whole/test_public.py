"""What is public: the rooms' ``__init__`` say it, ``il`` gives it, the reference lists it, and no more."""

import ast
import importlib
import re
import subprocess
import sys

import pytest

import innerloop as il
from support.places import ROOT

sys.path.insert(0, str(ROOT / "docs" / "hooks"))
from reference import documented, interface, pages, room_of

STATEMENT = re.compile(
    r"^[ \t]*(from[ \t]+innerloop[\w.]*[ \t]+import[ \t]*(?:\([^)]*\)|(?:[^\n\\]|\\\n)+))", re.M
)
SOURCE = ROOT / "src" / "innerloop"
ROOMS = [f"innerloop.{room}" for room in interface("innerloop").rooms]
PACKAGES = [*ROOMS, *(f"{room}.{inner}" for room in ROOMS for inner in interface(room).rooms)]
WITHOUT_TORCH = ("choose", "classify", "core", "data", "evaluation", "experiment", "learners", "runs")
NEVER = ("cli",)
"""Rooms that only the command uses."""
SNIPPETS = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *(ROOT / "gallery").rglob("*.py")]


def lazy_names(package: str) -> dict[str, str] | None:
    """Names by home as a package hands them to ``lazy``; None if it imports them at once."""
    tree = ast.parse((ROOT / "src" / package.replace(".", "/") / "__init__.py").read_text("utf-8"))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "lazy"]
    if not calls:
        return None
    homes = ast.literal_eval(calls[0].args[1])
    rooms = "".join(ast.literal_eval(word.value) for word in calls[0].keywords)
    return {name: home for home, names in [*homes.items(), (package, rooms)] for name in names.split()}


def imports(text: str) -> list[tuple[str, str]]:
    """Module and name of every ``from innerloop… import``; only these statements are parsed, for speed."""
    nodes = [ast.parse(match[1]).body[0] for match in STATEMENT.finditer(text)]
    return [(node.module, alias.name) for node in nodes for alias in node.names]


def test_every_room_is_public_or_the_commands():
    there = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert there == {room.partition(".")[2] for room in ROOMS} | set(NEVER)


@pytest.mark.parametrize("package", ["innerloop", *PACKAGES])
def test_a_package_gives_what_it_lists(package):
    module, listed = importlib.import_module(package), interface(package)
    assert listed.homes or listed.rooms
    for name, home in listed.homes.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    for room in listed.rooms:
        assert getattr(module, room) is importlib.import_module(f"{package}.{room}")
    assert {*listed.homes, *listed.rooms} <= set(dir(module))


@pytest.mark.parametrize("package", ["innerloop", *PACKAGES])
def test_type_checkers_see_the_names_that_are_loaded_on_first_use(package):
    listed, lazily = interface(package), lazy_names(package)
    if package == "innerloop":  # where a module has the name of its function, mypy needs the module
        listed = listed._replace(homes={n: f"innerloop.{room_of(home)}" for n, home in listed.homes.items()})
    if lazily is not None:
        assert lazily == {**listed.homes, **dict.fromkeys(listed.rooms, package)}


def test_everyday_names_are_those_of_their_rooms():
    for name, home in interface("innerloop").homes.items():
        assert name in interface(f"innerloop.{room_of(home)}").homes, name


def test_public_names_are_documented_where_they_are_defined():
    for package in PACKAGES:
        for name, home in interface(package).homes.items():
            assert documented(home, name).strip(), f"{home}.{name} has no docstring"


def test_docstrings_of_public_names_import_what_is_public():
    for package in PACKAGES:
        for name, home in interface(package).homes.items():
            code = "\n".join(re.findall(r"^\s*>>> (from innerloop.*)$", documented(home, name), re.MULTILINE))
            for module, imported in imports(code):
                assert imported in interface(module).homes, f"{home}.{name} imports {module}.{imported}"


def test_torch_is_imported_by_rooms_that_need_it_only():
    code = "import sys, innerloop as il; dir(il); " + "; ".join(f"dir(il.{room})" for room in WITHOUT_TORCH)
    done = subprocess.run([sys.executable, "-c", f"{code}; sys.exit('torch' in sys.modules)"], check=False)
    assert done.returncode == 0


def test_the_reference_follows_the_rooms():
    """Rewrite it with: python docs/hooks/reference.py."""
    expected = pages()
    files = [ROOT / "docs" / "reference.md", *(ROOT / "docs" / "reference").iterdir()]
    assert {str(file.relative_to(ROOT / "docs")) for file in files} == set(expected)
    for path, text in expected.items():
        assert (ROOT / "docs" / path).read_text(encoding="utf-8") == text, path
        assert path in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_every_public_name_is_on_one_page_and_nothing_else_is():
    described = [name for text in pages().values() for name in re.findall(r"^::: (\S+)", text, re.MULTILINE)]
    public = [f"{home}.{name}" for package in PACKAGES for name, home in interface(package).homes.items()]
    assert sorted(described) == sorted(public)
    assert len(set(public)) == len(public)


@pytest.mark.parametrize("page", SNIPPETS, ids=lambda path: path.name)
def test_documents_and_examples_import_what_is_public(page):
    text = page.read_text(encoding="utf-8")
    codes = (
        re.findall(r"^```python[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        if page.suffix == ".md"
        else [text]
    )
    for module, name in (pair for code in codes for pair in imports(code)):
        assert module in ("innerloop", *PACKAGES), f"{module} is not public"
        listed = interface(module)
        assert name in {*listed.homes, *listed.rooms}, f"{module}.{name} is not public"


def test_the_librarys_modules_import_from_modules():
    """A finished part of a reproduction depends on what it imports: of a room, that is all that is in it."""
    for file in SOURCE.rglob("*.py"):
        if file.name != "__init__.py":
            rooms = {module for module, _ in imports(file.read_text(encoding="utf-8"))} & set(PACKAGES)
            assert not rooms, f"{file} imports from {rooms}"


def test_a_name_that_there_is_not_is_said_so():
    with pytest.raises(AttributeError, match="module 'innerloop' has no attribute 'papers_of_mine'"):
        _ = il.papers_of_mine
