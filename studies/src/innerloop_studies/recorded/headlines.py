"""Verdicts on what the four abstracts claim, computed from the statements that are recorded.

``innerloop reproduce headlines`` prints them, and marks of the pages (``verdicts``, ``claims PAPER``) have
them as Markdown. Nothing here imports torch.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop_studies.recorded import (
    ROOT,
    cell,
    duration,
    path_of,
    read,
    required,
    seconds_of,
    statements,
    table,
)
from innerloop_studies.recorded.claims import CLAIMS, PAPERS, Bars, Claim, Evidence

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold here"
UNDECIDED, UNTESTED = "cannot be decided with this budget", "not tested yet"
IMAGES = Path("docs") / "images"
SETTINGS = {"in the paper's setting": False, "in a smaller or other setting": True}
SHOWN = 2  # statements that a sentence names
Row = Mapping[str, Any]


class Finding(NamedTuple):
    """The statements of one study that decide a claim, what the study took, and what its setting lacks."""

    study: str
    rows: Sequence[Row]
    seconds: float
    short_of: str | None


class Headline(NamedTuple):
    """A claim and its verdict."""

    claim: Claim
    verdict: str
    findings: Sequence[Finding]

    def as_dict(self) -> dict[str, Any]:
        """The JSON of ``innerloop reproduce headlines``."""
        findings = [{**one._asdict(), "rows": [dict(row) for row in one.rows]} for one in self.findings]
        about = {key: getattr(self.claim, key) for key in ("name", "says", "where")}
        why = {"why": self.sentences(), "findings": findings, "would_decide": self.would_decide()}
        return {**about, "verdict": self.verdict, **why, "figure": figure_of(self.claim)}

    def would_decide(self) -> list[str]:
        """What is missing, each once, with the studies that miss it."""
        missing: dict[str, list[str]] = {self.claim.needs: []} if self.claim.needs else {}
        for one in self.findings:
            if one.short_of:
                missing.setdefault(one.short_of, []).append(f"`{one.study}`")
        return [f"{words} ({', '.join(some)})" if some else words for words, some in missing.items()]

    def sentences(self) -> list[str]:
        """What decides the claim, and what would."""
        told = []
        for where, elsewhere in SETTINGS.items():
            some = [one for one in self.findings if (one.short_of is not None) == elsewhere]
            rows = [row for one in some for row in one.rows]
            if rows:
                held, took = sum(row["holds"] for row in rows), {one.study: one.seconds for one in some}
                names = ", ".join(f"`{name}` ({duration(seconds)})" for name, seconds in took.items())
                told.append(f"{held} of {len(rows)} deciding statements hold {where}: {names}.")
            failing = [] if elsewhere else [f"“{row['what']}”" for row in rows if not row["holds"]]
            if failing:
                more = f" and {len(failing) - SHOWN} more" if len(failing) > SHOWN else ""
                told.append(f"Not: {', '.join(failing[:SHOWN])}{more}.")
        missing, what = self.would_decide(), "the rest" if self.verdict == IN_PART else "it"
        return [*told, f"What would decide {what}: {'; '.join(missing)}."] if missing else told


def check_clone() -> None:
    """Refuses where the package was installed without the repository."""
    if not path_of("reproductions", "").parent.is_dir():
        raise UserError(
            "what was recorded lies in results/ of the repository, and this is no clone of it: clone it, and "
            "there `pip install -e . -e ./studies`."
        )


def headlines() -> list[Headline]:
    """All claims, each with its verdict."""
    return [judge(claim) for claim in CLAIMS]


def judge(claim: Claim) -> Headline:
    """The verdict on a claim, if all studies that decide it are recorded."""
    known = {one.study: read("reproductions", one.study) for one in claim.evidence}
    findings = []
    for one in claim.evidence:
        content = known[one.study]
        if content is not None:
            rows, seconds = deciding(one, content), seconds_of(content)
            findings.append(Finding(one.study, rows, seconds, lacking(one, content)))
    missing = " ".join(name for name, content in known.items() if content is None)
    if missing:
        return Headline(claim, f"not recorded: innerloop reproduce {missing} --scale cpu", findings)
    pairs = [(row["holds"], each.short_of is None) for each in findings for row in each.rows]
    return Headline(claim, verdict(pairs), findings)


def lacking(one: Evidence, content: Row) -> str | None:
    """What the recorded setting lacks of the paper's, if anything."""
    said = json.dumps(content["protocol"], ensure_ascii=False)
    return None if one.published and all(words in said for words in one.published) else one.short_of


def deciding(one: Evidence | Bars, content: Row) -> list[Row]:
    """The rows of a recorded study that its patterns name."""
    for pattern in one.rows:
        if not any(fnmatchcase(row["what"], pattern) for row in content["rows"]):
            raise UserError(f"no statement of {one.study} is '{pattern}': see recorded/claims.py.")
    return [row for row in content["rows"] if any(fnmatchcase(row["what"], each) for each in one.rows)]


def verdict(statements: Iterable[tuple[bool, bool]]) -> str:
    """From whether each statement holds, and whether its setting is the paper's.

    In a smaller setting a statement that holds is a part of the claim, and one that does not decides nothing.

    >>> verdict([(True, True), (False, False)]), verdict([(False, True)]), verdict([(False, False)])
    ('holds in part', 'does not hold here', 'cannot be decided with this budget')
    """
    pairs = list(statements)
    as_published = [holds for holds, published in pairs if published]
    if not pairs:
        return UNTESTED
    if all(holds for holds, _ in pairs):
        return HOLDS if len(as_published) == len(pairs) else IN_PART
    if any(as_published):
        return IN_PART
    return FAILS if as_published else UNDECIDED


def studies() -> list[str]:
    """The studies behind the claims, each once."""
    return list(dict.fromkeys(one.study for claim in CLAIMS for one in claim.evidence))


def by_paper(found: Iterable[Headline]) -> dict[str, list[Headline]]:
    """Headlines under the titles of their papers."""
    papers: dict[str, list[Headline]] = {}
    for one in found:
        papers.setdefault(PAPERS[one.claim.name.partition("-")[0]], []).append(one)
    return papers


# ---- what the marks of the pages ask for ----


def verdicts() -> str:
    """Every claim and its verdict."""
    lines = []
    for paper, some in by_paper(headlines()).items():
        named = paper.partition(":")[0]
        for one in some:
            lines.append((named, cell(one.claim.says), f"**{one.verdict}**"))
            named = ""
    return table(("paper", "its abstract claims", "here"), lines)


def claims(paper: str) -> str:
    """The claims of one paper, each with its verdict, what decides it, and a figure."""
    return "\n\n".join(section(one) for one in headlines() if one.claim.name.startswith(f"{paper}-"))


def section(one: Headline) -> str:
    """A claim of a page."""
    claim, picture = one.claim, figure_of(one.claim)
    parts = [
        f"### {cell(claim.says)}",
        f"**{one.verdict[0].upper()}{one.verdict[1:]}** ({claim.where}).",
        "\n".join(f"- {cell(sentence)}" for sentence in one.sentences()),
    ]
    if claim.bars and picture:
        parts.append(f"![{cell(claim.bars.title)}](images/{Path(picture).name})")
    parts.append(statements((each.study, each.rows) for each in one.findings))
    return "\n\n".join(filter(None, parts))


# ---- figures ----


def figure_of(claim: Claim) -> str | None:
    """The file of its figure, from the root of the repository."""
    return str(IMAGES / f"headlines-{claim.name}.svg") if claim.bars else None


def groups_of(bars: Bars) -> dict[str, dict[str, tuple[float, float]]]:
    """Numbers with half their intervals: a group for each row, or one of all rows that have a number each."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in deciding(bars, required("reproductions", bars.study)):
        matches = [match.groupdict() for match in re.finditer(bars.number, f"{row['paper']}; {row['ours']}")]
        what = textwrap.fill(row["what"], 36)
        if bars.names or "name" in matches[0]:
            group, names = what, bars.names or [match["name"] for match in matches]
        else:
            group, names = "", [what]
        numbers = [(float(match["value"]), float(match.get("half") or "nan")) for match in matches]
        found.setdefault(group, {}).update(zip(names, numbers, strict=True))
    return found


def figures() -> dict[Path, str]:
    """What the files of the figures must hold."""
    from innerloop.report.plots.style import INK, figure_to_svg
    from innerloop_studies.papers.figures import bars_figure

    drawn = {}
    for claim in CLAIMS:
        file = figure_of(claim)
        if claim.bars and file:
            figure = bars_figure(groups_of(claim.bars), claim.bars.title, claim.bars.unit, 1, width=5.5)
            svg = figure_to_svg(figure, claim.name, claim.bars.title).replace("currentColor", INK)
            # a file of its own has no page whose ink and paper it could take
            drawn[ROOT / file] = svg.replace("<svg ", '<svg style="background: white" ', 1)
    return drawn
