"""What the page says about a run of ``search``: who raced, who was chosen, and what the score was worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop.core.words import duration
from innerloop.report.progress_rows import environment_rows, time_rows
from innerloop.report.read_run import RunData
from innerloop.report.reproduction_page import RESUMED, cell, ending_view, protocol_rows
from innerloop.report.search_figures import cell_pictures, pictures_of
from innerloop.report.views import ResultView, Table, Verdict
from innerloop.report.words import interval, number


def searched_view(run: RunData, name: str) -> ResultView:
    """Everything the template shows of one search, or of one validation of scores."""
    result, asked = run.result, run.manifest.get("asked")
    asked = asked if isinstance(asked, Mapping) else {}
    validate = bool(asked.get("validate"))
    return ResultView(
        kind="search",
        label=f"search {asked.get('source') or ''}{' --validate' if validate else ''}",
        id=run.path.absolute().name,
        redoes="Does a score predict? Random candidates, all trained alike, against every score."
        if validate
        else "The best candidates by a score, and random ones, trained briefly on the same tasks.",
        status=ending_view(run, RESUMED),
        problems=run.problems,
        verdict=_verdict(result, validate) if result else None,
        tables=(_validation_tables if validate else _search_tables)(result) if result else [],
        pictures=pictures_of(result, name, validate),
        cells=cell_pictures(result, name),
        protocol=protocol_rows(result.get("protocol")),
        course=[*time_rows(run.manifest, result.get("seconds")), *_budget_rows(result)],
        environment=environment_rows({**run.manifest, "recipe_sha256": None}),
    )


def _budget_rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    budget, over = result.get("budget"), result.get("over_budget")
    if not isinstance(budget, int | float):
        return []
    late = f"{duration(over)} more were taken" if isinstance(over, int | float) and over else "kept"
    return [("budget", f"{duration(budget)} ({late})")]


def _verdict(result: Mapping[str, Any], validate: bool) -> Verdict | None:
    """A sentence; counts of statements are for reproductions."""
    text = str(result.get("sentence") or "")
    table = result.get("table")
    if validate and isinstance(table, list) and table:
        first = table[0]
        agreement = first["spearman"]
        text = (
            f"{first['score']} orders candidates best: ρ = {agreement['value']:.2f} (95 % interval "
            f"{agreement['low']:.2f} to {agreement['high']:.2f}), and "
            f"{first['better_half']['spearman']['value']:.2f} among the better half."
        )
    return Verdict(text, "good") if text else None


def _validation_tables(result: Mapping[str, Any]) -> list[Table]:
    head = ["score", "Spearman ρ", "Kendall τ", "nDCG", "regret, points", "τ between repeats"]
    whole, half = [], []
    for row in result.get("table") or []:
        tau = row.get("tau_between_repeats")
        whole.append([row["score"], *_estimates(row), "–" if tau is None else number(tau, 2)])
        half.append([row["score"], *_estimates(row["better_half"])])
    told = result.get("reliability") or {}
    return [
        Table("Among all candidates (95 % bootstrap intervals)", head, whole),
        Table("Among the better half of the candidates", head[:-1], half),
        Table("The accuracies themselves", [], _pairs(told)),
    ]


def _estimates(row: Mapping[str, Any]) -> list[str]:
    cells = [_estimate(row[key]) for key in ("spearman", "kendall", "ndcg")]
    return [*cells, _estimate({k: 100 * v for k, v in row["regret"].items()}, 1)]


def _estimate(estimate: Mapping[str, float], digits: int = 2) -> str:
    return f"{estimate['value']:.{digits}f} ({estimate['low']:.{digits}f} to {estimate['high']:.{digits}f})"


_WORDS = {
    "accuracy": "how far their order is repeated on other tasks (Spearman, by halves)",
    "diverged": "candidates whose training diverged",
    "spread": "from the worst to the best, as a share",
    "best": "the best",
    "tau": "Kendall's τ of the ranking between repeats of the score",
    "top_again": "share of the shortlist that another run would name again",
    "top_chance": "the same by chance",
    "candidates": "candidates that were scored",
    "repeats": "repeats of each score",
    "top": "candidates on the shortlist",
    "decided": "whether the last two differ by more than chance on fresh tasks",
}


def _pairs(told: Mapping[str, Any]) -> list[list[str]]:
    flat = {key: value for key, value in told.items() if not isinstance(value, Mapping)}
    shown = {key: cell(value) if isinstance(value, bool) else number(value, 3) for key, value in flat.items()}
    return [[_WORDS.get(key, key.replace("_", " ")), text] for key, text in shown.items()]


def _search_tables(result: Mapping[str, Any]) -> list[Table]:
    rows = []
    for entry in result.get("shortlist") or []:
        rungs = entry.get("rungs") or []
        steps = rungs[-1]["steps"] if rungs else None
        scores = ", ".join(f"{key} {number(value, 3)}" for key, value in (entry.get("scores") or {}).items())
        reached = (
            "diverged"
            if entry.get("accuracy") is None
            else interval(entry["accuracy"], entry["ci95"], "accuracy")
        )
        name = f"{entry.get('name')} (chosen)" if entry.get("chosen") else entry.get("name")
        rows.append(
            [name, entry.get("from"), scores, number(entry.get("parameters")), number(steps), reached]
        )
    head = ["candidate", "from", "scores", "parameters", "meta-steps", "accuracy, %"]
    tables = [Table("Candidates, in the order in which they ended", head, rows)]
    worth = result.get("worth") or {}
    if worth:
        kept = {key: worth[key] for key in ("sentence", "cost") if worth.get(key)}
        tables.append(Table("What the score was worth", [], [[text] for text in kept.values()]))
    told = result.get("reliability") or {}
    tables.append(Table("How reliable the shortlist is", [], _pairs(told)))
    if result.get("command"):
        tables.append(Table("Train it in full", [], [[str(result["command"])]]))
    return tables
