"""Numbers of the documentation, from the files of ``results/``: ``python -m innerloop_studies.recorded``.

``results/`` has a small file of JSON for every command whose numbers the pages print. ``adopt`` makes such a
file from what a command has written, ``run`` runs those whose file is missing or of another version, and
``write`` fills what stands between marks in the pages:

    <!-- results: rows adaptlr-* -->  …  <!-- end -->

The first word names a function of ``headlines``, ``published``, ``reproductions`` or ``scores``, the others
are its arguments. ``write`` also draws the figures of ``headlines``.
"""

import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.files import DamagedFileError, read_object, write_json_atomic

ROOT = Path(__file__).parents[4]
RESULTS = ROOT / "results"
HUGE = re.compile(r"\d{13,}(\.\d+)?")  # numbers of something that diverged, written out
MARK = re.compile(r"(<!-- results: ([^\n]+?) -->)(\n?)(.*?)(<!-- end -->)", re.DOTALL)


def read(kind: str, name: str) -> dict[str, Any] | None:
    """What is recorded of a reproduction, benchmark or evaluation; None if there is no file."""
    file = path_of(kind, name)
    try:
        return read_object(file) if file.is_file() else None
    except DamagedFileError as error:
        raise UserError(f"{error}; delete it, and `make results ONLY={name}` runs it again.") from None


def required(kind: str, name: str) -> dict[str, Any]:
    """What is recorded, for a table that cannot do without it."""
    content = read(kind, name)
    if content is None:
        raise UserError(f"results/{kind}/{name}.json is missing: run or adopt {name} first.")
    return content


def path_of(kind: str, name: str) -> Path:
    """Where the file is, or will be."""
    return RESULTS / kind / f"{name}.json"


def keep(kind: str, name: str, content: dict[str, Any]) -> Path:
    """Writes a file that names its commit; after a crash the old one or the new one is there."""
    file = path_of(kind, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    asked = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    write_json_atomic(file, {**content, "commit": commit or None})
    return file


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def seconds_of(known: Mapping[str, Any]) -> float:
    """Seconds of a run and of the attempts before it whose end is known."""
    return float(known["seconds"]) + sum(seconds for seconds in known["earlier"] if seconds)


def cell(value: object) -> str:
    """A value of a row as text of a table, with signs of Markdown as they are."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(cell, value))
    if value is None:
        return "–"
    text = HUGE.sub(lambda match: f"{float(match[0]):.1e}", str(value))
    return text.replace("|", "\\|").replace("*", "\\*")


def statements(studies: Iterable[tuple[str, Iterable[Mapping[str, Any]]]]) -> str:
    """Rows of reproductions, each under the name of its study; nothing if there are none."""
    lines: list[Sequence[str]] = []
    for name, rows in studies:
        first = f"`{name}`"
        for row in rows:
            verdict = "yes" if row["holds"] else "**no**"
            lines.append((first, cell(row["what"]), cell(row["paper"]), cell(row["ours"]), verdict))
            first = ""
    return table(("name", "statement", "paper", "here", "holds"), lines) if lines else ""


def interval(value: Mapping[str, Any], scale: float = 1.0, digits: int = 1) -> str:
    """A mean with its interval of 95 %, or with its deviation where that is what was kept."""
    around = value["ci95"] if "ci95" in value else value["deviation"]
    return f"{scale * value['mean']:.{digits}f} ± {scale * around:.{digits}f}"


def pages() -> list[Path]:
    """Where marks may stand."""
    return sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def filled(text: str) -> str:
    """A page with what its marks ask for: a block where the mark ends its line, else words within a line."""
    from innerloop_studies.recorded import headlines, published, reproductions, scores

    def fill(match: re.Match[str]) -> str:
        name, *words = shlex.split(match[2])
        known = {**vars(headlines), **vars(published), **vars(reproductions), **vars(scores)}
        try:
            made = known[name](*words)
        except KeyError as error:
            raise UserError(
                f"'{match[2]}' cannot be filled, because a file of results/ lacks {error}: it is of another "
                "version, and `make results ONLY=NAME` runs it again."
            ) from error
        return f"{match[1]}\n\n{made}\n\n{match[5]}" if match[3] else f"{match[1]}{made}{match[5]}"

    return MARK.sub(fill, text)


def write() -> list[Path]:
    """Fills all pages and draws the figures of the headlines; returns the files that changed."""
    from innerloop_studies.recorded.headlines import figures

    after = {page: filled(page.read_text(encoding="utf-8")) for page in pages()} | figures()
    changed = {
        file: text
        for file, text in after.items()
        if not file.is_file() or file.read_text(encoding="utf-8") != text
    }
    for file, text in changed.items():
        file.write_text(text, encoding="utf-8")
    return list(changed)
