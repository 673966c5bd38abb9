"""What the page says about one training run, as plain values for the template."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from innerloop.experiment.recipe.protocols import baselines_line, brief, is_own
from innerloop.report.figures import (
    HeldOut,
    Picture,
    adaptation_picture,
    adapted_picture,
    histogram_picture,
    training_picture,
)
from innerloop.report.read_run import RunData, course_rows, environment_rows, flatten, headline, others
from innerloop.report.reproduction_page import ending_view
from innerloop.report.run_predictions import difficulty_tables, labels_view, read_predictions
from innerloop.report.text import View, finite_scores, interval, number, protocol_words, when

SKEWED = 3.0  # a mean error this many times the median deserves a word of warning

SCORES = {"accuracy": "accuracy", "mse": "mean squared error"}  # what a page calls a score

ENDINGS = {
    "interrupted": ("warn", "It was interrupted; “innerloop resume” continues it from its last checkpoint."),
    "failed": ("bad", "It failed."),
    "pruned": (
        "warn",
        "A sweep stopped it: finished runs were better at the same step; “innerloop resume” continues it.",
    ),
    "running": (
        "warn",
        "It is still running, or was killed: if nothing writes to it now, “innerloop resume” continues it.",
    ),
}
REASONED = {"finished": "It ended before its last step:", "failed": "It failed:"}
"""How it ended, where the manifest has the reason."""


def run_view(
    run: RunData, name: str, label: str = "", held_out: HeldOut | None = None, samples: bool = True
) -> View:
    """Everything the template shows of one run."""
    drawn, left_out = pictures(run, name, held_out)
    evaluation = headline(run)
    predictions, problem = read_predictions(run, evaluation)
    return {
        "label": label or run.name,
        "name": run.name,
        "description": str(run.recipe.get("description") or ""),
        "id": run.path.absolute().name,
        "status": status_view(run),
        "problems": [*run.problems, *([problem] if problem else [])],
        "headline": headline_view(run),
        "evaluations": [
            evaluation_row(judged, run) for judged in [evaluation, *others(run)] if judged is not None
        ],
        "pictures": drawn,
        "left_out": left_out,
        "labels": labels_view(predictions, evaluation, name, samples) if predictions and evaluation else None,
        "difficulty": difficulty_tables(predictions, evaluation),
        "settings": settings_rows(run.recipe),
        "plan": plan_view(run.manifest.get("plan")),
        "rate": rate_view(run.manifest.get("rate")),
        "course": course_rows(run),
        "environment": environment_rows(run.manifest),
        "recipe_text": run.recipe_text,
    }


def pictures(run: RunData, name: str, held_out: HeldOut | None = None) -> tuple[list[Picture], str]:
    """The pictures this run has data for, that of a task last, and why it is missing, if that needs words."""
    evaluation = headline(run)
    drawn: list[Picture | None] = [training_picture(run, name)]
    if evaluation is not None:
        drawn.append(adaptation_picture({run.name: evaluation}, name))
        drawn.append(histogram_picture({run.name: evaluation}, name))
    task, left_out = (None, "") if held_out is None else adapted_picture(run.path, name, held_out)
    return [picture for picture in [*drawn, task] if picture is not None], left_out


def status_view(run: RunData) -> View:
    """How it ended."""
    view = ending_view(run, ENDINGS)
    if run.status == "interrupted" and view["reason"].startswith("interrupted"):
        return {**view, "reason": ""}  # it would say the same again
    if view["reason"] and run.status in REASONED:
        return {**view, "sentence": REASONED[run.status]}
    return view


def headline_view(run: RunData) -> View | None:
    """The leading number with its protocol, or None if the run was not evaluated."""
    evaluation = headline(run)
    if evaluation is None:
        return None
    score = str(evaluation.get("score", "score"))
    value = interval(evaluation["mean"], evaluation.get("ci95"), score)
    main, _, rest = value.partition(" ± ")
    beside = baselines_line(evaluation)
    gains = (_gain(evaluation, score), _skew(evaluation, score), _sentence(beside) if beside else "")
    return {
        "score": SCORES.get(score, score),
        "main": main,
        "half": f"± {rest}" if rest else "",
        "protocol": protocol_words(evaluation, run.seed),
        "by": brief(evaluation),
        "gain": " ".join(text for text in (*_caveats(run, evaluation), *gains) if text),
    }


def _caveats(run: RunData, evaluation: Mapping[str, Any]) -> list[str]:
    """What a reader must know of the leading number."""
    told = [str(note) for note in evaluation.get("notes") or []]
    if not is_own(run.recipe, evaluation):
        told.append("Not by the recipe's own protocol: there is no evaluation by that one.")
    if evaluation.get("not_finite"):
        told.append(f"{number(evaluation['not_finite'])} episodes have no finite score, so there is no mean.")
    return [_sentence(text) for text in told]


def _gain(evaluation: Mapping[str, Any], score: str) -> str:
    """What adaptation brought, if the evaluation looked at step 0 as well."""
    rows = evaluation.get("by_step") or []
    before = next((row for row in rows if row.get("steps") == 0), None)
    if before is None or len(rows) < 2 or not isinstance(before.get("mean"), int | float):
        return ""
    text = f"Before adaptation: {interval(before['mean'], before.get('ci95'), score)}."
    mean = evaluation["mean"]
    if score == "mse" and mean and math.isfinite(mean) and before["mean"] > mean > 0:
        text += f" Adaptation lowers the error {number(before['mean'] / mean, 2)}-fold."
    return text


def _skew(evaluation: Mapping[str, Any], score: str) -> str:
    """A warning where few episodes make the mean: then the interval says little, and the median more."""
    scores = finite_scores(evaluation)
    if score != "mse" or len(scores) < 2 or not math.isfinite(evaluation["mean"]):
        return ""
    middle, mean = statistics.median(scores), statistics.fmean(scores)
    if not mean > SKEWED * middle > 0:
        return ""
    above = sum(value > mean for value in scores)
    return (
        f"Few episodes make this mean: {number(above)} of {number(len(scores))} lie above it, "
        f"and the median is {number(middle, 3)}."
    )


def evaluation_row(evaluation: Mapping[str, Any], run: RunData) -> View:
    """One line of the table of evaluations."""
    score = str(evaluation.get("score", "score"))
    return {
        "file": str(evaluation.get("file", "")),
        "score": score,
        "value": interval(evaluation["mean"], evaluation.get("ci95"), score),
        "by": brief(evaluation),
        "own": "the recipe's own" if is_own(run.recipe, evaluation) else "another",
        "protocol": protocol_words(evaluation, run.seed),
        "time": when(evaluation.get("time")),
    }


def settings_rows(recipe: Mapping[str, Any]) -> list[View]:
    """Settings that differ from the schema's defaults, where there are any, and what they are about."""
    from innerloop.experiment.recipe.schema import Recipe

    defaults = flatten(Recipe.model_validate({}).model_dump())
    about = {
        f"{section}.{key}": inner.description or ""
        for section, field in Recipe.model_fields.items()
        for key, inner in getattr(field.annotation, "model_fields", {}).items()
    }
    return [
        {
            "key": key,
            "value": number(value),
            "default": number(defaults[key]) if key in defaults else "–",
            "about": about.get(key, ""),
            "changed": False,
        }
        for key, value in flatten(recipe).items()
        if key not in ("name", "description", "run.folder")
        and not (key in defaults and defaults[key] == value)
    ]


def plan_view(plan: Any) -> View | None:
    """What ``auto`` chose, why, and what was measured: scalars are rows, nested values tables."""
    if not isinstance(plan, Mapping) or not plan:
        return None
    tables: list[View] = []
    rows: list[tuple[str, str]] = []
    remarks = plan.get("remarks")
    for key, value in plan.items():
        if key in ("reason", "remarks"):
            continue
        if isinstance(value, Mapping):
            cells = [[str(k), number(v)] for k, v in flatten(value).items()]
            head = ["measured", f"{key} per meta-step" if key == "milliseconds" else str(key)]
            if cells:
                tables.append({"title": "", "head": head, "rows": cells})
        elif isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
            head = list(dict.fromkeys(k for row in value for k in row))
            cells = [[number(row.get(k)) if k in row else "–" for k in head] for row in value]
            tables.append({"title": key, "head": [k.replace("_", " ") for k in head], "rows": cells})
        else:
            rows.append((str(key).replace("_", " "), number(value)))
    sentences = [str(plan.get("reason") or ""), *(remarks if isinstance(remarks, list) else [])]
    return {"sentences": [_sentence(s) for s in sentences if s], "rows": rows, "tables": tables}


def _sentence(text: Any) -> str:
    words = str(text)
    first = words.partition(" ")[0]
    modes = ("vmap", "threads", "processes", "loop")  # names and settings keep their case
    plain = first.isalpha() and first not in modes
    return (words[:1].upper() + words[1:] if plain else words) + ("" if words.endswith(".") else ".")


ROWS = (
    ("alpha", "inner rate"),
    ("low", "lower end"),
    ("high", "upper end"),
    ("kind", "what the ends are"),
    ("factor", "stated uncertainty, a factor up and down"),
    ("convention", "convention"),
    ("tasks", "tasks looked at"),
    ("sweep_steps", "steps of the sweep"),
    ("sweep_episodes", "validation tasks of each rate"),
    ("sweep_seconds", "seconds of the sweep"),
    ("sweep_time_share", "the sweep's share of the run's time, as expected"),
)


def rate_view(record: Any) -> View | None:
    """Sentences, rows and the sweep's table; None if the manifest says nothing about a rate."""
    if not isinstance(record, Mapping) or "low" not in record:
        return None
    if record.get("setting") != "auto":
        own, low, high = (number(record.get(key), 3) for key in ("setting", "low", "high"))
        sentence = f"inner.lr={own} was set by hand; the estimated bracket is {low} to {high}."
        warning = str(record.get("warning") or "")
        return {"sentences": [sentence, *([warning] if warning else [])], "rows": [], "tables": []}
    reasons = record.get("reasons")
    sentences = ["inner.lr=auto, estimated before the first step."]
    sentences += [f"{text[:1].upper()}{text[1:]}." for text in (reasons if isinstance(reasons, list) else [])]
    rows = [(name, number(record[key])) for key, name in ROWS if record.get(key) is not None]
    interval = record.get("interval")
    if isinstance(interval, list):
        rows.insert(1, ("sampling error alone, 95 %", " to ".join(number(end, 3) for end in interval)))
    return {"sentences": sentences, "rows": rows, "tables": _sweep(record.get("sweep"))}


def _sweep(sweep: Any) -> list[View]:
    tried = [row for row in sweep or [] if isinstance(row, Mapping)] if isinstance(sweep, list) else []
    if not tried:
        return []
    score = str(tried[0].get("of") or "score")
    begun = any(row.get("before") is not None for row in tried)  # runs of older versions did not look
    cells = [
        [number(row.get("rate")), *(_score(row.get(key)) for key in ("before", "score")[not begun :])]
        for row in tried
    ]
    head = ["rate", *([f"{score} before training"] if begun else []), score]
    return [{"title": "Sweep on validation tasks", "head": head, "rows": cells}]


def _score(value: Any) -> str:
    return "diverged" if value is None else number(value)
