"""What the page says about a run of ``analyze --save``: its settings, and the words of the terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from innerloop.report.figures import saved_pictures
from innerloop.report.read_run import RunData, flatten
from innerloop.report.reproduction_page import result_view
from innerloop.report.text import View, number


def analysis_view(run: RunData, _: str) -> View:
    """Everything the template shows of one analysis."""
    result = run.result
    pictures, missing = saved_pictures(run)
    kept = result.get("words")
    words = [str(line) for line in kept] if isinstance(kept, list) else []
    kind = str(run.manifest.get("analysis") or run.name.removeprefix("analyze-"))
    return result_view(
        run,
        {},
        kind="analyze",
        label=f"analyze {kind}",
        redoes=str(result.get("tells") or ""),
        problems=[*run.problems, *missing],
        pictures=pictures,
        parts=parts_of(words),
        words=words,
        settings=settings_rows(result),
        numbers=[(key, number(value)) for key, value in numbers_of(result).items()],
    )


def settings_rows(result: Mapping[str, Any]) -> list[View]:
    """Every setting as it was typed or by default, with what it means; changed ones are marked."""
    known = result.get("keys")
    rows = [row for row in known if isinstance(row, Mapping)] if isinstance(known, list) else []
    if not rows:
        given = result.get("settings")
        values = given if isinstance(given, Mapping) else {}
        rows = [{"key": key, "value": number(value)} for key, value in values.items()]
    return [
        {
            "key": str(row.get("key", "")),
            "value": str(row.get("value", "")),
            "default": str(row.get("default", "")),
            "about": str(row.get("meaning") or ""),
            "changed": "default" in row and row["default"] != row.get("value"),
        }
        for row in rows
    ]


def numbers_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Single numbers and words of the result by dotted key; lists stay in the file."""
    elsewhere = ("words", "keys", "settings", "tells", "run", "page", "seconds", "figures")
    flat = flatten({key: value for key, value in result.items() if key not in elsewhere})
    return {key: value for key, value in flat.items() if not isinstance(value, list | tuple)}


def parts_of(lines: list[str]) -> list[View]:
    """The terminal's lines as a page has them: aligned columns, and lines that may begin with a name."""
    parts: list[View] = []
    for line in lines:
        last: View = parts[-1] if parts else {"kind": "", "rows": [], "head": []}
        if line.startswith("   ") and line.strip():
            parts.append({"kind": "table", "rows": [], "head": ["", *_columns(line)]})
        elif last["kind"] == "table" and len(_columns(line)) == len(last["head"]):
            last["rows"].append(_columns(line))
        elif last["kind"] == "lines":
            last["rows"].append(_named(line))
        else:
            parts.append({"kind": "lines", "rows": [_named(line)], "head": []})
    return parts


def _columns(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def _named(line: str) -> tuple[str, str]:
    """A name and its value, or no name and a sentence: names have no commas, except in whole brackets."""
    head, colon, rest = line.partition(": ")
    words = re.sub(r"\([^()]*\)", "", head)
    return (head, rest) if colon and not re.search(r"[(,;=]", words) else ("", line)
