"""Tables of reproductions: their rows, all of them at a glance, and what they took."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from innerloop_studies.recorded.files import SCALE, read
from innerloop_studies.recorded.text import table, took
from innerloop_studies.reproduce import REPRODUCTIONS
from innerloop_studies.reproduce.runs import select

HUGE = re.compile(r"\d{13,}(\.\d+)?")
"""Numbers of something that diverged, written out."""
HEAD = ("name", "statement", "paper", "here", "holds")


def rows(*words: str) -> str:
    """What was found, statement by statement, of the reproductions that are recorded."""
    lines: list[Sequence[str]] = []
    for name in select(words):
        known = read("reproductions", name)
        first = f"`{name}`"
        for row in known["rows"] if known else ():
            verdict = "yes" if row["holds"] else "**no**"
            lines.append((first, cell(row["what"]), cell(row["paper"]), cell(row["ours"]), verdict))
            first = ""
    return table(HEAD, lines) if lines else "Nothing of this is recorded yet."


def found(name: str, statement: str) -> str:
    """What was found of one statement, for a line of text."""
    recorded = read("reproductions", name)
    fitting = [
        row["ours"] for row in (recorded or {"rows": ()})["rows"] if fnmatchcase(row["what"], statement)
    ]
    if len(fitting) != 1:
        raise SystemExit(f"{len(fitting)} statements of {name} are '{statement}'; there must be one.")
    return cell(fitting[0])


def overview() -> str:
    """Every reproduction: how many of its statements hold, and what it took."""
    lines = []
    for name, redoes in REPRODUCTIONS.items():
        known = read("reproductions", name)
        counted = ("not recorded yet", "", "")
        if known:
            holds = [bool(row["holds"]) for row in known["rows"]]
            counted = (f"{sum(holds)} of {len(holds)}", took(seconds_of(known)), known["ended"][:10])
        lines.append((f"`{name}`", cell(redoes), *counted))
    return table(("name", "redoes", "statements that hold", "took", "finished"), lines)


def seconds_of(known: dict[str, Any]) -> float:
    """Seconds of a run and of the attempts before it whose end is known."""
    return float(known["seconds"]) + sum(seconds for seconds in known["earlier"] if seconds)


def cost() -> str:
    """What all of them took together, where, and which of them are not recorded."""
    files = {name: known for name in REPRODUCTIONS if (known := read("reproductions", name))}
    total = sum(map(seconds_of, files.values()))
    statements = [bool(row["holds"]) for known in files.values() for row in known["rows"]]
    killed = [name for name, known in files.items() if None in known["earlier"]]
    missing = [name for name in REPRODUCTIONS if name not in files]
    said = [
        f"{len(files)} of {len(REPRODUCTIONS)} reproductions are recorded at `{SCALE}`. {sum(statements)} of "
        f"their {len(statements)} statements hold. Together they took {took(total)} by the clock, "
        f"on {machines(files.values())}; other work shared the cores at times."
    ]
    if killed:
        said.append(f"What was done before a kill is not in that time: {listed(killed)}.")
    if missing:
        said.append(f"Not recorded yet: {listed(missing)}.")
    return "\n".join(said)


def machines(files: Iterable[dict[str, Any]]) -> str:
    """The machines that made these files, each once.

    >>> machines([{"machine": {"cpu": "Z80", "cores": 1}, "versions": {"torch": "2.13.0"}}] * 2)
    'one core of Z80 with torch 2.13.0'
    """
    kinds = {
        (one["machine"]["cores"], one["machine"]["cpu"], one["versions"]["torch"].partition("+")[0])
        for one in files
    }
    # a file that does not name its processor is no other machine where cores and torch are the same
    named = {(cores, torch) for cores, cpu, torch in kinds if cpu}
    kept = sorted((kind for kind in kinds if kind[1] or (kind[0], kind[2]) not in named), key=str)
    return listed(
        f"{'one core' if cores == 1 else f'{cores} cores'} of {cpu or 'a processor'} with torch {torch}"
        for cores, cpu, torch in kept
    )


def listed(words: Iterable[str]) -> str:
    """Words with commas, and names of reproductions as code.

    >>> listed(["adaptlr-fig1", "rate-regret"])
    '`adaptlr-fig1`, `rate-regret`'
    """
    return ", ".join(f"`{word}`" if word in REPRODUCTIONS else word for word in words)


def cell(value: object) -> str:
    r"""A value of a row as text of a table, with signs of Markdown as they are.

    >>> cell("|α*|"), cell(0.123456), cell([1.0, 2.5]), cell(True)
    ('\\|α\\*\\|', '0.1235', '1, 2.5', 'yes')
    >>> cell("32: 19558742600931125060.000, 64: 0.052")
    '32: 2.0e+19, 64: 0.052'
    """
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


def protocols() -> str:
    """How every recorded reproduction was carried out; those that share a protocol stand together."""
    said: dict[str, list[str]] = {}
    for name in REPRODUCTIONS:
        known = read("reproductions", name)
        if known:
            said.setdefault(cell(sentence(known["protocol"])), []).append(name)
    return "\n".join(f"- {listed(names)}. {words}." for words, names in said.items())


def sentence(value: object) -> str:
    """Settings in one line.

    >>> sentence({"seeds": [0, 1], "net": {"width": 40}})
    'seeds: 0, 1; net: (width: 40)'
    """
    if isinstance(value, dict):
        inner = (f"({sentence(v)})" if isinstance(v, dict) else sentence(v) for v in value.values())
        return "; ".join(f"{key}: {words}" for key, words in zip(value, inner, strict=True))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
