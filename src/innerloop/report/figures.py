"""The pictures of a page, with a caption and words for those who cannot see them."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from innerloop.core.errors import UserError
from innerloop.report.plots.curves import (
    SinusoidPicture,
    adaptation_curve_data,
    adaptation_curve_figure,
    sinusoid_figure,
    training_curve_data,
    training_curve_figure,
)
from innerloop.report.plots.scores import (
    calibration_data,
    calibration_figure,
    score_histogram_data,
    score_histogram_figure,
)
from innerloop.report.plots.style import INK, figure_to_svg
from innerloop.report.read_run import RunData, flatten, inside
from innerloop.report.text import interval, level_text, number, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGE = 1_500_000  # bytes of an SVG from which on the PNG beside it is the better picture for a page
PNG = b"\x89PNG\r\n\x1a\n"  # how every PNG starts
_KINDS = {PNG: "png", b"\xff\xd8\xff": "jpeg"}
WIDE = 400.0  # points of a drawing's width from which on its words are too small on a phone


class Picture(NamedTuple):
    """A figure of the page: drawn here as SVG, or a file of a run as an image, in which nothing runs."""

    title: str
    lines: list[str]
    svg: str = ""
    address: str = ""

    @property
    def wide(self) -> bool:
        """Whether its words would be too small on a phone, where it then keeps its size and can be moved."""
        box = re.search(r'viewBox="\S+ \S+ ([\d.]+) ', self.svg.partition(">")[0])
        return not self.svg or (box is not None and float(box[1]) > WIDE)


def drawn_picture(
    figure: Figure, name: str, title: str, lines: list[str], named: str = "", kind: str = ""
) -> Picture:
    """A figure of ours; ``kind`` and ``named`` are its id and its name where these are not the title."""
    words, kind = " ".join(lines), kind or title.lower()
    return Picture(title, lines, figure_to_svg(figure, f"{name}-{kind}", named or title, words))


def saved_pictures(run: RunData) -> tuple[list[Picture], list[str]]:
    """The figures in a run's directory, in its order, and sentences on those that cannot be shown."""
    pictures, problems = [], []
    named = run.result.get("figures")
    stems = [Path(str(file)).stem for file in named] if isinstance(named, list) else []
    for stem in dict.fromkeys(stems or sorted(file.stem for file in run.path.glob("*.svg"))):
        picture = _saved_picture(stem, run.path / f"{stem}.svg", run.path / f"{stem}.png")
        if picture is not None:
            pictures.append(picture)
        else:
            problems.append(f"the figure {stem} is missing, or is not a picture.")
    return pictures, problems


def _saved_picture(stem: str, vector: Path, pixels: Path) -> Picture | None:
    """The SVG; the PNG if it is missing, too large or not one."""
    if vector.is_file() and not (vector.stat().st_size > LARGE and pixels.is_file()):
        content = vector.read_bytes()
        if _is_svg(content):
            head = content[content.find(b"<svg") :].partition(b">")[0].decode("utf-8", "replace")
            inked = content.replace(b"currentColor", INK.encode())  # an image takes no colour from the page
            return Picture(stem, [], head, data_address("svg+xml", inked))
    # not any file that a link in the run's directory leads to
    if pixels.is_file() and (content := pixels.read_bytes()).startswith(PNG):
        return Picture(stem, [], "", data_address("png", content))
    return None


def _is_svg(content: bytes) -> bool:
    try:
        return ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
    except (ElementTree.ParseError, ValueError):
        return False


def data_address(kind: str, content: bytes) -> str:
    """A picture as an address that holds it."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def training_picture(run: RunData, name: str) -> Picture | None:
    """Meta-loss and validation over the run, if it wrote any."""
    flat = flatten(run.recipe)
    loss = str(flat.get("outer.loss") or flat.get("inner.loss") or "")
    data = training_curve_data(run.metrics, loss)
    if not data["loss"] and not data["validation"]:
        return None
    words = []
    if data["loss"]:
        first, last = data["loss"][0], (data["trend"] or data["loss"])[-1]
        words.append(
            f"Meta-loss from {number(first, 3)} at step {number(data['steps'][0])} "
            f"to {number(last, 3)} at step {number(data['steps'][-1])}."
        )
    if data["validation"]:
        unit = "" if data["score"] in ("", "accuracy") else f" {data['score']}"
        last_check = interval(data["validation"][-1], data["ci95"][-1], data["score"])
        words.append(f"Last validation: {last_check}{unit}.")
    if data["trend"]:
        words.append("Faint: every logged loss; strong: running median.")
    figure, text = training_curve_figure(data), " ".join(words)
    return drawn_picture(figure, name, "Training", [text], "Training curve")


def adaptation_picture(evaluations: Mapping[str, Mapping[str, Any]], name: str) -> Picture | None:
    """Score against inner steps, one line per run."""
    usable = {label: {**e, "by_step": _usable_rows(e)} for label, e in evaluations.items()}
    data = adaptation_curve_data({label: e for label, e in usable.items() if len(e["by_step"]) > 1})
    if not data["runs"]:
        return None
    words = []
    for run in data["runs"]:
        before, after = run["mean"][0], run["mean"][-1]
        who = f"{run['name']}: " if len(evaluations) > 1 else ""  # others may have no inner steps
        shown = [level_text(value, data["score"]) for value in (before, after)]
        words.append(f"{who}{shown[0]} at {run['steps'][0]} inner steps, {shown[1]} at {run['steps'][-1]}.")
    return drawn_picture(adaptation_curve_figure(data), name, "Adaptation", words, "Adaptation curve")


def histogram_picture(evaluations: Mapping[str, Mapping[str, Any]], name: str) -> Picture | None:
    """How scores spread over episodes."""
    scores = {
        label: [float(v) if v is not None else math.nan for v in evaluation.get("scores") or []]
        for label, evaluation in evaluations.items()
    }
    scores = {label: values for label, values in scores.items() if len(values) > 1}
    if not scores:
        return None
    score = str(next(iter(evaluations.values())).get("score", "score"))
    data = score_histogram_data(scores, score)
    words = []
    for run in data["runs"]:
        who = f"{run['name']}: " if len(data["runs"]) > 1 else ""
        lost = f"; {run['not_finite']} not finite" if run["not_finite"] else ""
        words.append(
            f"{who}median {level_text(run['median'], score)}, mean {level_text(run['mean'], score)}{lost}."
        )
    return drawn_picture(score_histogram_figure(data), name, "Episodes", words, "Scores of the episodes")


def _usable_rows(evaluation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Rows of ``by_step`` with a finite mean: a learner may diverge after some steps, and has none there."""
    rows = evaluation.get("by_step")
    return [
        row
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, Mapping) and isinstance(row.get("steps"), int)
        if isinstance(row.get("mean"), int | float) and math.isfinite(row["mean"])
    ]


HeldOut = Callable[[Path], SinusoidPicture | None]
"""Rebuilds the first test task of a run; None unless it maps one number to one. The room above has it."""


def adapted_picture(run: Path, name: str, held_out: HeldOut) -> tuple[Picture | None, str]:
    """The first test episode, not chosen, before and after adaptation; or none, and perhaps why."""
    # a page is made of foreign runs as well, so nothing is imported that their recipes name
    from innerloop.experiment.recipe.library import ChangedRecipeError
    from innerloop.experiment.recipe.trust import UntrustedCodeError
    from innerloop.runs.checkpoints import DamagedCheckpointError

    left_out = "The picture of a held-out task is left out:"
    try:
        data = held_out(run)
    except UntrustedCodeError as error:
        return None, f"{left_out} drawing it would import code that the recipe names, {error.named}."
    except (ChangedRecipeError, DamagedCheckpointError) as error:
        return None, f"{left_out} {inside(str(error), run)}"
    except UserError:  # no checkpoint yet, or data that is not here: the page says the rest
        return None, ""
    if data is None:
        return None, ""
    if not all(map(math.isfinite, [*data["before"], *data["after"]])):
        return None, f"{left_out} its predictions are not finite."
    errors = [
        sum((a - b) ** 2 for a, b in zip(data["truth"], predicted, strict=True)) / len(data["truth"])
        for predicted in (data["before"], data["after"])
    ]
    plural = "" if data["steps"] == 1 else "s"
    words = (
        f"Test episode 0, not chosen: mean squared error {number(errors[0], 3)} before and "
        f"{number(errors[1], 3)} after {data['steps']} inner step{plural} on {len(data['x_support'])} points."
    )
    return drawn_picture(sinusoid_figure(data), name, "A held-out task", [words], kind="adapted"), ""


def calibration_picture(probability: Sequence[float], right: Sequence[bool], name: str) -> Picture:
    """How often labels were right against how probable they were called."""
    data = calibration_data(probability, right)
    called, true = (sum(values) / len(right) for values in (probability, right))
    gap = called - true
    verdict = (
        "about as sure as it is right" if abs(gap) < 0.02 else "too sure" if gap > 0 else "not sure enough"
    )
    words = [
        f"Labels are called {percent(called)} probable on average, and {percent(true)} are right: "
        f"on the whole it is {verdict}.",
        f"Expected calibration error {number(100 * data['error'], 2)} points "
        f"({len(data['counts'])} bins of equal width).",
    ]
    return drawn_picture(calibration_figure(data), name, "Calibration", words)


def address(text: Any) -> str:
    """A picture in base64 as a ``data:`` address; empty for anything that is neither a PNG nor a JPEG."""
    try:
        content = base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        return ""
    kind = next((name for start, name in _KINDS.items() if content.startswith(start)), "")
    return data_address(kind, content) if kind else ""
