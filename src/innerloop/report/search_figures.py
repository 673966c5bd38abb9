"""The pictures of a search's page: races, predictions, and the cells themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop.core.errors import UserError
from innerloop.nets.cells.genotype import from_table
from innerloop.report.figures import Picture
from innerloop.report.plots.cells import cell_picture_data, cell_picture_figure
from innerloop.report.plots.search import prediction_data, prediction_figure, race_data, race_figure
from innerloop.report.plots.svg import figure_to_svg


def pictures_of(result: Mapping[str, Any], name: str, validate: bool) -> list[Picture]:
    """The race of a search, or the intervals of a validation."""
    if validate:
        bars = prediction_data(result.get("table") or [])
        if not bars:
            return []
        words = (
            "Spearman's correlation of every score with accuracy, among all candidates and the better half."
        )
        svg = figure_to_svg(prediction_figure(bars), f"{name}-prediction", "Prediction", words)
        return [Picture("How well every score predicts", [words], svg)]
    racers = race_data(result.get("shortlist") or [])
    if not racers:
        return []
    words = (
        "Accuracy on the same validation tasks after every rung; lines that end were given up. Bars: 95 % CI."
    )
    svg = figure_to_svg(race_figure(racers), f"{name}-race", "Race", words)
    return [Picture("The race", [words], svg)]


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
