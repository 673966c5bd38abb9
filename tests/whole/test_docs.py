"""The documentation says what is so: its snippets run, its commands are valid, its tables match the code."""

import json
import re
import runpy
import shlex
from typing import get_args

import pytest
import torch

from innerloop.cli.main import GROUPS, VERBS
from innerloop.core.losses import LOSSES
from innerloop.experiment.recipe.library import load_recipe, shipped_names
from innerloop.experiment.recipe.problems import allowed, known_settings, show
from innerloop.experiment.recipe.schema import OuterSettings
from innerloop.learners import LEARNERS, taxonomy
from innerloop.learners.objectives.base import OBJECTIVES, objectives
from innerloop.nets.norms import NORM_POLICIES
from innerloop.tasks import FAMILIES
from support.places import ROOT

PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
TEXTS = [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Snippets show settings worth using; here they only have to run.
TINY = [
    (re.compile(r"\bsteps=\d{2,}"), "steps=3"),
    (re.compile(r'"steps": \d{2,}'), '"steps": 3'),
    (re.compile(r"\bepisodes=\d{2,}"), "episodes=4"),
    (re.compile(r"\bbatch=\d{2,}"), "batch=3"),
    (re.compile(r"\.batch\(0, \d{2,}\)"), ".batch(0, 3)"),
]
PLACEHOLDERS = re.compile(r"RUN|FILE|NAME|mine\.toml|runs/|mypackage|…|\.\.\.")


def blocks(page, language):
    return [code for found, code in BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


def commands():
    """Every command line that the documents print, comments and pipes cut off."""
    for page in TEXTS:
        for code in [*blocks(page, "bash"), *blocks(page, "console")]:
            for line in code.splitlines():
                line = line.removeprefix("$ ")
                if line.startswith("innerloop "):
                    words = shlex.split(line, comments=True)
                    cut = next((i for i, w in enumerate(words) if w in ("|", ">", "2>train.log")), len(words))
                    yield pytest.param(words[1:cut], page.name, id=f"{page.name}: {line}")


@pytest.fixture
def one_core(monkeypatch):
    """Fewer ways for ``auto`` to measure, and no threads that wait for busy cores."""
    monkeypatch.setattr("innerloop.training.execution.auto.available_cores", lambda: 1)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


RUN_ELSEWHERE = ("gallery.md",)  # by test_gallery.py, each script in a process of its own


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python") and p.name not in RUN_ELSEWHERE], ids=lambda p: p.name
)
@pytest.mark.usefixtures("one_core")
@pytest.mark.one_in(2)
def test_every_python_snippet_of_a_page_runs_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "snippet"}
    snippets = blocks(page, "python")
    for number, code in enumerate(snippets, start=1):
        for pattern, small in TINY:
            code = pattern.sub(small, code)
        exec(compile(code, f"{page.name}, snippet {number}", "exec"), namespace)
    # one that is indented or not closed would not be found, and so not run
    assert len(snippets) == page.read_text(encoding="utf-8").count("```python")


@pytest.mark.parametrize(("words", "page"), list(commands()))
def test_every_command_is_one_that_exists(words, page):
    verb, *rest = words
    assert verb in VERBS or verb in GROUPS or verb.startswith("--")
    settings = [word for word in rest if "=" in word and not word.startswith("-")]
    if page == "command-line.md" and {"iner.lr=1", "model.filters=64"} & set(settings):
        return  # examples of mistakes
    if verb in ("train", "show") and rest and not PLACEHOLDERS.search(rest[0]) and rest[0] != "last":
        settings = [s for s in settings if not PLACEHOLDERS.search(s) or s.startswith("model.init=")]
        if not rest[0].startswith("-"):
            load_recipe(rest[0], settings)
    elif verb == "eval":
        of_pictures = (
            "eval.head=",
            "eval.label_orders=",
            "eval.ways=",
            "data.",
            "model.norm=",
            "tasks.mixture=",
        )
        pictures = any(s.startswith(of_pictures) for s in settings)
        load_recipe("omniglot-maml" if pictures else "sine-maml", settings)
    elif verb == "sweep":
        assert rest[0] in shipped_names()
        assert {s.partition("=")[0] for s in settings} <= {*known_settings(), "seed"}


def test_the_printed_mistake_is_answered_as_printed(capsys):
    from innerloop.cli.main import main

    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    command, *expected = next(code for _, code in BLOCK.findall(page) if "iner.lr" in code).splitlines()
    assert main(shlex.split(command)[2:]) == 2
    assert capsys.readouterr().err.splitlines() == expected


GENERATED = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

TABLES = {
    "cells": taxonomy.cells,
    "factories": taxonomy.factories,
    "learners": taxonomy.learners,
    "objectives": objectives,
}


def with_tables(text):
    """A page with the tables between its marks as those of learners and objectives give them."""
    return GENERATED.sub(lambda m: f"{m[1]}\n{TABLES[m[2]]()}\n\n{m[3]}", text)


def settings_page():
    """The text of docs/settings.md, from the schema."""
    lines = [
        "# Settings",
        "",
        "Every setting of a recipe, as `innerloop show --schema` prints them.",
        "The first word of a setting is its section in a TOML file.",
    ]
    section = None
    for key, field in known_settings().items():
        first, _, _ = key.rpartition(".")
        if first != section:
            section = first
            title = f"## {section}" if section else "## The recipe itself"
            lines += ["", title, "", "| setting | default | takes | meaning |", "| --- | --- | --- | --- |"]
        default = show(field.default).strip("'") or "empty"
        cells = (f"`{key}`", f"`{default}`", allowed(field), field.description or "")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def test_the_settings_page_is_the_schema():
    """Rewrite it with: PYTHONPATH=tests python tests/whole/test_docs.py."""
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == settings_page()


def test_the_tables_of_learners_are_those_of_the_code():
    """Rewrite them with: python tests/whole/test_docs.py."""
    marks = [mark for page in PAGES for _, mark, _ in GENERATED.findall(page.read_text(encoding="utf-8"))]
    assert sorted(marks) == list(TABLES)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert with_tables(text) == text, page.name


def test_objectives_of_the_table_are_those_of_recipes_and_exist():
    assert set(OBJECTIVES) == set(get_args(OuterSettings.model_fields["objective"].annotation))
    for entry in OBJECTIVES.values():
        assert (ROOT / "src" / "innerloop" / entry.code).is_file()


def test_the_verbs_are_all_in_the_table():
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)", page, re.MULTILINE)) - {"0"} == set(VERBS)


def test_families_losses_policies_and_learners_are_all_in_the_concepts():
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    learners = {entry.factory.partition(":")[2] for entry in LEARNERS.values() if not entry.fixed}
    for name in [*FAMILIES, *LOSSES, *NORM_POLICIES, *learners]:
        assert f"`{name}`" in page, name


def test_recipes_of_the_taxonomy_exist():
    page = (ROOT / "docs" / "taxonomy.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(sine-[\w-]+)`", page, re.MULTILINE))
    assert named <= set(shipped_names())
    short = {name for name in shipped_names() if not name.endswith("-published")}
    assert {name for name in short if name.startswith("sine-")} == named


@pytest.mark.parametrize("page", TEXTS, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", TEXTS, ids=lambda p: p.name)
def test_no_machine_paths_and_valid_json(page):
    assert not re.search(r"(?<![\w.])/(?:work|tmp|root|home)/", page.read_text(encoding="utf-8"))
    for code in blocks(page, "json"):
        json.loads(code)


def test_docstrings_become_markdown():
    convert = runpy.run_path(str(ROOT / "docs" / "hooks" / "as_markdown.py"))["to_markdown"]
    text = "One :func:`~a.b` and :math:`x^2`.\n\n.. math:: y = 1\n\n>>> 1\n1\n\nMore."
    assert convert(text) == "One `b` and $`x^2`$.\n\n```math\ny = 1\n```\n\n```pycon\n>>> 1\n1\n```\n\nMore."


if __name__ == "__main__":  # the pages that follow the code
    (ROOT / "docs" / "settings.md").write_text(settings_page(), encoding="utf-8")
    for each in PAGES:
        each.write_text(with_tables(each.read_text(encoding="utf-8")), encoding="utf-8")
