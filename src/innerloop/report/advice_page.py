"""What the page and the terminal say about an advice: what to do, and what stands behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from innerloop.core.formatting import duration
from innerloop.report.figures import Picture, drawn_picture
from innerloop.report.plots.choices import standing_data, standing_figure
from innerloop.report.read_run import RunData
from innerloop.report.reproduction_page import RESUMED, result_view, sentence_view
from innerloop.report.text import View, interval, number

HARDEST = 5  # groups that are named, beside the easiest one


def rate_words(rate: Mapping[str, Any]) -> str:
    """The inner rate: point, bracket, convention, uncertainty, what to try, what it is an estimate for."""
    if not rate.get("applies"):
        return f"None estimated, because {rate['reason']}" if rate.get("reason") else ""
    alpha, low, high = (number(rate.get(key), 3) for key in ("alpha", "low", "high"))
    unsure = f"a factor of {number(rate['factor'])} up and down is possible" if rate.get("factor") else ""
    bracketed = "; ".join(part for part in (str(rate.get("convention") or ""), unsure) if part)
    tried = [number(value, 3) for value in rate.get("sweep") or ()]
    return (
        f"{alpha} for {rate.get('method')}, between {low} and {high}"
        + (f" ({bracketed})" if bracketed else "")
        + (f"; worth trying: {', '.join(tried)}" if len(tried) > 1 else "")
        + f"; {rate.get('reason')}."
        + (f" {rate['warning']}" if rate.get("warning") else "")
    )


def landscape_words(part: Mapping[str, Any]) -> str:
    """What closed forms say of adapting, or why they are silent."""
    reason = str(part.get("reason") or "").removesuffix(".")
    if not part.get("applies"):
        return f"What adapting brings cannot be told before training: {reason}." if reason else ""
    ends = [number(end, 3) for end in part.get("interval") or ()]
    sure = f" (95 %: {' to '.join(ends)})" if ends else ""
    gain = number(part.get("gain"), 3)
    return f"The excess risk of one network for all tasks is {gain} times that of MAML{sure}; {reason}."


def hardness_words(part: Mapping[str, Any]) -> str:
    """Groups in the order of their difficulty, how it was measured, and how such a ranking has predicted."""
    groups: Sequence[Mapping[str, Any]] = [g for g in part.get("groups") or () if isinstance(g, Mapping)]
    if not groups:
        return str(part.get("reason") or "")
    named = [f"{group.get('name')} ({100 * float(group.get('value') or 0):.0f} %)" for group in groups]
    easiest = f"; easiest: {named[-1]}" if len(groups) > HARDEST else ""
    ranked = f"Hardest first: {', '.join(named[:HARDEST])}{easiest}"
    return f"{ranked}: {part.get('by')}; {part.get('evidence')}."


def note_words(rows: Any) -> list[str]:
    """Remarks on rows of the table, each once, with the methods that it is about."""
    of: dict[str, list[str]] = {}
    for row in rows or ():
        if isinstance(row, Mapping) and row.get("note"):
            of.setdefault(str(row["note"]), []).append(str(row.get("method")))
    return [f"{', '.join(methods)}: {note}" for note, methods in of.items()]


def advice_view(run: RunData, name: str) -> View:
    """Everything the template shows of one advice."""
    result, asked = run.result, _part(run.manifest, "asked")
    chosen = _part(result, "recommendation")
    sentence = " ".join(str(chosen.get(key) or "") for key in ("sentence", "sure")).strip()
    return result_view(
        run,
        RESUMED,
        kind="advise",
        label=f"advise {asked.get('source') or ''}",
        redoes=f"What {result.get('tasks') or 'these tasks'} need, before training in earnest.",
        verdict=sentence_view(sentence),
        pictures=_pictures(result, name),
        tables=[_standing(result)] if result else [],
        parts=[{"kind": "pairs", "rows": _lines(result, chosen)}] if result else [],
    )


def _standing(result: Mapping[str, Any]) -> View:
    what = str(result.get("score") or "accuracy")
    head = ["method", f"{what}{', %' if what == 'accuracy' else ''}", "tasks", "meta-steps", "parameters"]
    rows = [_row(row, what) for row in result.get("pilot") or [] if isinstance(row, Mapping)]
    title = "Methods and what needs no training, on the same validation tasks"
    if not all(row.get("fresh", True) for row in result.get("pilot") or [] if isinstance(row, Mapping)):
        title += "; earlier: it dropped out before, and was judged on other tasks"
    return {"title": title, "head": [*head, "whole training"], "rows": rows}


def _row(row: Mapping[str, Any], what: str) -> list[str]:
    score = "diverged" if row.get(what) is None else interval(row[what], row.get("ci95"), what)
    tasks = f"{row.get('episodes')}{'' if row.get('fresh') else ' (earlier)'}"
    whole = row.get("whole_seconds")
    cost = duration(round(whole)) if isinstance(whole, int | float) else ""
    steps = number(row["steps"]) if row.get("steps") else ""
    parameters = number(row["parameters"]) if row.get("parameters") else ""
    return [str(row.get("method")), score, tasks, steps, parameters, cost]


def _lines(result: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What to type, what stands behind it, estimates, and what was not looked at."""
    lines = [
        ("type next", f"`{chosen['command']}`" if chosen.get("command") else ""),
        *(("because", str(reason)) for reason in result.get("reasons") or []),
        *(("note", note) for note in note_words(result.get("pilot"))),
        ("inner rate", rate_words(_part(result, "rate"))),
        ("closed forms", landscape_words(_part(result, "landscape"))),
        ("closed forms, why", str(_part(result, "landscape").get("why") or "")),
        ("groups of classes", hardness_words(_part(result, "hardness"))),
        ("networks", str(result.get("architecture") or "")),
        *(("not looked at", str(part)) for part in result.get("not_examined") or []),
    ]
    return [(name, text) for name, text in lines if text]


def _part(result: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = result.get(name)
    return part if isinstance(part, Mapping) else {}


def _pictures(result: Mapping[str, Any], name: str) -> list[Picture]:
    rows = standing_data(result.get("pilot") or [], str(result.get("score") or "accuracy"))
    if not rows:
        return []
    words = "Scores with 95 % intervals over validation tasks; hollow marks dropped out of the race earlier."
    return [drawn_picture(standing_figure(rows), name, "How they stand", [words], "Standing", "standing")]
