"""What the page says about a run of ``advise``: what to do, the table behind it, and what else was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop.core.words import duration
from innerloop.report.advice_words import hardness_words, landscape_words, note_words, rate_words
from innerloop.report.figures import Picture
from innerloop.report.plots.advice import standing_data, standing_figure
from innerloop.report.plots.svg import figure_to_svg
from innerloop.report.progress_rows import environment_rows, time_rows
from innerloop.report.read_run import RunData
from innerloop.report.reproduction_page import RESUMED, ending_view
from innerloop.report.views import ResultView, Table, Told, Verdict
from innerloop.report.words import interval, number


def advised_view(run: RunData, name: str) -> ResultView:
    """Everything the template shows of one advice."""
    result, asked = run.result, _part(run.manifest, "asked")
    chosen = _part(result, "recommendation")
    sentence = " ".join(str(chosen.get(key) or "") for key in ("sentence", "sure")).strip()
    return ResultView(
        kind="advise",
        label=f"advise {asked.get('source') or ''}",
        id=run.path.absolute().name,
        redoes=f"What {result.get('tasks') or 'these tasks'} need, before training in earnest.",
        status=ending_view(run, RESUMED),
        problems=run.problems,
        verdict=Verdict(sentence, "good") if sentence else None,
        tables=[_standing(result)] if result else [],
        parts=[Told("pairs", _told(result, chosen))] if result else [],
        pictures=_pictures(result, name),
        course=time_rows(run.manifest, result.get("seconds")),
        environment=environment_rows({**run.manifest, "recipe_sha256": None}),
    )


def _standing(result: Mapping[str, Any]) -> Table:
    what = str(result.get("score") or "accuracy")
    head = ["method", f"{what}{', %' if what == 'accuracy' else ''}", "tasks", "meta-steps", "parameters"]
    rows = [_row(row, what) for row in result.get("pilot") or [] if isinstance(row, Mapping)]
    title = "Methods and what needs no training, on the same validation tasks"
    if not all(row.get("fresh", True) for row in result.get("pilot") or [] if isinstance(row, Mapping)):
        title += "; earlier: it dropped out before, and was judged on other tasks"
    return Table(title, [*head, "whole training"], rows)


def _row(row: Mapping[str, Any], what: str) -> list[str]:
    score = "diverged" if row.get(what) is None else interval(row[what], row.get("ci95"), what)
    tasks = f"{row.get('episodes')}{'' if row.get('fresh') else ' (earlier)'}"
    whole = row.get("whole_seconds")
    cost = duration(round(whole)) if isinstance(whole, int | float) else ""
    steps = number(row["steps"]) if row.get("steps") else ""
    parameters = number(row["parameters"]) if row.get("parameters") else ""
    return [str(row.get("method")), score, tasks, steps, parameters, cost]


def _told(result: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[tuple[str, str]]:
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
    svg = figure_to_svg(standing_figure(rows), f"{name}-standing", "Standing", words)
    return [Picture("How they stand", [words], svg)]
