"""What belongs to a release agrees with itself: versions, archives, templates."""

import json
import re
import tomllib
from datetime import date

from innerloop import __version__
from innerloop.cli.doctor import EXTRAS
from support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_citation_names_this_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    said = dict(re.findall(r"^([\w-]+): *(\S.*)$", text, re.MULTILINE))
    assert said["version"] == __version__
    assert said["license"] == PROJECT["project"]["license"]
    assert date.fromisoformat(said["date-released"]) <= date.today()
    assert {"cff-version", "message", "title", "type"} <= said.keys()
    assert f"{__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n### ")[0]


def test_every_extra_says_why_it_is_there():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = text[text.index("[project.optional-dependencies]") : text.index("[project.scripts]")]
    wanted = [line for line in table.splitlines() if re.search(r'"[\w.-]+[>=]=', line)]
    assert [line for line in wanted if "#" not in line and not line.startswith("peers")] == []
    assert len(wanted) > 20


def test_the_doctor_knows_every_extra():
    assert EXTRAS.keys() == PROJECT["project"]["optional-dependencies"].keys() - {"dev"}


def test_the_source_archive_has_what_its_tests_and_pages_need():
    kept = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    folders = {"src", "tests", "docs", "gallery", "examples", "scripts"}
    assert folders <= set(kept)
    assert all((ROOT / name).exists() for name in kept if "*" not in name)


def test_issue_templates_have_what_github_asks_for():
    """Read as text: YAML is no dependency of ours."""
    templates = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(templates) == 3
    for file in templates:
        text = file.read_text(encoding="utf-8")
        assert all(re.search(rf"^{key}: *\S*", text, re.MULTILINE) for key in ("name", "description", "body"))
        kinds = re.findall(r"^  - type: (\w+)$", text, re.MULTILINE)
        names = re.findall(r"^    id: (\w+)$", text, re.MULTILINE)
        assert set(kinds) <= {"textarea", "input", "dropdown", "checkboxes", "markdown"}
        assert len(names) == len(set(names)) == len(kinds)
        assert "\t" not in text


def test_every_page_is_in_the_navigation():
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(pages), json.dumps(sorted(set(listed) ^ pages))
