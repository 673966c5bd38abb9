"""What the page says about a run of ``reproduce``: does the paper's statement hold, and is that on record?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop.core.formatting import duration
from innerloop.report.figures import saved_pictures
from innerloop.report.read_run import RunData, environment_rows, flatten, time_rows
from innerloop.report.text import Pairs, View, number

SCALES = {
    "smoke": "the smallest setting that runs through, in seconds: a check of the code, not evidence",
    "cpu": "made for two cores, to show the paper's direction and order of magnitude",
    "paper": "the published setting",
}
ENDINGS = {
    "interrupted": (
        "warn",
        "It was interrupted, so there are no rows. The same command goes on from what it kept.",
    ),
    "failed": ("bad", "It failed, so there are no rows."),
    "running": ("warn", "It is still running, or was killed: there are no rows yet."),
}
RESUMED = {
    "interrupted": ("warn", "It was interrupted. `innerloop resume` goes on from what it kept."),
    "failed": ("bad", "It failed."),
    "running": ("warn", "It is still running, or was killed: `innerloop resume` goes on from what it kept."),
}
"""Of what `innerloop resume` continues: searches and advice."""


def reproduction_view(run: RunData, _: str) -> View:
    """Everything the template shows of one reproduction."""
    result = run.result
    pictures, missing = saved_pictures(run)
    scale = str(result.get("scale") or run.manifest.get("scale") or "")
    return result_view(
        run,
        ENDINGS,
        kind="reproduce",
        label=title_of(run),
        redoes=str(result.get("redoes") or run.manifest.get("redoes") or ""),
        scale=scale,
        scale_words=SCALES.get(scale, ""),
        problems=[*run.problems, *missing],
        verdict=verdict_view(run),
        rows=[row_view(row) for row in rows_of(run)],
        pictures=pictures,
        protocol=protocol_rows(result.get("protocol")),
    )


def result_view(run: RunData, endings: Mapping[str, tuple[str, str]], **further: Any) -> View:
    """What the template shows of a run that trains nothing: what all kinds have, and what is its own."""
    empty = ("rows", "tables", "parts", "cells", "protocol", "words", "settings", "numbers", "pictures")
    return {
        "id": run.path.absolute().name,
        "status": ending_view(run, endings),
        "problems": run.problems,
        "verdict": None,
        "scale": "",
        "scale_words": "",
        "course": time_rows(run.manifest, run.result.get("seconds")),
        "environment": environment_rows({**run.manifest, "recipe_sha256": None}),
        **dict.fromkeys(empty, ()),
        **further,
    }


def sentence_view(text: str) -> View | None:
    """A verdict without statements: a sentence, if there is one."""
    return {"text": text, "tone": "good", "statements": 0, "hold": 0, "recorded": 0} if text else None


def protocol_rows(protocol: Any) -> Pairs:
    """How something was judged, as a result keeps it; none where it does not."""
    told = flatten(protocol) if isinstance(protocol, Mapping) else {}
    return [(key.replace("_", " "), cell(value)) for key, value in told.items()]


def title_of(run: RunData) -> str:
    """The name of the reproduction, which a run that did not finish has in its folder's name only."""
    return str(run.result.get("name") or run.name.removeprefix("reproduce-"))


def rows_of(run: RunData) -> list[Mapping[str, Any]]:
    """The rows that a run wrote."""
    rows = run.result.get("rows")
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def ending_view(run: RunData, endings: Mapping[str, tuple[str, str]]) -> View:
    """How it ended, in the words of its kind."""
    known = {"finished": ("good", "It ran to its end."), **endings}
    tone, words = known.get(run.status, ("warn", "The manifest does not say how it ended."))
    reason = str(run.manifest.get("reason") or "")
    return {"word": run.status, "tone": tone, "sentence": words, "reason": reason}


def verdict_view(run: RunData) -> View | None:
    """How many statements hold and how many of the findings are as recorded; None without rows."""
    rows = rows_of(run)
    if not rows:
        return None
    return verdict_words(
        len(rows), sum(bool(r.get("holds")) for r in rows), sum(bool(r.get("ok")) for r in rows)
    )


def found_words(run: RunData) -> str:
    """For a listing: what a run without a score found, or nothing."""
    verdict = verdict_view(run) if run.kind == "reproduce" else None
    if verdict is None:
        return ""
    of = verdict["statements"]
    return f"{verdict['hold']} of {of} hold, {verdict['recorded']} of {of} as recorded"


def verdict_words(statements: int, hold: int, recorded: int) -> View:
    """The verdict as numbers and as a sentence."""
    if statements == 1:
        first = "The statement holds here" if hold else "The statement does not hold here"
        second = "the finding is as recorded" if recorded else "the finding is not as recorded"
    else:
        first = f"{'All' if hold == statements else f'{hold} of'} {statements} statements hold here"
        every = f"all {statements} findings are as recorded"
        second = every if recorded == statements else f"{recorded} of {statements} findings are as recorded"
    counts = {"statements": statements, "hold": hold, "recorded": recorded}
    return {"text": f"{first}; {second}.", "tone": "good" if recorded == statements else "bad", **counts}


def row_view(row: Mapping[str, Any]) -> View:
    """One line of the table."""
    texts = {"what": str(row.get("what", "")), "reason": str(row.get("reason") or "")}
    cells = {key: cell(row.get(key)) for key in ("paper", "ours")}
    return {**texts, **cells, **{key: bool(row.get(key)) for key in ("holds", "ok")}}


def cell(value: Any) -> str:
    """A value of a row: numbers to four digits, several side by side."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {cell(item)}" for key, item in value.items())
    return number(value)


def overview_view(views: list[View], seconds: list[Any]) -> View:
    """The table on top of a page of several: a line each, and all statements taken together."""
    verdicts = [view["verdict"] for view in views if view["verdict"] is not None]
    statements, scales = sum(verdict["statements"] for verdict in verdicts), {view["scale"] for view in views}
    hold, recorded = sum(v["hold"] for v in verdicts), sum(v["recorded"] for v in verdicts)
    took = [value if isinstance(value, int | float) else None for value in seconds]
    return {
        "verdict": verdict_words(statements, hold, recorded) if statements else None,
        "redone": any(view["kind"] == "reproduce" for view in views),
        "scales": [(name, words) for name, words in SCALES.items() if name in scales],
        "lost": [view["label"] for view in views if view["kind"] == "reproduce" and view["verdict"] is None],
        "took": ["–" if value is None else duration(value) for value in took],
    }
