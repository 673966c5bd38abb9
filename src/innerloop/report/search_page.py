"""What the page says about a run of ``search``: who raced, who was chosen, and what the score was worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.formatting import duration
from innerloop.nets.cells.genotype import from_table
from innerloop.report.figures import Picture, drawn_picture
from innerloop.report.plots.cells import cell_picture_data, cell_picture_figure
from innerloop.report.plots.choices import prediction_data, prediction_figure, race_data, race_figure
from innerloop.report.plots.style import figure_to_svg
from innerloop.report.read_run import RunData
from innerloop.report.reproduction_page import RESUMED, cell, protocol_rows, result_view, sentence_view
from innerloop.report.text import View, interval, number


def search_view(run: RunData, name: str) -> View:
    """Everything the template shows of one search, or of one validation of scores."""
    result, asked = run.result, run.manifest.get("asked")
    asked = asked if isinstance(asked, Mapping) else {}
    validate = bool(asked.get("validate"))
    about = (
        "Does a score predict? Random candidates, all trained alike, against every score."
        if validate
        else "The best candidates by a score, and random ones, trained briefly on the same tasks."
    )
    view = result_view(
        run,
        RESUMED,
        kind="search",
        label=f"search {asked.get('source') or ''}{' --validate' if validate else ''}",
        redoes=about,
        verdict=_verdict(result, validate) if result else None,
        pictures=pictures_of(result, name, validate),
        tables=(_validation_tables if validate else _search_tables)(result) if result else [],
        cells=cell_pictures(result, name),
        protocol=protocol_rows(result.get("protocol")),
    )
    return {**view, "course": [*view["course"], *_budget_rows(result)]}


def _budget_rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    budget, over = result.get("budget"), result.get("over_budget")
    if not isinstance(budget, int | float):
        return []
    late = f"{duration(over)} more were taken" if isinstance(over, int | float) and over else "kept"
    return [("budget", f"{duration(budget)} ({late})")]


def _verdict(result: Mapping[str, Any], validate: bool) -> View | None:
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
    return sentence_view(text)


def _validation_tables(result: Mapping[str, Any]) -> list[View]:
    head = ["score", "Spearman ρ", "Kendall τ", "nDCG", "regret, points", "τ between repeats"]
    whole, half = [], []
    for row in result.get("table") or []:
        tau = row.get("tau_between_repeats")
        whole.append([row["score"], *_estimates(row), "–" if tau is None else number(tau, 2)])
        half.append([row["score"], *_estimates(row["better_half"])])
    reliability = result.get("reliability") or {}
    return [
        {"title": "Among all candidates (95 % bootstrap intervals)", "head": head, "rows": whole},
        {"title": "Among the better half of the candidates", "head": head[:-1], "rows": half},
        {"title": "The accuracies themselves", "head": [], "rows": _pairs(reliability)},
    ]


def _estimates(row: Mapping[str, Any]) -> list[str]:
    cells = [_estimate(row[key]) for key in ("spearman", "kendall", "ndcg")]
    return [*cells, _estimate({k: 100 * v for k, v in row["regret"].items()}, 1)]


def _estimate(estimate: Mapping[str, float], digits: int = 2) -> str:
    return f"{estimate['value']:.{digits}f} ({estimate['low']:.{digits}f} to {estimate['high']:.{digits}f})"


MEANINGS = {
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


def _pairs(values: Mapping[str, Any]) -> list[list[str]]:
    flat = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    shown = {key: cell(value) if isinstance(value, bool) else number(value, 3) for key, value in flat.items()}
    return [[MEANINGS.get(key, key.replace("_", " ")), text] for key, text in shown.items()]


def _search_tables(result: Mapping[str, Any]) -> list[View]:
    rows = []
    for entry in result.get("shortlist") or []:
        rungs = entry.get("rungs") or []
        steps = rungs[-1]["steps"] if rungs else None
        scores = ", ".join(f"{key} {number(value, 3)}" for key, value in (entry.get("scores") or {}).items())
        diverged = entry.get("accuracy") is None
        reached = "diverged" if diverged else interval(entry["accuracy"], entry["ci95"], "accuracy")
        name = f"{entry.get('name')} (chosen)" if entry.get("chosen") else entry.get("name")
        rows.append(
            [name, entry.get("from"), scores, number(entry.get("parameters")), number(steps), reached]
        )
    head = ["candidate", "from", "scores", "parameters", "meta-steps", "accuracy, %"]
    tables = [{"title": "Candidates, in the order in which they ended", "head": head, "rows": rows}]
    worth = result.get("worth") or {}
    if worth:
        told = [[worth[key]] for key in ("sentence", "cost") if worth.get(key)]
        tables.append({"title": "What the score was worth", "head": [], "rows": told})
    reliability = result.get("reliability") or {}
    tables.append({"title": "How reliable the shortlist is", "head": [], "rows": _pairs(reliability)})
    if result.get("command"):
        tables.append({"title": "Train it in full", "head": [], "rows": [[str(result["command"])]]})
    return tables


def pictures_of(result: Mapping[str, Any], name: str, validate: bool) -> list[Picture]:
    """The race of a search, or the intervals of a validation."""
    if validate:
        bars = prediction_data(result.get("table") or [])
        if not bars:
            return []
        words = (
            "Spearman's correlation of every score with accuracy, among all candidates and the better half."
        )
        title, named = "How well every score predicts", "Prediction"
        return [drawn_picture(prediction_figure(bars), name, title, [words], named, "prediction")]
    racers = race_data(result.get("shortlist") or [])
    if not racers:
        return []
    words = (
        "Accuracy on the same validation tasks after every rung; lines that end were given up. Bars: 95 % CI."
    )
    return [drawn_picture(race_figure(racers), name, "The race", [words], "Race", "race")]


def cell_pictures(result: Mapping[str, Any], name: str) -> list[Picture]:
    """The cells of the shortlist, the chosen one first; none in spaces without cells."""
    entries = [entry for entry in result.get("shortlist") or [] if isinstance(entry, Mapping)]
    entries.sort(key=lambda entry: not entry.get("chosen"))
    made = [_cell_picture(entry, f"{name}-cell{i}") for i, entry in enumerate(entries)]
    return [picture for picture in made if picture is not None]


def _cell_picture(entry: Mapping[str, Any], name: str) -> Picture | None:
    try:
        genotype = from_table(entry["genotype"])
    except (UserError, KeyError, TypeError):
        return None
    title = f"{entry.get('name')}{', chosen' if entry.get('chosen') else ''}"
    words = str(entry.get("description") or "")
    figure = cell_picture_figure(cell_picture_data(genotype._asdict()))
    return Picture(title, [], figure_to_svg(figure, name, title, words))
